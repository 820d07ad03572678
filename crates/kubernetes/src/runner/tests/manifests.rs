//! What is said of a pod beside what its policy says.

use serde_json::{Value, json};

use super::super::manifest::alone;

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
