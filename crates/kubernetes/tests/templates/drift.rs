//! Objects that somebody else has changed: found, told of, repaired where that is asked for.

use kube::api::{Patch, PatchParams};
use kubernetes::templates::Drift;
use serde_json::{Value, json};
use tokio::time::Duration;

use super::changes::map;
use super::harness::{Town, condition, template};

/// Somebody changes one object, takes a field out of another, and removes a third.
async fn drift(town: &Town) {
    let maps = town.objects("v1", "ConfigMap");
    let params = PatchParams { field_manager: Some("somebody".to_owned()), ..Default::default() };
    let changed = Patch::Merge(json!({"data": {"a": "theirs", "more": "theirs"}}));
    maps.patch("changed", &params, &changed).await.unwrap();
    let taken = Patch::Merge(json!({"data": {"a": null}}));
    maps.patch("taken", &params, &taken).await.unwrap();
    maps.patch("ignored", &params, &taken).await.unwrap();
    maps.delete("removed", &Default::default()).await.unwrap();
}

fn drifting() -> Value {
    let mut ignored = map("ignored", json!({"a": "1"}));
    ignored["metadata"]["annotations"] = json!({"template.manciple.dev/drift": "ignore"});
    let of = |name: &str| map(name, json!({"a": "${PASSWORD}"}));
    let objects = json!([of("changed"), of("taken"), of("removed"), of("same"), ignored]);
    let password = json!({"name": "PASSWORD", "generate": "expression", "from": "[a-z]{24}"});
    template(objects, json!([password]))
}

/// One that is ready, under a controller that looks often.
async fn made(test: &str, drift: Drift) -> Town {
    let mut town = Town::still(test).await;
    town.settings.drift = drift;
    town.settings.drift_interval = Duration::from_secs(2);
    town.start().await;
    town.order("i", "editor", drifting()).await;
    town.ready("i").await;
    town
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_found_and_nothing_confidential_is_said_of_it() {
    let town = made("template-drift", Drift::Report).await;
    let secret = town.object("v1", "ConfigMap", "same").await.unwrap()["data"]["a"].clone();
    drift(&town).await;
    let found = |it: &Value| {
        let drifted = condition(it, "Drifted");
        let message = drifted["message"].as_str().unwrap_or_default();
        drifted["status"] == "True" && message.lines().count() == 3
    };
    let instance = town.until("i", "drifted", found).await;
    let drifted = condition(&instance, "Drifted");
    let message = drifted["message"].as_str().unwrap();
    for expected in [
        "configmaps, Name=changed: .data.a",
        "configmaps, Name=taken: .data",
        "configmaps, Name=removed: it is gone",
    ] {
        assert!(message.contains(expected), "{message}");
    }
    assert!(!message.contains("more"), "what others add is no drift: {message}");
    assert!(!instance.to_string().contains(secret.as_str().unwrap()), "{message}");
    assert_eq!(condition(&instance, "Ready")["status"], "True");
    assert_eq!(town.object("v1", "ConfigMap", "removed").await, None, "it is said, and no more");
    // The instance itself may choose.
    let repair = json!({"metadata": {"annotations": {"template.manciple.dev/drift": "repair"}}});
    town.patch("i", "", repair).await;
    let repaired = |it: &Value| condition(it, "Drifted")["reason"] == "Repaired";
    let instance = town.until("i", "repaired", repaired).await;
    let names = ["changed", "taken", "removed", "same"];
    for (index, name) in names.into_iter().enumerate() {
        let map = town.object("v1", "ConfigMap", name).await.unwrap();
        assert_eq!(map["data"]["a"], secret, "{name}: as it was");
        assert_eq!(
            map["metadata"]["uid"], instance["status"]["objects"][index]["ref"]["uid"],
            "{name}"
        );
    }
    let changed = town.object("v1", "ConfigMap", "changed").await.unwrap();
    assert_eq!(changed["data"]["more"], "theirs");
    assert_eq!(town.object("v1", "ConfigMap", "ignored").await.unwrap().get("data"), None);
    town.delete("i").await;
    town.gone("i").await;
    for name in names {
        assert_eq!(town.object("v1", "ConfigMap", name).await, None, "{name}");
    }
    town.remove().await;
}

/// Who may still look finds what there is to repair, and may not.
#[tokio::test(flavor = "multi_thread")]
async fn a_requester_without_rights_repairs_nothing() {
    let town = made("template-drift-rights", Drift::Repair).await;
    let bindings = town.objects("rbac.authorization.k8s.io/v1", "RoleBinding");
    town.bind("editor", "view").await;
    bindings.delete("editor-edit", &Default::default()).await.unwrap();
    drift(&town).await;
    let refused = |it: &Value| {
        let drifted = condition(it, "Drifted");
        let message = drifted["message"].as_str().unwrap_or_default();
        let why = "unable to create configmaps, Name=removed";
        drifted["status"] == "True" && message.contains(why)
    };
    town.until("i", "refused", refused).await;
    assert_eq!(town.object("v1", "ConfigMap", "removed").await, None);
    let changed = town.object("v1", "ConfigMap", "changed").await.unwrap();
    assert_eq!(changed["data"]["a"], "theirs");
    town.remove().await;
}
