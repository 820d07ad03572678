//! A secret that a run is given and leaves as output is in its Secrets, and nowhere else.

use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod};
use kube::api::{ListParams, LogParams};
use kubernetes::quarks::Dialect;
use serde_json::{Value, json};

use super::harness::{Town, pod, spec};

const PLANTED: &str = "planted-0c5d1f";
/// The same as a Secret's data has it.
const ENCODED: &str = "cGxhbnRlZC0wYzVkMWY=";

/// A pod that has the secret in `$P`.
fn knows(script: &str) -> Value {
    let mut pod = pod(script);
    let from = json!({"secretKeyRef": {"name": "given", "key": "key"}});
    pod["containers"][0]["env"] = json!([{"name": "P", "valueFrom": from}]);
    pod
}

/// A QuarksJob whose Jobs stay, to be looked at.
fn writes(script: &str, name: &str) -> Value {
    let mut spec = spec("once", &knows(script));
    spec["successfulJobsHistoryLimit"] = json!(1);
    spec["output"] = json!({"outputMap": {"c": {"o.json": {"name": name}}}});
    spec
}

/// An ExtendedJob whose Jobs stay.
fn prints(script: &str, prefix: &str) -> Value {
    json!({
        "trigger": {"strategy": "once"}, "successfulJobsHistoryLimit": 1,
        "template": {"spec": knows(script)}, "output": {"namePrefix": prefix},
    })
}

async fn town(test: &str, dialect: Dialect, wraps: bool) -> Town {
    let mut town = Town::still(test).await;
    town.dialect = dialect;
    town.settings.wraps = wraps;
    let given = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "given"}, "stringData": {"key": PLANTED},
    });
    town.make_secret(given).await;
    town.start().await;
    town
}

/// All that may be read there without a right to Secrets, by what it is.
async fn readable(town: &Town) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut add = |what: &str, object: String| all.push((what.to_owned(), object));
    for object in town.jobs().list(&ListParams::default()).await.unwrap() {
        add("resource", serde_json::to_string(&object).unwrap());
    }
    for object in town.batch_jobs().await {
        add("Job", serde_json::to_string(&object).unwrap());
    }
    for object in town.list::<Event>().await {
        add("Event", serde_json::to_string(&object).unwrap());
    }
    for object in town.list::<ConfigMap>().await {
        add("ConfigMap", serde_json::to_string(&object).unwrap());
    }
    let pods = town.pods().await;
    for pod in &pods {
        add("pod", serde_json::to_string(pod).unwrap());
    }
    for pod in pods {
        for container in pod.spec.unwrap().containers {
            let params = LogParams { container: Some(container.name), ..LogParams::default() };
            let name = pod.metadata.name.clone().unwrap();
            let log = town.cluster.api::<Pod>().logs(&name, &params).await.unwrap();
            all.push((format!("log of {name}"), log));
        }
    }
    all
}

/// That the secret is nowhere but in Secrets, in a namespace in which there are these.
async fn is_nowhere_else(town: &Town, kinds: &[&str]) {
    let readable = readable(town).await;
    for kind in kinds {
        assert!(readable.iter().any(|(what, _)| what.starts_with(kind)), "there is no {kind}");
    }
    for (what, text) in readable {
        let shown = text.contains(PLANTED) || text.contains(ENCODED);
        assert!(!shown, "the secret is in a {what}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_a_run_writes_is_in_its_secret_and_nowhere_else() {
    let good = r#"echo "{\"k\": \"$P\"}" > /mnt/quarks/o.json"#;
    let large = r#"{ printf '{"k": "'; head -c 300000 /dev/zero | tr '\0' x
        printf '%s"}' "$P"; } > /mnt/quarks/o.json"#;
    let no_json = r#"echo "$P" > /mnt/quarks/o.json"#;
    let no_text = r#"echo "{\"k\": [\"$P\"]}" > /mnt/quarks/o.json"#;
    for (test, wraps) in [("planted", true), ("planted-sidecar", false)] {
        let town = town(test, Dialect::QuarksJob, wraps).await;
        for (name, script) in
            [("good", good), ("large", large), ("no-json", no_json), ("no-text", no_text)]
        {
            town.create(name, writes(script, name)).await;
        }
        for (name, succeeds) in
            [("good", true), ("large", true), ("no-json", false), ("no-text", false)]
        {
            let run = town.ended(name, 1).await;
            assert_eq!(run["succeeded"], succeeds, "{test} {name}: {run}");
        }
        assert_eq!(town.data("good").await["k"], PLANTED);
        assert!(town.data("large").await["k"].ends_with(PLANTED), "by the log, sealed");
        is_nowhere_else(&town, &["resource", "Job", "Event", "ConfigMap", "pod", "log"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_an_extended_job_prints_is_in_its_secret_and_nowhere_else() {
    let town = town("planted-ejob", Dialect::ExtendedJob, true).await;
    let printed = r#"echo "{\"k\": \"$P\"}""#;
    let large = r#"printf '{"k": "'; head -c 300000 /dev/zero | tr '\0' x; printf '%s"}' "$P""#;
    let file = r#"echo working; echo "{\"k\": \"$P\"}" > /mnt/quarks/output.json"#;
    let no_text = r#"echo "{\"k\": [\"$P\"]}""#;
    for (name, script, succeeds) in [
        ("printed", printed, true),
        ("large", large, true),
        ("file", file, true),
        ("no-text", no_text, false),
    ] {
        town.create(name, prints(script, name)).await;
        let run = town.ended(name, 1).await;
        assert_eq!(run["succeeded"], succeeds, "{name}: {run}");
        if succeeds {
            assert!(town.data(&format!("{name}-c")).await["k"].ends_with(PLANTED), "{name}");
        }
    }
    is_nowhere_else(&town, &["resource", "Job", "Event", "ConfigMap", "pod", "log"]).await;
}
