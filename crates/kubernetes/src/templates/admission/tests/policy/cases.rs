use serde_json::{Value, json};

use super::super::{Kind, NAMESPACE, alice, create, instance, request, template};
use super::agrees::{filled, policy_of};
use super::language::{Asked, Verdict};
use super::read::{Policy, bindings};

/// What comes of a request without the right to assign.
fn verdict(request: &Value) -> Result<Verdict, String> {
    let object = filled(request, &request["object"], &request["oldObject"])?;
    let kind = Kind::ALL.into_iter().find(|it| request["kind"]["kind"] == it.name()).unwrap();
    let asked = Asked { request, object: &object, old: &request["oldObject"], may: false };
    asked.judged_by(&Policy::of(policy_of(kind), false))
}

fn refused(request: &Value) -> Option<String> {
    verdict(request).unwrap().refused
}

#[test]
fn every_policy_is_bound_and_refuses_what_it_cannot_judge() {
    let instances = Policy::of("manciple-template-instances", false);
    let mut expected = Vec::new();
    for (name, operations, actions) in [
        ("manciple-template-instances", &["CREATE", "UPDATE"][..], "[Deny]"),
        ("manciple-templates", &["CREATE"], "[Deny]"),
        ("manciple-broker-template-instances", &["CREATE", "UPDATE"], "[Deny]"),
        ("manciple-template-requesters", &["CREATE", "UPDATE"], ""),
    ] {
        let policy = Policy::of(name, false);
        assert_eq!(policy.names("operations"), operations, "{name}");
        assert_eq!(policy.text("failurePolicy"), "Fail", "{name}");
        assert_eq!(policy.text("matchPolicy"), "Equivalent", "{name}");
        expected.push((name.to_owned(), actions.to_owned()));
    }
    assert_eq!(bindings(), expected);
    assert_eq!(instances.names("resources"), ["templateinstances"], "and not their status");
}

#[test]
fn who_says_nothing_wrong_asks_for_no_right() {
    let object = instance(&json!({"name": "i"}), &Value::Null);
    assert_eq!(verdict(&create(&object)), Ok(Verdict { refused: None, asked: None }));
    // The API server leaves out what is empty of who asks.
    let mut request = create(&object);
    request["userInfo"] = json!({"username": "system:admin"});
    assert_eq!(verdict(&request), Ok(Verdict { refused: None, asked: None }));
    let named = json!({"username": "system:admin", "groups": ["system:masters"]});
    request["object"]["spec"]["requester"] = named;
    let forbidden = "spec.requester.groups: Forbidden: you do not have permission to set groups";
    assert_eq!(refused(&request).as_deref(), Some(forbidden));
}

#[test]
fn without_the_first_policy_nobody_is_filled_in() {
    let object = instance(&json!({"name": "i"}), &Value::Null);
    let request = create(&object);
    let asked = Asked { request: &request, object: &object, old: &Value::Null, may: true };
    let policy = Policy::of("manciple-template-instances", false);
    let refused = asked.judged_by(&policy).unwrap().refused;
    assert_eq!(refused.as_deref(), Some("spec.requester.username: Required value"));
    let mut whole = object.clone();
    whole["spec"]["requester"] = alice();
    let asked = Asked { request: &request, object: &whole, old: &Value::Null, may: false };
    assert_eq!(asked.judged_by(&policy), Ok(Verdict { refused: None, asked: None }));
}

#[test]
fn what_is_wrong_with_parameters_is_said_of_each() {
    let names = [json!({"name": "A_1"}), json!({"name": "a-b"}), json!({}), json!({"name": ""})];
    let wrongs = |place: &str| {
        format!(
            "[{place}parameters[1].name: Invalid value: \"a-b\": has to match ^[a-zA-Z0-9_]+$, \
             {place}parameters[2].name: Required value, {place}parameters[3].name: Required value]"
        )
    };
    let mut object = instance(&json!({"name": "i"}), &Value::Null);
    object["spec"]["template"]["parameters"] = json!(names);
    assert_eq!(refused(&create(&object)), Some(wrongs("spec.template.")));
    let mut object = template();
    object["parameters"] = json!(names);
    assert_eq!(
        refused(&request("CREATE", Kind::Template, &object, &Value::Null)),
        Some(wrongs(""))
    );
    object["parameters"] = json!(null);
    assert_eq!(refused(&request("CREATE", Kind::Template, &object, &Value::Null)), None);
}

/// Some of it the definitions refuse before policies are asked: the rules hold without them, too.
#[test]
fn what_is_wrong_with_what_a_broker_keeps_is_said_of_each() {
    let good = json!({"metadata": {"name": "b"}, "spec": {
        "templateInstance": {"kind": "TemplateInstance", "name": "a.b", "namespace": "n"},
        "secret": {"kind": "Secret", "name": "s", "namespace": "n"},
        "bindingIDs": ["0AB1c2d3-0000-1111-2222-333344445555"],
    }});
    let long = format!("{}.{}", "a".repeat(200), "b".repeat(53));
    for (path, value, expected) in [
        ("/spec/secret/name", json!("a.b"), None),
        ("/spec/bindingIDs", json!(null), None),
        ("/spec/secret", json!(null), Some(
            "[spec.secret.kind: Required value, spec.secret.name: Required value, \
             spec.secret.namespace: Required value]".to_owned(),
        )),
        ("/spec/secret/kind", json!("secret"), Some(
            "spec.secret.kind: Invalid value: \"secret\": has to be Secret".to_owned(),
        )),
        ("/spec/templateInstance/name", json!("a..b"), Some(
            "spec.templateInstance.name: Invalid value: \"a..b\": has to be a DNS-1123 subdomain".to_owned(),
        )),
        ("/spec/templateInstance/name", json!(long), Some(format!(
            "spec.templateInstance.name: Invalid value: \"{long}\": has to be a DNS-1123 subdomain"
        ))),
        ("/spec/templateInstance/namespace", json!("-n"), Some(
            "spec.templateInstance.namespace: Invalid value: \"-n\": has to be a DNS-1123 label".to_owned(),
        )),
        ("/spec/bindingIDs", json!(["x", good["spec"]["bindingIDs"][0], ""]), Some(
            "[spec.bindingIDs[0]: Invalid value: \"x\": has to be a UUID, \
             spec.bindingIDs[2]: Invalid value: \"\": has to be a UUID]".to_owned(),
        )),
    ] {
        let mut object = good.clone();
        *object.pointer_mut(path).unwrap() = value;
        for (operation, old) in [("CREATE", &Value::Null), ("UPDATE", &good)] {
            let request = request(operation, Kind::BrokerTemplateInstance, &object, old);
            assert_eq!(refused(&request), expected, "{path}");
        }
    }
}

#[test]
fn what_cannot_be_read_is_refused() {
    for (case, place, value) in [
        ("a requester that is none", "requester", json!("alice")),
        ("groups that are none", "requester", json!({"username": "alice", "groups": 1})),
        ("parameters that are none", "template", json!({"parameters": "x"})),
    ] {
        let mut object = instance(&json!({"name": "i"}), &alice());
        object["spec"][place] = value;
        let request = create(&object);
        let asked = Asked { request: &request, object: &object, old: &Value::Null, may: false };
        // An error is a refusal: `failurePolicy: Fail`.
        let verdict = asked.judged_by(&Policy::of("manciple-template-instances", false));
        assert!(verdict.is_err(), "{case}: {verdict:?}");
    }
}

/// Two lists of groups that are one are compared at once, and otherwise each with each: an API server gives up after a
/// million steps, and refuses.
#[test]
fn who_has_many_groups_is_no_trouble() {
    let many: Vec<String> = (0..400).map(|it| format!("group-{it}")).collect();
    let mut request = create(&instance(&json!({"name": "i"}), &Value::Null));
    request["userInfo"] = json!({"username": "alice", "groups": many});
    assert_eq!(verdict(&request), Ok(Verdict { refused: None, asked: None }));
    let turned: Vec<&String> = many.iter().rev().collect();
    request["object"]["spec"]["requester"] = json!({"username": "alice", "groups": turned});
    assert_eq!(verdict(&request), Ok(Verdict { refused: None, asked: None }));
}

#[test]
fn the_right_is_that_of_this_instance() {
    let object = instance(&json!({"name": "i"}), &json!({"username": "bob"}));
    let asked = Some((NAMESPACE.to_owned(), "i".to_owned()));
    assert_eq!(verdict(&create(&object)).unwrap().asked, asked);
    let object = instance(&json!({"generateName": "shop-"}), &json!({"username": "bob"}));
    let asked = Some((NAMESPACE.to_owned(), "shop-x7v2q".to_owned()));
    assert_eq!(verdict(&create(&object)).unwrap().asked, asked);
}
