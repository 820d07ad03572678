//! What is said of a pod beside what its policy says.

use std::time::Duration;

use engine::ports::StartError;
use serde_json::{Value, json};

use super::super::delivery::{Delivery, PackedAgent};
use super::super::manifest::{alone, of_catalog};
use super::super::settings::JobSettings;

#[test]
fn no_two_pods_of_a_run_are_on_nodes_at_once_whatever_else_is_chosen() {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let ours = json!({
        "labelSelector": {"matchLabels": {"manciple.dev/run": "r"}},
        "topologyKey": "kubernetes.io/os",
    });
    let theirs = json!({"labelSelector": {}, "topologyKey": "zone"});
    let nodes = json!({REQUIRED: {"nodeSelectorTerms": []}});
    let cases = [
        ("nothing", None, json!({"podAntiAffinity": {REQUIRED: [ours]}})),
        ("null", Some(Value::Null), json!({"podAntiAffinity": {REQUIRED: [ours]}})),
        (
            "nodes",
            Some(json!({"nodeAffinity": nodes, "podAntiAffinity": null})),
            json!({"nodeAffinity": nodes, "podAntiAffinity": {REQUIRED: [ours]}}),
        ),
        (
            "other pods",
            Some(json!({"podAntiAffinity": {REQUIRED: [theirs]}})),
            json!({"podAntiAffinity": {REQUIRED: [theirs, ours]}}),
        ),
    ];
    for (name, chosen, expected) in cases {
        assert_eq!(alone("r", chosen), expected, "{name}");
    }
}

/// An agent of a ConfigMap, for the processors of ARM.
fn packed() -> PackedAgent {
    let mut program = b"\x7FELF".to_vec();
    program.resize(18, 0);
    program.extend(183_u16.to_le_bytes());
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), program).unwrap();
    PackedAgent::read(file.path()).unwrap()
}

#[test]
fn a_run_is_on_a_node_that_can_execute_the_agent_of_its_config_map() {
    let key = agent::KeyPair::generate().public().clone();
    let (arch, os) = ("kubernetes.io/arch", "kubernetes.io/os");
    let by_map = || Delivery::from(packed());
    let theirs = json!({arch: "amd64"});
    for (name, delivery, selector, expected) in [
        ("by a ConfigMap", by_map(), None, json!({arch: "arm64", os: "linux"})),
        ("as its policy says", by_map(), Some(theirs), json!({arch: "amd64", os: "linux"})),
        ("by an image", Delivery::from("agent"), None, Value::Null),
    ] {
        let mut settings = JobSettings::new("n", "b", "image", delivery);
        settings.pod.node_selector = selector;
        let job = of_catalog(&settings, &key, "catalog-1").unwrap().job;
        assert_eq!(job["spec"]["template"]["spec"]["nodeSelector"], expected, "{name}");
    }
}

#[test]
fn a_run_whose_report_could_not_be_opened_any_more_is_not_begun() {
    let key = agent::KeyPair::generate().public().clone();
    let seconds = Duration::from_secs;
    // Its start may take 300 s, its end 10, and its pod 30 around it.
    for (timeout, rotation, is_begun) in
        [(3260, 3600, true), (3261, 3600, false), (3261, 7200, true)]
    {
        let settings = JobSettings {
            catalog_timeout: seconds(timeout),
            key_rotation: seconds(rotation),
            ..JobSettings::new("n", "b", "image", "agent")
        };
        match of_catalog(&settings, &key, "catalog-1") {
            Ok(_) => assert!(is_begun, "{timeout} s"),
            Err(StartError::Permanent(why)) => {
                assert!(!is_begun, "{why}");
                let words = "it may take 3601 s, and keys are changed each 3600 s";
                assert!(
                    why.starts_with(words) && why.contains("kubernetes.key_rotation longer"),
                    "{why}"
                );
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_agent_is_told_of_each_secret_that_its_pod_holds_and_of_nothing_else() {
    let volumes = json!([
        {"name": "whole", "secret": {"secretName": "s"}},
        {"name": "part", "projected": {"sources": [{"configMap": {"name": "c"}}, {"secret": {"name": "s"}}]}},
        {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
        {"name": "key", "projected": {"sources": [{"podCertificate": {"keyType": "ED25519"}}]}},
        {"name": "vault", "csi": {"driver": "secrets-store.csi.k8s.io"}},
        {"name": "open", "configMap": {"name": "c"}},
        {"name": "disk", "csi": {"driver": "disks.example.com"}},
    ]);
    let mounts = ["whole", "part", "token", "key", "vault", "open", "disk"];
    let mounts = mounts.map(|name| json!({"name": name, "mountPath": format!("/mnt/{name}")}));
    let by = |source: &str| json!({source: {"name": "s", "key": "k"}});
    let mut settings = JobSettings::new("n", "b", "image", "agent");
    settings.pod.env = vec![
        json!({"name": "PASSWORD", "valueFrom": by("secretKeyRef")}),
        json!({"name": "PLACE", "valueFrom": by("configMapKeyRef")}),
        json!({"name": "PLAIN", "value": "x"}),
    ];
    settings.pod.volumes = volumes.as_array().unwrap().clone();
    settings.pod.volume_mounts = mounts.to_vec();
    let key = agent::KeyPair::generate().public().clone();
    let made = of_catalog(&settings, &key, "run").unwrap();
    let container = &made.job["spec"]["template"]["spec"]["containers"][0];
    let variables = container["env"].as_array().unwrap();
    let order = variables.iter().find(|it| it["name"] == agent::ORDER_VARIABLE).unwrap();
    let order: agent::Order = serde_json::from_str(order["value"].as_str().unwrap()).unwrap();
    assert_eq!(order.secret_variables, ["PASSWORD"]);
    let paths = ["/mnt/whole", "/mnt/part", "/mnt/token", "/mnt/key", "/mnt/vault"]
        .map(std::path::PathBuf::from);
    assert_eq!(order.secret_paths, paths);
}
