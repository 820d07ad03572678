//! Where runs are not to meet, no container of one goes on beside those of another, however the first came to its end.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PropagationPolicy};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::harness::{PATIENCE, Town, pod, spec};

/// How long a pod takes to end that is told to, in seconds.
const TAKES: u64 = 6;
const LOOK: Duration = Duration::from_millis(50);

/// Works for long, and takes its time when it is told to end.
fn slow(policy: &str) -> Value {
    let words = format!("trap 'sleep {TAKES}; exit 1' TERM; sleep 300 & wait");
    let mut spec = spec("now", &pod(&words));
    spec["template"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(30);
    spec["concurrencyPolicy"] = json!(policy);
    spec
}

/// The pods of one whose container goes on, by their uid.
async fn at_work(town: &Town, name: &str) -> BTreeSet<String> {
    let is_its = |pod: &&Pod| {
        let labels = pod.metadata.labels.as_ref();
        labels.is_some_and(|all| all.get("quarks.cloudfoundry.org/qjob-name") == Some(&name.into()))
    };
    let goes_on = |pod: &&Pod| {
        let mut states =
            pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        states.any(|it| it.state.as_ref().is_some_and(|state| state.running.is_some()))
    };
    let pods = town.pods().await;
    let working = pods.iter().filter(is_its).filter(goes_on);
    working.filter_map(|pod| pod.metadata.uid.clone()).collect()
}

/// Waits until another pod of one works than this; at no time both do.
async fn until_another_works(town: &Town, name: &str, first: &str) {
    let begun = Instant::now();
    loop {
        let at_work = at_work(town, name).await;
        assert!(at_work.len() < 2, "{name}: two at once");
        if at_work.iter().any(|uid| uid != first) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{name}: no other pod begins");
        sleep(LOOK).await;
    }
}

async fn until_it_works(town: &Town, name: &str) -> String {
    let begun = Instant::now();
    loop {
        if let Some(uid) = at_work(town, name).await.pop_first() {
            return uid;
        }
        assert!(begun.elapsed() < PATIENCE, "{name}: no pod begins");
        sleep(LOOK).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_takes_the_place_of_another_begins_when_the_pods_of_that_have_ended() {
    let town = Town::new("apart-replaced").await;
    town.create("a", slow("Replace")).await;
    let first = until_it_works(&town, "a").await;
    town.trigger("a", "now").await;
    let begun = Instant::now();
    until_another_works(&town, "a", &first).await;
    assert!(begun.elapsed() >= Duration::from_secs(TAKES), "it was not waited for");
    assert_eq!(town.ended("a", 1).await["reason"], "Replaced");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_waits_for_one_whose_job_is_deleted_begins_when_its_pods_have_ended() {
    let mut town = Town::new("apart-deleted").await;
    let mut firsts = Vec::new();
    for policy in ["Forbid", "Queue"] {
        let name = policy.to_lowercase();
        town.create(&name, slow(policy)).await;
        firsts.push((name.clone(), until_it_works(&town, &name).await));
    }
    let how = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    for job in town.batch_jobs().await {
        town.cluster.api::<Job>().delete(&job.metadata.name.unwrap(), &how).await.unwrap();
    }
    for (name, first) in &firsts {
        assert_eq!(town.ended(name, 1).await["reason"], "Lost");
        assert!(at_work(&town, name).await.contains(first), "{name}: its pod goes on");
        town.trigger(name, "now").await;
    }
    // Whoever leads after that has only the pods.
    town.kill();
    town.start().await;
    for (name, first) in &firsts {
        until_another_works(&town, name, first).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_waits_for_one_whose_time_is_up_begins_when_its_pods_have_ended() {
    let town = Town::new("apart-late").await;
    let mut late = slow("Queue");
    late["template"]["spec"]["activeDeadlineSeconds"] = json!(20);
    town.create("a", late).await;
    let first = until_it_works(&town, "a").await;
    town.trigger("a", "now").await;
    until_another_works(&town, "a", &first).await;
    assert_eq!(town.ended("a", 1).await["reason"], "DeadlineExceeded");
}

/// What nobody has told to end is waited for, and that is said with the remedy.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_was_left_behind_is_named_while_it_is_waited_for() {
    let town = Town::new("apart-orphan").await;
    town.create("a", slow("Queue")).await;
    let first = until_it_works(&town, "a").await;
    let how = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    let job = town.batch_jobs().await.remove(0).metadata.name.unwrap();
    town.cluster.api::<Job>().delete(&job, &how).await.unwrap();
    town.ended("a", 1).await;
    town.trigger("a", "now").await;
    let says = |object: &Value| {
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let waiting = conditions.filter(|it| it["type"] == "Waiting" && it["status"] == "True");
        let mut messages = waiting.filter_map(|it| it["message"].as_str());
        messages.any(|it| it.contains("pods of a run that is over; to wait no longer, delete them"))
    };
    town.until("a", "told what it waits for", says).await;
    assert_eq!(town.runs("a").await, 1);
    let pod = town.pods().await.into_iter().find(|pod| pod.metadata.uid.as_ref() == Some(&first));
    let name = pod.unwrap().metadata.name.unwrap();
    let pods = town.cluster.api::<Pod>();
    pods.delete(&name, &DeleteParams::default().grace_period(1)).await.unwrap();
    until_another_works(&town, "a", &first).await;
    town.until("a", "told that it waits no more", |object| !says(object)).await;
}
