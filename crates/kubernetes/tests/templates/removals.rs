//! How instances and bindings that were ordered go.

use kube::api::{Patch, PatchParams};
use kubernetes::templates::names::FINALIZER;
use serde_json::{Value, json};

use super::counter::{Counter, bound, id, put};
use super::harness::template;
use super::rights::rule;

/// Somebody else who holds what is to go.
const OTHERS: &str = "example.org/held";

fn sample() -> Value {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}});
    template(json!([map]), json!([]))
}

/// Has the instance held by these.
async fn hold(counter: &Counter, id: &str, finalizers: &[&str]) {
    counter.town.patch(id, "", json!({"metadata": {"finalizers": finalizers}})).await;
}

/// Whether nobody of ours holds it any more.
fn is_held_by_others(instance: &Value) -> bool {
    instance["metadata"]["finalizers"] == json!([OTHERS])
}

#[tokio::test(flavor = "multi_thread")]
async fn deprovision_succeeds_when_the_claim_is_gone_and_is_410_then() {
    let (counter, id) = (Counter::new("remove-again", &[sample()]).await, id());
    counter.made(&id).await;
    let removed = counter.removed("editor", &id).await;
    assert_eq!(removed.status, 202, "{removed:?}");
    assert_eq!(counter.settled(&id).await.body["state"], "succeeded");
    assert_eq!(counter.claim(&id).await, None);
    assert_eq!(counter.town.object("v1", "ConfigMap", "made").await, None);
    assert_eq!(counter.town.object("v1", "Secret", &id).await, None);
    assert_eq!(counter.removed("editor", &id).await.status, 410);
    counter.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deprovision_of_what_is_not_there_is_410() {
    let counter = Counter::new("remove-nothing", &[sample()]).await;
    let removed = counter.removed("editor", &id()).await;
    assert_eq!((removed.status, &removed.body["error"]), (410, &json!("Gone")), "{removed:?}");
    counter.remove().await;
}

/// Somebody else holds the instance: what says that it was ordered stays as long.
#[tokio::test(flavor = "multi_thread")]
async fn the_claim_goes_last() {
    let (counter, id) = (Counter::new("remove-last", &[sample()]).await, id());
    counter.made(&id).await;
    hold(&counter, &id, &[FINALIZER, OTHERS]).await;
    assert_eq!(counter.removed("editor", &id).await.status, 202);
    counter.town.until(&id, "held by somebody else alone", is_held_by_others).await;
    assert!(counter.claim(&id).await.is_some(), "it is there as long as its instance");
    let path = format!("/service_instances/{id}/last_operation");
    let last = counter.send("editor", "GET", &path, None).await;
    assert_eq!(last.body["state"], "in progress", "{last:?}");
    hold(&counter, &id, &[]).await;
    assert_eq!(counter.settled(&id).await.body["state"], "succeeded");
    assert_eq!(counter.claim(&id).await, None);
    counter.remove().await;
}

/// While somebody else holds the instance, nobody is bound to it any more.
#[tokio::test(flavor = "multi_thread")]
async fn bindings_are_in_nobodys_way_and_go_first() {
    let (counter, id, binding) = (Counter::new("remove-bound", &[sample()]).await, id(), id());
    counter.made(&id).await;
    hold(&counter, &id, &[FINALIZER, OTHERS]).await;
    assert_eq!(counter.bind("editor", &id, &binding).await.status, 201);
    let bound_to = async || counter.claim(&id).await.unwrap()["spec"]["bindingIDs"].clone();
    assert_eq!(bound_to().await, json!([binding]));
    assert_eq!(counter.removed("editor", &id).await.status, 202);
    let is_going = |it: &Value| it["metadata"]["deletionTimestamp"].is_string();
    counter.town.until(&id, "being removed", is_going).await;
    assert_eq!(bound_to().await, json!([]), "the instance is still there");
    counter.town.until(&id, "held by somebody else alone", is_held_by_others).await;
    hold(&counter, &id, &[]).await;
    assert_eq!(counter.settled(&id).await.body["state"], "succeeded");
    let read = counter.send("editor", "GET", &bound(&id, &binding), None).await;
    assert_eq!(read.status, 404, "{read:?}");
    counter.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unbind_is_200_and_410_when_it_is_gone() {
    let (counter, id, binding) = (Counter::new("unbind-again", &[sample()]).await, id(), id());
    counter.made(&id).await;
    assert_eq!(counter.bind("editor", &id, &binding).await.status, 201);
    let unbound = counter.unbind(&id, &binding).await;
    assert_eq!((unbound.status, &unbound.body), (200, &json!({})), "{unbound:?}");
    assert_eq!(counter.unbind(&id, &binding).await.status, 410);
    assert_eq!(counter.unbind(&super::counter::id(), &binding).await.status, 410, "of no instance");
    counter.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_delete_the_instance_unbinds_and_removes_nothing() {
    let (counter, id, binding) = (Counter::new("remove-rights", &[sample()]).await, id(), id());
    counter.made(&id).await;
    assert_eq!(counter.bind("editor", &id, &binding).await.status, 201);
    let rights = vec![
        rule("template.openshift.io", &["templates"], &["get"]),
        rule("template.openshift.io", &["templateinstances"], &["get", "create", "update"]),
        rule("", &["secrets"], &["get", "create"]),
    ];
    counter.town.grant("lacking", rights).await;
    let service = counter.service("sample").await;
    let of = format!("service_id={service}&plan_id={service}");
    for path in [format!("{}?{of}", bound(&id, &binding)), format!("{}&{of}", put(&id))] {
        let answer = counter.send("lacking", "DELETE", &path, None).await;
        assert_eq!(answer.status, 403, "{path}: {answer:?}");
        let words = "\"lacking\" may not delete templateinstances.template.openshift.io";
        assert!(answer.words().starts_with(words), "{path}: {answer:?}");
    }
    assert_eq!(counter.claim(&id).await.unwrap()["spec"]["bindingIDs"], json!([binding]));
    let instance = counter.town.get(&id).await;
    assert!(instance["metadata"]["deletionTimestamp"].is_null(), "nothing is begun");
    counter.remove().await;
}

/// A removal is the requester's: what holds the Secret of its parameters up is no reason to keep the instance.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_goes_though_its_secret_is_held() {
    let (counter, id) = (Counter::new("remove-held", &[sample()]).await, id());
    counter.made(&id).await;
    let secrets = counter.town.objects("v1", "Secret");
    let held = Patch::Merge(json!({"metadata": {"finalizers": [OTHERS]}}));
    secrets.patch(&id, &PatchParams::default(), &held).await.unwrap();
    assert_eq!(counter.removed("editor", &id).await.status, 202);
    assert_eq!(counter.settled(&id).await.body["state"], "succeeded");
    assert_eq!(counter.claim(&id).await, None);
    let free = Patch::Merge(json!({"metadata": {"finalizers": []}}));
    secrets.patch(&id, &PatchParams::default(), &free).await.unwrap();
    counter.remove().await;
}
