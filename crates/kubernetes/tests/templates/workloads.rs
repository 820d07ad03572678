//! Workloads are bound as servicebinding.io has it.

use kube::api::{DeleteParams, Patch, PatchParams};
use kubernetes::templates::Drift;
use serde_json::{Value, json};
use tokio::time::Duration;

use super::harness::{Town, password};

fn database(port: &str) -> Value {
    let mut template = password();
    template["metadata"]["annotations"] = json!({
        "template.manciple.dev/binding-type": "postgresql",
        "template.manciple.dev/binding-provider": "ours",
    });
    template["parameters"][1]["value"] = json!(port);
    template["objects"][0]["metadata"]["annotations"] =
        json!({"template.openshift.io/expose-password": "{.data['password']}"});
    template["objects"][2]["metadata"]["annotations"] =
        json!({"template.openshift.io/expose-port": "{.spec.ports[0].port}"});
    template
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_is_ready_names_a_secret_for_workloads() {
    let town = Town::new("template-binding").await;
    town.order("i", "editor", database("5432")).await;
    let instance = town.ready("i").await;
    let name = instance["status"]["binding"]["name"].as_str().unwrap().to_owned();
    let secret = town.object("v1", "Secret", &name).await.unwrap();
    assert_eq!(secret["type"], "servicebinding.io/postgresql");
    let made = town.secret("sample", "password").await.unwrap();
    for (entry, expected) in
        [("type", "postgresql"), ("provider", "ours"), ("port", "5432"), ("password", &made)]
    {
        let value = town.secret(&name, entry).await;
        assert_eq!(value.as_deref(), Some(expected), "{entry}");
    }
    assert!(!instance.to_string().contains(&made), "a password is in Secrets alone");
    // What changes has another name, and what was before is gone.
    town.change("i", "editor", database("5433")).await;
    let changed = town.ready_again("i").await;
    let other = changed["status"]["binding"]["name"].as_str().unwrap();
    assert_ne!(name, other);
    assert_eq!(town.secret(other, "port").await.as_deref(), Some("5433"));
    town.until_gone("v1", "Secret", &name).await;
    // A template that says nothing of it any more.
    town.change("i", "editor", password()).await;
    let without = town.ready_again("i").await;
    assert_eq!(without["status"].get("binding"), None);
    town.until_gone("v1", "Secret", other).await;
    town.delete("i").await;
    town.gone("i").await;
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_exposed_now_is_given_now_and_a_secret_that_somebody_removed_is_made_again() {
    let mut town = Town::still("template-binding-drift").await;
    (town.settings.drift, town.settings.drift_interval) = (Drift::Report, Duration::from_secs(1));
    town.start().await;
    town.order("i", "editor", database("5432")).await;
    let instance = town.ready("i").await;
    let name = instance["status"]["binding"]["name"].as_str().unwrap().to_owned();
    let secrets = town.objects("v1", "Secret");
    secrets.delete(&name, &DeleteParams::default()).await.unwrap();
    town.until_there("v1", "Secret", &name).await;
    // Somebody changes what is exposed, and nobody repairs it.
    let merge = Patch::Merge(json!({"stringData": {"password": "rotated"}}));
    secrets.patch("sample", &PatchParams::default(), &merge).await.unwrap();
    let other =
        town.until("i", "it names another", |it| it["status"]["binding"]["name"] != name.as_str());
    let other = other.await["status"]["binding"]["name"].as_str().unwrap().to_owned();
    assert_eq!(town.secret(&other, "password").await.as_deref(), Some("rotated"));
    town.until_gone("v1", "Secret", &name).await;
    town.delete("i").await;
    town.gone("i").await;
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_exposed_fails_the_instance_and_says_so() {
    let town = Town::new("template-binding-wrong").await;
    let mut wrong = database("5432");
    wrong["objects"][2]["metadata"]["annotations"] =
        json!({"template.openshift.io/expose-port": "{.spec.ports[0].port"});
    town.order("i", "editor", wrong).await;
    let why = town.failed("i").await;
    assert!(why.contains("expose-port"), "{why}");
    assert_eq!(town.get("i").await["status"].get("binding"), None);
    town.delete("i").await;
    town.gone("i").await;
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_make_no_secrets_is_told_before_anything_is_made() {
    let town = Town::new("template-binding-denied").await;
    town.order("i", "viewer", database("5432")).await;
    let why = town.failed("i").await;
    let missing = "unable to authorize user to create secrets, Name=sample: \"viewer\" may not create secrets";
    assert!(why.contains(missing), "{why}");
    let mut without = database("5432");
    without["objects"].as_array_mut().unwrap().remove(0);
    town.order("without", "viewer", without).await;
    let why = town.failed("without").await;
    assert!(
        why.contains("unable to authorize user to create secrets, Name=without-binding"),
        "{why}"
    );
    assert_eq!(town.object("v1", "Service", "sample").await, None);
    for name in ["i", "without"] {
        town.delete(name).await;
        town.gone(name).await;
    }
    town.remove().await;
}
