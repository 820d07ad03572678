//! Changes that would lose something, say too much, or never end.

use kube::api::{Patch, PatchParams};
use kubernetes::templates::Drift;
use serde_json::{Value, json};
use tokio::time::Duration;

use super::harness::{Town, condition, template};

fn map(metadata: Value, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_text_does_not_empty_a_secret() {
    let town = Town::new("template-no-text").await;
    let of = |value: Value| {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
            "stringData": {"password": value},
        });
        template(json!([secret]), json!([]))
    };
    town.order("i", "editor", of(json!("hunter2"))).await;
    town.ready("i").await;
    town.change("i", "editor", of(json!(5432))).await;
    let why = town.failed_again("i").await;
    assert!(why.contains("unable to change secrets, Name=s"), "{why}");
    assert_eq!(town.secret("s", "password").await.unwrap(), "hunter2");
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_a_generated_name_stays_where_others_come_before_it() {
    let town = Town::new("template-generated").await;
    let generated = |of: &str| map(json!({"generateName": "data-"}), json!({"of": of}));
    let (first, second) = (generated("first"), generated("second"));
    town.order("i", "editor", template(json!([first, second]), json!([]))).await;
    let before = town.ready("i").await;
    let other = map(json!({"name": "other"}), json!({}));
    town.change("i", "editor", template(json!([other, first, second]), json!([]))).await;
    let after = town.ready_again("i").await;
    let uid = |instance: &Value, index: usize| instance["status"]["objects"][index]["ref"].clone();
    assert_eq!([uid(&before, 0), uid(&before, 1)], [uid(&after, 1), uid(&after, 2)]);
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_with_an_entry_twice_fails_at_once_or_is_made_anew() {
    let town = Town::new("template-twice").await;
    let of = |value: &str, annotations: Value| {
        let container = json!({
            "name": "c", "image": "none",
            "env": [{"name": "A", "value": "1"}, {"name": "A", "value": value}],
        });
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "d", "annotations": annotations},
            "spec": {
                "replicas": 0, "selector": {"matchLabels": {"app": "d"}},
                "template": {
                    "metadata": {"labels": {"app": "d"}}, "spec": {"containers": [container]},
                },
            },
        });
        template(json!([deployment]), json!([]))
    };
    town.order("i", "editor", of("2", json!({}))).await;
    town.ready("i").await;
    town.change("i", "editor", of("3", json!({}))).await;
    let why = town.failed_again("i").await;
    assert!(why.contains("duplicate entries for key"), "{why}");
    let replace = json!({"template.manciple.dev/on-change": "replace"});
    town.change("i", "editor", of("3", replace)).await;
    town.ready_again("i").await;
    let there = town.object("apps/v1", "Deployment", "d").await.unwrap();
    let env = &there["spec"]["template"]["spec"]["containers"][0]["env"];
    assert_eq!(env[1]["value"], "3");
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_cannot_be_repaired_keeps_no_other_from_it() {
    let mut town = Town::still("template-immutable").await;
    town.settings.drift = Drift::Repair;
    town.settings.drift_interval = Duration::from_secs(2);
    town.start().await;
    let of = |name: &str| map(json!({"name": name}), json!({"a": "1"}));
    town.order("i", "editor", template(json!([of("a"), of("b")]), json!([]))).await;
    town.ready("i").await;
    let maps = town.objects("v1", "ConfigMap");
    let params = PatchParams { field_manager: Some("somebody".to_owned()), ..Default::default() };
    let frozen = Patch::Merge(json!({"data": {"a": "2"}, "immutable": true}));
    maps.patch("a", &params, &frozen).await.unwrap();
    let changed = Patch::Merge(json!({"data": {"a": "2"}}));
    maps.patch("b", &params, &changed).await.unwrap();
    let said = |it: &Value| {
        let drifted = condition(it, "Drifted");
        drifted["status"] == "True" && !drifted.to_string().contains("Name=b")
    };
    let instance = town.until("i", "repaired but for one", said).await;
    let message = condition(&instance, "Drifted")["message"].to_string();
    assert!(message.contains("Name=a: it cannot become what was made"), "{message}");
    let b = town.object("v1", "ConfigMap", "b").await.unwrap();
    assert_eq!(b["data"]["a"], "1");
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_record_nothing_is_begun_anew() {
    let town = Town::new("template-no-record").await;
    let secret = |more: &str| {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
            "stringData": {"password": "${PASSWORD}", "more": more},
        });
        let password = json!({"name": "PASSWORD", "generate": "expression", "from": "[a-z]{24}"});
        template(json!([secret]), json!([password]))
    };
    town.order("i", "editor", secret("1")).await;
    let instance = town.ready("i").await;
    let made = town.secret("s", "password").await.unwrap();
    let record = format!("template-instance-{}", instance["metadata"]["uid"].as_str().unwrap());
    let secrets = town.objects("v1", "Secret");
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    secrets.patch(&record, &PatchParams::default(), &free).await.unwrap();
    secrets.delete(&record, &Default::default()).await.unwrap();
    town.change("i", "editor", secret("2")).await;
    let why = town.failed_again("i").await;
    assert!(why.contains("was removed: delete the instance, and order it anew"), "{why}");
    assert_eq!(town.secret("s", "password").await.unwrap(), made, "no second password");
    town.delete("i").await;
    town.gone("i").await;
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_piece_of_a_value_is_not_said_either() {
    let town = Town::new("template-pieces").await;
    let value = "PLANTED-7f3a-x9Qzx9Qzx9Qzx9Qzx9Qzx9Qz";
    town.make(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "given"},
        "stringData": {"PLANT": value},
    }))
    .await;
    let wrong = [
        ("a", map(json!({"name": "a"}), json!({"b": 1, "c": "yyyyyyyyyyyyyyyy${PLANT}"}))),
        (
            "b",
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b"},
                "data": {"a": "${PLANT}"},
            }),
        ),
    ];
    let more = [("requester", json!({"username": "editor"})), ("secret", json!({"name": "given"}))];
    for (name, object) in wrong {
        let parameters = json!([{"name": "PLANT", "required": true}]);
        town.order_with(name, template(json!([object]), parameters), &more).await;
        town.failed(name).await;
        let said = town.get(name).await.to_string();
        for piece in ["PLANTED", "7f3a", "x9Qz", "9Qz"] {
            assert!(!said.contains(piece), "{name}: {piece}: {said}");
        }
    }
    town.remove().await;
}
