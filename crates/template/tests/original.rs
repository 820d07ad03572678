//! What the original was seen to do, value by value, beside what `process.rs` has; and where it is done right here.

use serde_json::{Value, json};
use template::{Fault, Processed, Seeded, Template};

fn process(objects: Value, parameters: Value, labels: Value) -> Result<Processed, Vec<Fault>> {
    let document = json!({
        "apiVersion": "template.openshift.io/v1", "kind": "Template", "metadata": {"name": "t"},
        "objects": objects, "parameters": parameters, "labels": labels,
    });
    Template::read(document)?.process(&mut Seeded(1))
}

/// What becomes of an object, by itself.
fn object(object: Value, parameters: Value) -> Value {
    process(json!([object]), parameters, json!(null)).unwrap().objects.remove(0)
}

fn map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data})
}

#[test]
fn templates_are_of_their_group_or_of_none() {
    for (version, is_one) in [
        ("template.openshift.io/v1", true),
        ("v1", true),
        ("template.openshift.io/v1beta1", false),
        ("apps/v1", false),
        ("", false),
    ] {
        let read = Template::read(json!({"apiVersion": version, "kind": "Template"}));
        assert_eq!(read.is_ok(), is_one, "{version}");
    }
}

#[test]
fn texts_become_what_they_became_there() {
    let parameters = json!([
        {"name": "A", "value": "${B}"}, {"name": "B", "value": "b"}, {"name": "V", "value": "1"},
    ]);
    for (text, expected) in [
        ("${A}${B}", "b${B}"),
        ("$${V}", "$1"),
        ("${UNKNOWN}", "${UNKNOWN}"),
        ("${A}", "${B}"),
        ("a-${V}-${V}", "a-1-1"),
        ("x${{V}}", "x${{V}}"),
    ] {
        let found = object(map(json!({"k": text})), parameters.clone());
        assert_eq!(found["data"]["k"], expected, "{text}");
    }
}

#[test]
fn whole_values_become_what_they_became_there() {
    for (held, expected) in [
        ("0123", json!("0123")),
        ("yes", json!("yes")),
        ("", json!("")),
        (" 5 ", json!(5)),
        (r#""q""#, json!("q")),
        (r#"{"k": "${P}"}"#, json!({"k": "${P}"})),
        (r#"["${P}", null]"#, json!(["${P}", null])),
        ("true", json!(true)),
        ("1.5", json!(1.5)),
        // There it is 9007199254740992: numbers are floats.
        ("9007199254740993", json!(9_007_199_254_740_993_u64)),
    ] {
        let parameters = json!([{"name": "P", "value": held}]);
        let found = object(map(json!({"k": "${{P}}"})), parameters);
        assert_eq!(found["data"]["k"], expected, "{held:?}");
    }
}

/// There all but text panics.
#[test]
fn a_key_is_text_whatever_its_parameter_holds() {
    for (held, expected) in [
        (r#""q""#, Ok("q")),
        ("plain", Ok("plain")),
        ("", Ok("")),
        ("5", Err("a number")),
        ("true", Err("a boolean")),
        ("null", Err("null")),
        ("[]", Err("a list")),
        ("{}", Err("a map")),
    ] {
        let parameters = json!([{"name": "P", "value": held}]);
        let found = process(json!([map(json!({"${{P}}": 1}))]), parameters, json!(null));
        match expected {
            Ok(key) => assert_eq!(found.unwrap().objects[0]["data"], json!({key: 1}), "{held:?}"),
            Err(kind) => {
                let said = found.unwrap_err()[0].to_string();
                let expected = format!("the parameter is {kind}, and a key is text");
                assert!(said.ends_with(&expected), "{held:?}: {said}");
            }
        }
    }
}

#[test]
fn kind_and_version_are_substituted_too() {
    let parameters = json!([{"name": "G", "value": "apps"}, {"name": "K", "value": "Deployment"}]);
    let found = object(json!({"apiVersion": "${G}/v1", "kind": "${K}"}), parameters);
    assert_eq!(found, json!({"apiVersion": "apps/v1", "kind": "Deployment"}));
}

#[test]
fn a_namespace_that_is_no_text_goes() {
    for namespace in [json!(null), json!(true), json!(5), json!(["${NS}"]), json!({"k": "${NS}"})] {
        let mut held = map(json!({}));
        held["metadata"] = json!({"name": "c", "namespace": namespace});
        let found = object(held, json!([{"name": "NS", "value": "there"}]));
        assert_eq!(found["metadata"], json!({"name": "c"}), "{namespace}");
    }
}

#[test]
fn labels_do_not_reach_the_pods_of_a_deployment_config() {
    let config = json!({
        "apiVersion": "v1", "kind": "DeploymentConfig",
        "spec": {"selector": {"app": "own"}, "template": {"metadata": {"labels": {"app": "own"}}}},
    });
    let processed = process(json!([config]), json!([]), json!({"app": "t"})).unwrap();
    let found = &processed.objects[0];
    assert_eq!(found["metadata"]["labels"], json!({"app": "t"}));
    assert_eq!(found["spec"], config["spec"]);
}

#[test]
fn kinds_of_before_groups_get_theirs() {
    for (group, kinds) in [
        ("apps.openshift.io", &["DeploymentConfig"][..]),
        ("build.openshift.io", &["Build", "BuildConfig"]),
        ("image.openshift.io", &["ImageStream", "ImageStreamTag", "ImageStreamImport"]),
        ("route.openshift.io", &["Route"]),
        ("template.openshift.io", &["Template"]),
        ("project.openshift.io", &["Project", "ProjectRequest"]),
        (
            "authorization.openshift.io",
            &["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"],
        ),
    ] {
        for kind in kinds {
            let found = object(json!({"apiVersion": "v1", "kind": kind}), json!([]));
            assert_eq!(found["apiVersion"], format!("{group}/v1"), "{kind}");
            let grouped = json!({"apiVersion": "example.com/v1", "kind": kind});
            assert_eq!(object(grouped.clone(), json!([])), grouped, "{kind} of another group");
        }
    }
    for kind in ["Secret", "Service", "ServiceAccount", "PersistentVolumeClaim", "Pod", "List"] {
        let of_the_core = json!({"apiVersion": "v1", "kind": kind});
        assert_eq!(object(of_the_core.clone(), json!([])), of_the_core);
    }
}

#[test]
fn nothing_is_encoded() {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "data": {"k": "${P}"}, "stringData": {"k": "${P}"},
    });
    let found = object(secret, json!([{"name": "P", "value": "p"}]));
    assert_eq!((&found["data"]["k"], &found["stringData"]["k"]), (&json!("p"), &json!("p")));
}

#[test]
fn the_example_expressions_of_the_original_have_their_form() {
    let parameters = json!([
        {"name": "D", "generate": "expression", "from": r"[\d]{3}"},
        {"name": "T", "generate": "expression", "from": "test[A-Z0-9]{4}template"},
    ]);
    let processed = process(json!([]), parameters, json!(null)).unwrap();
    let [digits, text] = [0, 1].map(|index: usize| processed.parameters[index].value.as_str());
    assert!(digits.len() == 3 && digits.bytes().all(|it| it.is_ascii_digit()), "{digits}");
    let inner = text.strip_prefix("test").and_then(|it| it.strip_suffix("template")).unwrap();
    let is_of = |it: u8| it.is_ascii_uppercase() || it.is_ascii_digit();
    assert!(inner.len() == 4 && inner.bytes().all(is_of), "{text}");
}
