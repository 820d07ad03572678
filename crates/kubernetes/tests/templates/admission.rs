use serde_json::{Value, json};

use super::harness::{Town, password, template};
use super::webhook::{Hook, User, refusal};

fn map(name: &str, value: &str) -> Value {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"v": value},
    });
    template(json!([map]), json!([]))
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_makes_an_instance_is_its_requester() {
    let town = Town::new("webhook-own").await;
    let hook = Hook::new(&town).await;
    let alice = User::of(&town, "alice", &["team"]);
    alice.may_edit(&town).await;
    let forged = json!({"name": "i", "annotations": {Hook::SEAL: "1.00"}});
    alice.create(forged, json!({"template": password()})).await.unwrap();
    let instance = town.ready("i").await;
    let requester = json!({"username": "alice", "groups": ["team", "system:authenticated"]});
    assert_eq!(instance["spec"]["requester"], requester);
    assert!(town.object("v1", "Secret", "sample").await.is_some(), "it was made");
    // By name alone she means herself.
    let spec = json!({"template": map("by-name", "1"), "requester": {"username": "alice"}});
    alice.create(json!({"name": "by-name"}), spec).await.unwrap();
    assert_eq!(town.ready("by-name").await["spec"]["requester"], requester);
    let spec = json!({"template": map("generated", "1")});
    let made = alice.create(json!({"generateName": "some-"}), spec).await.unwrap();
    let name = made["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("some-") && name.len() == 10, "{name}");
    assert_eq!(town.ready(name).await["spec"]["requester"], requester);
    // What is applied is made by a patch.
    let applied = alice.apply("applied", json!({"template": map("applied", "1")})).await.unwrap();
    assert_eq!(applied["spec"]["requester"], requester);
    town.ready("applied").await;
    // What is removed is freed by a change, which comes through the webhook too.
    town.delete("i").await;
    town.gone("i").await;
    hook.remove().await;
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_names_another_needs_the_right_to() {
    let town = Town::new("webhook-assign").await;
    let hook = Hook::new(&town).await;
    let (alice, bob) = (User::of(&town, "alice", &["team"]), User::of(&town, "bob", &[]));
    alice.may_edit(&town).await;
    bob.may(&town, &["create", "assign"]).await;
    for (name, requester, member) in [
        ("another", json!({"username": "editor"}), "username"),
        (
            "a group",
            json!({"username": "alice", "groups": ["team", "system:authenticated", "system:masters"]}),
            "groups",
        ),
        ("masters", json!({"username": "alice", "groups": ["system:masters"]}), "groups"),
        (
            "a uid",
            json!({"username": "alice", "uid": "7", "groups": ["team", "system:authenticated"]}),
            "uid",
        ),
    ] {
        let spec = json!({"template": map("m", "1"), "requester": requester});
        let (code, message) = refusal(alice.create(json!({"name": "i"}), spec).await);
        let expected = format!(
            "TemplateInstance.template.openshift.io \"i\" is invalid: spec.requester.{member}: Forbidden: you do \
             not have permission to set {member}"
        );
        assert_eq!(code, 422, "{name}: {message}");
        assert!(message.ends_with(&expected), "{name}: {message}");
    }
    // Bob himself may make no ConfigMap.
    let spec = json!({"template": map("m", "1"), "requester": {"username": "alice"}});
    bob.create(json!({"name": "i"}), spec).await.unwrap();
    let instance = town.ready("i").await;
    assert_eq!(instance["spec"]["requester"], json!({"username": "alice"}));
    bob.create(json!({"name": "own"}), json!({"template": map("own", "1")})).await.unwrap();
    assert!(town.failed("own").await.contains("\"bob\" may not create configmaps"));
    hook.remove().await;
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_ordered_stays_unless_by_those_who_may_assign() {
    let mut town = Town::still("webhook-change").await;
    let hook = Hook::new(&town).await;
    let (alice, bob) = (User::of(&town, "alice", &["team"]), User::of(&town, "bob", &[]));
    alice.may_edit(&town).await;
    bob.may(&town, &["get", "patch", "assign"]).await;
    let made =
        alice.create(json!({"name": "i"}), json!({"template": map("m", "1")})).await.unwrap();
    let changed = json!({"spec": {"template": map("m", "2")}});
    let (code, message) = refusal(alice.merge("i", &changed).await);
    assert_eq!(code, 422, "{message}");
    let expected = "TemplateInstance.template.openshift.io \"i\" is invalid: spec: Forbidden: field is immutable";
    assert!(message.ends_with(expected), "{message}");
    // Neither the seal nor who is named goes away.
    let seal = made["metadata"]["annotations"][Hook::SEAL].clone();
    assert!(seal.is_string(), "{made}");
    for (name, change) in [
        ("no annotations", json!({"metadata": {"annotations": null}})),
        ("another", json!({"metadata": {"annotations": {Hook::SEAL: "1.00", "a": "b"}}})),
        ("nobody", json!({"spec": {"requester": null}})),
    ] {
        let kept = alice.merge("i", &change).await.unwrap();
        assert_eq!(kept["metadata"]["annotations"][Hook::SEAL], seal, "{name}");
        assert_eq!(kept["spec"], made["spec"], "{name}");
        assert_eq!(kept["metadata"]["generation"], 1, "{name}");
    }
    // A write of the status does not come through the webhook, and changes the status alone.
    let change = json!({
        "metadata": {"annotations": {Hook::SEAL: "1.00"}}, "spec": {"requester": {"username": "x"}},
        "status": {"anything": "1"},
    });
    let kept = alice.merge_status("i", &change).await.unwrap();
    assert_eq!(kept["metadata"]["annotations"][Hook::SEAL], seal);
    assert_eq!(kept["spec"], made["spec"]);
    assert_eq!(kept["status"]["anything"], "1");
    let kept = bob.merge("i", &changed).await.unwrap();
    assert_ne!(kept["metadata"]["annotations"][Hook::SEAL], seal);
    town.start().await;
    town.ready("i").await;
    let map = town.object("v1", "ConfigMap", "m").await.unwrap();
    assert_eq!(map["data"]["v"], "2", "what was changed is verified too");
    hook.remove().await;
    town.remove().await;
}

/// Whoever reaches the port may ask as if they were the API server.
#[tokio::test(flavor = "multi_thread")]
async fn a_seal_that_a_stranger_was_given_gains_nothing() {
    let town = Town::new("webhook-stranger").await;
    let hook = Hook::new(&town).await;
    let alice = User::of(&town, "alice", &[]);
    alice.may_edit(&town).await;
    let masters = json!({"username": "admin", "groups": ["system:masters"]});
    let spec = json!({"template": map("m", "1"), "requester": masters});
    let seal = hook.asked_by_a_stranger("i", &spec, &masters).await;
    let forged = json!({"name": "i", "annotations": {Hook::SEAL: seal}});
    let (code, message) = refusal(alice.create(forged.clone(), spec.clone()).await);
    assert_eq!(code, 422, "{message}");
    // Nor can it be brought into what is there.
    alice.create(json!({"name": "i"}), json!({"template": map("m", "1")})).await.unwrap();
    let change = json!({"metadata": {"annotations": {Hook::SEAL: seal}}, "spec": spec});
    assert_eq!(refusal(alice.merge("i", &change).await).0, 422);
    let change = json!({"metadata": {"annotations": {Hook::SEAL: seal}}});
    let kept = alice.merge("i", &change).await.unwrap();
    assert_ne!(kept["metadata"]["annotations"][Hook::SEAL], seal);
    let instance = town.ready("i").await;
    assert_eq!(instance["spec"]["requester"]["username"], "alice");
    hook.remove().await;
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_said_when_it_is_made() {
    let town = Town::still("webhook-wrong").await;
    let hook = Hook::new(&town).await;
    let alice = User::of(&town, "alice", &[]);
    alice.may_edit(&town).await;
    let wrong = template(json!([]), json!([{"name": "a-b"}, {"name": "A", "value": 1}]));
    let spec = json!({"template": wrong, "secret": {}});
    let (code, message) = refusal(alice.create(json!({"name": "i"}), spec).await);
    assert_eq!(code, 422, "{message}");
    for said in [
        "spec.template.parameters[0].name: Invalid value",
        "spec.template.parameters[1].value: Invalid value",
        "spec.secret.name: Required value",
    ] {
        assert!(message.contains(said), "{message}");
    }
    hook.remove().await;
    town.remove().await;
}
