//! The Secret of the parameters, which the requester names and may read.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::harness::{Town, condition, template};
use super::rights::rule;

const PLANTED: &str = "planted-in-the-parameters";

fn sample() -> Value {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "sample"},
        "data": {"given": "${GIVEN}"},
    });
    template(json!([map]), json!([{"name": "GIVEN", "value": "nothing"}]))
}

fn of(user: &str) -> [(&'static str, Value); 2] {
    [("requester", json!({"username": user})), ("secret", json!({"name": "given"}))]
}

async fn give(town: &Town) {
    town.make(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "given"},
        "stringData": {"GIVEN": PLANTED},
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_read_the_secret_of_the_parameters_fails() {
    let town = Town::new("template-unread").await;
    town.grant("mapper", vec![rule("", &["configmaps"], &["create", "get", "delete"])]).await;
    give(&town).await;
    town.order_with("i", sample(), &of("mapper")).await;
    let why = town.failed("i").await;
    assert!(why.starts_with("unable to retrieve TemplateInstance Secret: "), "{why}");
    assert!(why.contains("secrets \"given\" is forbidden: User \"mapper\" cannot get"), "{why}");
    assert!(!town.get("i").await.to_string().contains(PLANTED), "{why}");
    assert_eq!(town.object("v1", "ConfigMap", "sample").await, None, "nothing is made");
    town.delete("i").await;
    town.gone("i").await;
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_is_late_is_waited_for() {
    let town = Town::new("template-late").await;
    town.order_with("i", sample(), &of("editor")).await;
    let waits = |it: &Value| condition(it, "Ready")["reason"] == "Retrying";
    let waiting = town.until("i", "waiting for its parameters", waits).await;
    let why = condition(&waiting, "Ready")["message"].clone();
    assert_eq!(why, "unable to retrieve TemplateInstance Secret: secrets \"given\" not found");
    give(&town).await;
    town.ready("i").await;
    let map = town.object("v1", "ConfigMap", "sample").await.unwrap();
    assert_eq!(map["data"]["given"], PLANTED);
    town.remove().await;
}

/// The minute is told to be over: the instance says since when it is worked on.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_does_not_come_within_a_minute_fails_it() {
    let mut town = Town::still("template-never").await;
    for (name, ago) in [("over", 61), ("not-yet", 20)] {
        town.order_with(name, sample(), &of("editor")).await;
        let begun = Timestamp::now() - SignedDuration::from_secs(ago);
        let change = json!({"generation": 1, "startedAt": begun.to_string()});
        town.patch(name, "status", json!({"status": {"change": change}})).await;
    }
    town.start().await;
    let why = town.failed("over").await;
    assert_eq!(why, "unable to retrieve TemplateInstance Secret: secrets \"given\" not found");
    let waits = |it: &Value| condition(it, "Ready")["reason"] == "Retrying";
    let waiting = town.until("not-yet", "waiting for its parameters", waits).await;
    assert!(condition(&waiting, "InstantiateFailure").is_null(), "{waiting:#}");
    // What has failed stays so, though the Secret comes.
    give(&town).await;
    town.ready("not-yet").await;
    assert_eq!(town.failed("over").await, why);
    town.remove().await;
}
