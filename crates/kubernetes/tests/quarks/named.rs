//! Why a run does not get on, in the conditions of its QuarksJob: within ten seconds of Kubernetes knowing.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod, ResourceQuota};
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use testkit::processor::Processor;

use super::harness::{PATIENCE, Town, pod, spec};
use super::support::wait;

/// What Kubernetes knows is named within this time.
const SOON: Duration = Duration::from_secs(10);

/// Waits until Kubernetes says this, and then until the QuarksJob `a` does.
async fn is_named(town: &Town, is_known: impl AsyncFn() -> bool, words: &str) {
    wait::until("Kubernetes does not say it", PATIENCE, async || {
        if is_known().await { Ok(()) } else { Err(words) }
    })
    .await;
    let known = Processor::now();
    let says = |object: &Value| object["status"]["conditions"].to_string().contains(words);
    town.until("a", "named", says).await;
    println!("{words}: {:?} after Kubernetes knew", known.elapsed());
    assert!(known.elapsed() < SOON, "after {:?}", known.elapsed());
}

/// As [`is_named`], where the status of the pod says it.
async fn is_named_of_pod(town: &Town, told: &[&str], words: &str) {
    let is_known = async || {
        let all: Vec<Pod> = town.pods().await;
        let said = |pod: &Pod| serde_json::to_string(&pod.status).unwrap();
        all.iter().any(|pod| told.iter().any(|told| said(pod).contains(told)))
    };
    is_named(town, is_known, words).await;
}

/// As [`is_named`], where an event of Kubernetes says it.
async fn is_named_of_event(town: &Town, told: &str, words: &str) {
    let is_known = async || {
        let all: Vec<Event> = town.list().await;
        // Ours are of the QuarksJob.
        let mut all =
            all.iter().filter(|it| it.involved_object.kind.as_deref() != Some("QuarksJob"));
        all.any(|event| event.message.as_deref().is_some_and(|it| it.contains(told)))
    };
    is_named(town, is_known, words).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_somebody_deletes_is_named() {
    let town = Town::new("named-deleted").await;
    town.create("a", spec("once", &pod("sleep 600"))).await;
    town.one_runs("a").await;
    let job = town.batch_jobs().await.remove(0).metadata.name.unwrap();
    let jobs = town.cluster.api::<Job>();
    jobs.delete(&job, &DeleteParams::background()).await.unwrap();
    is_named(&town, async || town.batch_jobs().await.is_empty(), "Lost").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_its_kubelet_evicts_is_named() {
    let town = Town::new("named-evicted").await;
    let mut pod = pod("head -c 8388608 /dev/zero > /scratch/fill; sleep 600");
    pod["volumes"] = json!([{"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}]);
    pod["containers"][0]["volumeMounts"] = json!([{"name": "scratch", "mountPath": "/scratch"}]);
    let mut spec = spec("once", &pod);
    spec["template"]["spec"]["backoffLimit"] = json!(0);
    town.create("a", spec).await;
    is_named_of_pod(&town, &["Evicted"], "Evicted: ").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_not_there_is_named() {
    let town = Town::new("named-program").await;
    let mut pod = pod("true");
    pod["containers"][0]["command"] = json!(["/no/such/program"]);
    town.create("a", spec("once", &pod)).await;
    is_named_of_pod(&town, &["\"terminated\"", "ContainerCannotRun"], "/no/such/program").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_is_exceeded_is_named() {
    let town = Town::new("named-quota").await;
    limit(&town, "pods", "0").await;
    town.create("a", spec("once", &pod("true"))).await;
    let words = "its pod is forbidden: exceeded quota: none";
    is_named_of_event(&town, "exceeded quota: none", words).await;
}

pub(super) async fn limit(town: &Town, of: &str, most: &str) {
    let quota = json!({"metadata": {"name": "none"}, "spec": {"hard": {of: most}}});
    let quota: ResourceQuota = serde_json::from_value(quota).unwrap();
    let quotas = town.cluster.api::<ResourceQuota>();
    quotas.create(&PostParams::default(), &quota).await.unwrap();
    // The API server goes by it once it is counted.
    let is_counted = |it: &ResourceQuota| it.status.as_ref().is_some_and(|it| it.hard.is_some());
    wait::until("nobody counts", PATIENCE, async || {
        let quota = quotas.get("none").await.unwrap();
        if is_counted(&quota) { Ok(()) } else { Err(quota) }
    })
    .await;
}

/// The API server refuses the Job itself: it knows at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_quota_of_jobs_that_is_exceeded_is_named() {
    let town = Town::new("named-jobs").await;
    limit(&town, "count/jobs.batch", "0").await;
    town.create("a", spec("once", &pod("true"))).await;
    is_named(&town, async || true, "exceeded quota: none").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_map_and_a_secret_that_are_not_there_are_named() {
    let town = Town::new("named-missing").await;
    let mut pod = pod("true");
    pod["containers"][0]["envFrom"] =
        json!([{"configMapRef": {"name": "config"}}, {"secretRef": {"name": "secret"}}]);
    town.create("a", spec("once", &pod)).await;
    is_named(&town, async || true, "it waits for configmap/config, secret/secret").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_is_not_there_is_named() {
    let town = Town::new("named-account").await;
    let mut pod = pod("true");
    pod["serviceAccountName"] = json!("nobody");
    town.create("a", spec("once", &pod)).await;
    is_named_of_event(&town, "\"nobody\" not found", "serviceaccount \\\"nobody\\\" not found")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_cannot_be_mounted_is_named() {
    let town = Town::new("named-mount").await;
    let mut pod = pod("true");
    let folder = json!({"path": "/manciple.test/there-is-none", "type": "Directory"});
    pod["volumes"] = json!([{"name": "folder", "hostPath": folder}]);
    pod["containers"][0]["volumeMounts"] = json!([{"name": "folder", "mountPath": "/folder"}]);
    town.create("a", spec("once", &pod)).await;
    is_named_of_event(&town, "is not a directory", "is not a directory").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_cannot_be_pulled_is_named() {
    let town = Town::new("named-pull").await;
    let mut pod = pod("true");
    pod["containers"][0]["image"] = json!("manciple.test/there-is-none:1");
    pod["containers"][0]["imagePullPolicy"] = json!("Always");
    town.create("a", spec("once", &pod)).await;
    let words = "manciple.test/there-is-none:1 cannot be pulled";
    is_named_of_pod(&town, &["ErrImagePull", "ImagePullBackOff"], words).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_no_node_takes_is_named() {
    let town = Town::new("named-node").await;
    let mut pod = pod("true");
    pod["nodeSelector"] = json!({"manciple.test/none": "such"});
    town.create("a", spec("once", &pod)).await;
    is_named_of_pod(&town, &["Unschedulable"], "Unschedulable: 0/").await;
}

/// The Job of the run before fills it, and is removed when that is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_waits_for_a_quota_begins_when_the_run_before_is_over() {
    let town = Town::new("named-next").await;
    limit(&town, "count/jobs.batch", "1").await;
    town.create("a", spec("now", &pod("sleep 5"))).await;
    the_next_is_refused_and_begins(&town).await;
}

/// A quota lets one run of "a" go on.
pub(super) async fn the_next_is_refused_and_begins(town: &Town) {
    town.one_runs("a").await;
    town.trigger("a", "now").await;
    let says =
        |object: &Value| object["status"]["conditions"].to_string().contains("exceeded quota");
    town.until("a", "named", says).await;
    for run in [1, 2] {
        assert_eq!(town.ended("a", run).await["succeeded"], true);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_ends_and_is_begun_again_is_named() {
    let town = Town::new("named-again").await;
    let mut fails = pod("exit 3");
    fails["restartPolicy"] = json!("OnFailure");
    let mut spec = spec("once", &fails);
    spec["template"]["spec"]["backoffLimit"] = json!(20);
    town.create("a", spec).await;
    let words = "its pod does not get on: container c: it ends with 3 and is begun again";
    is_named_of_pod(&town, &["CrashLoopBackOff"], words).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_no_scheduler_looks_at_is_named() {
    let town = Town::new("named-unlooked").await;
    let mut of_none = pod("true");
    of_none["schedulerName"] = json!("of-nobody");
    town.create("a", spec("once", &of_none)).await;
    let says = |object: &Value| {
        object["status"]["conditions"].to_string().contains("no scheduler has said a word of it")
    };
    town.until("a", "named", says).await;
}
