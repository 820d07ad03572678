//! Jobs of several completions that go on at once: the original took the first success for the end, and passed over a
//! count that went from none to several.

use std::os::unix::fs::PermissionsExt;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::harness::Town;
use super::output::{WELL, both_ways, makes};

/// All that begin within the same ten seconds end at once.
const AT_ONCE: &str = "sleep $((10 - $(date +%s) % 10))";

/// One whose Job has so many completions, of which so many go on at once, and whose output is kept under its name.
fn several(name: &str, script: &str, completions: u64, parallelism: u64) -> Value {
    let mut spec = makes(&format!("{AT_ONCE}; {script}"), json!({"name": name}));
    spec["template"]["spec"]["completions"] = json!(completions);
    spec["template"]["spec"]["parallelism"] = json!(parallelism);
    spec
}

/// In which phases the pods of one are.
async fn phases(town: &Town, name: &str) -> Vec<String> {
    let of = ListParams::default().labels(&format!("quarks.cloudfoundry.org/qjob-name={name}"));
    let pods = town.cluster.api::<Pod>().list(&of).await.unwrap();
    let mut phases: Vec<_> = pods
        .into_iter()
        .map(|pod| pod.status.and_then(|it| it.phase).unwrap_or_default())
        .collect();
    phases.sort();
    phases
}

/// It has run once and well, its output is kept, and its Job is gone.
async fn ran_once(town: &Town, name: &str) {
    let run = town.ended(name, 1).await;
    assert_eq!((&run["succeeded"], &run["made"]), (&json!(true), &json!([name])), "{run}");
    assert_eq!(town.data(name).await["bar"], "baz");
    town.until(name, "completed", |it| it["status"]["completed"] == true).await;
    town.no_jobs().await;
    assert_eq!(town.runs(name).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn d12_completions_that_come_at_once_end_one_run_with_the_last() {
    for town in both_ways("d12-at-once").await {
        for (completions, parallelism) in [(2, 2), (3, 3), (3, 2)] {
            let name = format!("of-{completions}-by-{parallelism}");
            town.create(&name, several(&name, WELL, completions, parallelism)).await;
            ran_once(&town, &name).await;
            let expected = vec!["Succeeded"; usize::try_from(completions).unwrap()];
            assert_eq!(phases(&town, &name).await, expected, "{name}: with the last, and no more");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d12_a_completion_that_failed_and_was_tried_again_ends_one_run_well() {
    for town in both_ways("d12-again").await {
        // The node and this test share a machine. Who makes the folder is the first, and fails.
        let tries = tempfile::Builder::new().prefix("tries-").tempdir().unwrap();
        let all = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(tries.path(), all).unwrap();
        let script = format!("mkdir /tries/first && exit 3; {WELL}");
        let mut spec = several("a", &script, 3, 3);
        spec["template"]["spec"]["backoffLimit"] = json!(2);
        let pod = &mut spec["template"]["spec"]["template"]["spec"];
        pod["volumes"] = json!([{"name": "tries", "hostPath": {"path": tries.path()}}]);
        pod["containers"][0]["volumeMounts"] = json!([{"name": "tries", "mountPath": "/tries"}]);
        town.create("a", spec).await;
        ran_once(&town, "a").await;
        let expected = ["Failed", "Succeeded", "Succeeded", "Succeeded"];
        assert_eq!(phases(&town, "a").await, expected);
    }
}
