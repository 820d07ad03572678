//! What somebody puts into a namespace to keep others from running there, or to run something of their own.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testkit::cluster;
use tokio::time::sleep;

use super::harness::{Town, pod, spec};
use super::support::{packed_agent, wait};

const WELL: &str = r#"echo '{"k": "v"}' > /mnt/quarks/o.json"#;

/// What it waits for, as kubectl shows it: what it says may be too deep for a decoder.
fn waits(town: &Town, name: &str) -> String {
    let path = r#"jsonpath={.status.conditions[?(@.type=="Waiting")].message}"#;
    let mut kubectl = cluster::kubectl();
    let shown = kubectl.args(["-n", &town.cluster.namespace, "get", "quarksjob", name, "-o", path]);
    String::from_utf8(shown.output().unwrap().stdout).unwrap()
}

async fn until_it_waits(town: &Town, name: &str, words: &str) {
    let what = format!("{name} does not say that it waits");
    wait::until(&what, Duration::from_secs(60), async || {
        let said = waits(town, name);
        if said.contains(words) { Ok(()) } else { Err(said) }
    })
    .await;
}

fn keeps(script: &str, secret: &str) -> Value {
    let mut spec = spec("manual", &pod(script));
    spec["output"] = json!({"outputMap": {"c": {"o.json": {"name": secret}}}});
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_nested_too_deep_says_so_and_keeps_no_other_from_running() {
    let mut town = Town::still("deep").await;
    let mut deep = spec("now", &pod("true"));
    deep["template"]["deep"] = (0..150).fold(json!("x"), |within, _| json!([within]));
    cluster::apply(&json!({
        "apiVersion": "quarks.cloudfoundry.org/v1alpha1", "kind": "QuarksJob",
        "metadata": {"name": "deep", "namespace": town.cluster.namespace}, "spec": deep,
    }));
    town.start().await;
    town.create("a", spec("now", &pod("true"))).await;
    assert_eq!(town.ended("a", 1).await["succeeded"], true);
    until_it_waits(&town, "deep", "spec: is nested more than 127 levels deep: make it flatter")
        .await;
    // Whoever comes after begins with a list that it is in.
    town.kill();
    town.start().await;
    town.trigger("a", "now").await;
    assert_eq!(town.ended("a", 2).await["succeeded"], true);
    // Merge patches leave what they do not name.
    let mend = r#"[{"op": "remove", "path": "/spec/template/deep"}]"#;
    let mut kubectl = cluster::kubectl();
    kubectl.args(["-n", &town.cluster.namespace, "patch", "quarksjob", "deep", "--type=json"]);
    assert!(kubectl.args(["-p", mend]).output().unwrap().status.success());
    assert_eq!(town.ended("deep", 1).await["succeeded"], true, "it is mended, and runs");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_has_put_in_place_of_the_agent_is_not_run() {
    let town = Town::new("planted-agent").await;
    town.create("a", keeps(WELL, "made")).await;
    town.trigger("a", "now").await;
    assert_eq!(town.ended("a", 1).await["made"], json!(["made"]));
    let maps: Api<ConfigMap> = town.cluster.api();
    let agents = ListParams::default().labels("manciple.dev/keeps=agent");
    let agent = maps.list(&agents).await.unwrap().items.remove(0);
    let name = agent.metadata.name.clone().unwrap();
    maps.delete(&name, &DeleteParams::default()).await.unwrap();
    let mut planted = agent;
    planted.metadata = serde_json::from_value(json!({"name": name})).unwrap();
    for content in planted.binary_data.iter_mut().flat_map(|data| data.values_mut()) {
        content.0 = b"#!/bin/sh\necho mine".to_vec();
    }
    // The controller may have made it again by then.
    while maps.create(&PostParams::default(), &planted).await.is_err() {
        maps.delete(&name, &DeleteParams::default()).await.unwrap();
    }
    sleep(Duration::from_secs(1)).await;
    town.trigger("a", "now").await;
    until_it_waits(&town, "a", "holds something else than the agent of that name: delete it").await;
    assert!(town.pods().await.len() == 1, "nothing was run meanwhile");
    maps.delete(&name, &DeleteParams::default()).await.unwrap();
    assert_eq!(town.ended("a", 2).await["succeeded"], true);
}

/// Of two containers, each of a user of its own, one replaces all that is where the agent is; then the other is started
/// again.
fn replaces_what_is_executed() -> Value {
    let replaces = format!(
        "until [ -e /share/begun ]; do sleep 0.1; done
         for file in $(find /manciple -type f); do rm -f $file && mkdir $file; done
         touch /share/replaced; {WELL}"
    );
    let again = format!(
        "[ ! -e /share/replaced ] || {{ {WELL}; exit 0; }}
         touch /share/begun; until [ -e /share/replaced ]; do sleep 0.1; done; exit 1"
    );
    let mut pod = pod(&replaces);
    let mut other = pod["containers"][0].clone();
    (other["name"], other["args"]) = (json!("d"), json!(["-c", again]));
    pod["containers"].as_array_mut().unwrap().push(other);
    for (container, user) in pod["containers"].as_array_mut().unwrap().iter_mut().zip([1000, 2000])
    {
        container["securityContext"] = json!({
            "runAsNonRoot": true, "runAsUser": user, "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
        });
        container["volumeMounts"] = json!([{"name": "share", "mountPath": "/share"}]);
    }
    pod["volumes"] = json!([{"name": "share", "emptyDir": {}}]);
    pod["restartPolicy"] = json!("OnFailure");
    let mut spec = spec("once", &pod);
    spec["template"]["spec"]["backoffLimit"] = json!(3);
    spec["output"] = json!({"outputMap": {
        "c": {"o.json": {"name": "of-c"}}, "d": {"o.json": {"name": "of-d"}},
    }});
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn no_container_of_a_pod_can_change_what_another_executes() {
    for delivery in [packed_agent().into(), cluster::AGENT_IMAGE.into()] {
        let mut town = Town::still("apart").await;
        town.settings.delivery = delivery;
        town.start().await;
        town.create("a", replaces_what_is_executed()).await;
        let run = town.ended("a", 1).await;
        let made = json!(["of-c", "of-d"]);
        assert_eq!((&run["succeeded"], &run["made"]), (&json!(true), &made), "{run}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_is_deleted_and_held_is_waited_for_and_not_let_go_by_a_run() {
    let town = Town::new("held-secret").await;
    town.make_secret(json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "made", "finalizers": ["example.com/holds"]},
        "stringData": {"k": "v"},
    }))
    .await;
    let secrets: Api<Secret> = town.cluster.api();
    secrets.delete("made", &DeleteParams::default()).await.unwrap();
    town.create("a", keeps(WELL, "made")).await;
    town.trigger("a", "now").await;
    until_it_waits(&town, "a", "secret/made is deleted, and does not go: has it finalizers?").await;
    let free = json!({"metadata": {"finalizers": null}});
    secrets.patch("made", &PatchParams::default(), &Patch::Merge(free)).await.unwrap();
    assert_eq!(town.ended("a", 1).await["succeeded"], true);
    assert_eq!(town.data("made").await, [("k".to_owned(), "v".to_owned())].into());
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_is_asked_for_in_mid_run_is_of_the_next() {
    let town = Town::new("asked-later").await;
    town.create("a", spec("now", &pod(&format!("sleep 3; {WELL}")))).await;
    town.one_runs("a").await;
    let asked = json!({"spec": {"output": {"outputMap": {"c": {"o.json": {"name": "made"}}}}}});
    town.patch("a", asked).await;
    let first = town.ended("a", 1).await;
    assert_eq!((&first["succeeded"], first.get("made")), (&json!(true), None), "{first}");
    town.trigger("a", "now").await;
    assert_eq!(town.ended("a", 2).await["made"], json!(["made"]));
}
