use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::beyond::events;
use super::gate::{Gate, WAITS};
use super::harness::{PATIENCE, Town, before, pod, spec};
use super::support::wait;

/// Leaves what it sees of `config`.
const SEES: &str = r#"echo "{\"key\": \"$key\"}" > /mnt/quarks/o.json"#;

/// Runs again when `config` or `secret` changes.
fn follows(strategy: &str) -> Value {
    let mut pod = pod("true");
    pod["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "config"}}]);
    pod["initContainers"] = json!([{
        "name": "first", "image": testkit::cluster::SHELL_IMAGE, "command": ["true"],
        "env": [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "key"}}}],
    }]);
    let mut spec = spec(strategy, &pod);
    spec["updateOnConfigChange"] = json!(true);
    spec
}

fn secret(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name}, "stringData": {"key": value},
    })
}

fn version(base: &str, version: u64) -> Value {
    let mut secret = secret(&format!("{base}-v{version}"), &version.to_string());
    secret["metadata"]["labels"] = json!({
        "quarks.cloudfoundry.org/secret-kind": "versionedSecret",
        "quarks.cloudfoundry.org/secret-version": version.to_string(),
    });
    secret
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_waits_for_what_comes_late_and_says_so() {
    let town = Town::new("late").await;
    town.create("a", follows("once")).await;
    let waits = |object: &Value| {
        let conditions = object["status"]["conditions"].as_array();
        let mut waiting = conditions.into_iter().flatten().filter(|it| it["type"] == "Waiting");
        waiting.find(|it| it["status"] == "True").map(|it| it["message"].clone())
    };
    let object = town.until("a", "waiting", |object| waits(object).is_some()).await;
    let words = "it waits for configmap/config, secret/secret";
    assert_eq!(waits(&object).unwrap(), words);
    town.config_map("config", "1").await;
    town.make_secret(secret("secret", "1")).await;
    assert_eq!(town.ended("a", 1).await["succeeded"], true);
    assert_eq!(waits(&town.get("a").await), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_changes_is_one_run_and_none_is_dropped() {
    let mut town = Town::still("burst").await;
    // Between two changes of one burst a busy machine may stand still.
    town.settings.settle = Duration::from_secs(4);
    town.start().await;
    town.config_map("config", "0").await;
    town.make_secret(secret("secret", "0")).await;
    let mut spec = follows("once");
    spec["template"]["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["-c", SEES]);
    spec["output"] = json!({"outputMap": {"c": {"o.json": {"name": "seen"}}}});
    town.create("a", spec).await;
    town.ended("a", 1).await;
    let record = town.jobs().get("a").await.unwrap().metadata.annotations.unwrap();
    assert!(record["manciple.dev/runs"].contains("secret/secret"), "{record:?}");
    for change in 1..=8 {
        town.config_map("config", &change.to_string()).await;
        town.make_secret(secret("secret", &change.to_string())).await;
    }
    let run = town.ended("a", 2).await;
    assert_eq!(run["trigger"], "config-change");
    assert_eq!(town.data("seen").await["key"], "8", "the last of them");
    let longer = town.settings.settle + Duration::from_secs(1);
    sleep(longer).await;
    assert_eq!(town.runs("a").await, 2);
    // One that comes during a run has another beside it: under `Queue` it is seen after it.
    let gate = Gate::new();
    let slow = json!({"spec": {"concurrencyPolicy": "Queue", "template": {"spec": {"template": {"spec": {
        "containers": [{
            "name": "c", "image": testkit::cluster::SHELL_IMAGE, "command": ["sh", "-c", format!("{WAITS}; {SEES}")],
            "envFrom": [{"configMapRef": {"name": "config"}}], "volumeMounts": [Gate::mount()],
        }],
        "volumes": [gate.volume()],
    }}}}}});
    town.patch("a", slow).await;
    town.config_map("config", "9").await;
    town.until("a", "running", |it| it["metadata"].is_null() && it["status"]["completed"] == false)
        .await;
    town.config_map("config", "10").await;
    let waits = |it: &Value| it["status"].to_string().contains("it waits for the end of run 3");
    town.until("a", "said to wait", waits).await;
    gate.open();
    town.ended("a", 4).await;
    assert_eq!(town.data("seen").await["key"], "10");
    sleep(longer).await;
    assert_eq!(town.runs("a").await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_mounted_as_it_is_and_single_keys_are_followed() {
    let town = Town::new("mounted").await;
    for name in ["mounted", "keyed"] {
        town.config_map(name, "0").await;
    }
    town.make_secret(secret("mounted", "0")).await;
    let mut pod = pod("true");
    pod["volumes"] = json!([
        {"name": "map", "configMap": {"name": "mounted"}},
        {"name": "secret", "secret": {"secretName": "mounted"}},
    ]);
    pod["containers"][0]["env"] = json!([
        {"name": "K", "valueFrom": {"configMapKeyRef": {"name": "keyed", "key": "key"}}},
    ]);
    let mut spec = spec("once", &pod);
    spec["updateOnConfigChange"] = json!(true);
    town.create("a", spec).await;
    town.ended("a", 1).await;
    town.config_map("mounted", "1").await;
    assert_eq!(town.ended("a", 2).await["trigger"], "config-change", "the ConfigMap");
    town.make_secret(secret("mounted", "1")).await;
    assert_eq!(town.ended("a", 3).await["trigger"], "config-change", "the Secret");
    town.config_map("keyed", "1").await;
    assert_eq!(town.ended("a", 4).await["trigger"], "config-change", "the key");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_hangs_on_a_bad_configuration_is_mended_by_a_good_one_as_the_policy_says() {
    let town = Town::new("mended").await;
    for (policy, reasons) in
        [("Allow", vec!["Completed"]), ("Replace", vec!["Completed", "Replaced"])]
    {
        let name = policy.to_lowercase();
        town.make_secret(secret(&name, "bad")).await;
        let mut pod = pod("until [ \"$key\" = good ]; do sleep 1; done");
        pod["containers"][0]["envFrom"] = json!([{"secretRef": {"name": name}}]);
        let mut spec = spec("once", &pod);
        spec["updateOnConfigChange"] = json!(true);
        spec["concurrencyPolicy"] = json!(policy);
        town.create(&name, spec).await;
        // What it hangs on is read when its container begins.
        town.one_runs(&name).await;
        town.make_secret(secret(&name, "good")).await;
        let run = town.ended(&name, 2).await;
        assert_eq!(
            (&run["trigger"], &run["reason"]),
            (&json!("config-change"), &json!("Completed"))
        );
        let object = town.get(&name).await;
        let history = object["status"]["history"].as_array().unwrap();
        let found: Vec<_> = history.iter().map(|run| run["reason"].as_str().unwrap()).collect();
        assert_eq!(found, reasons, "{policy}: {object:#}");
    }
}

/// One that has run, and follows both.
async fn followed(test: &str) -> Town {
    let town = Town::new(test).await;
    town.config_map("config", "0").await;
    town.make_secret(secret("secret", "0")).await;
    town.create("a", follows("once")).await;
    town.ended("a", 1).await;
    town
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_again_as_it_was_is_no_change() {
    let town = followed("same").await;
    let labelled = json!({"metadata": {"labels": {"new": "label"}}});
    let maps = town.cluster.api::<k8s_openapi::api::core::v1::ConfigMap>();
    let patch = kube::api::Patch::Merge(labelled);
    maps.patch("config", &Default::default(), &patch).await.unwrap();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(town.runs("a").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn data_that_is_binary_counts_too() {
    let town = followed("binary").await;
    let maps = town.cluster.api::<k8s_openapi::api::core::v1::ConfigMap>();
    for (run, bytes) in [(2, "AAE="), (3, "AAI=")] {
        let binary = kube::api::Patch::Merge(json!({"binaryData": {"bytes": bytes}}));
        maps.patch("config", &Default::default(), &binary).await.unwrap();
        assert_eq!(town.ended("a", run).await["trigger"], "config-change", "{bytes}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_refers_to_something_else_is_a_trigger_and_one_that_does_not_is_none() {
    let town = followed("refers").await;
    town.config_map("other", "0").await;
    let with = async |script: &str, refers: &str| {
        let mut spec = follows("done");
        let container = &mut spec["template"]["spec"]["template"]["spec"]["containers"][0];
        container["args"] = json!(["-c", script]);
        container["envFrom"] = json!([{"configMapRef": {"name": refers}}]);
        town.patch("a", json!({"spec": spec})).await;
    };
    with("echo another", "config").await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(town.runs("a").await, 1, "it refers to what it referred to");
    with("echo another", "other").await;
    assert_eq!(town.ended("a", 2).await["trigger"], "config-change");
    sleep(Duration::from_secs(2)).await;
    assert_eq!(town.runs("a").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn d9_d11_a_restart_runs_for_what_has_changed_meanwhile_and_for_nothing_else() {
    let mut town = Town::new("restart").await;
    town.config_map("config", "0").await;
    town.make_secret(secret("secret", "0")).await;
    town.make_secret(version("versioned", 2)).await;
    let versioned = {
        let mut pod = pod("cat /v/key");
        pod["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
        pod["volumes"] = json!([{"name": "v", "secret": {"secretName": "versioned-v1"}}]);
        let mut spec = spec("once", &pod);
        spec["updateOnConfigChange"] = json!(true);
        spec
    };
    town.create("versioned", versioned).await;
    town.create("a", follows("once")).await;
    town.ended("a", 1).await;
    town.ended("versioned", 1).await;
    town.kill();
    town.start().await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!((town.runs("a").await, town.runs("versioned").await), (1, 1), "nothing has changed");
    town.kill();
    town.config_map("config", "1").await;
    town.make_secret(version("versioned", 3)).await;
    town.start().await;
    for name in ["a", "versioned"] {
        assert_eq!(town.ended(name, 2).await["trigger"], "config-change", "{name}");
    }
    let jobs = town.pods().await;
    let mounts = |name: &str| jobs.iter().any(|pod| format!("{:?}", pod.spec).contains(name));
    assert!(mounts("versioned-v2") && mounts("versioned-v3") && !mounts("versioned-v1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn d7_d8_d10_what_happens_while_nobody_looks_is_not_lost() {
    let (mut town, gate) = (Town::new("away").await, Gate::new());
    town.create("ends", spec("once", &before(&gate, pod(WAITS)))).await;
    town.until("ends", "triggered", |it| it["spec"]["trigger"]["strategy"] == "done").await;
    town.one_runs("ends").await;
    town.kill();
    gate.open();
    town.create("once", spec("once", &pod("true"))).await;
    town.create("errand", spec("manual", &pod("true"))).await;
    town.trigger("errand", "now").await;
    let is_over =
        |pod: &Pod| pod.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Succeeded"));
    wait::until("its pod does not end", PATIENCE, async || {
        let pods = town.pods().await;
        if pods.iter().all(is_over) { Ok(()) } else { Err(pods) }
    })
    .await;
    town.start().await;
    for name in ["ends", "once", "errand"] {
        assert_eq!(town.ended(name, 1).await["succeeded"], true, "{name}");
    }
    town.no_jobs().await;
    assert_eq!(town.pods().await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_projected_volume_brings_is_waited_for_and_followed() {
    let town = Town::new("projected").await;
    let mut pod = pod("cat /in/map /in/secret");
    pod["volumes"] = json!([{"name": "in", "projected": {"sources": [
        {"configMap": {"name": "config", "items": [{"key": "key", "path": "map"}]}},
        {"secret": {"name": "secret", "items": [{"key": "key", "path": "secret"}]}},
        {"configMap": {"name": "absent", "optional": true}},
    ]}}]);
    pod["containers"][0]["volumeMounts"] = json!([{"name": "in", "mountPath": "/in"}]);
    let mut spec = spec("once", &pod);
    spec["updateOnConfigChange"] = json!(true);
    town.create("a", spec).await;
    let waits = |object: &Value| {
        let conditions = object["status"]["conditions"].to_string();
        conditions.contains("it waits for configmap/config, secret/secret")
    };
    town.until("a", "waiting", waits).await;
    town.config_map("config", "1").await;
    town.make_secret(secret("secret", "1")).await;
    assert_eq!(town.ended("a", 1).await["succeeded"], true);
    town.config_map("config", "2").await;
    assert_eq!(town.ended("a", 2).await["trigger"], "config-change");
    town.make_secret(secret("secret", "2")).await;
    assert_eq!(town.ended("a", 3).await["succeeded"], true);
    // What may be absent counts when it comes.
    town.config_map("absent", "1").await;
    assert_eq!(town.ended("a", 4).await["trigger"], "config-change");
    sleep(Duration::from_secs(3)).await;
    assert_eq!(town.runs("a").await, 4);
}

/// One that is told never to run beside another, in its first run: that waits at the gate, and `config`, which held `A`,
/// holds `B` by now.
async fn changed_in_mid_run(test: &str) -> (Town, Gate) {
    let (town, gate) = (Town::new(test).await, Gate::new());
    town.config_map("config", "A").await;
    let mut pod = before(&gate, pod(&format!("{WAITS}; {SEES}")));
    pod["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "config"}}]);
    let mut spec = spec("once", &pod);
    spec["updateOnConfigChange"] = json!(true);
    spec["concurrencyPolicy"] = json!("Forbid");
    spec["output"] = json!({"outputMap": {"c": {"o.json": {"name": "seen"}}}});
    town.create("a", spec).await;
    // What it sees is read when its container begins.
    town.one_runs("a").await;
    town.config_map("config", "B").await;
    town.until("a", "said to wait", waits_for_a_run).await;
    (town, gate)
}

fn waits_for_a_run(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut waiting = conditions.into_iter().flatten().filter(|it| it["type"] == "Waiting");
    let words = "it waits for the end of run 1";
    waiting.any(|it| it["status"] == "True" && it["message"].to_string().contains(words))
}

/// By now a further run would have begun.
async fn runs_after_a_while(town: &Town) -> u64 {
    town.no_jobs().await;
    sleep(Duration::from_secs(3)).await;
    town.runs("a").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_meets_a_run_under_forbid_waits_for_its_end_and_is_one_run() {
    let (town, gate) = changed_in_mid_run("forbid").await;
    gate.open();
    let run = town.ended("a", 2).await;
    assert_eq!((&run["trigger"], &run["succeeded"]), (&json!("config-change"), &json!(true)));
    assert_eq!(town.data("seen").await["key"], "B");
    assert_eq!(runs_after_a_while(&town).await, 2);
    let told = events(&town, "a").await;
    assert!(told.iter().all(|(reason, _)| reason != "PassedOver"), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_taken_back_before_the_run_that_it_met_has_ended_is_none() {
    let (town, gate) = changed_in_mid_run("taken-back").await;
    town.config_map("config", "A").await;
    town.until("a", "quiet", |object| !waits_for_a_run(object)).await;
    gate.open();
    assert_eq!(town.ended("a", 1).await["succeeded"], true);
    assert_eq!(town.data("seen").await["key"], "A");
    assert_eq!(runs_after_a_while(&town).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_a_container_of_the_beginning_refers_to_is_followed() {
    let town = Town::new("first-refers").await;
    for name in ["keyed", "whole"] {
        town.config_map(name, "0").await;
        town.make_secret(secret(name, "0")).await;
    }
    let mut pod = pod("true");
    let mut first = pod["containers"][0].clone();
    first["name"] = json!("first");
    let keyed = json!({"name": "keyed", "key": "key"});
    first["env"] = json!([
        {"name": "OF_MAP", "valueFrom": {"configMapKeyRef": keyed}},
        {"name": "OF_SECRET", "valueFrom": {"secretKeyRef": keyed}},
    ]);
    let whole = json!({"name": "whole"});
    first["envFrom"] = json!([{"configMapRef": whole}, {"secretRef": whole}]);
    pod["initContainers"] = json!([first]);
    let mut spec = spec("once", &pod);
    spec["updateOnConfigChange"] = json!(true);
    town.create("a", spec).await;
    town.ended("a", 1).await;
    let mut run = 1;
    for name in ["keyed", "whole"] {
        for is_secret in [false, true] {
            match is_secret {
                true => town.make_secret(secret(name, "1")).await,
                false => town.config_map(name, "1").await,
            }
            run += 1;
            let ended = town.ended("a", run).await;
            assert_eq!(ended["trigger"], "config-change", "{name}, a Secret: {is_secret}");
            assert_eq!(runs_after_a_while(&town).await, run, "{name}, a Secret: {is_secret}");
        }
    }
}
