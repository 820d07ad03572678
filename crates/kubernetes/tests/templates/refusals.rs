use serde_json::json;

use super::harness::{Town, condition, password, template};

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_make_all_makes_nothing_and_is_told_what_is_missing() {
    let town = Town::new("template-denied").await;
    town.order("viewer", "viewer", password()).await;
    let why = town.failed("viewer").await;
    for missing in [
        "unable to authorize user to create secrets, Name=sample: \"viewer\" may not create secrets",
        "unable to authorize user to create configmaps, Name=sample",
        "unable to authorize user to create services, Name=sample",
    ] {
        assert!(why.contains(missing), "{why}");
    }
    // One of them is enough: an editor makes no roles.
    let mut mixed = password();
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"},
        "rules": [],
    });
    mixed["objects"].as_array_mut().unwrap().push(role);
    town.order("editor", "editor", mixed).await;
    let why = town.failed("editor").await;
    let missing = format!(
        "unable to authorize user to create roles.rbac.authorization.k8s.io, Name=r: \"editor\" may not create \
         roles.rbac.authorization.k8s.io in namespace {:?}",
        town.cluster.namespace
    );
    assert_eq!(why, missing);
    for kind in ["Secret", "ConfigMap", "Service"] {
        assert_eq!(town.object("v1", kind, "sample").await, None, "{kind}");
    }
    let instance = town.get("editor").await;
    assert!(instance["metadata"]["finalizers"].is_null(), "nothing was begun");
    assert!(condition(&instance, "Ready").is_null(), "as in the original");
    for name in ["viewer", "editor"] {
        town.delete(name).await;
        town.gone(name).await;
    }
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_exists_and_is_not_ours_is_refused_and_untouched() {
    let town = Town::new("template-foreign").await;
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "sample"},
        "data": {"of": "somebody else"},
    });
    town.make(map).await;
    let before = town.object("v1", "ConfigMap", "sample").await;
    town.order("i", "editor", password()).await;
    let why = town.failed("i").await;
    let expected = "unable to create configmaps, Name=sample: configmaps \"sample\" already exists, and is not of \
                    this instance: it is left as it is";
    assert_eq!(why, expected);
    assert!(
        town.object("v1", "Secret", "sample").await.is_some(),
        "the rest is made, as in the original"
    );
    town.delete("i").await;
    town.gone("i").await;
    assert_eq!(town.object("v1", "ConfigMap", "sample").await, before);
    assert_eq!(town.object("v1", "Secret", "sample").await, None);
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_made_for_a_requester_whom_nobody_has_verified() {
    let town = Town::new("template-forged").await;
    let spec = json!({
        "template": password(),
        "requester": {"username": "editor", "groups": ["system:masters"]},
    });
    town.create("bare", spec.clone(), json!({})).await;
    assert!(town.failed("bare").await.contains("nobody has verified"));
    // What was verified of one is not taken for another.
    town.order("good", "editor", password()).await;
    let good = town.ready("good").await;
    let annotations = good["metadata"]["annotations"].clone();
    town.create("copied", spec, annotations.clone()).await;
    assert!(town.failed("copied").await.contains("what was verified is not what is there"));
    town.create("renamed", good["spec"].clone(), annotations).await;
    assert!(town.failed("renamed").await.contains("what was verified is not what is there"));
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_template_or_its_parameters_is_said() {
    let town = Town::new("template-wrong").await;
    let editor = ("requester", json!({"username": "editor"}));
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "${A}"}});
    let needs = template(json!([map]), json!([{"name": "A", "required": true}]));
    let unknown =
        json!({"apiVersion": "example.org/v1", "kind": "Unknown", "metadata": {"name": "a"}});
    let nameless = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    for (name, template, expected) in [
        (
            "required",
            needs,
            "unable to process Template objects: Template.template.openshift.io \"sample\" is invalid: \
             template.parameters[0]: Required value: template.parameters[0]: parameter A is required and must be \
             specified",
        ),
        (
            "unknown",
            template(json!([unknown]), json!([])),
            "template.objects[0]: the API server knows no \"Unknown\" of \"example.org/v1\"",
        ),
        (
            "nameless",
            template(json!([nameless]), json!([])),
            "template.objects[0].metadata.name: Required value: name or generateName is required",
        ),
    ] {
        town.order_with(name, template, &[editor.clone()]).await;
        assert_eq!(town.failed(name).await, expected);
    }
    town.remove().await;
}
