//! Versioned Secrets: how they are made, and who runs for them.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::beyond::events;
use super::harness::{PATIENCE, Town, pod, spec};
use super::output::makes;
use super::support::wait;
use crate::hook::{Hook, PATH};

/// By now a change would have a run.
const SOON: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn versions_count_up_and_are_made_for_what_is_new() {
    let town = Town::new("versions").await;
    let script = |value: &str| format!(r#"echo '{{"k": "{value}"}}' > /mnt/quarks/o.json"#);
    let options = json!({"name": "v", "versioned": true, "secretAnnotations": {"note": "Kept"}});
    town.create("a", makes(&script("1"), options.clone())).await;
    for (run, value, made) in [(1, "1", "v-v1"), (2, "1", "v-v1"), (3, "2", "v-v2")] {
        if run > 1 {
            let mut spec = makes(&script(value), options.clone());
            spec["trigger"]["strategy"] = json!("now");
            town.patch("a", json!({"spec": spec})).await;
        }
        let ended = town.ended("a", run).await;
        assert_eq!(ended["made"], json!([made]), "{ended}");
    }
    assert!(town.secret("v-v3").await.is_none());
    let secret = town.secret("v-v2").await.unwrap();
    assert_eq!(secret.immutable, Some(true));
    let labels = secret.metadata.labels.unwrap();
    assert_eq!(labels["quarks.cloudfoundry.org/secret-kind"], "versionedSecret");
    assert_eq!(labels["quarks.cloudfoundry.org/secret-version"], "2");
    let annotations = secret.metadata.annotations.unwrap();
    assert_eq!(annotations["quarks.cloudfoundry.org/source-description"], "created by quarksJob");
    assert_eq!(annotations["note"], "Kept");
    let owner = secret.metadata.owner_references.unwrap().remove(0);
    assert_eq!((owner.kind.as_str(), owner.controller), ("QuarksJob", Some(true)));
    assert_eq!(owner.block_owner_deletion, Some(false));
}

/// A client that does not know the member drops it, which the API server takes for a change.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_an_old_client_writes_back_is_let_in_where_that_is_set() {
    let mut town = Town::still("mutable").await;
    town.settings.immutable_versions = false;
    town.start().await;
    let script = r#"echo '{"k": "1"}' > /mnt/quarks/o.json"#;
    town.create("a", makes(script, json!({"name": "v", "versioned": true}))).await;
    assert_eq!(town.ended("a", 1).await["made"], json!(["v-v1"]));
    let mut secret = town.secret("v-v1").await.unwrap();
    secret.immutable = None;
    secret.metadata.annotations.get_or_insert_default().insert("theirs".into(), "1".into());
    let secrets = town.cluster.api::<Secret>();
    secrets.replace("v-v1", &PostParams::default(), &secret).await.unwrap();
    town.patch("a", json!({"spec": {"trigger": {"strategy": "now"}}})).await;
    assert_eq!(town.ended("a", 2).await["made"], json!(["v-v1"]));
    assert_eq!(town.secret("v-v1").await.unwrap().metadata.annotations.unwrap()["theirs"], "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_version_runs_whoever_refers_to_it() {
    let town = Town::new("chain").await;
    let script = |value: &str| format!(r#"echo '{{"k": "{value}"}}' > /mnt/quarks/o.json"#);
    let options = json!({"name": "link", "versioned": true});
    let mut reader = spec("once", &{
        let mut pod = pod(r#"echo "{\"read\": \"$k\"}" > /mnt/quarks/o.json"#);
        pod["containers"][0]["envFrom"] = json!([{"secretRef": {"name": "link-v1"}}]);
        pod
    });
    reader["updateOnConfigChange"] = json!(true);
    reader["output"] = json!({"outputMap": {"c": {"o.json": {"name": "read"}}}});
    town.create("reader", reader).await;
    town.create("writer", makes(&script("1"), options.clone())).await;
    town.ended("reader", 1).await;
    assert_eq!(town.data("read").await["read"], "1");
    town.patch("writer", json!({"spec": makes(&script("2"), options)})).await;
    town.trigger("writer", "now").await;
    let run = town.ended("reader", 2).await;
    assert_eq!(run["trigger"], "config-change");
    assert_eq!(town.data("read").await["read"], "2");
}

/// Runs for the versions of `link`, and begins without them if it need not have any.
fn reads(optional: bool) -> Value {
    let mut reader = spec("once", &{
        let mut pod = pod("true");
        let of = json!({"name": "link-v1", "optional": optional});
        pod["containers"][0]["envFrom"] = json!([{"secretRef": of}]);
        pod
    });
    reader["updateOnConfigChange"] = json!(true);
    reader
}

impl Town {
    /// Somebody writes a version.
    async fn write(&self, version: u64, value: &str) {
        self.write_of("link", version, value).await;
    }

    /// Somebody writes one under this name.
    async fn write_of(&self, base: &str, version: u64, value: &str) {
        self.make_secret(json!({
            "apiVersion": "v1", "kind": "Secret", "immutable": true,
            "metadata": {
                "name": format!("{base}-v{version}"),
                "labels": {"quarks.cloudfoundry.org/secret-kind": "versionedSecret"},
            },
            "stringData": {"k": value},
        }))
        .await;
    }

    /// Somebody removes one.
    async fn remove(&self, version: u64) {
        let name = format!("link-v{version}");
        self.cluster.api::<Secret>().delete(&name, &Default::default()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_of_a_version_stands_for_the_newest_in_the_job_and_stays_in_the_template() {
    let town = Town::new("newest").await;
    // By their numbers, not by their letters.
    for version in [1, 2, 10] {
        town.write(version, "v").await;
    }
    let mut pod = pod("true");
    let mut first = pod["containers"][0].clone();
    first["name"] = json!("first");
    let from = json!({"secretKeyRef": {"name": "link-v1", "key": "k"}});
    first["env"] = json!([{"name": "K", "valueFrom": from}]);
    pod["initContainers"] = json!([first]);
    pod["containers"][0]["envFrom"] = json!([{"secretRef": {"name": "link-v1"}}]);
    pod["volumes"] = json!([{"name": "link", "secret": {"secretName": "link-v2"}}]);
    let mut spec = spec("once", &pod);
    // It stays, to be looked at.
    spec["successfulJobsHistoryLimit"] = json!(1);
    town.create("a", spec.clone()).await;
    assert_eq!(town.ended("a", 1).await["succeeded"], true);
    let job = serde_json::to_value(town.batch_jobs().await.remove(0)).unwrap();
    let pod = &job["spec"]["template"]["spec"];
    let mut volumes = pod["volumes"].as_array().into_iter().flatten();
    let volume = volumes.find(|it| it["name"] == "link").unwrap();
    let named = [
        &pod["initContainers"][0]["env"][0]["valueFrom"]["secretKeyRef"]["name"],
        &pod["containers"][0]["envFrom"][0]["secretRef"]["name"],
        &volume["secret"]["secretName"],
    ];
    assert_eq!(named, [&json!("link-v10"); 3], "{pod:#}");
    assert_eq!(town.get("a").await["spec"]["template"], spec["template"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_in_place_of_one_that_was_removed_counts_if_it_is_another() {
    let mut town = Town::new("again").await;
    town.write(1, "one").await;
    town.write(2, "two").await;
    town.create("a", reads(false)).await;
    town.ended("a", 1).await;
    town.remove(2).await;
    sleep(SOON).await;
    assert_eq!(town.runs("a").await, 1, "what is left is no news");
    town.write(2, "two").await;
    sleep(SOON).await;
    assert_eq!(town.runs("a").await, 1, "it is there as it was");
    town.remove(2).await;
    town.write(2, "other").await;
    assert_eq!(town.ended("a", 2).await["trigger"], "config-change");
    // Whatever makes them is made anew, while nobody looks, and counts from the first.
    town.kill();
    town.remove(1).await;
    town.remove(2).await;
    town.write(1, "anew").await;
    town.start().await;
    assert_eq!(town.ended("a", 3).await["trigger"], "config-change");
    sleep(SOON).await;
    assert_eq!(town.runs("a").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_that_all_go_are_no_change_to_who_can_do_without() {
    let town = Town::new("all-go").await;
    town.write(1, "one").await;
    town.create("a", reads(true)).await;
    town.ended("a", 1).await;
    town.remove(1).await;
    sleep(SOON).await;
    assert_eq!(town.runs("a").await, 1);
    town.write(1, "other").await;
    assert_eq!(town.ended("a", 2).await["trigger"], "config-change");
}

#[tokio::test(flavor = "multi_thread")]
async fn old_versions_that_may_not_be_deleted_stay_and_that_is_said() {
    let town = Town::new("versions-stay").await;
    let refuses = |body: axum::body::Bytes| async move {
        let review: Value = serde_json::from_slice(&body).unwrap();
        let status = json!({"code": 403, "message": "nobody deletes these"});
        let response = json!({"uid": review["request"]["uid"], "allowed": false, "status": status});
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
            .to_string()
    };
    let rules = json!([{
        "operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"],
    }]);
    let routes = axum::Router::new().route(PATH, axum::routing::post(refuses));
    let _hook = Hook::new(&town.cluster.client, &town.cluster.namespace, rules, routes).await;
    // The API server hears of it a moment later.
    sleep(Duration::from_secs(3)).await;
    let script = r#"echo "{\"k\": \"$N\"}" > /mnt/quarks/o.json"#;
    let mut spec = makes(script, json!({"name": "v", "versioned": true}));
    spec["trigger"]["strategy"] = json!("manual");
    spec["output"]["versionHistoryLimit"] = json!(1);
    town.create("a", spec).await;
    for run in 1..=2 {
        let inputs = json!([{"name": "N", "value": run.to_string()}]);
        town.patch("a", json!({"spec": {"trigger": {"strategy": "now", "inputs": inputs}}})).await;
        assert_eq!(town.ended("a", run).await["succeeded"], true, "what stays fails no run");
    }
    let is_said = |(reason, message): &(String, String)| {
        reason == "VersionsStay" && message.contains("old versions of v stay: ")
    };
    wait::until("nobody is told", PATIENCE, async || {
        let events = events(&town, "a").await;
        if events.iter().any(is_said) { Ok(()) } else { Err(events) }
    })
    .await;
    assert!(town.secret("v-v1").await.is_some());
}

/// The original looked for the name within the name.
#[tokio::test(flavor = "multi_thread")]
async fn a_version_under_a_name_that_holds_the_one_that_is_read_is_no_news() {
    let town = Town::new("holds").await;
    town.write(1, "one").await;
    town.create("a", reads(false)).await;
    town.ended("a", 1).await;
    for base in ["my-link", "link-more", "link-v1", "lin"] {
        town.write_of(base, 3, "other").await;
    }
    sleep(SOON).await;
    assert_eq!(town.runs("a").await, 1);
    town.write(2, "two").await;
    assert_eq!(town.ended("a", 2).await["trigger"], "config-change");
    sleep(SOON).await;
    assert_eq!(town.runs("a").await, 2);
}

/// Either name stands for the newest.
#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_names_another_version_refers_to_what_it_referred_to() {
    let town = Town::new("renamed").await;
    town.write(1, "one").await;
    town.create("a", reads(false)).await;
    town.ended("a", 1).await;
    let name = async |version: u64| {
        let mut spec = reads(false);
        spec["trigger"]["strategy"] = json!("done");
        let container = &mut spec["template"]["spec"]["template"]["spec"]["containers"][0];
        container["envFrom"][0]["secretRef"]["name"] = json!(format!("link-v{version}"));
        town.patch("a", json!({"spec": spec})).await;
    };
    for (version, what) in [(2, "there is none of it"), (1, "it is there"), (2, "once more")] {
        name(version).await;
        sleep(SOON).await;
        assert_eq!(town.runs("a").await, 1, "v{version}: {what}");
    }
    town.write(2, "two").await;
    assert_eq!(town.ended("a", 2).await["trigger"], "config-change");
    name(1).await;
    sleep(SOON).await;
    assert_eq!(town.runs("a").await, 2, "it had the second");
}
