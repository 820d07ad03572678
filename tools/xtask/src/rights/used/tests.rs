use std::path::Path;

use serde_json::{Value, json};

use super::{Deed, ELSEWHERE, Install, deed, unused};

#[test]
fn what_the_walk_has_no_occasion_for_has_a_test() {
    for test in ELSEWHERE.iter().map(|it| it.4) {
        let (file, name) = test.split_once("::").unwrap();
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates");
        let source = std::fs::read_to_string(crates.join(file)).unwrap();
        assert!(source.contains(&format!("fn {name}(")), "{test}");
    }
}

fn line(verb: &str, of: &Value, decision: &str) -> Value {
    json!({
        "user": {"username": "system:serviceaccount:home:manciple"}, "verb": verb,
        "objectRef": of, "annotations": {"authorization.k8s.io/decision": decision},
    })
}

fn told(namespace: Option<&str>, what: &str, verb: &str) -> Deed {
    Deed {
        home: "home".to_owned(),
        account: "manciple".to_owned(),
        namespace: namespace.map(str::to_owned),
        what: what.to_owned(),
        verb: verb.to_owned(),
    }
}

#[test]
fn a_line_tells_of_the_right_that_it_took() {
    let secrets = json!({"resource": "secrets", "namespace": "there"});
    let status = json!({
        "resource": "serviceinstances", "apiGroup": "manciple.dev", "subresource": "status",
    });
    let mut impersonated = line("get", &secrets, "allow");
    impersonated["impersonatedUser"] = json!({"username": "jane"});
    let mut of_people = line("get", &secrets, "allow");
    of_people["user"]["username"] = json!("kubernetes-admin");
    for (line, expected) in [
        (line("get", &secrets, "allow"), Some(told(Some("there"), "secrets", "get"))),
        (line("get", &secrets, "forbid"), None),
        (
            line("patch", &status, "allow"),
            Some(told(None, "serviceinstances.manciple.dev/status", "patch")),
        ),
        (impersonated, Some(told(Some("there"), "users", "impersonate"))),
        (of_people, None),
    ] {
        assert_eq!(deed(&line), expected, "{line}");
    }
}

/// A role of the account, and its binding.
fn role(of: &str, verbs: &[&str]) -> [Value; 2] {
    [
        json!({
            "kind": of, "metadata": {"name": of},
            "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": verbs}],
        }),
        json!({
            "kind": format!("{of}Binding"), "roleRef": {"kind": of, "name": of},
            "subjects": [{"kind": "ServiceAccount", "name": "manciple"}],
        }),
    ]
}

#[test]
fn a_right_everywhere_is_not_used_by_what_a_right_at_home_allows() {
    let account = json!({"kind": "ServiceAccount", "metadata": {"name": "manciple"}});
    let roles = [role("Role", &["get", "create"]), role("ClusterRole", &["get"])].concat();
    let objects = [vec![account], roles].concat();
    let install = Install { name: "test", namespace: None, objects };
    let [create, get] = ["create", "get"].map(|verb| told(Some("home"), "secrets", verb));
    let there = told(Some("there"), "secrets", "get");
    let role = "test: create secrets, by a Role of manciple";
    let everywhere = "test: get secrets, by a ClusterRole of manciple";
    for (deeds, idle) in [
        (vec![&create, &get, &there], vec![]),
        (vec![&create, &get], vec![everywhere]),
        (vec![&get, &there], vec![role]),
        (vec![&create, &there], vec!["test: get secrets, by a Role of manciple"]),
    ] {
        assert_eq!(unused(&install, &deeds), idle, "{deeds:?}");
    }
}
