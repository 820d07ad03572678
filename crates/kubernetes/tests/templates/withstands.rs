//! What instances withstand: other namespaces and the whole cluster, kinds and namespaces that go, a thousand objects.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kubernetes::templates::Drift;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::harness::{PATIENCE, Town, condition, template};
use super::support::wait;

/// What is of the whole cluster, removed when the test is over however it ends.
pub(crate) struct Wide(Vec<Vec<String>>);

impl Drop for Wide {
    fn drop(&mut self) {
        for arguments in &self.0 {
            let _ = testkit::cluster::kubectl().arg("delete").args(arguments).output();
        }
    }
}

impl Wide {
    pub(crate) fn of(all: &[&[&str]]) -> Self {
        let owned = |one: &&[&str]| one.iter().map(|it| (*it).to_owned()).collect();
        Self(all.iter().map(owned).collect())
    }
}

/// Somebody who may do everything, by a name of this test's own.
pub(crate) async fn administrator(town: &Town) -> (String, Wide) {
    let name = format!("administrator-{}", town.cluster.namespace);
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    }))
    .unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(town.cluster.client.clone());
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    let wide = Wide::of(&[&["clusterrolebinding", &name]]);
    (name, wide)
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {}})
}

/// A namespace, something in it, and something of the whole cluster: all are made, none is owned, all go.
#[tokio::test(flavor = "multi_thread")]
async fn what_nothing_owns_is_made_and_removed_too() {
    let town = Town::new("template-wide").await;
    let (user, _wide) = administrator(&town).await;
    let (elsewhere, role) = (
        format!("{}-elsewhere", town.cluster.namespace),
        format!("role-{}", town.cluster.namespace),
    );
    let _more = Wide::of(&[&["namespace", &elsewhere, "--wait=false"], &["clusterrole", &role]]);
    let mut far = map("far");
    far["metadata"]["namespace"] = json!("${ELSEWHERE}");
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "${ELSEWHERE}"}});
    let cluster_role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": role}, "rules": [],
    });
    // In the template the namespace comes after what is in it.
    let objects = json!([far, cluster_role, namespace]);
    let parameters = json!([{"name": "ELSEWHERE", "value": elsewhere}]);
    town.order("i", &user, template(objects, parameters)).await;
    let made = town.ready("i").await;
    let of = |index: usize| made["status"]["objects"][index]["ref"].clone();
    assert_eq!(of(0)["namespace"], json!(elsewhere));
    assert_eq!(of(1)["namespace"], Value::Null);
    town.delete("i").await;
    town.gone("i").await;
    let namespaces: Api<Namespace> = Api::all(town.cluster.client.clone());
    assert!(namespaces.get_opt(&elsewhere).await.unwrap().is_none(), "it is waited for");
    assert!(!is_there(&town, &role).await, "it stays");
    town.remove().await;
}

async fn is_there(town: &Town, role: &str) -> bool {
    let roles = Api::<ClusterRole>::all(town.cluster.client.clone());
    roles.get_opt(role).await.unwrap().is_some()
}

/// An API server may delete an instance that is being held in the same moment, and whoever makes its objects may die then:
/// its record knows of them. One that says another name than it was written for, as a copy does, is no record.
#[tokio::test(flavor = "multi_thread")]
async fn what_nothing_owns_of_an_instance_that_went_unheld_is_removed_too() {
    let mut town = Town::new("template-stray").await;
    let (user, _wide) = administrator(&town).await;
    let role = |name: &str| format!("role-{}-{name}", town.cluster.namespace);
    let (stays, goes) = (role("stays"), role("goes"));
    let _more = Wide::of(&[&["clusterrole", &stays], &["clusterrole", &goes]]);
    let mut records = Vec::new();
    for (name, role) in [("stays", &stays), ("goes", &goes)] {
        let object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": role}, "rules": [],
        });
        town.order(name, &user, template(json!([object]), json!([]))).await;
        let uid = town.ready(name).await["metadata"]["uid"].as_str().unwrap().to_owned();
        records.push(format!("template-instance-{uid}"));
    }
    town.kill();
    let secrets = town.objects("v1", "Secret");
    let uid = records[0].strip_prefix("template-instance-");
    let another = json!({"metadata": {"ownerReferences": [{
        "apiVersion": "template.openshift.io/v1", "kind": "TemplateInstance", "name": "another", "uid": uid,
    }]}});
    secrets.patch(&records[0], &PatchParams::default(), &Patch::Merge(another)).await.unwrap();
    town.patch("goes", "", json!({"metadata": {"finalizers": null}})).await;
    town.delete("goes").await;
    town.gone("goes").await;
    town.start().await;
    town.until_gone("v1", "Secret", &records[1]).await;
    let roles: Api<ClusterRole> = Api::all(town.cluster.client.clone());
    assert!(roles.get_opt(&goes).await.unwrap().is_none(), "it stays");
    assert!(roles.get_opt(&stays).await.unwrap().is_some(), "its instance is there");
    town.delete("stays").await;
    town.gone("stays").await;
    assert!(roles.get_opt(&stays).await.unwrap().is_none(), "it was removed with its instance");
    town.remove().await;
}

/// What is repaired is another object, and goes with its instance all the same, whoever came to say which it is.
#[tokio::test(flavor = "multi_thread")]
async fn what_nothing_owns_and_was_repaired_is_removed_too() {
    let mut town = Town::still("template-wide-drift").await;
    town.settings.drift = Drift::Repair;
    town.settings.drift_interval = Duration::from_secs(1);
    town.start().await;
    let (user, _wide) = administrator(&town).await;
    let role = format!("role-{}", town.cluster.namespace);
    let _more = Wide::of(&[&["clusterrole", &role]]);
    let cluster_role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": role}, "rules": [],
    });
    town.order("i", &user, template(json!([cluster_role]), json!([]))).await;
    town.ready("i").await;
    let roles: Api<ClusterRole> = Api::all(town.cluster.client.clone());
    let mut uids = Vec::new();
    for _ in 0..3 {
        let there = wait::until("it is not made anew", PATIENCE, async || {
            match roles.get_opt(&role).await.unwrap() {
                Some(there) if !uids.contains(&there.metadata.uid) => Ok(there),
                there => Err(there),
            }
        })
        .await;
        let uid = json!(there.metadata.uid);
        let said = |it: &Value| it["status"]["objects"][0]["ref"]["uid"] == uid;
        town.until("i", "said to have what it has", said).await;
        uids.push(there.metadata.uid);
        if uids.len() < 3 {
            roles.delete(&role, &DeleteParams::default()).await.unwrap();
        }
    }
    town.kill();
    // As if nobody had come to say so.
    let other = json!({"status": {"objects": [{
        "ref": {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": role,
            "uid": uids[0],
        },
        "state": "Created",
    }]}});
    town.patch("i", "status", other).await;
    town.start().await;
    town.delete("i").await;
    town.gone("i").await;
    assert!(roles.get_opt(&role).await.unwrap().is_none(), "it stays");
    town.remove().await;
}

/// An editor of a namespace makes nothing in another, nor of the whole cluster, though the controller could.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_reaches_further_than_their_rights() {
    let town = Town::new("template-reach").await;
    let mut far = map("far");
    far["metadata"]["namespace"] = json!("${WHERE}");
    let parameters = json!([{"name": "WHERE", "value": "kube-system"}]);
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "reach"}, "rules": [],
    });
    for (name, object, missing) in [
        ("far", far, "may not create configmaps in namespace \"kube-system\""),
        (
            "wide",
            role,
            "may not create clusterroles.rbac.authorization.k8s.io in the whole cluster",
        ),
    ] {
        town.order(name, "editor", template(json!([map(name), object]), parameters.clone())).await;
        let why = town.failed(name).await;
        assert!(why.contains(missing), "{why}");
        assert_eq!(town.object("v1", "ConfigMap", name).await, None, "nothing is made");
    }
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_goes_takes_half_made_instances_with_it() {
    let home = Town::still("template-home").await;
    let mut town = Town::beside("template-going", &home).await;
    town.start().await;
    let (user, _wide) = administrator(&town).await;
    let role = format!("half-{}", town.cluster.namespace);
    let _more = Wide::of(&[&["clusterrole", &role]]);
    let cluster_role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": role}, "rules": [],
    });
    let mut waits = map("waits");
    waits["metadata"]["annotations"] =
        json!({"template.manciple.dev/ready-when": "self.data.come == 'true'"});
    town.order("i", &user, template(json!([cluster_role, waits]), json!([]))).await;
    town.until("i", "made", |it| it["status"]["objects"].is_array()).await;
    // Nobody is there while the namespace begins to go, and the controller reads it from the beginning.
    town.kill();
    let namespaces: Api<Namespace> = Api::all(town.cluster.client.clone());
    let name = town.cluster.namespace.clone();
    namespaces.delete(&name, &DeleteParams::background()).await.unwrap();
    sleep(Duration::from_secs(2)).await;
    town.start().await;
    wait::until("the namespace stays", PATIENCE, async || {
        namespaces.get_opt(&name).await.unwrap().map_or(Ok(()), Err)
    })
    .await;
    assert!(!is_there(&town, &role).await, "what is of the whole cluster stays");
    town.kill();
    home.remove().await;
}

/// A kind is defined by the template itself; and goes, with its objects, before the instance does.
#[tokio::test(flavor = "multi_thread")]
async fn kinds_come_with_a_template_and_vanish() {
    let town = Town::new("template-kinds").await;
    let (user, _wide) = administrator(&town).await;
    let group = format!("{}.example.org", town.cluster.namespace);
    let definition = format!("things.{group}");
    let _more = Wide::of(&[&["crd", &definition]]);
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": definition},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    let thing = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"generateName": "thing-"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    town.order("i", &user, template(json!([thing, crd]), json!([]))).await;
    let made = town.ready("i").await;
    let name = made["status"]["objects"][0]["ref"]["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("thing-") && name.len() > 6, "{name}");
    let output = testkit::cluster::kubectl().args(["delete", "crd", &definition]).output().unwrap();
    assert!(output.status.success());
    town.delete("i").await;
    town.gone("i").await;
    town.remove().await;
}

/// As many as a template may well have, near the size that etcd takes.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_objects_of_a_megabyte_are_made_and_removed() {
    let town = Town::new("template-many").await;
    let filler = "x".repeat(850);
    let objects: Vec<Value> = (0..1000)
        .map(|index| {
            let mut object = map(&format!("many-{index:04}"));
            object["data"] = json!({"filler": filler, "password": "${PASSWORD}"});
            object
        })
        .collect();
    let parameters =
        json!([{"name": "PASSWORD", "generate": "expression", "from": "[a-zA-Z0-9]{16}"}]);
    let template = template(Value::Array(objects), parameters);
    assert!(template.to_string().len() > 900_000, "{}", template.to_string().len());
    let begin = Instant::now();
    town.order("i", "editor", template).await;
    let made = town.ready("i").await;
    println!("1,000 objects are made after {:.1?}", begin.elapsed());
    assert_eq!(made["status"]["objects"].as_array().unwrap().len(), 1000);
    let begin = Instant::now();
    town.delete("i").await;
    town.gone("i").await;
    println!("and removed after {:.1?}", begin.elapsed());
    let maps = town.objects("v1", "ConfigMap").list_metadata(&Default::default()).await.unwrap();
    let left = maps
        .items
        .iter()
        .filter(|it| it.metadata.name.as_deref().is_some_and(|name| name.starts_with("many-")));
    assert_eq!(left.count(), 0);
    town.remove().await;
}

/// etcd takes the instance, and not with what was made of it: it says so at once, and all of that goes with it.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_without_room_for_what_was_made_fails_and_goes() {
    const LARGEST: usize = 1536 * 1024;
    let town = Town::new("template-no-room").await;
    let name = |index: usize| format!("{}-{index:03}", "m".repeat(200));
    let maps: Vec<Value> = (0..100).map(|index| map(&name(index))).collect();
    let mut template = template(Value::Array(maps), json!([]));
    let filler = "x".repeat(LARGEST - 15_000 - template.to_string().len());
    template["metadata"]["annotations"] = json!({"filler": filler});
    town.order("i", "editor", template).await;
    let why = town.failed("i").await;
    assert!(why.contains("larger than the API server keeps"), "{why}");
    assert!(town.object("v1", "ConfigMap", &name(99)).await.is_some(), "it was made");
    town.delete("i").await;
    town.gone("i").await;
    assert!(town.object("v1", "ConfigMap", &name(99)).await.is_none());
    town.remove().await;
}

/// What the requester gives and what is generated is in Secrets, and nowhere else, whatever goes wrong.
#[tokio::test(flavor = "multi_thread")]
async fn values_are_in_secrets_and_nowhere_else() {
    const PLANTED: &str = "planted-by-the-requester";
    let town = Town::new("template-secrets").await;
    town.make(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "given"},
        "stringData": {"GIVEN": PLANTED},
    }))
    .await;
    let parameters = json!([{"name": "GIVEN", "required": true}]);
    // The API server quotes what it refuses; a condition says what an operator found.
    let port = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "refused"},
        "spec": {"ports": [{"port": 80, "protocol": "${GIVEN}"}]},
    });
    let mut told = map("told");
    told["metadata"]["annotations"] = json!({"template.manciple.dev/ready-when": "self.data.value == '${GIVEN}' && self.data.never"});
    told["data"] = json!({"value": "${GIVEN}"});
    let nameless =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a/${GIVEN}"}});
    let given =
        [("requester", json!({"username": "editor"})), ("secret", json!({"name": "given"}))];
    for (name, object) in [("refused", port), ("nameless", nameless), ("told", told)] {
        town.order_with(name, template(json!([object]), parameters.clone()), &given).await;
        match name {
            "told" => {
                let made = |it: &Value| it["status"]["objects"].is_array();
                town.until(name, "waiting", made).await;
            }
            _ => {
                town.failed(name).await;
            }
        }
    }
    sleep(Duration::from_secs(2)).await;
    for name in ["refused", "nameless", "told"] {
        let shown = town.get(name).await["status"].to_string();
        assert!(!shown.contains(PLANTED), "{name}: {shown}");
    }
    let events = testkit::cluster::kubectl()
        .args(["-n", &town.cluster.namespace, "get", "events", "-o", "json"])
        .output()
        .unwrap();
    assert!(events.status.success(), "{events:?}");
    let events = String::from_utf8(events.stdout).unwrap();
    assert!(events.contains("\"reason\": \"Failed\""), "{events}");
    assert!(!events.contains(PLANTED), "{events}");
    town.remove().await;
}

/// Somebody takes an object's label away while it is waited for: it is still there. What has its label is watched, and
/// what has none is seen by the look that there is beside the watch, each 20 s.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_without_its_label_is_not_gone() {
    let town = Town::new("template-label").await;
    let maps = town.objects("v1", "ConfigMap");
    let patch = async |name: &str, patch: Value| {
        maps.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    for (name, is_labelled, limit) in [("with-its-label", true, 15), ("without", false, 60)] {
        let mut waits = map(name);
        waits["metadata"]["annotations"] =
            json!({"template.manciple.dev/ready-when": "self.data.come == 'true'"});
        town.order(name, "editor", template(json!([waits]), json!([]))).await;
        town.until(name, "made", |it| it["status"]["objects"].is_array()).await;
        sleep(Duration::from_secs(1)).await;
        if !is_labelled {
            patch(name, json!({"metadata": {"labels": null}})).await;
            sleep(Duration::from_secs(2)).await;
            let failure = condition(&town.get(name).await, "InstantiateFailure");
            assert!(failure.is_null(), "{name}: {failure}");
        }
        // It was looked at a moment ago: the next look is nearly 20 s away.
        patch(name, json!({"data": {"come": "true"}})).await;
        let changed = Instant::now();
        town.ready(name).await;
        let taken = changed.elapsed();
        assert!(taken < Duration::from_secs(limit), "{name}: {taken:?}");
    }
    town.remove().await;
}
