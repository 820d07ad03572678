//! What stands beside a command: the agent, its sidecar, and what others put into a pod.

use serde_json::{Value, json};

use super::harness::Town;
use super::hundred::numbered;
use super::named::limit;
use super::output::{WELL, makes};

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_begins_by_itself_has_a_sidecar() {
    let mut town = Town::still("sidecar").await;
    town.settings.wraps = false;
    town.start().await;
    town.create("well", makes(&format!("sleep 2; {WELL}"), json!({"name": "well"}))).await;
    town.create("missing", makes("true", json!({"name": "missing"}))).await;
    let mut fails = makes(&format!("{WELL}; exit 3"), json!({"name": "fails"}));
    fails["output"]["writeOnFailure"] = json!(true);
    town.create("fails", fails).await;
    assert_eq!(town.ended("well", 1).await["succeeded"], true);
    assert_eq!(town.data("well").await["bar"], "baz");
    assert_eq!(town.ended("missing", 1).await["reason"], "OutputMissing");
    let run = town.ended("fails", 1).await;
    assert_eq!((&run["succeeded"], &run["made"]), (&json!(false), &json!(["fails"])), "{run}");
    for pod in town.pods().await {
        let containers = pod.spec.unwrap().containers;
        assert!(containers.iter().any(|container| container.name == "output-persist"));
    }
}

/// One whose pod has a container that never ends. A mesh puts it there after the Job was made: here the pod is made to have it
/// from the beginning.
fn beside_a_mesh() -> Value {
    let mut spec = makes(WELL, json!({"name": "made"}));
    let template = &mut spec["template"]["spec"]["template"];
    let containers = template["spec"]["containers"].as_array_mut().unwrap();
    let mut mesh = containers[0].clone();
    (mesh["name"], mesh["args"]) = (json!("mesh"), json!(["-c", "sleep 600"]));
    containers.push(mesh);
    template["metadata"] = json!({"annotations": {"manciple.dev/containers": "c"}});
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_put_into_a_pod_and_never_ends_hangs_nothing() {
    let town = Town::new("mesh").await;
    town.create("a", beside_a_mesh()).await;
    assert_eq!(town.ended("a", 1).await["succeeded"], true);
    assert_eq!(town.data("made").await["bar"], "baz");
    town.no_jobs().await;
    town.nothing_runs().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_never_ends_gives_its_place_to_the_next_of_several_completions() {
    let town = Town::new("several").await;
    let mut spec = beside_a_mesh();
    (spec["template"]["spec"]["completions"], spec["template"]["spec"]["parallelism"]) =
        (json!(3), json!(1));
    town.create("a", spec).await;
    let run = town.ended("a", 1).await;
    assert_eq!(run["succeeded"], true, "{run}");
    assert_eq!(town.pods().await.len(), 3, "as many as were wanted, and no more");
    assert_eq!(town.data("made").await["bar"], "baz");
    town.no_jobs().await;
    town.nothing_runs().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_somebody_removes_is_brought_again() {
    let town = Town::new("agent-gone").await;
    town.create("first", makes(WELL, json!({"name": "first"}))).await;
    town.ended("first", 1).await;
    let maps = town.cluster.api::<k8s_openapi::api::core::v1::ConfigMap>();
    let all = kube::api::ListParams::default().labels("manciple.dev/keeps=agent");
    maps.delete_collection(&Default::default(), &all).await.unwrap();
    town.create("second", makes(WELL, json!({"name": "second"}))).await;
    assert_eq!(town.ended("second", 1).await["succeeded"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_containers_each_has_its_output_kept() {
    // The kubelet shares 12 KiB among the messages of a pod: with so many, none holds a report.
    const MANY: usize = 100;
    let town = Town::new("many").await;
    let mut spec = makes("", json!({"name": "made"}));
    let containers = &mut spec["template"]["spec"]["template"]["spec"]["containers"];
    let one = containers[0].clone();
    let all = (0..MANY).map(|number| {
        let mut one = one.clone();
        one["name"] = json!(format!("c{number}"));
        one["args"] = json!(["-c", numbered(number)]);
        one
    });
    *containers = all.collect();
    let outputs = (0..MANY).map(|number| {
        (format!("c{number}"), json!({"o.json": {"name": format!("made-{number}")}}))
    });
    spec["output"]["outputMap"] = outputs.collect();
    town.create("a", spec).await;
    let run = town.ended("a", 1).await;
    assert_eq!(run["made"].as_array().unwrap().len(), MANY, "{run}");
    for number in [0, MANY / 2, MANY - 1] {
        assert_eq!(town.data(&format!("made-{number}")).await["k"], number.to_string());
    }
}

/// Their pods have theirs, and wait for no other.
#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_ends_though_the_agent_that_somebody_removed_cannot_be_brought() {
    let mut town = Town::still("agent-not").await;
    town.settings.wraps = false;
    town.start().await;
    town.create("a", makes(&format!("sleep 8; {WELL}"), json!({"name": "made"}))).await;
    town.one_runs("a").await;
    limit(&town, "count/configmaps", "0").await;
    let maps = town.cluster.api::<k8s_openapi::api::core::v1::ConfigMap>();
    let all = kube::api::ListParams::default().labels("manciple.dev/keeps=agent");
    maps.delete_collection(&Default::default(), &all).await.unwrap();
    town.until("a", "refused", |it| it["status"].to_string().contains("exceeded quota")).await;
    assert_eq!(town.ended("a", 1).await["succeeded"], true);
    assert_eq!(town.data("made").await["bar"], "baz");
}
