//! ExtendedJobs that run when what they refer to changes.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, PostParams};
use kubernetes::quarks::Dialect;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::harness::{Town, pod};

/// By now a change would have a run.
const SOON: Duration = Duration::from_secs(3);

async fn town(test: &str) -> Town {
    let mut town = Town::new(test).await;
    town.dialect = Dialect::ExtendedJob;
    town
}

fn prints(script: &str, prefix: &str, versioned: bool) -> Value {
    json!({
        "trigger": {"strategy": "once"}, "template": {"spec": pod(script)},
        "output": {"namePrefix": prefix, "versioned": versioned},
    })
}

/// Prints what `config` holds and what `word` does, which its first container reads.
fn reads(follows: bool) -> Value {
    let mut spec = prints(r#"echo "{\"read\": \"$key\"}""#, "read", false);
    spec["updateOnConfigChange"] = json!(follows);
    let pod = &mut spec["template"]["spec"];
    pod["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "config"}}]);
    pod["initContainers"] = json!([{
        "name": "first", "image": testkit::cluster::SHELL_IMAGE, "command": ["true"],
        "env": [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "word", "key": "key"}}}],
    }]);
    spec
}

async fn word(town: &Town, value: &str) {
    town.make_secret(json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "word"}, "stringData": {"key": value},
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extended_job_that_follows_its_configuration_runs_again_when_it_has_changed() {
    let mut town = town("ejob-follows").await;
    town.config_map("config", "1").await;
    word(&town, "1").await;
    town.create("follows", reads(true)).await;
    town.create("does-not", reads(false)).await;
    for name in ["follows", "does-not"] {
        assert_eq!(town.ended(name, 1).await["trigger"], "once", "{name}");
    }
    town.config_map("config", "2").await;
    let run = town.ended("follows", 2).await;
    assert_eq!((&run["trigger"], &run["made"]), (&json!("config-change"), &json!(["read-c"])));
    assert_eq!(town.data("read-c").await["read"], "2");
    word(&town, "2").await;
    assert_eq!(
        town.ended("follows", 3).await["trigger"],
        "config-change",
        "of the first container"
    );
    // What changes while no controller runs counts, and a restart does not.
    town.kill();
    town.config_map("config", "3").await;
    town.start().await;
    assert_eq!(town.ended("follows", 4).await["trigger"], "config-change");
    assert_eq!(town.data("read-c").await["read"], "3");
    sleep(SOON).await;
    assert_eq!((town.runs("follows").await, town.runs("does-not").await), (4, 1));
    assert_eq!(town.get("follows").await["spec"]["trigger"]["strategy"], "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_version_of_what_one_prints_runs_another_that_refers_to_it() {
    let town = town("ejob-chain").await;
    let script = |value: &str| format!(r#"echo '{{"k": "{value}"}}'"#);
    town.create("writer", prints(&script("1"), "link", true)).await;
    assert_eq!(town.ended("writer", 1).await["made"], json!(["link-c-v1"]));
    let mut reader = prints(r#"echo "{\"read\": \"$k\"}""#, "read", false);
    reader["updateOnConfigChange"] = json!(true);
    reader["template"]["spec"]["containers"][0]["envFrom"] =
        json!([{"secretRef": {"name": "link-c-v1"}}]);
    town.create("reader", reader).await;
    town.ended("reader", 1).await;
    assert_eq!(town.data("read-c").await["read"], "1");
    town.patch("writer", json!({"spec": {"template": {"spec": pod(&script("2"))}}})).await;
    town.trigger("writer", "now").await;
    assert_eq!(town.ended("writer", 2).await["made"], json!(["link-c-v2"]));
    assert_eq!(town.ended("reader", 2).await["trigger"], "config-change");
    assert_eq!(town.data("read-c").await["read"], "2");
    // That the newest is gone is no change; the one before comes back, as it was.
    town.cluster.api::<Secret>().delete("link-c-v2", &DeleteParams::default()).await.unwrap();
    let other: Secret = serde_json::from_value(json!({"metadata": {"name": "other-v9"}})).unwrap();
    town.cluster.api::<Secret>().create(&PostParams::default(), &other).await.unwrap();
    sleep(SOON).await;
    assert_eq!(town.runs("reader").await, 2);
}
