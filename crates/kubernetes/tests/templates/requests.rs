//! What requests have to say, and what is told of what was ordered: each rule of the original by itself.

use serde_json::{Value, json};

use super::counter::{Counter, bound, id, put};
use super::harness::{Town, template};
use super::rights::rule;

const PLANTED: &str = "planted-in-the-parameters";

fn sample() -> Value {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "made", "annotations": {
            "template.openshift.io/expose-given": "{.data.given}",
        }},
        "data": {"given": "${GIVEN}"},
    });
    template(json!([map]), json!([{"name": "GIVEN", "value": "nothing"}]))
}

/// Sends an order that is refused: nothing is begun.
async fn refused(counter: &Counter, user: &str, path: &str, order: &Value) -> (u16, String) {
    let answer = counter.send(user, "PUT", path, Some(order)).await;
    assert!(!answer.body.to_string().contains(PLANTED), "{answer:?}");
    let instances = counter.town.instances().list_metadata(&Default::default()).await.unwrap();
    assert_eq!(instances.items.len(), 0, "nothing is begun: {answer:?}");
    let error = answer.body["error"].as_str().unwrap_or_default();
    (answer.status, format!("{error}: {}", answer.words()))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_catalog_asks_for_no_right_and_orders_have_to_say_who_asks() {
    let counter = Counter::new("request-who", &[sample()]).await;
    for user in ["", "stranger"] {
        let catalog = counter.send(user, "GET", "/catalog", None).await;
        assert_eq!(catalog.status, 200);
        assert_eq!(catalog.body["services"][0]["name"], "sample", "{user:?}: {catalog:?}");
    }
    let order = counter.order(&counter.service("sample").await, json!({}));
    let (status, words) = refused(&counter, "", &put(&id()), &order).await;
    assert_eq!(status, 400, "{words}");
    let expected = "couldn't parse X-Broker-API-Originating-Identity header: it is mandatory";
    assert!(words.contains(expected), "{words}");
    counter.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_cannot_wait_is_async_required() {
    let counter = Counter::new("request-async", &[sample()]).await;
    let order = counter.order(&counter.service("sample").await, json!({}));
    // Who asks is looked at after that.
    for (case, user) in [("an editor", "editor"), ("nobody", "")] {
        let path = format!("/service_instances/{}", id());
        let (status, words) = refused(&counter, user, &path, &order).await;
        assert_eq!(status, 422, "{case}: {words}");
        assert!(words.starts_with("AsyncRequired"), "{case}: {words}");
    }
    counter.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_of_a_namespace_that_is_not_offered_is_not_ordered() {
    let elsewhere = Town::still("request-elsewhere").await;
    elsewhere.make(sample()).await;
    let template = elsewhere.object("template.openshift.io/v1", "Template", "sample").await;
    let uid = template.unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    let (counter, id) = (Counter::new("request-offered", &[sample()]).await, id());
    let (status, words) =
        refused(&counter, "editor", &put(&id), &counter.order(&uid, json!({}))).await;
    assert_eq!(status, 400, "{words}");
    assert!(words.contains("service_id"), "{words}");
    assert_eq!(counter.claim(&id).await, None);
    let instances = elsewhere.instances().list_metadata(&Default::default()).await.unwrap();
    assert_eq!(instances.items.len(), 0, "where the template is");
    counter.remove().await;
    elsewhere.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_are_those_of_the_template_and_strings() {
    let counter = Counter::new("request-parameters", &[sample()]).await;
    let service = counter.service("sample").await;
    for (case, parameters, place) in [
        ("one that it has not", json!({"OTHER": PLANTED}), "OTHER"),
        ("one of 3.6", json!({"requester-username": PLANTED}), "requester-username"),
        ("a number", json!({"GIVEN": 7}), "GIVEN"),
        ("null", json!({"GIVEN": null}), "GIVEN"),
        ("a list", json!({"GIVEN": [PLANTED]}), "GIVEN"),
        ("a map", json!({"GIVEN": {"a": PLANTED}}), "GIVEN"),
    ] {
        let order = counter.order(&service, parameters);
        let (status, words) = refused(&counter, "editor", &put(&id()), &order).await;
        assert_eq!(status, 400, "{case}: {words}");
        assert!(words.contains(place), "{case}: {words}");
    }
    counter.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identical_order_is_200_and_another_409() {
    let (counter, id) = (Counter::new("request-again", &[sample()]).await, id());
    let service = counter.service("sample").await;
    let order = counter.order(&service, json!({"GIVEN": PLANTED}));
    let first = counter.send("editor", "PUT", &put(&id), Some(&order)).await;
    assert_eq!(first.status, 202, "{first:?}");
    let operation = first.body["operation"].as_str().unwrap_or_default();
    assert!(!["", "provisioning"].contains(&operation), "{first:?}");
    assert_eq!(counter.settled(&id).await.body["state"], "succeeded");
    let again = counter.send("editor", "PUT", &put(&id), Some(&order)).await;
    assert_eq!(again.status, 200, "{again:?}");
    let other = counter.order(&service, json!({"GIVEN": "other"}));
    let other = counter.send("editor", "PUT", &put(&id), Some(&other)).await;
    assert_eq!(other.status, 409, "{other:?}");
    let words = "the service instance exists with other attributes (parameters)";
    assert!(other.words().starts_with(words), "{other:?}");
    assert!(!other.body.to_string().contains(PLANTED), "{other:?}");
    counter.remove().await;
}

/// As if the server had been killed, and its records lost, before it made the instance.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_order_of_another_service_is_409() {
    let mut other = sample();
    other["metadata"]["name"] = json!("other");
    let mut counter = Counter::new("request-interrupted", &[sample(), other]).await;
    let id = id();
    let (first, second) = (counter.service("sample").await, counter.service("other").await);
    let given = || json!({"GIVEN": "something"});
    let order = counter.order(&first, given());
    assert_eq!(counter.send("editor", "PUT", &put(&id), Some(&order)).await.status, 202);
    assert_eq!(counter.settled(&id).await.body["state"], "succeeded");
    counter.town.delete(&id).await;
    counter.town.gone(&id).await;
    counter.forget().await;
    let another = counter.order(&second, given());
    let answer = counter.send("editor", "PUT", &put(&id), Some(&another)).await;
    assert_eq!(answer.status, 409, "{answer:?}");
    assert!(answer.words().starts_with("the id is taken by another order"), "{answer:?}");
    let answer = counter.send("editor", "PUT", &put(&id), Some(&order)).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    assert_eq!(counter.settled(&id).await.body["state"], "succeeded");
    counter.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn how_an_instance_stands_is_told_those_who_may_get_it() {
    let (counter, id) = (Counter::new("request-stands", &[sample()]).await, id());
    counter.made(&id).await;
    let get = rule("template.openshift.io", &["templateinstances"], &["get"]);
    counter.town.grant("looker", vec![get]).await;
    let path = format!("/service_instances/{id}/last_operation");
    let told = counter.send("looker", "GET", &path, None).await;
    assert_eq!((told.status, &told.body["state"]), (200, &json!("succeeded")), "{told:?}");
    let refused = counter.send("stranger", "GET", &path, None).await;
    assert_eq!(refused.status, 403, "{refused:?}");
    let words = "\"stranger\" may not get templateinstances.template.openshift.io";
    assert!(refused.words().starts_with(words), "{refused:?}");
    counter.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_ordered_and_bound_is_told_those_who_may_read_secrets() {
    let (counter, id, binding) = (Counter::new("request-read", &[sample()]).await, id(), id());
    let order = counter.order(&counter.service("sample").await, json!({"GIVEN": PLANTED}));
    assert_eq!(counter.send("editor", "PUT", &put(&id), Some(&order)).await.status, 202);
    assert_eq!(counter.settled(&id).await.body["state"], "succeeded");
    assert_eq!(counter.bind("editor", &id, &binding).await.status, 201);
    let get = rule("template.openshift.io", &["templateinstances"], &["get"]);
    counter.town.grant("looker", vec![get]).await;
    let instance = format!("/service_instances/{id}");
    for (path, member) in [(instance, "parameters"), (bound(&id, &binding), "credentials")] {
        let told = counter.send("editor", "GET", &path, None).await;
        assert_eq!(told.status, 200, "{told:?}");
        assert!(told.body[member].to_string().contains(PLANTED), "{told:?}");
        for user in ["looker", "stranger"] {
            let refused = counter.send(user, "GET", &path, None).await;
            assert_eq!(refused.status, 403, "{user}: {refused:?}");
            assert!(!refused.body.to_string().contains(PLANTED), "{user}: {refused:?}");
        }
    }
    counter.remove().await;
}
