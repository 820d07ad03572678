//! What users of the originals asked for in their issues and pull requests, and what other tests are not named after.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{DeleteParams, PostParams};
use kubernetes::quarks::Dialect;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::harness::{Town, pod, spec};
use super::support::wait;

const PATIENCE: Duration = Duration::from_secs(90);

/// quarks-operator#888.
#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_tries_as_often_as_the_template_says() {
    let mut town = Town::new("tries").await;
    let one = |limit: Value| {
        let mut spec = spec("once", &pod("sleep 600"));
        spec["template"]["spec"]["backoffLimit"] = limit;
        spec
    };
    // At the wrong level the harness says 2 of each.
    for (name, limit) in [("none", json!(null)), ("zero", json!(0)), ("three", json!(3))] {
        town.create(name, one(limit)).await;
    }
    town.dialect = Dialect::ExtendedJob;
    let of_pod = json!({"trigger": {"strategy": "once"}, "template": {"spec": pod("sleep 600")}});
    town.create("pod", of_pod).await;
    town.create("job", one(json!(1))).await;
    for (name, expected) in [("none", 6), ("zero", 0), ("three", 3), ("pod", 2), ("job", 1)] {
        let limit = wait::until(&format!("{name} has no Job"), PATIENCE, async || {
            let jobs = town.batch_jobs().await.into_iter();
            let is_its = |name_of: &Option<String>| {
                name_of.as_ref().is_some_and(|it| it.starts_with(&format!("{name}-")))
            };
            let its = jobs.into_iter().find(|job| is_its(&job.metadata.name));
            its.map(|job| job.spec.unwrap().backoff_limit).ok_or("none of it")
        })
        .await;
        assert_eq!(limit, Some(expected), "{name}");
    }
}

/// quarks-operator#648.
#[tokio::test(flavor = "multi_thread")]
async fn pods_have_the_service_account_that_the_template_names() {
    for wraps in [true, false] {
        let mut town = Town::either_way("account", wraps).await;
        town.start().await;
        let account: ServiceAccount =
            serde_json::from_value(json!({"metadata": {"name": "theirs"}})).unwrap();
        let accounts = town.cluster.api::<ServiceAccount>();
        accounts.create(&PostParams::default(), &account).await.unwrap();
        // Its token is there for what the user runs, and for nothing of ours.
        let mut pod = pod("test -s /var/run/secrets/kubernetes.io/serviceaccount/token &&
            echo '{\"k\": \"v\"}' > /mnt/quarks/o.json");
        pod["serviceAccountName"] = json!("theirs");
        let mut one = spec("once", &pod);
        one["output"] = json!({"outputMap": {"c": {"o.json": {"name": "made"}}}});
        town.create("a", one).await;
        let run = town.ended("a", 1).await;
        assert_eq!((&run["succeeded"], &run["made"]), (&json!(true), &json!(["made"])), "{run}");
        let made = town.pods().await.remove(0).spec.unwrap();
        assert_eq!(made.service_account_name.as_deref(), Some("theirs"), "wrapped: {wraps}");
    }
}

/// The names of the pods of one that are there and are not asked to go.
async fn pods_of(town: &Town, name: &str) -> Vec<String> {
    let is_its = |pod: &Pod| {
        let labels = pod.metadata.labels.as_ref();
        let of = labels.and_then(|all| all.get("quarks.cloudfoundry.org/qjob-name"));
        of.is_some_and(|of| of == name) && pod.metadata.deletion_timestamp.is_none()
    };
    let pods = town.pods().await.into_iter().filter(is_its);
    pods.filter_map(|pod| pod.metadata.name).collect()
}

/// kubecf#439, #1015, #1169: a pod that is done is there for its log until the next run has its own, and goes with its
/// QuarksJob. Without a limit it outlives both, as in the original.
#[tokio::test(flavor = "multi_thread")]
async fn pods_that_are_done_stay_for_their_logs_until_the_next_run_is_and_go_with_their_quarksjob()
{
    let town = Town::new("tidy").await;
    for (name, limit) in [("tidy", json!(1)), ("as-before", json!(null))] {
        let mut one = spec("now", &pod("echo done"));
        one["successfulJobsHistoryLimit"] = limit;
        town.create(name, one).await;
        town.ended(name, 1).await;
    }
    sleep(Duration::from_secs(2)).await;
    let first = pods_of(&town, "tidy").await;
    assert_eq!(first.len(), 1, "for its log");
    for name in ["tidy", "as-before"] {
        town.trigger(name, "now").await;
        town.ended(name, 2).await;
    }
    let begun = Instant::now();
    while pods_of(&town, "tidy").await.iter().any(|name| first.contains(name)) {
        assert!(begun.elapsed() < PATIENCE, "the pod of the run before stays");
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(pods_of(&town, "tidy").await.len(), 1, "the newest stays");
    assert_eq!(pods_of(&town, "as-before").await.len(), 2);
    for name in ["tidy", "as-before"] {
        town.jobs().delete(name, &DeleteParams::default()).await.unwrap();
    }
    while !pods_of(&town, "tidy").await.is_empty() {
        assert!(begun.elapsed() < 2 * PATIENCE, "its pod outlives it");
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(pods_of(&town, "as-before").await.len(), 2, "as in the original");
}
