//! A controller that may do less than all.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kubernetes::quarks::Dialect;
use serde_json::{Value, json};

use super::harness::{Town, pod, spec};
use super::output::{WELL, makes};
use super::support::account;

const RBAC: &str = "rbac.authorization.k8s.io";

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// What it takes to run those of one kind, of which each has the same.
fn of_kind(dialect: Dialect) -> Vec<Value> {
    let (group, plural) = (dialect.group(), dialect.plural());
    vec![
        rule(group, &[plural], &["get", "list", "watch", "patch"]),
        rule(group, &[&format!("{plural}/status")], &["patch"]),
        rule(group, &[&format!("{plural}/finalizers")], &["update"]),
    ]
}

/// What it takes beside that.
fn of_runs() -> Vec<Value> {
    let all = ["get", "list", "watch", "create", "update", "patch", "delete"];
    vec![
        rule("batch", &["jobs"], &all),
        rule("", &["pods"], &["list", "watch", "patch"]),
        rule("", &["pods/log"], &["get"]),
        rule("", &["configmaps", "secrets"], &all),
        rule("", &["events"], &["list", "watch", "create"]),
    ]
}

/// Has the account have these rights in the namespace, and no others there.
fn give(town: &Town, rules: Vec<Value>) {
    testkit::cluster::apply(&json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "Role",
        "metadata": {"name": "controller", "namespace": town.cluster.namespace}, "rules": rules,
    }));
}

/// Has the account have what is given to it, and see which namespaces there are: that goes with this one.
async fn bind(town: &Town) {
    let namespace = &town.cluster.namespace;
    let namespaces: Api<Namespace> = Api::all(town.cluster.client.clone());
    let uid = namespaces.get(namespace).await.unwrap().metadata.uid;
    let owner = json!({"apiVersion": "v1", "kind": "Namespace", "name": namespace, "uid": uid});
    let wide = json!({"name": format!("controller-{namespace}"), "ownerReferences": [owner]});
    let subjects =
        json!([{"kind": "ServiceAccount", "name": "controller", "namespace": namespace}]);
    testkit::cluster::apply(&json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": wide,
        "rules": [rule("", &["namespaces"], &["list", "watch"])],
    }));
    for (kind, role, metadata) in [
        ("ClusterRole", &wide["name"], wide.clone()),
        ("Role", &json!("controller"), json!({"name": "controller", "namespace": namespace})),
    ] {
        testkit::cluster::apply(&json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": format!("{kind}Binding"),
            "metadata": metadata, "subjects": subjects,
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
        }));
    }
}

/// The definitions of both are there, and whoever gave the rights thought of one. It is waited for, for a minute.
#[tokio::test(flavor = "multi_thread")]
async fn without_rights_to_one_kind_those_of_the_other_run_and_it_does_when_they_come() {
    let mut town = Town::still("rights").await;
    let client = account(&town.cluster, "controller").await;
    give(&town, [of_runs(), of_kind(Dialect::QuarksJob)].concat());
    bind(&town).await;
    town.start_with(client).await;
    town.create("a", makes(WELL, json!({"name": "made"}))).await;
    assert_eq!(town.ended("a", 1).await["succeeded"], true);
    assert_eq!(town.data("made").await["bar"], "baz");
    town.dialect = Dialect::ExtendedJob;
    let template = json!({"spec": pod("true")});
    town.create("b", json!({"trigger": {"strategy": "once"}, "template": template})).await;
    assert_eq!(town.runs("b").await, 0);
    give(&town, [of_runs(), Dialect::ALL.map(of_kind).concat()].concat());
    assert_eq!(town.ended("b", 1).await["succeeded"], true);
    town.dialect = Dialect::QuarksJob;
    town.create("c", spec("once", &pod("true"))).await;
    assert_eq!(town.ended("c", 1).await["succeeded"], true);
}
