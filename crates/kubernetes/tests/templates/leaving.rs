//! What keeps an instance from going, and what does not: rights that are gone, versions of kinds that are gone.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::client::{Body, Client};
use kubernetes::templates::Drift;
use serde_json::{Value, json};

use super::harness::{Town, condition, password, template};
use super::rights::rule;
use super::support::wait;
use super::withstands::{Wide, administrator};

const PATIENCE: Duration = Duration::from_secs(200);

/// Waits until there is an event of this reason; its message.
async fn told(town: &Town, reason: &str) -> String {
    wait::until(&format!("nobody is told of {reason}"), PATIENCE, async || {
        let events = town.objects("v1", "Event").list(&Default::default()).await.unwrap();
        let mut told = events.iter().map(|it| &it.data);
        let event = told.find(|it| it["reason"] == reason);
        event.map(|it| it["message"].as_str().unwrap().to_owned()).ok_or("no event of it")
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_fails_is_told_and_tried_again() {
    let town = Town::new("template-kept").await;
    let far = format!("{}-far", town.cluster.namespace);
    let _wide = Wide::of(&[&["namespace", &far, "--wait=false"]]);
    testkit::cluster::apply(&json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": far},
    }));
    let all = rule("", &["configmaps"], &["delete", "get", "create"]);
    let (gets, deletes) =
        (rule("", &["configmaps"], &["get"]), rule("", &["configmaps"], &["delete"]));
    town.grant_in(&far, "editor", vec![all.clone()]).await;
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "far", "namespace": "${FAR}"},
    });
    let parameters = json!([{"name": "FAR", "value": far}]);
    town.order("i", "editor", template(json!([map]), parameters)).await;
    town.ready("i").await;
    let there =
        || testkit::cluster::kubectl().args(["-n", &far, "get", "configmap", "far"]).output();
    assert!(there().unwrap().status.success());

    town.regrant_in(&far, "editor", vec![gets], (&deletes, false)).await;
    town.delete("i").await;
    let why = told(&town, "DeletionFailure").await;
    for words in ["unable to delete ConfigMap far", "cannot delete", "let the requester delete it"]
    {
        assert!(why.contains(words), "{why}");
    }
    let instance = town.get("i").await;
    assert_eq!(instance["metadata"]["finalizers"], json!(["template.openshift.io/finalizer"]));
    assert!(there().unwrap().status.success(), "it stays");

    town.regrant_in(&far, "editor", vec![all.clone()], (&all, true)).await;
    town.gone("i").await;
    assert!(!there().unwrap().status.success(), "it goes");
    town.remove().await;
}

/// It is another Manciple's, for all that can be seen; or the key was lost.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_verified_with_another_key_waits_for_it_and_says_so() {
    let mut town = Town::new("template-key").await;
    town.order("i", "editor", password()).await;
    town.ready("i").await;
    town.kill();
    let name = std::mem::replace(&mut town.settings.name, "another".to_owned());
    town.start().await;
    town.delete("i").await;
    let why = told(&town, "DeletionFailure").await;
    for words in ["verified with another key", "bring back the Secret", "finalizer"] {
        assert!(why.contains(words), "{why}");
    }
    assert!(town.object("v1", "Secret", "sample").await.is_some(), "it stays");
    town.kill();
    town.settings.name = name;
    town.start().await;
    town.gone("i").await;
    assert_eq!(town.object("v1", "Secret", "sample").await, None);
    town.remove().await;
}

/// A kind with two versions, in a namespace or of the whole cluster.
struct Kind {
    group: String,
    plural: &'static str,
    kind: &'static str,
    scope: &'static str,
}

impl Kind {
    /// Defines it, or changes it to serve these alone.
    fn define(&self, served: &[&str]) {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let version = |name: &str| {
            json!({
                "name": name, "served": served.contains(&name),
                "storage": served.last() == Some(&name), "schema": {"openAPIV3Schema": schema},
            })
        };
        testkit::cluster::apply(&json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": self.definition()},
            "spec": {
                "group": self.group, "scope": self.scope,
                "names": {
                    "kind": self.kind, "plural": self.plural, "singular": self.kind.to_lowercase(),
                    "listKind": format!("{}List", self.kind),
                },
                "versions": [version("v1"), version("v2")],
            },
        }));
    }

    fn definition(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    /// Waits until the API server has this resource in `v2`, and in `v1` or not.
    async fn until_served(&self, client: &Client, is_old_served: bool) {
        let serves = async |version: &str| {
            let found = client.list_api_group_resources(&format!("{}/{version}", self.group)).await;
            found.is_ok_and(|found| found.resources.iter().any(|it| it.name == self.plural))
        };
        wait::until("it is never so", PATIENCE, async || {
            let served = [serves("v1").await, serves("v2").await];
            if served == [is_old_served, true] { Ok(()) } else { Err(served) }
        })
        .await;
    }

    /// An object of its older version.
    fn object(&self, name: &str) -> Value {
        json!({
            "apiVersion": format!("{}/v1", self.group), "kind": self.kind,
            "metadata": {"name": name}, "spec": {"made": "once"},
        })
    }

    /// How many there are.
    fn count(&self) -> usize {
        let kind = format!("{}.v2.{}", self.plural, self.group);
        let output =
            testkit::cluster::kubectl().args(["get", &kind, "-A", "-o", "name"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().lines().count()
    }
}

/// Two kinds, one in namespaces and one of the whole cluster, and an instance of both in their version `v1`.
async fn made(town: &Town, user: &str) -> ([Kind; 2], Wide) {
    let (kinds, wide) = ordered(town, user, json!({})).await;
    town.ready("i").await;
    (kinds, wide)
}

/// The same, with these annotations, as soon as it is ordered.
async fn ordered(town: &Town, user: &str, annotations: Value) -> ([Kind; 2], Wide) {
    let group = format!("{}.example.org", town.cluster.namespace);
    let kind = |kind, plural, scope| Kind { group: group.clone(), plural, kind, scope };
    let kinds = [kind("Thing", "things", "Namespaced"), kind("Whole", "wholes", "Cluster")];
    let (things, wholes) = (kinds[0].definition(), kinds[1].definition());
    let wide = Wide::of(&[&["crd", &things, "--wait=false"], &["crd", &wholes, "--wait=false"]]);
    for kind in &kinds {
        kind.define(&["v1", "v2"]);
        kind.until_served(&town.cluster.client, true).await;
    }
    let mut objects = json!([kinds[0].object("a"), kinds[1].object("a")]);
    objects[1]["metadata"]["annotations"] = annotations;
    town.order("i", user, template(objects, json!([]))).await;
    (kinds, wide)
}

async fn take_old_versions_away(town: &Town, kinds: &[Kind]) {
    for kind in kinds {
        kind.define(&["v2"]);
        kind.until_served(&town.cluster.client, false).await;
    }
}

/// By whoever has made it, and knows the kinds as they were.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_made_in_a_version_that_is_gone_is_removed_in_another() {
    let town = Town::new("template-version").await;
    let (user, _user) = administrator(&town).await;
    let (kinds, _wide) = made(&town, &user).await;
    take_old_versions_away(&town, &kinds).await;
    assert_eq!(kinds.each_ref().map(Kind::count), [1, 1]);
    town.delete("i").await;
    town.gone("i").await;
    assert_eq!(kinds.each_ref().map(Kind::count), [0, 0], "it goes before its instance does");
    town.remove().await;
}

/// By whoever comes after.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_comes_after_a_version_has_gone_removes_what_was_made_in_it() {
    let mut town = Town::new("template-version-after").await;
    let (user, _user) = administrator(&town).await;
    let (kinds, _wide) = made(&town, &user).await;
    town.kill();
    take_old_versions_away(&town, &kinds).await;
    town.start().await;
    town.delete("i").await;
    town.gone("i").await;
    assert_eq!(kinds.each_ref().map(Kind::count), [0, 0], "it goes before its instance does");
    town.remove().await;
}

/// What is there in another version is not removed by somebody, nor to be made anew.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_made_in_a_version_that_is_gone_has_not_drifted() {
    let mut town = Town::still("template-version-drift").await;
    town.settings.drift = Drift::Report;
    town.settings.drift_interval = Duration::from_millis(500);
    town.start().await;
    let (user, _user) = administrator(&town).await;
    let (kinds, _wide) = made(&town, &user).await;
    take_old_versions_away(&town, &kinds).await;
    // That it is looked at is seen by what is added: it has drifted.
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}, "data": {"a": "1"}});
    town.order("other", &user, template(json!([map]), json!([]))).await;
    town.ready("other").await;
    let maps = town.objects("v1", "ConfigMap");
    let params = PatchParams { field_manager: Some("somebody".to_owned()), ..Default::default() };
    maps.patch("b", &params, &Patch::Merge(json!({"data": {"a": "2"}}))).await.unwrap();
    let drifted = |it: &Value| condition(it, "Drifted")["status"] == "True";
    town.until("other", "drifted", drifted).await;
    let instance = town.get("i").await;
    assert!(!drifted(&instance), "{instance:#}");
    town.remove().await;
}

/// A client that is told of none of these as it happens: its watches are never answered.
fn blind(client: &Client, namespace: &str, plural: &'static str) -> Client {
    let base = client.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let base = base.clone();
        async move {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            if is_watch && request.uri().path().ends_with(plural) {
                std::future::pending::<()>().await;
            }
            base.send(request).await
        }
    });
    Client::new(service, namespace)
}

/// It is found by the look that there is beside the watch, each 20 s.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_waited_for_in_a_version_that_is_gone_is_found_in_another() {
    let mut town = Town::still("template-version-awaited").await;
    let client = blind(&town.cluster.client, &town.cluster.namespace, "/wholes");
    town.start_with(client).await;
    let (user, _user) = administrator(&town).await;
    let waits = json!({"template.manciple.dev/ready-when": "self.spec.made == 'twice'"});
    let (kinds, _wide) = ordered(&town, &user, waits).await;
    let waits = |it: &Value| condition(it, "Ready")["reason"] == "Waiting";
    town.until("i", "waiting", waits).await;
    take_old_versions_away(&town, &kinds).await;
    let kind = format!("{}.v2.{}", kinds[1].plural, kinds[1].group);
    let patch = r#"{"spec": {"made": "twice"}}"#;
    let patched = testkit::cluster::kubectl()
        .args(["patch", &kind, "a", "--type=merge", "-p", patch])
        .output()
        .unwrap();
    assert!(patched.status.success(), "{patched:?}");
    town.ready("i").await;
    town.remove().await;
}
