//! Templates of several namespaces, and instances whose namespace goes.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use kubernetes::templates::names::Kind;
use serde_json::{Value, json};

use super::counter::{Counter, id, put};
use super::harness::{Town, template};
use super::rights::rule;
use super::support::wait;
use super::withstands::Wide;

const PATIENCE: Duration = Duration::from_secs(180);

/// Makes a ConfigMap of this name.
fn sample(name: &str) -> Value {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    template(json!([map]), json!([]))
}

#[tokio::test(flavor = "multi_thread")]
async fn two_templates_of_one_name_are_both_ordered() {
    let town = Town::new("order-names").await;
    let client = town.cluster.client.clone();
    let first = town.cluster.namespace.clone();
    let second = format!("{first}-second");
    let _wide = Wide::of(&[&["namespace", &second, "--wait=false"]]);
    let namespace: Namespace =
        serde_json::from_value(json!({"metadata": {"name": second}})).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    for (namespace, made) in [(&first, "of-first"), (&second, "of-second")] {
        let templates: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), namespace, &Kind::Template.resource());
        let template = serde_json::from_value(sample(made)).unwrap();
        templates.create(&PostParams::default(), &template).await.unwrap();
    }
    let get = vec![rule("template.openshift.io", &["templates"], &["get"])];
    town.grant_in(&second, "editor", get).await;
    let counter = Counter::with(town, &client, vec![first.clone(), second.clone()], 2).await;
    let services = counter.services().await;
    let mut names: Vec<&str> = services.iter().flat_map(|it| it["name"].as_str()).collect();
    names.sort_unstable();
    let beside = format!("sample.{second}");
    assert_eq!(names, ["sample", &*beside], "the namespace that is named first bears the name");
    for (service, made, other) in
        [("sample", "of-first", "of-second"), (&*beside, "of-second", "of-first")]
    {
        let (id, order) = (id(), counter.order(&counter.service(service).await, json!({})));
        let answer = counter.send("editor", "PUT", &put(&id), Some(&order)).await;
        assert_eq!(answer.status, 202, "{service}: {answer:?}");
        let settled = counter.settled(&id).await;
        assert_eq!(settled.body["state"], "succeeded", "{service}: {settled:?}");
        assert!(counter.town.object("v1", "ConfigMap", made).await.is_some(), "{service}");
        assert_eq!(counter.town.object("v1", "ConfigMap", other).await, None, "{service}");
        let path = format!(
            "{}&service_id={}&plan_id={}",
            put(&id),
            order["service_id"].as_str().unwrap(),
            order["plan_id"].as_str().unwrap()
        );
        assert_eq!(counter.send("editor", "DELETE", &path, None).await.status, 202, "{service}");
        assert_eq!(counter.settled(&id).await.body["state"], "succeeded", "{service}");
        assert_eq!(counter.town.object("v1", "ConfigMap", made).await, None, "{service}");
    }
    counter.remove().await;
}

/// Nobody has a right in a namespace that is gone, so nobody needs one.
#[tokio::test(flavor = "multi_thread")]
async fn the_claims_of_a_namespace_that_goes_go_and_anybody_deprovisions_them() {
    let home = Town::still("order-home").await;
    let mut town = Town::beside("order-going", &home).await;
    town.start().await;
    home.make(sample("made")).await;
    let client = town.cluster.client.clone();
    let offered = home.cluster.namespace.clone();
    let get = vec![rule("template.openshift.io", &["templates"], &["get"])];
    home.grant("editor", get).await;
    let counter = Counter::with(town, &client, vec![offered], 1).await;
    let id = id();
    counter.made(&id).await;
    assert!(counter.claim(&id).await.is_some());
    assert_eq!(counter.removed("stranger", &id).await.status, 403, "while it is there");
    let namespaces: Api<Namespace> = Api::all(client);
    let name = counter.town.cluster.namespace.clone();
    namespaces.delete(&name, &DeleteParams::default()).await.unwrap();
    wait::until("its claim stays", PATIENCE, async || counter.claim(&id).await.map_or(Ok(()), Err))
        .await;
    assert!(namespaces.get_opt(&name).await.unwrap().is_none(), "not while it is there");
    assert_eq!(counter.removed("stranger", &id).await.status, 202);
    assert_eq!(counter.settled(&id).await.body["state"], "succeeded");
    assert_eq!(counter.removed("stranger", &id).await.status, 410);
    home.remove().await;
}
