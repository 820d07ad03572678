//! Whose a Secret is that runs have written: of one that was deleted and made anew, and of several under one prefix.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Patch, PostParams};
use kubernetes::quarks::Dialect;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::calls::Calls;
use super::harness::{Town, pod, spec};

/// A uid that nothing has any more.
const GONE: &str = "5e0c4a5e-0000-4000-8000-000000000001";

/// Leaves this, in what the options say, once.
fn makes(output: &str, options: Value) -> Value {
    let mut spec = spec("once", &pod(&format!("echo '{output}' > /mnt/quarks/o.json")));
    spec["output"] = json!({"outputMap": {"c": {"o.json": options}}});
    spec
}

/// What is left of one of this name that is gone. No garbage collector takes it away: it does not know this version.
fn left_by(dialect: Dialect, name: &str) -> Value {
    json!({
        "name": "made", "labels": {format!("{}/container-name", dialect.group()): "c"},
        "ownerReferences": [{
            "apiVersion": format!("{}/v1", dialect.group()), "kind": dialect.kind(), "name": name,
            "uid": GONE, "controller": true,
        }],
    })
}

async fn leave(town: &Town, metadata: Value) -> Secret {
    let secret = json!({"metadata": metadata, "stringData": {"k": "old"}});
    let secret = serde_json::from_value(secret).unwrap();
    town.cluster.api::<Secret>().create(&PostParams::default(), &secret).await.unwrap()
}

/// The names and uids of what the Secret belongs to.
fn owners(secret: &Secret) -> Vec<(String, String)> {
    let owners = secret.metadata.owner_references.iter().flatten();
    owners.map(|owner| (owner.name.clone(), owner.uid.clone())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_of_its_name_has_left_that_is_gone_is_made_anew_and_costs_three_calls_more() {
    let mut town = Town::still("anew-owner").await;
    let calls = Calls::default();
    town.start_with(calls.of(&town.cluster.client, &town.cluster.namespace)).await;
    // Has the agent brought into the namespace.
    town.create("first", makes(r#"{"k": "v"}"#, json!({"name": "other"}))).await;
    town.ended("first", 1).await;
    town.no_jobs().await;
    for (name, output, owned) in
        [("owned", r#"{"k": "new"}"#, true), ("free", r#"{"k": "old"}"#, false)]
    {
        let before = leave(&town, left_by(Dialect::QuarksJob, name)).await;
        sleep(Duration::from_secs(1)).await;
        calls.take();
        let mut spec = makes(output, json!({"name": "made"}));
        spec["output"]["setOwnerReference"] = json!(owned);
        town.create(name, spec).await;
        let run = town.ended(name, 1).await;
        assert_eq!(
            (&run["reason"], &run["made"]),
            (&json!("Completed"), &json!(["made"])),
            "{run}"
        );
        town.no_jobs().await;
        sleep(Duration::from_secs(1)).await;
        let expected = [
            "PATCH quarksjobs",
            "POST jobs",
            "GET quarksjobs",
            "DELETE secrets",
            "POST secrets",
            "PATCH quarksjobs/status",
            "DELETE jobs",
        ];
        assert_eq!(calls.take(), expected, "{name}");
        let made = town.secret("made").await.unwrap();
        // Who collects garbage names what it deletes by its uid.
        assert_ne!(made.metadata.uid, before.metadata.uid, "{name}");
        let uid = town.jobs().get(name).await.unwrap().metadata.uid.unwrap();
        let expected = owned.then(|| (name.to_owned(), uid)).into_iter().collect::<Vec<_>>();
        assert_eq!(owners(&made), expected, "{name}");
        assert!(output.contains(&town.data("made").await["k"]), "{name}");
        town.cluster.api::<Secret>().delete("made", &DeleteParams::default()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_up_on_its_way_out_is_waited_for_and_that_is_said() {
    let town = Town::new("anew-held-up").await;
    let mut metadata = left_by(Dialect::QuarksJob, "a");
    metadata["finalizers"] = json!(["manciple.dev/test"]);
    leave(&town, metadata).await;
    let mut spec = makes(r#"{"k": "new"}"#, json!({"name": "made"}));
    spec["output"]["setOwnerReference"] = json!(true);
    town.create("a", spec).await;
    let says = |it: &Value| it["status"]["conditions"].to_string().contains("secret/made");
    let object = town.until("a", "said to wait", says).await;
    assert_eq!(object["status"]["history"].as_array().map_or(0, Vec::len), 0, "{object:#}");
    let free = json!({"metadata": {"finalizers": null}});
    let secrets = town.cluster.api::<Secret>();
    secrets.patch("made", &Default::default(), &Patch::Merge(free)).await.unwrap();
    let run = town.ended("a", 1).await;
    assert_eq!(run["reason"], "Completed", "{run}");
    assert_eq!(town.data("made").await["k"], "new");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_map_and_what_an_extended_job_prints_are_made_anew_too() {
    let mut town = Town::new("anew-kinds").await;
    let map = json!({"metadata": left_by(Dialect::QuarksJob, "a"), "data": {"k": "old"}});
    let map: ConfigMap = serde_json::from_value(map).unwrap();
    let maps = town.cluster.api::<ConfigMap>();
    maps.create(&PostParams::default(), &map).await.unwrap();
    let options = json!({"name": "made", "kind": "ConfigMap"});
    town.create("a", makes(r#"{"k": "new"}"#, options)).await;
    let run = town.ended("a", 1).await;
    assert_eq!(run["reason"], "Completed", "{run}");
    assert_eq!(maps.get("made").await.unwrap().data.unwrap()["k"], "new");
    town.dialect = Dialect::ExtendedJob;
    let mut metadata = left_by(Dialect::ExtendedJob, "a");
    metadata["name"] = json!("made-c");
    leave(&town, metadata).await;
    let extended = json!({
        "trigger": {"strategy": "once"}, "output": {"namePrefix": "made"},
        "template": {"spec": pod(r#"echo '{"k": "new"}'"#)},
    });
    town.create("a", extended).await;
    let run = town.ended("a", 1).await;
    assert_eq!(run["reason"], "Completed", "{run}");
    assert_eq!(town.data("made-c").await["k"], "new");
}

/// `kubectl replace --force`, while Kubernetes collects what the one before has left.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_replaced_by_force_keeps_what_its_first_run_has_left() {
    let town = Town::new("anew-forced").await;
    let files =
        json!({"o.json": {"name": "made"}, "v.json": {"name": "version", "versioned": true}});
    let script = r#"for file in o v; do echo '{"k": "same"}' > /mnt/quarks/$file.json; done"#;
    let mut spec = spec("once", &pod(script));
    spec["output"] = json!({"outputMap": {"c": files}, "setOwnerReference": true});
    town.create("a", spec.clone()).await;
    town.ended("a", 1).await;
    for _ in 0..3 {
        town.jobs().delete("a", &DeleteParams::background()).await.unwrap();
        town.create("a", spec.clone()).await;
        let run = town.ended("a", 1).await;
        assert_eq!(run["reason"], "Completed", "{run}");
        let made = run["made"].as_array().unwrap().clone();
        let uid = town.jobs().get("a").await.unwrap().metadata.uid.unwrap();
        // For longer than Kubernetes takes to collect what is left.
        for _ in 0..12 {
            for name in &made {
                let name = name.as_str().unwrap();
                let secret =
                    town.secret(name).await.unwrap_or_else(|| panic!("{name} went: {run}"));
                assert_eq!(owners(&secret), [("a".to_owned(), uid.clone())], "{name}");
            }
            sleep(Duration::from_millis(500)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_makes_under_the_prefix_of_what_fans_out_is_followed() {
    let town = Town::new("fan-other").await;
    // Other each time: whoever runs for it runs for ever.
    let script = r#"echo "{\"own\": \"{\\\"k\\\": \\\"$(date +%s%N)\\\"}\"}" > /mnt/quarks/o.json"#;
    let mut reader = spec("once", &pod(script));
    let options = json!({"name": "all", "persistencemethod": "fan-out"});
    reader["output"] = json!({"outputMap": {"c": {"o.json": options}}});
    reader["updateOnConfigChange"] = json!(true);
    reader["template"]["spec"]["template"]["spec"]["containers"][0]["envFrom"] = json!([
        {"secretRef": {"name": "all-own", "optional": true}},
        {"secretRef": {"name": "all-else", "optional": true}},
    ]);
    town.create("reader", reader).await;
    assert_eq!(town.ended("reader", 1).await["made"], json!(["all-own"]));
    town.create("maker", makes(r#"{"k": "1"}"#, json!({"name": "all-else"}))).await;
    town.ended("maker", 1).await;
    assert_eq!(town.ended("reader", 2).await["trigger"], "config-change");
    sleep(Duration::from_secs(3)).await;
    assert_eq!(town.runs("reader").await, 2, "what it has made itself is no news to it");
    // It says as much to whoever reads it.
    let made = town.secret("all-else").await.unwrap().metadata.annotations.unwrap();
    assert_eq!(made["manciple.dev/made-by"], "quarksjob/maker");
}
