use serde_json::{Value, json};

use super::super::{LETTERS, suffix};
use super::{
    LONG_AGO, NAMESPACE, NOW, VERIFIED, alice, came, create, instance, is_verified, key, message,
    patched, template,
};
use crate::templates::verified::{self, Word};

#[test]
fn who_makes_one_is_written_into_it_and_sealed() {
    for (name, metadata, requester, made) in [
        ("nobody is named", json!({"name": "i"}), json!(null), "i"),
        ("a name alone", json!({"name": "i"}), json!({"username": "alice"}), "i"),
        (
            "a name, and what says nothing",
            json!({"name": "i"}),
            json!({"username": "alice", "uid": "", "groups": [], "extra": null}),
            "i",
        ),
        ("the whole", json!({"name": "i"}), alice(), "i"),
        (
            "a seal of somebody's own",
            json!({"name": "i", "annotations": {VERIFIED: "1.00", "other": "1"}}),
            json!(null),
            "i",
        ),
        ("annotations that are none", json!({"name": "i", "annotations": null}), json!(null), "i"),
        ("no name yet", json!({"generateName": "shop-"}), json!(null), "shop-x7v2q"),
    ] {
        let object = instance(&metadata, &requester);
        let came = came(&create(&object));
        assert_eq!(came.asked, None, "{name}");
        let object = patched(&object, &came.allowed);
        assert_eq!(object["spec"]["requester"], alice(), "{name}");
        assert_eq!(object["metadata"]["name"], made, "{name}");
        assert_eq!(is_verified(&object, NOW), Ok(()), "{name}");
        assert!(is_verified(&object, LONG_AGO).is_err(), "{name}: for another of its name");
    }
}

#[test]
fn a_generated_name_is_no_longer_than_the_api_server_makes_it() {
    let object = instance(&json!({"generateName": "a".repeat(80)}), &Value::Null);
    let object = patched(&object, &came(&create(&object)).allowed);
    assert_eq!(object["metadata"]["name"], format!("{}x7v2q", "a".repeat(58)));
}

#[test]
fn groups_are_a_set() {
    for groups in [json!(["system:authenticated", "team", "team"]), json!(["team"])] {
        let mut requester = alice();
        requester["groups"] = groups;
        let object = instance(&json!({"name": "i"}), &requester);
        assert_eq!(came(&create(&object)).asked, None, "{requester}");
    }
    let object = instance(&json!({"name": "i"}), &alice());
    let mut request = create(&object);
    request["userInfo"]["groups"] = json!(["team"]);
    assert!(
        came(&request).asked.is_some(),
        "to be named with it, and not to have it, is to be another"
    );
}

#[test]
fn whoever_shows_another_credential_is_the_same_and_whoever_is_elsewhere_is_not() {
    for (key, is_same) in [
        ("authentication.kubernetes.io/credential-id", true),
        ("authentication.kubernetes.io/node-name", false),
    ] {
        let mut requester = alice();
        requester["extra"][key] = json!(["JTI=1"]);
        let came = came(&create(&instance(&json!({"name": "i"}), &requester)));
        assert_eq!(came.asked.is_none(), is_same, "{key}: {came:?}");
        assert_eq!(came.refused["allowed"], is_same, "{key}");
    }
}

#[test]
fn whoever_names_another_has_to_have_the_right_to() {
    let with = |member: &str, value: Value| {
        let mut requester = alice();
        requester[member] = value;
        requester
    };
    for (name, requester, members) in [
        ("another", json!({"username": "bob"}), &["username"][..]),
        ("another with her groups", with("username", json!("bob")), &["username"]),
        ("another uid", with("uid", json!("8")), &["uid"]),
        ("no uid", with("uid", json!(null)), &["uid"]),
        ("a group more", with("groups", json!(["team", "system:masters"])), &["groups"]),
        ("a group less", with("groups", json!(["system:authenticated"])), &["groups"]),
        ("another scope", with("extra", json!({"example.org/scope": ["x"]})), &["extra"]),
        (
            "a name and groups",
            json!({"username": "alice", "groups": ["system:masters"]}),
            &["uid", "groups", "extra"],
        ),
    ] {
        let object = instance(&json!({"name": "i"}), &requester);
        let came = came(&create(&object));
        assert_eq!(came.asked, Some((NAMESPACE.to_owned(), "i".to_owned())), "{name}");
        let of = |member: &&str| {
            format!(
                "spec.requester.{member}: Forbidden: you do not have permission to set {member}"
            )
        };
        let of: Vec<String> = members.iter().map(of).collect();
        let of = if of.len() == 1 { of.concat() } else { format!("[{}]", of.join(", ")) };
        let expected = format!("TemplateInstance.template.openshift.io \"i\" is invalid: {of}");
        assert_eq!(message(&came.refused), expected, "{name}");
        assert_eq!(came.refused["status"]["code"], 422, "{name}");
        let object = patched(&object, &came.allowed);
        assert_eq!(object["spec"]["requester"], requester, "{name}: as they say");
        assert_eq!(is_verified(&object, NOW), Ok(()), "{name}");
    }
}

#[test]
fn all_that_is_wrong_with_a_new_one_is_said() {
    let parameters = json!([{"name": "a-b"}, {}, {"name": "", "value": 1}]);
    for (name, spec, expected) in [
        ("no spec", json!(null), "spec: Required value"),
        ("no map", json!([1]), "spec: Required value"),
        ("no template", json!({}), "spec.template: Required value"),
        (
            "a requester without a name",
            json!({"template": template(), "requester": {"groups": ["g"]}}),
            "spec.requester.username: Required value",
        ),
        (
            "groups that are none",
            json!({"template": template(), "requester": {"username": "alice", "groups": "g"}}),
            "spec.requester.groups: has to be a list of strings",
        ),
        (
            "a secret without a name",
            json!({"template": template(), "secret": {"name": ""}}),
            "spec.secret.name: Required value",
        ),
        (
            "parameters",
            json!({"template": {"parameters": parameters}, "secret": {}}),
            "[spec.template.parameters[0].name: Invalid value: \"a-b\": has to match ^[a-zA-Z0-9_]+$, \
             spec.template.parameters[1].name: Required value, \
             spec.template.parameters[2].name: Required value, \
             spec.template.parameters[2].value: Invalid value: a number: has to be a string: put quotes around it, \
             spec.secret.name: Required value]",
        ),
        (
            "no template at all",
            json!({"template": "x"}),
            "spec.template: Invalid value: \"x\": has to be a map with apiVersion, kind, objects and parameters",
        ),
    ] {
        let mut object = instance(&json!({"name": "i"}), &Value::Null);
        object["spec"] = spec;
        let came = came(&create(&object));
        let expected =
            format!("TemplateInstance.template.openshift.io \"i\" is invalid: {expected}");
        assert_eq!(message(&came.allowed), expected, "{name}");
        assert_eq!(came.asked, None, "{name}");
    }
    let object = instance(&json!({}), &Value::Null);
    let said = message(&came(&create(&object)).allowed);
    assert!(said.ends_with("metadata.name: Required value: name or generateName is required"));
}

#[test]
fn the_template_of_an_instance_needs_no_name_and_no_kind() {
    for (name, template) in [
        ("nothing", json!({})),
        ("no metadata", json!({"objects": [], "parameters": []})),
        ("an empty name and namespace", json!({"metadata": {"name": "", "namespace": ""}})),
        (
            "as it is kept",
            json!({
                "apiVersion": "template.openshift.io/v1", "kind": "Template",
                "metadata": {"name": "web", "namespace": "openshift", "uid": "u"}, "objects": [],
            }),
        ),
    ] {
        let mut object = instance(&json!({"name": "i"}), &Value::Null);
        object["spec"]["template"] = template.clone();
        let made = patched(&object, &came(&create(&object)).allowed);
        assert_eq!(made["spec"]["template"], template, "{name}");
    }
}

#[test]
fn ends_of_names_differ_and_are_the_api_servers() {
    let (one, other) = (suffix().unwrap(), suffix().unwrap());
    assert_ne!(one, other);
    assert!(one.len() == 5 && one.bytes().all(|byte| LETTERS.contains(&byte)), "{one}");
}

#[test]
fn what_the_broker_has_verified_is_let_in_as_it_is() {
    let bob = json!({"username": "bob", "uid": "8", "groups": ["team"]});
    let bare = instance(&json!({"name": "i"}), &bob);
    let sealed = |word: Word, name: &str, at: &str| {
        let at = at.parse().unwrap();
        verified::seal(word, NAMESPACE, name, &bare["spec"], (at, verified::FIRST), &key())
    };
    let ours = || sealed(Word::Broker, "i", NOW);
    let webhooks = || sealed(Word::Webhook, "i", NOW);
    // As the API server has whoever the broker acts for; older ones know no uid of them.
    let acted_for = json!({"username": "bob", "groups": ["team", "system:authenticated"]});
    let without_groups = json!({"username": "bob", "uid": "8", "groups": ["system:authenticated"]});
    for (name, seal, who, is_believed) in [
        ("the broker's word", ours(), &bob, true),
        ("the broker's, who acts for somebody", ours(), &acted_for, true),
        ("brought back by somebody else", ours(), &alice(), false),
        ("brought back by one of that name", ours(), &without_groups, false),
        ("of another instance", sealed(Word::Broker, "j", NOW), &acted_for, false),
        ("of another time", sealed(Word::Broker, "i", LONG_AGO), &acted_for, false),
        ("what anybody can have of the webhook", webhooks(), &acted_for, false),
        ("that as the broker's", webhooks().replace("webhook.", "broker."), &acted_for, false),
    ] {
        let object = instance(&json!({"name": "i", "annotations": {VERIFIED: seal}}), &bob);
        let mut request = create(&object);
        request["userInfo"] = who.clone();
        let came = came(&request);
        assert_eq!(came.asked.is_none(), is_believed, "{name}");
        let made = patched(&object, &came.allowed);
        assert_eq!(is_verified(&made, NOW), Ok(()), "{name}");
        match is_believed {
            true => assert_eq!(made, object, "{name}: as it is"),
            false => assert_eq!(came.refused["allowed"], false, "{name}"),
        }
    }
}
