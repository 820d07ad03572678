//! ExtendedJobs that run for pods, as their first releases did.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use kubernetes::quarks::Dialect;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::gate::Gate;
use super::harness::{PATIENCE, Town, before, pod};
use super::names::{knows_pods, made};
use super::support::wait;

/// Runs for pods of the label `app=web`, and prints for which.
pub(super) fn runs_when(when: &str) -> Value {
    json!({
        "trigger": {"strategy": "podstate", "podstate": {
            "when": when, "selector": {"matchLabels": {"app": "web"}},
        }},
        "template": {"spec": pod("true")},
    })
}

/// A pod of somebody else; its uid.
pub(super) async fn begin(town: &Town, name: &str, app: &str) -> String {
    let pod = json!({
        "metadata": {"name": name, "labels": {"app": app}}, "spec": pod("sleep 600"),
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    made(town, &pod).await.metadata.uid.unwrap()
}

/// Waits until a pod runs: before, it has stages to come to that are followed.
pub(super) async fn runs(town: &Town, name: &str) {
    wait::until(&format!("{name} never runs"), PATIENCE, async || {
        let status = town.cluster.api::<Pod>().get(name).await.unwrap().status;
        let phase = status.as_ref().and_then(|status| status.phase.as_deref());
        if phase == Some("Running") { Ok(()) } else { Err(status) }
    })
    .await;
}

async fn end(town: &Town, name: &str) {
    let at_once = DeleteParams::default().grace_period(0);
    town.cluster.api::<Pod>().delete(name, &at_once).await.unwrap();
}

/// The uids that the pods of runs were triggered by.
async fn triggers(town: &Town) -> Vec<String> {
    let label = "fissile.cloudfoundry.org/triggering-pod";
    let of = |pod: Pod| pod.metadata.labels.and_then(|mut labels| labels.remove(label));
    let mut uids: Vec<String> = town.pods().await.into_iter().filter_map(of).collect();
    uids.sort();
    uids
}

async fn settle() {
    sleep(Duration::from_secs(3)).await;
}

async fn town(test: &str) -> Town {
    let mut town = Town::still(test).await;
    town.dialect = Dialect::ExtendedJob;
    town
}

#[tokio::test(flavor = "multi_thread")]
async fn each_pod_that_becomes_ready_has_a_run_and_those_that_were_have_none() {
    let mut town = town("pod-ready").await;
    town.start().await;
    begin(&town, "before", "web").await;
    runs(&town, "before").await;
    settle().await;
    town.create("smoke", runs_when("ready")).await;
    knows_pods(&town, "smoke").await;
    settle().await;
    assert_eq!(town.runs("smoke").await, 0, "it was ready before");
    let first = begin(&town, "first", "web").await;
    begin(&town, "other", "db").await;
    let run = town.ended("smoke", 1).await;
    assert_eq!((&run["trigger"], &run["succeeded"]), (&json!("pod-state"), &json!(true)));
    assert!(run["job"].as_str().unwrap().starts_with("smoke-first-"), "{run}");
    let second = begin(&town, "second", "web").await;
    town.ended("smoke", 2).await;
    settle().await;
    assert_eq!(town.runs("smoke").await, 2, "pods of runs are no triggers, nor are others");
    let mut expected = vec![first, second];
    expected.sort();
    assert_eq!(triggers(&town).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_came_and_went_while_no_controller_ran_have_their_runs() {
    let mut town = town("pod-away").await;
    town.start().await;
    begin(&town, "old", "web").await;
    runs(&town, "old").await;
    town.create("greets", runs_when("created")).await;
    town.create("mourns", runs_when("deleted")).await;
    for name in ["greets", "mourns"] {
        knows_pods(&town, name).await;
    }
    town.kill();
    let new = begin(&town, "new", "web").await;
    end(&town, "old").await;
    settle().await;
    town.start().await;
    let (greeted, mourned) = (town.ended("greets", 1).await, town.ended("mourns", 1).await);
    assert!(greeted["job"].as_str().unwrap().starts_with("greets-new-"), "{greeted}");
    assert!(mourned["job"].as_str().unwrap().starts_with("mourns-old-"), "{mourned}");
    settle().await;
    assert_eq!((town.runs("greets").await, town.runs("mourns").await), (1, 1));
    end(&town, "new").await;
    assert_eq!(town.ended("mourns", 2).await["succeeded"], true);
    assert!(triggers(&town).await.contains(&new));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_does_not_say_when_is_told_so() {
    let mut town = town("pod-none").await;
    town.start().await;
    let mut spec = runs_when("ready");
    spec["trigger"]["podstate"]["when"] = json!("often");
    town.create("a", spec).await;
    let says = |object: &Value, words: &str| {
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|it| it["message"].as_str().is_some_and(|it| it.starts_with(words)))
    };
    town.until("a", "told", |it| says(it, "spec.trigger.podstate.when: has to be")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_pod_that_comes_to_be_has_a_run_for_notready_and_those_of_jobs_have_none() {
    let mut town = town("pod-notready").await;
    town.start().await;
    town.create("a", runs_when("notready")).await;
    knows_pods(&town, "a").await;
    // No node takes it: it is never more than not ready.
    let pod = |name: &str, labels: Value| {
        let mut spec = pod("sleep 600");
        spec["nodeSelector"] = json!({"there": "is-none"});
        let pod = json!({"metadata": {"name": name, "labels": labels}, "spec": spec});
        serde_json::from_value::<Pod>(pod).unwrap()
    };
    let of_a_job = pod("of-a-job", json!({"app": "web", "job-name": "somebody-s"}));
    made(&town, &of_a_job).await;
    let by_itself = made(&town, &pod("by-itself", json!({"app": "web"}))).await;
    let run = town.ended("a", 1).await;
    assert!(run["job"].as_str().unwrap().starts_with("a-by-itself-"), "{run}");
    settle().await;
    assert_eq!(town.runs("a").await, 1, "a Job's pod is no trigger");
    assert_eq!(triggers(&town).await, [by_itself.metadata.uid.unwrap()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_pod_that_becomes_ready_again_has_a_run_each_time() {
    let mut town = town("pod-again").await;
    town.start().await;
    town.create("a", runs_when("ready")).await;
    knows_pods(&town, "a").await;
    let gate = Gate::new();
    let mut spec = before(&gate, pod("sleep 600"));
    spec["containers"][0]["readinessProbe"] = json!({
        "exec": {"command": ["test", "-e", "/gate/open"]},
        "periodSeconds": 1, "timeoutSeconds": 30, "failureThreshold": 1,
    });
    let one = json!({"metadata": {"name": "web", "labels": {"app": "web"}}, "spec": spec});
    let one: Pod = serde_json::from_value(one).unwrap();
    made(&town, &one).await;
    runs(&town, "web").await;
    assert_eq!(town.get("a").await["status"]["lastRun"], Value::Null, "it runs, and is not ready");
    gate.open();
    let first = town.ended("a", 1).await;
    let is_ready = async || {
        let pod = town.cluster.api::<Pod>().get("web").await.unwrap();
        let conditions = pod.status.unwrap().conditions.unwrap_or_default();
        conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True")
    };
    let is_unready = async || if is_ready().await { Err("still") } else { Ok(()) };
    gate.shut();
    wait::until("it stays ready", PATIENCE, is_unready).await;
    assert_eq!(town.runs("a").await, 1, "it was ready once, and is not");
    gate.open();
    let second = town.ended("a", 2).await;
    assert!(is_ready().await, "it is again");
    settle().await;
    assert_eq!(town.runs("a").await, 2);
    for run in [&first, &second] {
        assert!(run["job"].as_str().unwrap().starts_with("a-web-"), "{run}");
        assert_eq!((&run["trigger"], &run["succeeded"]), (&json!("pod-state"), &json!(true)));
    }
    assert_ne!(first["job"], second["job"]);
    let uid = town.cluster.api::<Pod>().get("web").await.unwrap().metadata.uid.unwrap();
    assert_eq!(triggers(&town).await, [uid.clone(), uid]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_becomes_ready_while_another_s_run_goes_on_has_its_own_though_it_is_gone_by_then()
{
    let mut town = town("pod-queued").await;
    town.start().await;
    let mut spec = runs_when("ready");
    spec["concurrencyPolicy"] = json!("Queue");
    spec["template"]["spec"] = pod("sleep 20");
    town.create("smoke", spec).await;
    knows_pods(&town, "smoke").await;
    let first = begin(&town, "first", "web").await;
    wait::until("it has no run", PATIENCE, async || {
        town.batch_jobs().await.pop().map(drop).ok_or("no Job")
    })
    .await;
    let brief = begin(&town, "brief", "web").await;
    let waits = |it: &Value| {
        it["status"]["conditions"].to_string().contains("it waits for the end of run 1")
    };
    town.until("smoke", "said to wait", waits).await;
    end(&town, "brief").await;
    let runs = (town.runs("smoke").await, town.ended_runs("smoke").await);
    assert_eq!(runs, (1, 0), "the first run goes on");
    let second = town.ended("smoke", 2).await;
    assert!(second["job"].as_str().unwrap().starts_with("smoke-brief-"), "{second}");
    settle().await;
    assert_eq!(town.runs("smoke").await, 2);
    let mut expected = vec![first, brief];
    expected.sort();
    assert_eq!(triggers(&town).await, expected);
}

/// By ExtendedJob, the uids of the pods that its runs were for.
async fn triggers_of_each(town: &Town) -> BTreeMap<String, BTreeSet<String>> {
    let mut all = BTreeMap::<_, BTreeSet<_>>::new();
    for pod in town.pods().await {
        let mut labels = pod.metadata.labels.unwrap_or_default();
        let mut of = |name: &str| labels.remove(&format!("fissile.cloudfoundry.org/{name}"));
        if let (Some(name), Some(uid)) = (of("ejob-name"), of("triggering-pod")) {
            all.entry(name).or_default().insert(uid);
        }
    }
    all
}

/// As Kubernetes spells them and as the original did, of pods whose label `env` is `a`, is `b`, and is not there.
#[tokio::test(flavor = "multi_thread")]
async fn each_operator_selects_the_pods_that_it_says_however_it_is_spelled() {
    let mut town = town("pod-operators").await;
    town.start().await;
    let one = |operator: &str, values: &[&str]| json!({"key": "env", "operator": operator, "values": values});
    let beyond = |operator: &str, value: &str| json!({"matchExpressions": [{"key": "index", "operator": operator, "values": [value]}]});
    let both = [one("exists", &[]), one("notin", &["a"])];
    let labelled = json!({"matchLabels": {"tier": "web"}, "matchExpressions": [one("!=", &["a"])]});
    let mut selectors = vec![
        ("all".to_owned(), json!({"matchExpressions": []}), &["a", "b", "without"][..]),
        ("both".to_owned(), json!({"matchExpressions": both}), &["b"][..]),
        ("labelled".to_owned(), labelled, &["b"][..]),
        ("above".to_owned(), beyond("gt", "1"), &["b"][..]),
        ("below".to_owned(), beyond("lt", "3"), &["a"][..]),
    ];
    for (what, operators, values, selected) in [
        ("is", &["In", "in", "=", "=="][..], &["a"][..], &["a"][..]),
        ("one-of", &["In", "in"], &["a", "b", "c"], &["a", "b"]),
        ("is-not", &["NotIn", "notin", "!="], &["a"], &["b", "without"]),
        ("none-of", &["NotIn", "notin"], &["a", "b", "c"], &["without"]),
        ("has", &["Exists", "exists"], &[], &["a", "b"]),
        ("has-not", &["DoesNotExist", "!"], &[], &["without"]),
    ] {
        for (place, operator) in operators.iter().enumerate() {
            let selector = json!({"matchExpressions": [one(operator, values)]});
            selectors.push((format!("{what}-{place}"), selector, selected));
        }
    }
    for (name, selector, _) in &selectors {
        let mut follows = runs_when("created");
        follows["trigger"]["podstate"]["selector"] = selector.clone();
        town.create(name, follows).await;
    }
    for (name, ..) in &selectors {
        knows_pods(&town, name).await;
    }
    let mut uids = BTreeMap::new();
    for (name, labels) in [
        ("a", json!({"env": "a", "tier": "web", "index": "1"})),
        ("b", json!({"env": "b", "tier": "web", "index": "3"})),
        ("without", json!({"tier": "db"})),
    ] {
        let one = json!({"metadata": {"name": name, "labels": labels}, "spec": pod("sleep 600")});
        let one: Pod = serde_json::from_value(one).unwrap();
        uids.insert(name, made(&town, &one).await.metadata.uid.unwrap());
    }
    let mut expected = BTreeMap::new();
    for (name, _, selected) in &selectors {
        for run in (1_u64..).take(selected.len()) {
            assert_eq!(town.ended(name, run).await["trigger"], "pod-state", "{name}");
        }
        let of: BTreeSet<_> = selected.iter().map(|pod| uids[pod].clone()).collect();
        expected.insert(name.clone(), of);
    }
    settle().await;
    for (name, _, selected) in &selectors {
        assert_eq!(town.runs(name).await, selected.len() as u64, "{name}");
    }
    assert_eq!(triggers_of_each(&town).await, expected);
}
