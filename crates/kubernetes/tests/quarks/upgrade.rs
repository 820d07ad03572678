//! What the original operator has left is carried on: nothing runs again, and nothing is lost.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

use super::harness::{PATIENCE, Town, pod, spec};
use super::support::wait;

/// As the original operator leaves one: with the strategy that it has come to, and a status.
async fn left(town: &Town, name: &str, strategy: &str, status: Value) {
    town.create(name, spec(strategy, &pod("exit 9"))).await;
    let patch = Patch::Merge(json!({"status": status}));
    town.jobs().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// A Job of it, as the original made them.
async fn job_of(town: &Town, name: &str, script: &str, labels: Value) -> String {
    let mut of_pod = json!({"quarks.cloudfoundry.org/qjob-name": name});
    of_pod.as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
    job_with(town, name, json!({"metadata": {"labels": of_pod}, "spec": pod(script)})).await
}

async fn job_with(town: &Town, name: &str, template: Value) -> String {
    let uid = town.jobs().get(name).await.unwrap().metadata.uid.unwrap();
    let job = format!("{name}-0123456789abcdef");
    let label = json!({"quarks.cloudfoundry.org/qjob-name": name});
    let object = json!({
        "metadata": {"name": job, "labels": label, "ownerReferences": [{
            "apiVersion": "quarks.cloudfoundry.org/v1alpha1", "kind": "QuarksJob", "name": name,
            "uid": uid, "controller": true, "blockOwnerDeletion": true,
        }]},
        "spec": {"backoffLimit": 0, "template": template},
    });
    let object: Job = serde_json::from_value(object).unwrap();
    town.cluster.api::<Job>().create(&PostParams::default(), &object).await.unwrap();
    job
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_the_original_has_begun_is_carried_on_and_not_run_again() {
    let mut town = Town::still("qjob-upgrade").await;
    let begun = json!({"completed": false, "lastReconcile": null});
    // Its Job was made, and the word was not changed any more; or it was.
    for (name, strategy) in [("stuck", "once"), ("goes", "done"), ("errand", "manual")] {
        left(&town, name, strategy, begun.clone()).await;
    }
    let names = ["stuck", "goes", "errand"];
    let mut jobs = Vec::new();
    for name in names {
        jobs.push(job_of(&town, name, "sleep 5", json!({})).await);
    }
    left(&town, "failed", "once", begun.clone()).await;
    let failed = job_of(&town, "failed", "exit 3", json!({})).await;
    left(&town, "tidy", "done", begun).await;
    job_of(&town, "tidy", "true", json!({"delete": "pod"})).await;
    town.start().await;
    for (name, job) in names.into_iter().zip(jobs) {
        let object = town.until(name, "completed", |it| it["status"]["completed"] == true).await;
        assert_eq!(object["status"]["lastRun"]["job"], *job, "{object:#}");
        let strategy = if name == "errand" { "manual" } else { "done" };
        assert_eq!(object["spec"]["trigger"]["strategy"], strategy, "{name}");
    }
    let run = town.ended("failed", 1).await;
    assert_eq!((&run["reason"], &run["job"]), (&json!("BackoffLimitExceeded"), &json!(failed)));
    town.ended("tidy", 1).await;
    let goes_with_its_job = |pod: &Pod| {
        let labels = pod.metadata.labels.as_ref().unwrap();
        labels.get("delete").is_none() || pod.metadata.deletion_timestamp.is_some()
    };
    let left = async || {
        let jobs = town.batch_jobs().await.into_iter();
        jobs.filter_map(|it| it.metadata.name).collect::<Vec<_>>()
    };
    wait::until("those that succeeded stay", PATIENCE, async || {
        let jobs = left().await;
        let is_tidy = jobs.len() <= 1 && town.pods().await.iter().all(goes_with_its_job);
        if is_tidy { Ok(()) } else { Err(jobs) }
    })
    .await;
    sleep(Duration::from_secs(2)).await;
    assert_eq!(left().await, [failed], "those that succeeded went, and none was begun");
    // From now on they are as any other.
    town.trigger("errand", "now").await;
    assert_eq!(town.ended("errand", 2).await["trigger"], "now");
}

/// Whoever may write its pods may have them say which of their containers do the work: it ends with these, and nobody asks
/// for the rest again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_the_original_has_begun_ends_by_what_its_pod_says() {
    let mut town = Town::still("qjob-said").await;
    left(&town, "a", "done", json!({"completed": false, "lastReconcile": null})).await;
    let mut two = pod("true");
    let mut other = two["containers"][0].clone();
    (other["name"], other["args"]) = (json!("other"), json!(["-c", "exec sleep 600"]));
    two["containers"].as_array_mut().unwrap().push(other);
    let metadata = json!({
        "labels": {"quarks.cloudfoundry.org/qjob-name": "a", "manciple.dev/triggered": "QuarksJob"},
        "annotations": {"manciple.dev/containers": "c"},
    });
    let job = job_with(&town, "a", json!({"metadata": metadata, "spec": two})).await;
    town.start().await;
    let run = town.ended("a", 1).await;
    assert_eq!((&run["succeeded"], &run["job"]), (&json!(true), &json!(job)), "{run}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_original_has_completed_stays_as_it_is() {
    let mut town = Town::still("qjob-before").await;
    let time = "2021-01-01T00:00:00Z";
    let over = json!({"completed": true, "lastReconcile": time});
    for strategy in ["once", "done", "manual"] {
        left(&town, strategy, strategy, over.clone()).await;
    }
    left(&town, "now", "now", json!({"completed": false, "lastReconcile": time})).await;
    let long = "a".repeat(80);
    left(&town, &long, "now", json!({"completed": false, "lastReconcile": time})).await;
    town.start().await;
    assert_eq!(town.ended("now", 1).await["trigger"], "now", "its word was not taken yet");
    assert_eq!(town.ended(&long, 1).await["trigger"], "now", "no Job of it could be made");
    for name in ["once", "done", "manual"] {
        let object = town.get(name).await;
        assert_eq!((&object["status"]["completed"], town.runs(name).await), (&json!(true), 0));
    }
}

/// The original compared with nothing, and ran each of these again at its first look where a version was of two or more.
#[tokio::test(flavor = "multi_thread")]
async fn d9_what_follows_a_version_of_the_original_is_not_run_again_until_there_is_another() {
    let mut town = Town::still("qjob-followed").await;
    let prefix = "quarks.cloudfoundry.org";
    let version = |version: u64| {
        json!({
            "metadata": {
                "name": format!("s-v{version}"),
                "labels": {
                    format!("{prefix}/secret-kind"): "versionedSecret",
                    format!("{prefix}/secret-version"): version.to_string(),
                },
            },
            "stringData": {"k": version.to_string()},
        })
    };
    for number in [1, 2, 3] {
        town.make_secret(version(number)).await;
    }
    let mut follows = pod("true");
    follows["volumes"] = json!([{"name": "s", "secret": {"secretName": "s-v3"}}]);
    follows["containers"][0]["volumeMounts"] = json!([{"name": "s", "mountPath": "/s"}]);
    let mut spec = spec("done", &follows);
    spec["updateOnConfigChange"] = json!(true);
    town.create("a", spec).await;
    let over = json!({"status": {"completed": true, "lastReconcile": "2021-01-01T00:00:00Z"}});
    let patch = Patch::Merge(over);
    town.jobs().patch_status("a", &PatchParams::default(), &patch).await.unwrap();
    town.start().await;
    // What it compares with is written down.
    wait::until("nothing is recorded", PATIENCE, async || {
        let found = town.jobs().get("a").await.unwrap().metadata.annotations.unwrap_or_default();
        match found.get("manciple.dev/runs").is_some_and(|it| it.contains("references")) {
            true => Ok(()),
            false => Err(found),
        }
    })
    .await;
    sleep(town.settings.settle * 3).await;
    assert_eq!((town.runs("a").await, town.batch_jobs().await.len()), (0, 0));
    town.make_secret(version(4)).await;
    assert_eq!(town.ended("a", 1).await["trigger"], "config-change");
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_of_the_original_are_counted_on() {
    let mut town = Town::still("qjob-versions").await;
    let mut one = spec("manual", &pod("echo '{\"k\": \"new\"}' > /mnt/quarks/o.json"));
    one["output"] = json!({"outputMap": {"c": {"o.json": {"name": "s", "versioned": true}}}});
    town.create("a", one).await;
    let uid = town.jobs().get("a").await.unwrap().metadata.uid.unwrap();
    let prefix = "quarks.cloudfoundry.org";
    for (version, value) in [("2", "b2xk"), ("3", "bmV3")] {
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {
                "name": format!("s-v{version}"),
                "labels": {
                    format!("{prefix}/secret-kind"): "versionedSecret",
                    format!("{prefix}/secret-version"): version,
                    format!("{prefix}/container-name"): "c",
                },
                "annotations": {format!("{prefix}/source-description"): "created by quarksJob"},
                "ownerReferences": [{
                    "apiVersion": format!("{prefix}/v1alpha1"), "kind": "QuarksJob", "name": "a",
                    "uid": uid, "controller": true, "blockOwnerDeletion": false,
                }],
            },
            "data": {"k": value},
        }))
        .unwrap();
        town.cluster.api::<Secret>().create(&PostParams::default(), &secret).await.unwrap();
    }
    town.start().await;
    town.trigger("a", "now").await;
    let run = town.ended("a", 1).await;
    assert_eq!(run["succeeded"], true, "{run}");
    assert!(town.secret("s-v4").await.is_none(), "the newest holds it already");
    town.patch(
        "a",
        json!({"spec": {"template": {"spec": {"template": {"spec": {"containers": [{
            "name": "c", "image": testkit::cluster::SHELL_IMAGE, "command": ["/bin/sh", "-c"],
            "args": ["echo '{\"k\": \"newer\"}' > /mnt/quarks/o.json"],
        }]}}}}}}),
    )
    .await;
    town.trigger("a", "now").await;
    assert_eq!(town.ended("a", 2).await["made"], json!(["s-v4"]));
}
