//! What is bound, by whom, and what they are told.

use kube::api::DeleteParams;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::counter::{Counter, bound, id, send};
use super::harness::{condition, template};
use super::rights::rule;

const PLANTED: &str = "planted-in-place-of-it";
const INSTANCES: &str = "templateinstances";
const GROUP: &str = "template.openshift.io";

/// Exposes a password, and where its Service is.
fn sample() -> Value {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "made", "annotations": {
            "template.openshift.io/expose-password": "{.data['password']}",
        }},
        "stringData": {"password": "${PASSWORD}"},
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "made", "annotations": {
            "template.openshift.io/expose-port": "{.spec.ports[0].port}",
        }},
        "spec": {"ports": [{"port": 8080}]},
    });
    let password = json!({"name": "PASSWORD", "generate": "expression", "from": "[a-z]{24}"});
    template(json!([secret, service]), json!([password]))
}

fn map(annotations: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "made", "annotations": annotations}, "data": {},
    })
}

async fn bindings(counter: &Counter, id: &str) -> Value {
    counter.claim(id).await.unwrap()["spec"]["bindingIDs"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_exposes_nothing_has_no_credentials() {
    let plain = template(json!([map(json!({}))]), json!([]));
    let (counter, id, binding) = (Counter::new("bind-nothing", &[plain]).await, id(), id());
    counter.made(&id).await;
    let answer = counter.bind("editor", &id, &binding).await;
    assert_eq!((answer.status, &answer.body["credentials"]), (201, &json!({})), "{answer:?}");
    assert_eq!(bindings(&counter, &id).await, json!([binding]));
    counter.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_binding_is_noted_and_a_known_one_is_200() {
    let (counter, id, binding) = (Counter::new("bind-again", &[sample()]).await, id(), id());
    counter.made(&id).await;
    let first = counter.bind("editor", &id, &binding).await;
    assert_eq!((first.status, &first.body["credentials"]["port"]), (201, &json!("8080")));
    let again = counter.bind("editor", &id, &binding).await;
    assert_eq!((again.status, &again.body["credentials"]), (200, &first.body["credentials"]));
    assert_eq!(bindings(&counter, &id).await, json!([binding]));
    counter.remove().await;
}

/// The original says what is there already, which may be nothing.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_being_made_is_not_bound() {
    let waits = map(json!({
        "template.manciple.dev/ready-when": "self.data.come == 'yes'",
        "template.openshift.io/expose-come": "{.data.come}",
    }));
    let waits = template(json!([waits]), json!([]));
    let (counter, id) = (Counter::new("bind-early", &[waits]).await, id());
    assert_eq!(counter.ordered(&id).await.status, 202);
    counter.town.appears(&id).await;
    let waits = |it: &Value| condition(it, "Ready")["reason"] == "Waiting";
    counter.town.until(&id, "waiting", waits).await;
    let answer = counter.bind("editor", &id, &super::counter::id()).await;
    assert_eq!((answer.status, &answer.body["error"]), (422, &json!("ConcurrencyError")));
    assert_eq!(bindings(&counter, &id).await, Value::Null);
    counter.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_exposed_is_told_by_its_uid() {
    let (counter, id) = (Counter::new("bind-uid", &[sample()]).await, id());
    counter.made(&id).await;
    let secrets = counter.town.objects("v1", "Secret");
    let there = counter.town.object("v1", "Secret", "made").await.unwrap();
    secrets.delete("made", &DeleteParams::default()).await.unwrap();
    // Somebody makes it anew: labelled, owned and exposed as it was.
    let metadata = &there["metadata"];
    counter
        .town
        .make(json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": "made", "labels": metadata["labels"],
                "ownerReferences": metadata["ownerReferences"],
                "annotations": metadata["annotations"],
            },
            "stringData": {"password": PLANTED},
        }))
        .await;
    let answer = counter.bind("editor", &id, &super::counter::id()).await;
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(answer.words().contains("Secret made: it is not there any more"), "{answer:?}");
    assert!(!answer.body.to_string().contains(PLANTED), "{answer:?}");
    assert_eq!(bindings(&counter, &id).await, Value::Null, "nobody is bound");
    counter.remove().await;
}

/// The rights of somebody who binds, and who may read what is exposed but for its Service.
fn of_binders() -> Vec<Value> {
    vec![rule(GROUP, &[INSTANCES], &["get"]), rule("", &["secrets"], &["get"])]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_exposed_is_read_as_whoever_binds_may() {
    let (counter, id) = (Counter::new("bind-as", &[sample()]).await, id());
    counter.made(&id).await;
    counter.town.grant("binder", of_binders()).await;
    let answer = counter.bind("binder", &id, &super::counter::id()).await;
    assert_eq!(answer.status, 400, "nothing was made, and it is not ours: {answer:?}");
    assert!(answer.words().contains("services \"made\" is forbidden"), "{answer:?}");
    assert_eq!(answer.body.get("credentials"), None, "{answer:?}");
    assert_eq!(bindings(&counter, &id).await, Value::Null, "nobody is bound");
    counter.remove().await;
}

/// Binds as somebody who has these rights alone.
async fn without(test: &str, rights: Vec<Value>, words: &str) {
    let (counter, id) = (Counter::new(test, &[sample()]).await, id());
    counter.made(&id).await;
    counter.town.grant("lacking", rights).await;
    let answer = counter.bind("lacking", &id, &super::counter::id()).await;
    assert_eq!(answer.status, 403, "{answer:?}");
    assert!(answer.words().starts_with(&format!("\"lacking\" may not {words}")), "{answer:?}");
    assert_eq!(bindings(&counter, &id).await, Value::Null, "nobody is bound");
    counter.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_get_the_instance_binds_nothing() {
    without("bind-instance", of_binders().split_off(1), "get templateinstances.template").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_read_secrets_binds_nothing() {
    let rights = of_binders().into_iter().take(1).collect();
    without("bind-secrets", rights, "get secrets in namespace").await;
}

/// There was nothing made that a platform would have to remove, as it would after a 500.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_exposed_is_said_and_no_500() {
    let mut exposes = map(json!({"template.openshift.io/expose-whole": "{.data}"}));
    exposes["data"] = json!({"a": "b"});
    let exposes = template(json!([exposes]), json!([]));
    let (counter, id, binding) = (Counter::new("bind-wrong", &[exposes]).await, id(), id());
    counter.made(&id).await;
    for attempt in 1..=2 {
        let answer = counter.bind("editor", &id, &binding).await;
        assert_eq!(answer.status, 400, "{attempt}: {answer:?}");
        assert!(answer.words().contains("unrepresentable kind"), "{attempt}: {answer:?}");
    }
    assert_eq!(bindings(&counter, &id).await, Value::Null, "nobody is bound");
    counter.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_has_no_parameters() {
    let (counter, id) = (Counter::new("bind-parameters", &[sample()]).await, id());
    counter.made(&id).await;
    let service = counter.service("sample").await;
    let bind = json!({"service_id": service, "plan_id": service, "parameters": {"A": PLANTED}});
    let path = bound(&id, &super::counter::id());
    let answer = counter.send("editor", "PUT", &path, Some(&bind)).await;
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(
        answer.words().starts_with("parameters: must have no members: leave out \"A\""),
        "{answer:?}"
    );
    assert!(!answer.body.to_string().contains(PLANTED), "{answer:?}");
    assert_eq!(bindings(&counter, &id).await, Value::Null, "nobody is bound");
    counter.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unbind_does_without_the_instance() {
    let (counter, id, binding) = (Counter::new("bind-gone", &[sample()]).await, id(), id());
    counter.made(&id).await;
    assert_eq!(counter.bind("editor", &id, &binding).await.status, 201);
    counter.town.delete(&id).await;
    counter.town.gone(&id).await;
    let answer = counter.unbind(&id, &binding).await;
    assert_eq!((answer.status, &answer.body), (200, &json!({})), "{answer:?}");
    assert_eq!(bindings(&counter, &id).await, json!([]));
    assert_eq!(counter.unbind(&id, &binding).await.status, 410);
    counter.remove().await;
}

/// Each writes the same claim: what meets is tried again, and nobody is told.
#[tokio::test(flavor = "multi_thread")]
async fn bindings_that_meet_are_all_noted() {
    let (mut counter, id) = (Counter::new("bind-many", &[sample()]).await, id());
    counter.made(&id).await;
    let service = counter.service("sample").await;
    let servers = [counter.replica().await, counter.replica().await];
    let mut bound_to = JoinSet::new();
    let mut expected = Vec::new();
    for count in 0..20 {
        let (router, binding) = (servers[count % 2].clone(), super::counter::id());
        let path = bound(&id, &binding);
        let bind = json!({"service_id": service, "plan_id": service});
        expected.push(binding);
        bound_to.spawn(async move { send(&router, "editor", "PUT", &path, Some(&bind)).await });
    }
    while let Some(answer) = bound_to.join_next().await {
        let answer = answer.unwrap();
        assert_eq!(answer.status, 201, "{answer:?}");
    }
    let noted = bindings(&counter, &id).await;
    let mut noted: Vec<&str> = noted.as_array().unwrap().iter().flat_map(Value::as_str).collect();
    noted.sort_unstable();
    expected.sort_unstable();
    assert_eq!(noted, expected);
    counter.remove().await;
}
