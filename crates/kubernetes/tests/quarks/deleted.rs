//! QuarksJobs that are deleted while they run: nothing is left of them, and nothing comes after.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::harness::{PATIENCE, Town, pod, spec};
use super::support::wait;

/// Ends well with its output when it is told to end: the worst moment to leave some.
const LATE: &str = r#"
    ends() { echo '{"k": "late"}' > /mnt/quarks/o.json; exit 0; }
    trap ends TERM; sleep 600 & wait"#;

fn with_output(pod: &Value, output: Value) -> Value {
    let mut spec = spec("once", pod);
    spec["template"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(10);
    spec["output"] = output;
    spec
}

/// Goes on until it is told to end, and leaves this Secret then.
fn late(secret: &str) -> Value {
    with_output(&pod(LATE), json!({"outputMap": {"c": {"o.json": {"name": secret}}}}))
}

/// Leaves a version and a Secret of its own when it is told `QUICK`; else it goes on. Its Jobs are kept.
fn keeps(name: &str) -> Value {
    let quick = r#"for file in v o; do echo '{"k": "v"}' > /mnt/quarks/$file.json; done"#;
    let script = format!("if [ -n \"$QUICK\" ]; then {quick}; else {LATE}; fi");
    let files = json!({
        "v.json": {"name": format!("{name}-version"), "versioned": true},
        "o.json": {"name": format!("{name}-owned")},
    });
    let output = json!({"outputMap": {"c": files}, "setOwnerReference": true});
    let mut spec = with_output(&pod(&script), output);
    spec["trigger"]["inputs"] = json!([{"name": "QUICK", "value": "yes"}]);
    spec["successfulJobsHistoryLimit"] = json!(1);
    spec
}

/// Leaves a Secret that is nobody's.
fn plain(secret: &str) -> Value {
    let script = r#"echo '{"k": "v"}' > /mnt/quarks/o.json"#;
    with_output(&pod(script), json!({"outputMap": {"c": {"o.json": {"name": secret}}}}))
}

/// The Secrets that runs have written.
async fn written(town: &Town) -> Vec<String> {
    let ours = |it: &Secret| {
        let labels = it.metadata.labels.as_ref();
        labels.is_some_and(|it| it.contains_key("quarks.cloudfoundry.org/container-name"))
    };
    let secrets = town.list::<Secret>().await.into_iter().filter(ours);
    secrets.filter_map(|it| it.metadata.name).collect()
}

/// Waits until nothing is left of what was deleted, and a while longer: nothing comes after.
async fn nothing_is_left(town: &Town) {
    town.no_jobs().await;
    town.nothing_runs().await;
    wait::until("a Secret stays", PATIENCE, async || {
        let written = written(town).await;
        if written.is_empty() { Ok(()) } else { Err(written) }
    })
    .await;
    for _ in 0..20 {
        assert_eq!(written(town).await, [""; 0], "a Secret stays, or comes after");
        sleep(Duration::from_millis(250)).await;
    }
    assert_eq!(town.batch_jobs().await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_deleted_in_mid_run_leaves_nothing_that_goes_on_or_is_its_own() {
    let town = Town::new("leaves-nothing").await;
    let ways = [("front", DeleteParams::foreground()), ("back", DeleteParams::background())];
    for (way, _) in &ways {
        let (kept, first) = (format!("kept-{way}"), format!("first-{way}"));
        town.create(&kept, keeps(&kept)).await;
        town.create(&first, late(&first)).await;
    }
    for (way, _) in &ways {
        let name = format!("kept-{way}");
        let made = town.ended(&name, 1).await["made"].clone();
        assert_eq!(made, json!([format!("{name}-owned"), format!("{name}-version-v1")]));
        town.trigger(&name, "now").await;
    }
    let runs = |it: &k8s_openapi::api::core::v1::Pod| {
        it.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Running"))
    };
    wait::until("not all four run", PATIENCE, async || {
        let pods = town.pods().await;
        if pods.iter().filter(|it| runs(it)).count() < 4 { Err(pods) } else { Ok(()) }
    })
    .await;
    // The trap has to be there before it is sprung.
    sleep(Duration::from_secs(1)).await;
    for (way, params) in &ways {
        for name in ["kept", "first"] {
            town.jobs().delete(&format!("{name}-{way}"), params).await.unwrap();
        }
    }
    nothing_is_left(&town).await;
    assert_eq!(town.jobs().list(&Default::default()).await.unwrap().items.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_is_not_its_own_stays_when_it_is_deleted() {
    let town = Town::new("stays").await;
    let ways = [("front", DeleteParams::foreground()), ("back", DeleteParams::background())];
    for (way, _) in &ways {
        town.create(way, plain(way)).await;
    }
    for (way, params) in &ways {
        town.ended(way, 1).await;
        town.jobs().delete(way, params).await.unwrap();
    }
    wait::until("they stay", PATIENCE, async || {
        let left = town.jobs().list(&Default::default()).await.unwrap().items;
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(written(&town).await, ["back", "front"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_deleted_while_no_controller_runs_leaves_nothing_and_another_of_its_name_is_new()
 {
    let mut town = Town::new("deleted-away").await;
    town.create("a", keeps("a")).await;
    assert_eq!(town.ended("a", 1).await["succeeded"], true);
    town.trigger("a", "now").await;
    town.create("b", late("late")).await;
    for name in ["a", "b"] {
        town.one_runs(name).await;
    }
    wait::until("its next Job is not there", PATIENCE, async || {
        let jobs = town.batch_jobs().await;
        if jobs.len() < 3 { Err(jobs) } else { Ok(()) }
    })
    .await;
    sleep(Duration::from_secs(1)).await;
    town.kill();
    town.jobs().delete("a", &DeleteParams::background()).await.unwrap();
    // This one is still there when the next controller begins.
    town.jobs().delete("b", &DeleteParams::foreground()).await.unwrap();
    town.start().await;
    nothing_is_left(&town).await;
    town.create("a", keeps("a")).await;
    let run = town.ended("a", 1).await;
    assert_eq!(run["trigger"], "once", "as if there had never been one: {run}");
    assert_eq!(run["made"], json!(["a-owned", "a-version-v1"]), "{run}");
    assert_eq!(town.runs("a").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_made_anew_at_once_runs_though_what_was_before_still_ends() {
    for is_away in [false, true] {
        let mut town = Town::new(if is_away { "anew-away" } else { "anew" }).await;
        town.create("a", late("made")).await;
        town.one_runs("a").await;
        sleep(Duration::from_secs(1)).await;
        let before = town.batch_jobs().await.remove(0).metadata.name.unwrap();
        if is_away {
            town.kill();
        }
        town.jobs().delete("a", &DeleteParams::background()).await.unwrap();
        let script = r#"echo '{"k": "new"}' > /mnt/quarks/o.json"#;
        let output = json!({"outputMap": {"c": {"o.json": {"name": "made"}}}});
        town.create("a", with_output(&pod(script), output)).await;
        if is_away {
            town.start().await;
        }
        let run = town.ended("a", 1).await;
        assert_eq!((&run["trigger"], &run["succeeded"]), (&json!("once"), &json!(true)), "{run}");
        assert_ne!(run["job"], json!(before), "it has a Job of its own");
        assert_eq!(town.data("made").await["k"], "new");
        town.no_jobs().await;
        sleep(Duration::from_secs(3)).await;
        assert_eq!(town.data("made").await["k"], "new", "what was before writes no more");
        assert_eq!(town.runs("a").await, 1);
    }
}
