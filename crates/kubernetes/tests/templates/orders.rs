//! What becomes of an order: who may not, what is made of it, and how it ends.

use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::counter::{Counter, id, put};
use super::harness::{condition, template};
use super::rights::of_orders;

fn map(name: &str, annotations: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "annotations": annotations}, "data": {},
    })
}

/// Makes a ConfigMap of its name, with a password.
fn sample() -> Value {
    let mut made = map("${NAME}", json!({}));
    made["data"] = json!({"password": "${PASSWORD}"});
    let parameters = json!([
        {"name": "NAME", "value": "made"},
        {"name": "PASSWORD", "generate": "expression", "from": "[a-z]{24}"},
        {"name": "NOTE"},
    ]);
    template(json!([made]), parameters)
}

/// Makes what is never ready.
fn endless() -> Value {
    let waits = json!({"template.manciple.dev/ready-when": "self.data.come == 'yes'"});
    template(json!([map("made", waits)]), json!([]))
}

/// Orders as somebody who lacks one of the rights that an order takes: of the first verb on the first resource of this
/// rule.
async fn without(right: usize, test: &str, words: &str) {
    let counter = Counter::new(test, &[sample()]).await;
    let mut rights = of_orders();
    rights.remove(right);
    counter.town.grant("lacking", rights).await;
    let (id, order) = (id(), counter.order(&counter.service("sample").await, json!({})));
    let answer = counter.send("lacking", "PUT", &put(&id), Some(&order)).await;
    assert_eq!(
        (answer.status, answer.words()),
        (
            403,
            &*format!(
                "\"lacking\" may not {words} in namespace {:?}",
                counter.town.cluster.namespace
            )
        )
    );
    assert_eq!(counter.claim(&id).await, None, "nothing is begun");
    for (api_version, kind) in [("template.openshift.io/v1", "TemplateInstance"), ("v1", "Secret")]
    {
        assert_eq!(counter.town.object(api_version, kind, &id).await, None, "{kind}");
    }
    counter.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_get_the_template_may_not_order_it() {
    without(0, "order-template", "get templates.template.openshift.io").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_create_templateinstances_orders_nothing() {
    without(1, "order-instance", "create templateinstances.template.openshift.io").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_create_secrets_orders_nothing() {
    without(2, "order-secret", "create secrets").await;
}

/// What there is of an order.
struct Ordered {
    counter: Counter,
    id: String,
    claim: Value,
    secret: Value,
    instance: Value,
}

impl Ordered {
    async fn new(test: &str, parameters: Value) -> Self {
        let (counter, id) = (Counter::new(test, &[sample()]).await, id());
        let order = counter.order(&counter.service("sample").await, parameters);
        let answer = counter.send("editor", "PUT", &put(&id), Some(&order)).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        let settled = counter.settled(&id).await;
        assert_eq!(settled.body["state"], "succeeded", "{settled:?}");
        Self {
            claim: counter.claim(&id).await.unwrap(),
            secret: counter.town.object("v1", "Secret", &id).await.unwrap(),
            instance: counter.town.get(&id).await,
            counter,
            id,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_claim_bears_the_instances_id_and_names_what_is_made() {
    let it = Ordered::new("order-claim", json!({})).await;
    let namespace = &it.counter.town.cluster.namespace;
    let of = |kind: &str| json!({"kind": kind, "namespace": namespace, "name": it.id});
    assert_eq!(it.claim["metadata"]["name"], json!(it.id));
    assert_eq!(it.claim["spec"]["templateInstance"], of("TemplateInstance"));
    assert_eq!(it.claim["spec"]["secret"], of("Secret"));
    it.counter.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_secret_has_the_declared_parameters_that_are_given_alone() {
    let it = Ordered::new("order-values", json!({"NAME": "web", "NOTE": ""})).await;
    assert_eq!(it.secret["data"], json!({"NAME": "d2Vi", "NOTE": ""}));
    assert!(it.counter.town.object("v1", "ConfigMap", "web").await.is_some());
    it.counter.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_parameter_is_left_out_where_one_is_generated() {
    let it = Ordered::new("order-empty", json!({"NAME": "web", "PASSWORD": ""})).await;
    assert_eq!(it.secret["data"], json!({"NAME": "d2Vi"}));
    let made = it.counter.town.object("v1", "ConfigMap", "web").await.unwrap();
    let password = made["data"]["password"].as_str().unwrap();
    assert_eq!(password.len(), 24, "it is generated");
    it.counter.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_instance_has_the_template_the_requester_and_the_platforms_id() {
    let it = Ordered::new("order-instance", json!({})).await;
    let (spec, metadata) = (&it.instance["spec"], &it.instance["metadata"]);
    assert_eq!(spec["requester"], json!({"username": "editor"}));
    assert_eq!(spec["secret"], json!({"name": it.id}));
    let there = it.counter.town.object("template.openshift.io/v1", "Template", "sample").await;
    let there = there.unwrap();
    for member in ["objects", "parameters"] {
        assert_eq!(spec["template"][member], there[member], "{member}");
    }
    for member in ["name", "namespace", "uid"] {
        assert_eq!(spec["template"]["metadata"][member], there["metadata"][member], "{member}");
    }
    let external = "openservicebroker.openshift.io/instance-external-id";
    assert_eq!(metadata["annotations"][external], json!(it.id));
    it.counter.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_claim_owns_both_and_they_hold_nothing_up() {
    let it = Ordered::new("order-owner", json!({})).await;
    let owner = json!({
        "apiVersion": "template.openshift.io/v1", "kind": "BrokerTemplateInstance",
        "name": it.id, "uid": it.claim["metadata"]["uid"],
    });
    for object in [&it.secret, &it.instance] {
        assert_eq!(object["metadata"]["ownerReferences"], json!([owner]), "{}", object["kind"]);
    }
    it.counter.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identical_order_without_parameters_is_200() {
    let (counter, id) = (Counter::new("order-again", &[sample()]).await, id());
    let mut order = counter.order(&counter.service("sample").await, json!({}));
    order.as_object_mut().unwrap().remove("parameters");
    let first = counter.send("editor", "PUT", &put(&id), Some(&order)).await;
    assert_eq!(first.status, 202, "{first:?}");
    assert_eq!(counter.settled(&id).await.body["state"], "succeeded");
    let again = counter.send("editor", "PUT", &put(&id), Some(&order)).await;
    assert_eq!(again.status, 200, "{again:?}");
    order["parameters"] = json!({"NOTE": "other"});
    let other = counter.send("editor", "PUT", &put(&id), Some(&order)).await;
    assert_eq!(other.status, 409, "{other:?}");
    counter.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_is_removed_while_it_is_made_fails_the_order() {
    let (counter, id) = (Counter::new("order-removed", &[endless()]).await, id());
    assert_eq!(counter.ordered(&id).await.status, 202);
    let path = format!("/service_instances/{id}/last_operation");
    counter.town.appears(&id).await;
    let waits = |it: &Value| condition(it, "Ready")["reason"] == "Waiting";
    counter.town.until(&id, "waiting", waits).await;
    let goes_on = counter.send("editor", "GET", &path, None).await;
    assert_eq!((goes_on.status, &goes_on.body["state"]), (200, &json!("in progress")));
    counter.town.instances().delete(&id, &DeleteParams::default()).await.unwrap();
    let settled = counter.settled(&id).await;
    assert_eq!((settled.status, &settled.body["state"]), (200, &json!("failed")), "{settled:?}");
    assert!(settled.words().contains("its TemplateInstance was removed"), "{settled:?}");
    // What is left of it goes.
    assert_eq!(counter.removed("editor", &id).await.status, 202);
    assert_eq!(counter.settled(&id).await.body["state"], "succeeded");
    assert_eq!(counter.claim(&id).await, None);
    counter.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_fails_fails_the_order_with_its_words() {
    let (counter, id) = (Counter::new("order-failed", &[sample()]).await, id());
    counter.town.make(map("made", json!({}))).await;
    assert_eq!(counter.ordered(&id).await.status, 202);
    let settled = counter.settled(&id).await;
    assert_eq!((settled.status, &settled.body["state"]), (200, &json!("failed")), "{settled:?}");
    let why = "unable to create configmaps, Name=made: configmaps \"made\" already exists, and is not of this \
               instance: it is left as it is";
    assert!(settled.words().contains(why), "{settled:?}");
    counter.remove().await;
}
