//! What objects expose, however many and heavy they are.

use std::collections::BTreeMap;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;

use super::{key, of};
use crate::templates::exposed::{Unexposed, exposed};
use crate::templates::kinds::Kinds;
use crate::templates::names::OWNER;
use crate::templates::objects::object_now;
use crate::templates::ours::Ours;
use crate::templates::status::{Made, State};

const EXPOSES: &str = "template.openshift.io/expose-";

/// An API server whose ConfigMaps have so many small members: those named `public-…` expose what they are called, and the
/// others nothing.
fn server(members: usize) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| async move {
        let path = request.uri().path();
        let text = match path.rsplit_once("/configmaps/") {
            Some((_, name)) => {
                let mut metadata = json!({
                    "name": name, "uid": format!("u-{name}"), "labels": {OWNER: "u-1"},
                });
                if name.starts_with("public") {
                    metadata["annotations"] =
                        json!({format!("{EXPOSES}{name}"): "{.metadata.name}"});
                }
                let data: Vec<String> =
                    (0..members).map(|member| format!(r#""{member}":"""#)).collect();
                let data = data.join(",");
                format!(r#"{{"kind":"ConfigMap","metadata":{metadata},"data":{{{data}}}}}"#)
            }
            None => {
                let maps = json!({
                    "name": "configmaps", "singularName": "", "namespaced": true,
                    "kind": "ConfigMap", "verbs": ["create", "get", "delete"],
                });
                json!({"groupVersion": "v1", "resources": [maps]}).to_string()
            }
        };
        Ok::<_, tower::BoxError>(Response::new(Body::from(text.into_bytes())))
    });
    Client::new(service, "shop")
}

async fn exposed_by(members: usize, names: &[&str]) -> Result<BTreeMap<String, String>, Unexposed> {
    let (client, of, key) = (server(members), of(), key());
    let made = names.iter().map(|name| Made {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: "shop".to_owned(),
        name: (*name).to_owned(),
        uid: format!("u-{name}"),
        state: State::Created,
        message: String::new(),
    });
    exposed(&client, &Kinds::of(client.clone()), Ours::to_read(&of, &key), made).await
}

/// Each takes nine tenths of what is read at once, so that two would wait for each other if one were kept.
#[tokio::test]
async fn what_is_exposed_is_read_one_by_one_and_dropped() {
    let names: Vec<String> = (0..10).map(|number| format!("public-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let all = exposed_by(80_000, &names).await.unwrap();
    assert!(all.keys().chain(all.values()).all(|it| names.contains(&it.as_str())), "{all:?}");
    assert_eq!(all.len(), names.len());
}

#[tokio::test]
async fn what_is_too_heavy_is_refused_by_its_name_and_left_unread_where_it_exposes_nothing() {
    let refused = exposed_by(110_000, &["private", "public"]).await.unwrap_err();
    let expected = "ConfigMap public: it would take more than 16 MiB of memory: let it have fewer maps and lists";
    assert!(matches!(&refused, Unexposed::Wrong(why) if why == expected), "{refused:?}");
    // Somebody else has all the room.
    let held = object_now(&format!(r#"{{"a":[{}0]}}"#, r#"{"":0},"#.repeat(200_000)));
    assert!(held.is_some());
    assert_eq!(exposed_by(110_000, &["private"]).await.unwrap(), BTreeMap::new());
    drop(held);
}
