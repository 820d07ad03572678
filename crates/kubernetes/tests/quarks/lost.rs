//! Pods that are taken away under a run, and output that went with them or cannot be read: nothing hangs, no such run is
//! a success, and its condition and an Event say what came of it.

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::time::Duration;

use super::beyond::events;
use super::gate::{Gate, WAITS};
use super::harness::{Town, before, pod, spec};
use super::support::wait;

const PATIENCE: Duration = Duration::from_secs(120);

/// Once, with the name of its pod in the Secret `made`: that is written, and then it waits. Tried again so often.
fn waits_at(gate: &Gate, tries: u32) -> Value {
    let script = format!(r#"echo "{{\"pod\": \"$POD\"}}" > /mnt/quarks/o.json; {WAITS}"#);
    let mut pod = before(gate, pod(&script));
    pod["containers"][0]["env"] = json!([{
        "name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
    }]);
    makes(&pod, tries)
}

fn makes(pod: &Value, tries: u32) -> Value {
    let mut spec = spec("once", pod);
    spec["template"]["spec"]["backoffLimit"] = json!(tries);
    spec["output"] = json!({"outputMap": {"c": {"o.json": {"name": "made"}}}});
    spec
}

/// Waits for a pod that runs and is none of these.
async fn running(town: &Town, others: &[String]) -> String {
    wait::until("no pod runs", PATIENCE, async || {
        let runs = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
        };
        let names = town.pods().await.into_iter().filter(runs);
        let mut names = names.filter_map(|pod| pod.metadata.name);
        names.find(|name| !others.contains(name)).ok_or("no other")
    })
    .await
}

/// Waits until there is no such pod any more.
async fn gone(town: &Town, pod: &str) {
    let pods = town.cluster.api::<Pod>();
    wait::until(&format!("{pod} stays"), PATIENCE, async || {
        pods.get_opt(pod).await.unwrap().map_or(Ok(()), Err)
    })
    .await;
}

/// The run of this number came to nothing for this reason, and its condition and an Event say so.
async fn came_to_nothing(town: &Town, name: &str, id: u64, reason: &str, words: &str) -> Value {
    let run = town.ended(name, id).await;
    assert_eq!((&run["succeeded"], &run["reason"]), (&json!(false), &json!(reason)), "{run}");
    let message = run["message"].as_str().unwrap();
    assert!(message.contains(words), "{words}: {run}");
    let object = town.get(name).await;
    assert_eq!(object["status"]["completed"], false, "{object:#}");
    let conditions = object["status"]["conditions"].as_array().unwrap();
    let succeeded = conditions.iter().find(|it| it["type"] == "Succeeded").unwrap();
    assert_eq!(
        (&succeeded["status"], &succeeded["reason"], &succeeded["message"]),
        (&json!("False"), &json!(reason), &run["message"])
    );
    let told = (reason.to_owned(), format!("run {id}: {message}"));
    wait::until("no Event", PATIENCE, async || {
        let events = events(town, name).await;
        if events.contains(&told) { Ok(()) } else { Err(events) }
    })
    .await;
    run
}

/// By the API, as a node is drained: Kubernetes begins another.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_pod_that_is_evicted_nothing_is_kept_and_another_does_its_work() {
    for wraps in [true, false] {
        let mut town = Town::either_way("evicted", wraps).await;
        town.start().await;
        let gate = Gate::new();
        town.create("a", waits_at(&gate, 4)).await;
        let first = running(&town, &[]).await;
        town.cluster.api::<Pod>().evict(&first, &EvictParams::default()).await.unwrap();
        let second = running(&town, std::slice::from_ref(&first)).await;
        let ended = town.ended_runs("a").await;
        assert_eq!((ended, town.secret("made").await), (0, None), "it goes on");
        // Else both go on.
        gone(&town, &first).await;
        gate.open();
        let run = town.ended("a", 1).await;
        assert_eq!((&run["succeeded"], &run["made"]), (&json!(true), &json!(["made"])), "{run}");
        assert_eq!(town.data("made").await["pod"], second, "of the one that did the work");
        assert_eq!(town.runs("a").await, 1);
    }
}

/// By the kubelet, which lets the pod stand and says why.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_pod_its_kubelet_evicts_has_failed_and_says_so() {
    let mut towns = Vec::new();
    for wraps in [true, false] {
        let mut town = Town::either_way("kubelet-evicts", wraps).await;
        town.start().await;
        for (name, on_failure) in [("not", false), ("kept", true)] {
            let script = "echo '{\"k\": \"v\"}' > /mnt/quarks/o.json
                head -c 8388608 /dev/zero > /scratch/fill; sleep 600";
            let mut pod = pod(script);
            pod["volumes"] = json!([{"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}]);
            pod["containers"][0]["volumeMounts"] =
                json!([{"name": "scratch", "mountPath": "/scratch"}]);
            let mut spec = makes(&pod, 0);
            spec["output"]["outputMap"]["c"]["o.json"]["name"] = json!(name);
            spec["output"]["writeOnFailure"] = json!(on_failure);
            town.create(name, spec).await;
        }
        towns.push(town);
    }
    for town in &towns {
        let run = came_to_nothing(town, "not", 1, "BackoffLimitExceeded", "Evicted: ").await;
        assert!(run["message"].as_str().unwrap().contains("exceeds the limit"), "{run}");
        assert!(run["made"].is_null() && town.secret("not").await.is_none(), "{run}");
        let run = came_to_nothing(town, "kept", 1, "BackoffLimitExceeded", "Evicted: ").await;
        // Whether its kubelet still says how the containers ended is the kubelet's matter.
        let (made, message) = (town.secret("kept").await, run["message"].as_str().unwrap());
        match made {
            Some(_) => assert_eq!(run["made"], json!(["kept"])),
            None => assert!(message.contains("container c: o.json: "), "{run}"),
        }
    }
}

/// Waits until Kubernetes has counted its one Job's success.
async fn complete(town: &Town) {
    wait::until("its Job is never complete", PATIENCE, async || {
        let job = town.batch_jobs().await.remove(0);
        let succeeded = job.status.as_ref().and_then(|it| it.succeeded);
        if succeeded == Some(1) { Ok(()) } else { Err(job) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_went_with_its_pod_while_no_controller_ran_is_lost_and_the_run_no_success() {
    for wraps in [true, false] {
        let mut town = Town::either_way("output-lost", wraps).await;
        town.start().await;
        let gate = Gate::new();
        town.create("a", waits_at(&gate, 0)).await;
        let pod = running(&town, &[]).await;
        town.kill();
        if !wraps {
            // Nobody tells the sidecar but the controller: it goes with the pod.
            let mut kubectl = testkit::cluster::kubectl();
            kubectl.args(["-n", &town.cluster.namespace, "annotate", "pod", &pod]);
            assert!(kubectl.arg("manciple.dev/ended=true").output().unwrap().status.success());
        }
        gate.open();
        complete(&town).await;
        let pods = town.cluster.api::<Pod>();
        pods.delete(&pod, &DeleteParams::default().grace_period(0)).await.unwrap();
        gone(&town, &pod).await;
        town.start().await;
        let words = "no pod that ended well is there any more: its output went with it";
        came_to_nothing(&town, "a", 1, "OutputLost", words).await;
        assert!(town.secret("made").await.is_none());
        town.trigger("a", "now").await;
        assert_eq!(town.ended("a", 2).await["made"], json!(["made"]), "the next is as any other");
    }
}

/// The Secret with the keys that runs are sealed to.
async fn keys(town: &Town) -> Secret {
    let secrets = town.cluster.api::<Secret>().list(&ListParams::default()).await.unwrap();
    let name = |secret: &Secret| secret.metadata.name.clone().unwrap();
    secrets.into_iter().find(|secret| name(secret).starts_with("keys-")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_is_sealed_to_the_key_before_comes_home() {
    for wraps in [true, false] {
        let mut town = Town::either_way("output-rotated", wraps).await;
        town.start().await;
        let gate = Gate::new();
        town.create("a", waits_at(&gate, 0)).await;
        running(&town, &[]).await;
        let before = keys(&town).await;
        // As old as a key gets: whoever looks next makes another.
        let rotated = json!({"manciple.dev/rotated": "2020-01-01T00:00:00Z"});
        let patch = Patch::Merge(json!({"metadata": {"annotations": rotated}}));
        let (secrets, params) = (town.cluster.api::<Secret>(), PatchParams::default());
        let name = before.metadata.name.as_deref().unwrap();
        secrets.patch(name, &params, &patch).await.unwrap();
        town.kill();
        town.start().await;
        let newest = |secret: &Secret| secret.data.as_ref().unwrap()["newest"].clone();
        wait::until("no key was made", PATIENCE, async || {
            let now = newest(&keys(&town).await);
            if now == newest(&before) { Err("the newest is the one before") } else { Ok(()) }
        })
        .await;
        gate.open();
        assert_eq!(town.ended("a", 1).await["made"], json!(["made"]));
        town.trigger("a", "now").await;
        assert_eq!(town.ended("a", 2).await["succeeded"], true, "with the new one");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_whose_key_is_gone_is_unreadable_and_the_run_no_success() {
    for wraps in [true, false] {
        let mut town = Town::either_way("output-unreadable", wraps).await;
        town.start().await;
        let gate = Gate::new();
        town.create("a", waits_at(&gate, 0)).await;
        running(&town, &[]).await;
        town.kill();
        let secrets = town.cluster.api::<Secret>();
        for secret in secrets.list(&ListParams::default()).await.unwrap() {
            let name = secret.metadata.name.unwrap();
            if name.starts_with("keys-") {
                secrets.delete(&name, &DeleteParams::default()).await.unwrap();
            }
        }
        town.start().await;
        gate.open();
        let words = "container c: o.json: it is sealed to the key ";
        came_to_nothing(&town, "a", 1, "OutputUnreadable", words).await;
        assert!(town.secret("made").await.is_none());
        town.trigger("a", "now").await;
        assert_eq!(town.ended("a", 2).await["made"], json!(["made"]), "with the key of now");
    }
}
