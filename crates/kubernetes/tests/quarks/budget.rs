use std::time::Duration;

use tokio::time::sleep;

use super::calls::Calls;
use super::harness::{Town, pod, spec};
use serde_json::json;

/// The Lease has a client of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_costs_five_writes_and_no_read() {
    let mut town = Town::still("qjob-budget").await;
    let calls = Calls::default();
    let client = calls.of(&town.cluster.client, &town.cluster.namespace);
    town.start_with(client).await;
    // The first has the agent brought into the namespace.
    let mut spec = spec("once", &pod(r#"echo '{"k": "v"}' > /mnt/quarks/o.json"#));
    spec["output"] = json!({"outputMap": {"c": {"o.json": {"name": "first"}}}});
    town.create("first", spec.clone()).await;
    town.ended("first", 1).await;
    town.no_jobs().await;
    sleep(Duration::from_secs(1)).await;
    calls.take();
    spec["output"] = json!({"outputMap": {"c": {"o.json": {"name": "second"}}}});
    town.create("second", spec).await;
    assert_eq!(town.ended("second", 1).await["succeeded"], true);
    town.no_jobs().await;
    sleep(Duration::from_secs(1)).await;
    let expected =
        ["PATCH quarksjobs", "POST jobs", "POST secrets", "PATCH quarksjobs/status", "DELETE jobs"];
    assert_eq!(calls.take(), expected);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(calls.take(), Vec::<String>::new(), "what is settled costs nothing");
    // Again: it is no longer completed, and its Secret holds what it held.
    town.trigger("second", "now").await;
    assert_eq!(town.ended("second", 2).await["succeeded"], true);
    town.no_jobs().await;
    sleep(Duration::from_secs(1)).await;
    let expected = [
        "PATCH quarksjobs/status",
        "PATCH quarksjobs",
        "POST jobs",
        "PATCH quarksjobs/status",
        "DELETE jobs",
    ];
    assert_eq!(calls.take(), expected);
}

/// Before Kubernetes 1.32, of a container whose command only its image names.
#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_that_has_to_be_told_costs_one_write_more_and_d5_reads_nothing() {
    let mut town = Town::still("qjob-budget-sidecar").await;
    town.settings.wraps = false;
    let calls = Calls::default();
    let client = calls.of(&town.cluster.client, &town.cluster.namespace);
    town.start_with(client).await;
    let mut spec = spec("once", &pod(r#"sleep 2; echo '{"k": "v"}' > /mnt/quarks/o.json"#));
    for name in ["first", "second"] {
        spec["output"] = json!({"outputMap": {"c": {"o.json": {"name": name}}}});
        calls.take();
        town.create(name, spec.clone()).await;
        assert_eq!(town.ended(name, 1).await["succeeded"], true);
        town.no_jobs().await;
        sleep(Duration::from_secs(1)).await;
        // The first has the agent brought into the namespace.
        if name == "second" {
            let expected = [
                "PATCH quarksjobs",
                "POST jobs",
                "PATCH pods",
                "POST secrets",
                "PATCH quarksjobs/status",
                "DELETE jobs",
            ];
            assert_eq!(calls.take(), expected);
        }
    }
}
