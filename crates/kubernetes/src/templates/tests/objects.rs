//! What is read of objects, and what becomes of those that nobody can read.

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::{key, of, served};
use crate::calls::CallError;
use crate::templates::kinds::Kinds;
use crate::templates::make::{get, get_whole, made};
use crate::templates::ours::Ours;
use crate::templates::plan::{Planned, plan};
use crate::templates::remove::{Left, remove_from};

fn planned() -> Planned {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    plan(&of(), 0, object, served("", "ConfigMap", true), &key()).unwrap()
}

/// An API server whose only object is nested deeper than anybody reads; one that is deleted is marked.
fn deep() -> Client {
    let service = tower::service_fn(async |request: Request<Body>| {
        let metadata = json!({
            "name": "a", "uid": "u-2", "resourceVersion": "7", "labels": planned().object["metadata"]["labels"],
            "ownerReferences": planned().object["metadata"]["ownerReferences"],
        });
        let metadata = metadata.to_string();
        let levels = format!("{}1{}", r#"{"f:a":"#.repeat(300), "}".repeat(300));
        let fields = format!(r#"[{{"manager":"somebody","fieldsV1":{levels}}}]"#);
        let metadata = metadata.replacen('{', &format!(r#"{{"managedFields":{fields},"#), 1);
        let kind = match request.headers().contains_key("accept") {
            true => "PartialObjectMetadata",
            false => "ConfigMap",
        };
        assert!([Method::GET, Method::DELETE].contains(request.method()));
        let text = format!(r#"{{"kind":"{kind}","metadata":{metadata},"spec":{levels}}}"#);
        Ok::<_, tower::BoxError>(Response::new(Body::from(text.into_bytes())))
    });
    Client::new(service, "shop")
}

#[tokio::test]
async fn what_is_nested_too_deep_is_found_and_removed() {
    let client = deep();
    let planned = planned();
    let found = get(&client, &Kinds::of(client.clone()), &planned).await.unwrap().unwrap();
    assert!(planned.is(&of(), &found, &key()), "{found}");
    assert_eq!((found.get("spec"), &found["metadata"]["managedFields"]), (None, &Value::Null));
    let made = made(&planned, &found);
    assert_eq!(made.uid, "u-2");
    let (of, key) = (of(), key());
    let left =
        remove_from(Ours::of(&of, &key), &client, &planned.served, &made, jiff::Timestamp::now())
            .await
            .unwrap();
    assert_eq!(left, Left::Going);
}

#[tokio::test]
async fn what_is_nested_too_deep_is_compared_with_nothing() {
    let client = deep();
    let found = get_whole(&client, &Kinds::of(client.clone()), &planned()).await;
    assert!(
        matches!(&found, Err(CallError::Hindered(said)) if said.contains("127 levels")),
        "{found:?}"
    );
}
