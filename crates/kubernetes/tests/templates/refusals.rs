use kubernetes::templates::Requesters;
use serde_json::json;

use super::harness::{PATIENCE, Town, condition, password, template};
use super::support::wait;

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

/// It could be made, and neither be found nor removed: nobody's deletion is to wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn kinds_of_which_the_api_server_keeps_none_are_refused() {
    let town = Town::new("template-unkept").await;
    let rules = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "metadata": {"name": "q"}, "spec": {"namespace": "default"},
    });
    let access = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "metadata": {"name": "q"}, "spec": {"resourceAttributes": {"verb": "get"}},
    });
    for (name, object) in [("rules", rules), ("access", access)] {
        let mut with = password();
        with["objects"].as_array_mut().unwrap().push(object);
        town.order(name, "editor", with).await;
        let why = town.failed(name).await;
        assert!(why.starts_with("template.objects[3]: Invalid value: a SelfSubject"), "{why}");
        assert!(why.contains("the API server keeps none"), "{why}");
        assert_eq!(town.object("v1", "ConfigMap", "sample").await, None, "nothing is made");
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
        town.order_with(name, template, std::slice::from_ref(&editor)).await;
        assert_eq!(town.failed(name).await, expected);
    }
    town.remove().await;
}

/// A template that is the value of its own parameter would be instantiated for ever.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_another_has_made_makes_no_third() {
    let mut town = Town::still("template-breed").await;
    // What is made by the controller is verified by a webhook, which is not there.
    town.settings.requesters = Requesters::Trusted;
    town.start().await;
    town.bind("maker", "cluster-admin").await;
    let object = |name: &str, objects: serde_json::Value| {
        json!({
            "apiVersion": "template.openshift.io/v1", "kind": "TemplateInstance",
            "metadata": {"name": name},
            "spec": {"template": template(objects, json!([])), "requester": {"username": "maker"}},
        })
    };
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "leaf"}, "data": {}});
    let good = object("good", json!([map]));
    let bad = object("bad", json!([map, object("third", json!([]))]));
    town.order("first", "maker", template(json!([good, bad]), json!([]))).await;
    for name in ["good", "bad"] {
        town.appears(name).await;
    }
    town.ready("good").await;
    assert_eq!(
        town.failed("bad").await,
        "template.objects: Invalid value: templateinstances.template.openshift.io, Name=third: another TemplateInstance has \
         made this one, and one that was made makes no further ones: put its objects into this template"
    );
    assert!(town.object("v1", "ConfigMap", "leaf").await.is_some());
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_nested_too_deep_fails_alone() {
    let mut town = Town::still("template-deep").await;
    let deep = (0..200).fold(json!({}), |inner, _| json!({"a": inner}));
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "deep"}, "deep": deep,
    });
    // As text: our own decoder would not take it either.
    let name = "deep";
    let instance = json!({
        "apiVersion": "template.openshift.io/v1", "kind": "TemplateInstance",
        "metadata": {"name": name, "namespace": town.cluster.namespace},
        "spec": {"template": template(json!([object]), json!([])), "requester": {"username": "editor"}},
    });
    testkit::cluster::apply(&instance);
    town.order("good", "editor", password()).await;
    town.start().await;
    town.ready("good").await;
    let namespace = town.cluster.namespace.clone();
    let kubectl = |arguments: &[&str]| {
        let place = ["-n", &namespace];
        let output = testkit::cluster::kubectl().args(place).args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let path = r#"jsonpath={.status.conditions[?(@.type=="InstantiateFailure")].message}"#;
    wait::until("it does not say why", PATIENCE, async || {
        let said = kubectl(&["get", "templateinstance", name, "-o", path]);
        if said.contains("is nested more than 127 levels deep") { Ok(()) } else { Err(said) }
    })
    .await;
    kubectl(&["delete", "templateinstance", name]);
    // Another that watches from the beginning reads the rest of the list.
    testkit::cluster::apply(&instance);
    town.kill();
    town.order("later", "editor", renamed("later")).await;
    town.start().await;
    town.ready("later").await;
    kubectl(&["delete", "templateinstance", name]);
    town.remove().await;
}

fn renamed(name: &str) -> serde_json::Value {
    let mut template = password();
    template["parameters"][0]["value"] = json!(name);
    template
}

/// Who may write an instance and its status, and no more, has nothing made or removed in another's name.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_instance_says_later_is_not_believed() {
    let town = Town::new("template-forged-status").await;
    let map = |name: &str, labels: serde_json::Value| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "labels": labels}, "data": {},
        })
    };
    town.make(map("prey", json!({}))).await;
    let prey = town.object("v1", "ConfigMap", "prey").await.unwrap();
    let reference = |object: &serde_json::Value| {
        json!({"ref": {
            "apiVersion": "v1", "kind": "ConfigMap", "namespace": town.cluster.namespace,
            "name": object["metadata"]["name"], "uid": object["metadata"]["uid"],
        }})
    };
    // Never made: it has our finalizer, names another, and claims an object.
    let masters = json!({"username": "root", "groups": ["system:masters"]});
    let spec = json!({"template": template(json!([]), json!([])), "requester": masters});
    town.create("forged", spec, json!({})).await;
    town.failed("forged").await;
    let held = json!({"metadata": {"finalizers": ["template.openshift.io/finalizer"]}});
    town.patch("forged", "", held).await;
    town.patch("forged", "status", json!({"status": {"objects": [reference(&prey)]}})).await;
    town.delete("forged").await;
    town.gone("forged").await;
    assert!(town.object("v1", "ConfigMap", "prey").await.is_some());

    // Made in the editor's name: changed, it claims what bears its label, and names another.
    town.order("made", "editor", password()).await;
    let made = town.ready("made").await;
    let uid = &made["metadata"]["uid"];
    let label = json!({"template.openshift.io/template-instance-owner": uid});
    town.make(map("labelled", label)).await;
    let labelled = town.object("v1", "ConfigMap", "labelled").await.unwrap();
    let changed = json!({"spec": {
        "requester": {"username": "root", "groups": ["system:masters"]},
        "template": {"objects": [map("labelled", json!({}))]},
    }});
    town.patch("made", "", changed).await;
    let mut objects = made["status"]["objects"].as_array().unwrap().clone();
    objects.extend([reference(&prey), reference(&labelled)]);
    town.patch("made", "status", json!({"status": {"objects": objects}})).await;
    town.delete("made").await;
    town.gone("made").await;
    for (name, stays) in [("sample", false), ("prey", true), ("labelled", true)] {
        assert_eq!(town.object("v1", "ConfigMap", name).await.is_some(), stays, "{name}");
    }
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_somebody_else_has_written_is_not_believed() {
    let mut town = Town::new("template-record").await;
    let mut waits = password();
    waits["objects"][1]["metadata"]["annotations"] =
        json!({"template.manciple.dev/ready-when": "self.data.name == 'never'"});
    town.order("i", "editor", waits).await;
    let made = town.until("i", "waiting", |it| it["status"]["objects"].is_array()).await;
    town.kill();
    let uid = made["metadata"]["uid"].as_str().unwrap();
    let record = format!("template-instance-{uid}");
    let (kept, seal) = (
        town.secret(&record, "record").await.unwrap(),
        town.secret(&record, "seal").await.unwrap(),
    );
    let secrets = town.objects("v1", "Secret");
    let free = kube::api::Patch::Merge(json!({"metadata": {"finalizers": null}}));
    secrets.patch(&record, &Default::default(), &free).await.unwrap();
    secrets.delete(&record, &Default::default()).await.unwrap();
    let forged = kept.replace("editor", "root");
    town.make(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": record},
        "stringData": {"record": forged, "seal": seal},
    }))
    .await;
    town.start().await;
    let why = town.failed("i").await;
    assert!(why.contains("somebody else has written it"), "{why}");
    town.delete("i").await;
    town.gone("i").await;
    town.remove().await;
}
