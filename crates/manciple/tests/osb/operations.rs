//! Items 25 to 28: the last operation of an instance.

use std::time::Duration;

use engine::policy::DeletedAnswer;
use engine::record::Reason;
use engine::testing::scripted_runner::{Act, failure};
use serde_json::json;

use crate::harness::{Api, LARGE, Setup, instance};

fn last(operation: &str) -> String {
    format!("/v2/service_instances/i/last_operation?operation={operation}")
}

#[tokio::test(start_paused = true)]
async fn item_25_the_three_states_are_told_with_retry_after_and_a_reason() {
    let api = Api::new().await;
    api.runner.script(|_| {
        Act::End(
            Duration::from_secs(30),
            Err(failure(Reason::ExitStatus, "exit status 3: no disk")),
        )
    });
    let operation = api.provision("i", json!({})).await.operation();
    let answer = api.get(&last(&operation)).await;
    assert_eq!(answer.is(200).body["state"], "in progress");
    assert_eq!(answer.header("retry-after"), Some("1"));
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(api.get(&last(&operation)).await.header("retry-after"), Some("5"));
    tokio::time::sleep(Duration::from_secs(20)).await;
    let answer = api.get(&last(&operation)).await;
    assert_eq!(answer.is(200).body["state"], "failed");
    assert_eq!(answer.body["description"], "exit status 3: no disk");
    assert_eq!(answer.header("retry-after"), None);
    api.slow(Duration::ZERO);
    let operation = api.provision("i", json!({})).await.operation();
    let answer = api.finish(&instance("i"), &operation).await;
    assert_eq!(answer.body, json!({ "state": "succeeded" }));
}

#[tokio::test(start_paused = true)]
async fn item_26_an_unknown_instance_is_404_and_only_a_delete_is_410() {
    let api = Api::new().await;
    api.get(&last("provision-x")).await.refused(404, "NotFound", "no such");
    api.get(&last("deprovision-x")).await.refused(410, "Gone", "deleted");
    api.get("/v2/service_instances/i/last_operation?operation=a&operation=b").await.refused(
        400,
        "BadRequest",
        "operation",
    );
}

#[tokio::test(start_paused = true)]
async fn item_27_the_query_is_only_a_hint() {
    let api = Api::new().await;
    let operation = api.provision("i", json!({})).await.operation();
    for query in [
        "",
        "?operation=provision",
        "?operation=task-1",
        "?service_id=wrong&plan_id=wrong",
        &format!("?plan_id={LARGE}&operation={operation}"),
    ] {
        let answer = api.get(&format!("/v2/service_instances/i/last_operation{query}")).await;
        assert_eq!(answer.is(200).body["state"], "in progress", "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn item_28_a_terminal_state_is_remembered_deleted_instances_included() {
    let api = Api::new().await;
    api.provisioned("i").await;
    let operation = api.deprovision("i").await.operation();
    api.succeeds(&instance("i"), &operation).await;
    tokio::time::sleep(Duration::from_secs(6 * 24 * 3600)).await;
    api.engine.sweep_once().await.unwrap();
    for _ in 0..3 {
        let answer = api.get(&last(&operation)).await;
        assert_eq!(answer.is(200).body["state"], "succeeded");
    }
    tokio::time::sleep(Duration::from_secs(2 * 24 * 3600)).await;
    assert_eq!(api.engine.sweep_once().await.unwrap(), 1);
    api.get(&last(&operation)).await.is(410);
}

#[tokio::test(start_paused = true)]
async fn item_28_after_a_delete_410_can_be_chosen() {
    let mut setup = Setup::default();
    setup.policy.deleted = DeletedAnswer::Gone;
    let api = Api::with(setup).await;
    api.provisioned("i").await;
    let operation = api.deprovision("i").await.operation();
    api.finish(&instance("i"), &operation).await.refused(410, "Gone", "deleted");
}
