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
        name: None,
        verb: verb.to_owned(),
    }
}

/// The same of what has this name.
fn told_of(name: &str, what: &str, verb: &str) -> Deed {
    Deed { name: Some(name.to_owned()), ..told(Some("home"), what, verb) }
}

#[test]
fn a_line_tells_of_the_right_that_it_took() {
    let secrets = json!({"resource": "secrets", "namespace": "there"});
    let status = json!({
        "resource": "serviceinstances", "apiGroup": "manciple.dev", "subresource": "status",
    });
    let one = json!({"resource": "secrets", "namespace": "home", "name": "cf"});
    let mut impersonated = line("get", &one, "allow");
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
        (line("watch", &one, "allow"), Some(told_of("cf", "secrets", "watch"))),
        (impersonated, Some(told(Some("home"), "users", "impersonate"))),
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

/// An account at home, and its Role in a namespace, which has these rules.
fn install(place: &str, rules: &[Value]) -> Install {
    let account = json!({
        "kind": "ServiceAccount", "metadata": {"name": "manciple", "namespace": "home"},
    });
    let [mut role, mut binding] = role("Role", &[]);
    role["rules"] = json!(rules);
    for object in [&mut role, &mut binding] {
        object["metadata"]["namespace"] = json!(place);
    }
    Install { name: "test", namespace: None, objects: vec![account, role, binding] }
}

fn lists_secrets() -> Value {
    json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]})
}

#[test]
fn a_right_in_another_namespace_is_used_there_and_nowhere_else() {
    let install = install("jobs", &[lists_secrets()]);
    let idle = "test: list secrets, by a Role elsewhere of manciple";
    for (place, expected) in
        [(Some("jobs"), vec![]), (Some("home"), vec![idle]), (None, vec![idle])]
    {
        let deed = told(place, "secrets", "list");
        assert_eq!(unused(&install, &[&deed]), expected, "{place:?}");
    }
}

#[test]
fn a_right_to_one_name_is_used_by_what_is_done_to_that_and_one_to_all_by_no_such_deed() {
    let mut of_names = lists_secrets();
    of_names["resourceNames"] = json!(["cf", "ops"]);
    let names = [of_names.clone()];
    let all = [of_names, lists_secrets()];
    let idle = |what: &str| format!("test: list {what}, by a Role of manciple");
    let (cf, ops) = (told_of("cf", "secrets", "list"), told_of("ops", "secrets", "list"));
    let any = told(Some("home"), "secrets", "list");
    for (rules, deeds, expected) in [
        (&names[..], vec![&cf, &ops], vec![]),
        (&names[..], vec![&cf], vec![idle("secrets (ops)")]),
        (&names[..], vec![&any], vec![idle("secrets (cf)"), idle("secrets (ops)")]),
        (&all[..], vec![&cf, &ops], vec![idle("secrets")]),
        (&all[..], vec![&cf, &ops, &any], vec![]),
    ] {
        assert_eq!(unused(&install("home", rules), &deeds), expected, "{rules:?} {deeds:?}");
    }
}
