//! What is read of objects, and what becomes of those that nobody can read.

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use template::ready::Readiness;

use super::{key, of, served};
use crate::calls::CallError;
use crate::deep::{self, Unread};
use crate::templates::await_ready::readiness_of;
use crate::templates::kinds::Kinds;
use crate::templates::make::{get, get_whole, made};
use crate::templates::objects::object_now;
use crate::templates::ours::Ours;
use crate::templates::plan::{Planned, plan};
use crate::templates::remove::{Left, remove_from};

fn planned() -> Planned {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    plan(&of(), 0, object, served("", "ConfigMap", true), &key()).unwrap()
}

/// An API server whose only object is nested deeper than anybody reads.
fn deep() -> Client {
    let levels = format!("{}1{}", r#"{"f:a":"#.repeat(300), "}".repeat(300));
    serves(&format!(r#"[{{"manager":"somebody","fieldsV1":{levels}}}]"#), &levels)
}

/// One whose only object takes a hundred times its length once it is read.
fn heavy() -> Client {
    serves("[]", &format!("[{}{{}}]", r#"{"":0},"#.repeat(200_000)))
}

/// One that has an object with these `managedFields`, and this spec; one that is deleted is marked.
fn serves(fields: &str, spec: &str) -> Client {
    let parts = (fields.to_owned(), spec.to_owned());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (fields, spec) = parts.clone();
        async move {
            let mut metadata = planned().object["metadata"].clone();
            (metadata["uid"], metadata["resourceVersion"]) = (json!("u-2"), json!("7"));
            let metadata = metadata.to_string();
            let metadata = metadata.replacen('{', &format!(r#"{{"managedFields":{fields},"#), 1);
            let kind = match request.headers().contains_key("accept") {
                true => "PartialObjectMetadata",
                false => "ConfigMap",
            };
            assert!([Method::GET, Method::DELETE].contains(request.method()));
            let text = format!(r#"{{"kind":"{kind}","metadata":{metadata},"spec":{spec}}}"#);
            Ok::<_, tower::BoxError>(Response::new(Body::from(text.into_bytes())))
        }
    });
    Client::new(service, "shop")
}

#[tokio::test]
async fn what_is_nested_too_deep_or_too_heavy_is_found_and_removed() {
    for (name, client) in [("deep", deep()), ("heavy", heavy())] {
        let planned = planned();
        let found = get(&client, &Kinds::of(client.clone()), &planned).await.unwrap().unwrap();
        assert!(planned.is(&of(), &found, &key()), "{name}");
        let parts = (found.get("spec"), &found["metadata"]["managedFields"]);
        assert_eq!(parts, (None, &Value::Null), "{name}");
        let made = made(&planned, &found);
        assert_eq!(made.uid, "u-2", "{name}");
        let (of, key) = (of(), key());
        let (ours, now) = (Ours::of(&of, &key), jiff::Timestamp::now());
        let left = remove_from(ours, &client, &planned.served, &made, now).await.unwrap();
        assert_eq!(left, Left::Going, "{name}");
    }
}

#[tokio::test]
async fn what_is_nested_too_deep_or_too_heavy_is_compared_with_nothing() {
    for (client, expected) in [(deep(), "127 levels"), (heavy(), "16 MiB")] {
        let found = get_whole(&client, &Kinds::of(client.clone()), &planned()).await.map(drop);
        assert!(
            matches!(&found, Err(CallError::Hindered(said)) if said.contains(expected)),
            "{expected}: {found:?}"
        );
    }
}

#[test]
fn what_is_too_heavy_is_waited_for_and_what_is_nested_too_deep_decides_nothing() {
    let of = |spec: &str| {
        let metadata =
            r#"{"name":"a","annotations":{"template.alpha.openshift.io/wait-for-ready":"true"}}"#;
        let text = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{metadata},"spec":{spec}}}"#
        );
        readiness_of(&deep::object(&text).unwrap())
    };
    let too_heavy =
        "it would take more than 16 MiB of memory: let it have fewer maps and lists".to_owned();
    for (name, spec, expected) in [
        ("light", "1".to_owned(), Readiness::Ready),
        ("deep", format!("{}1{}", "[".repeat(300), "]".repeat(300)), Readiness::Ready),
        ("heavy", format!("[{}0]", r#"{"":0},"#.repeat(200_000)), Readiness::Waiting(too_heavy)),
    ] {
        assert_eq!(of(&spec), expected, "{name}");
    }
}

/// However many are read at once.
#[test]
fn what_is_read_at_once_is_bounded_and_what_is_small_is_not_counted() {
    let of = |maps: usize| format!(r#"{{"spec":[{}0]}}"#, r#"{"":0},"#.repeat(maps));
    let (heavy, small) = (of(200_000), of(10));
    let first = object_now(&heavy);
    assert!(first.is_some_and(|(object, room)| {
        let others = [object_now(&heavy).is_some(), object_now(&small).is_some()];
        object.unread == Some(Unread::TooHeavy) && room.is_some() && others == [false, true]
    }));
}
