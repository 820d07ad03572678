use serde_json::{Value, json};

use super::super::Changes;
use super::{
    LONG_AGO, NAMESPACE, NOW, VERIFIED, alice, came, came_where, create, instance, is_verified,
    kept, key, message, patched, update,
};
use crate::templates::verified::{self, Word};

#[test]
fn a_change_of_anything_but_the_spec_is_let_in_and_the_seal_stays() {
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 8] = [
        ("a label", |it| it["metadata"]["labels"] = json!({"a": "b"})),
        ("a finalizer", |it| it["metadata"]["finalizers"] = json!(["f"])),
        ("the seal", |it| it["metadata"]["annotations"][VERIFIED] = json!("2.bb")),
        ("no seal", |it| it["metadata"]["annotations"] = json!({"other": "1"})),
        ("no annotations", |it| it["metadata"]["annotations"] = json!(null)),
        ("another way to write it", |it| it["spec"]["secret"] = json!(null)),
        ("no requester", |it| it["spec"]["requester"] = json!(null)),
        ("a requester by name", |it| it["spec"]["requester"] = json!({"username": "alice"})),
    ];
    for (name, change) in changes {
        let mut object = kept();
        change(&mut object);
        let mut request = update(&object, &kept());
        request["userInfo"] = json!({"username": "system:serviceaccount:kube-system:gc"});
        let came = came(&request);
        assert_eq!(came.asked, None, "{name}");
        let patched = patched(&object, &came.allowed);
        assert_eq!(patched["spec"], kept()["spec"], "{name}");
        assert_eq!(patched["metadata"]["annotations"][VERIFIED], "1.aa", "{name}");
        assert_eq!(patched["metadata"]["labels"], object["metadata"]["labels"], "{name}");
    }
    // One that nobody has verified is not verified later.
    let mut old = kept();
    old["metadata"]["annotations"] = json!({});
    let patched = patched(&kept(), &came(&update(&kept(), &old)).allowed);
    assert_eq!(patched["metadata"]["annotations"], json!({"other": "1"}));
}

#[test]
fn what_is_only_written_in_another_way_is_no_change() {
    let object = |text: &str| {
        let mut kept = kept();
        kept["spec"]["template"]["objects"] = serde_json::from_str(text).unwrap();
        kept
    };
    let old = object(r#"[{"kind": "A", "spec": {"n": 1, "large": 1e21, "text": "é"}}]"#);
    for (name, text, is_same) in [
        (
            "another order, and what is absent",
            r#"[{"spec": {"none": null, "text": "\u00e9", "large": 1000000000000000000000, "n": 1.0}, "kind": "A"}]"#,
            true,
        ),
        (
            "text for a number",
            r#"[{"kind": "A", "spec": {"n": "1", "large": 1e21, "text": "é"}}]"#,
            false,
        ),
        ("one more", r#"[{"kind": "A", "spec": {"n": 1, "large": 1e21, "text": "é"}}, {}]"#, false),
    ] {
        let new = object(text);
        let came = came(&update(&new, &old));
        assert_eq!(came.asked.is_none(), is_same, "{name}");
        if is_same {
            assert_eq!(patched(&new, &came.allowed)["spec"], old["spec"], "{name}");
        }
    }
}

#[test]
fn another_spec_is_for_those_who_may_assign_and_is_sealed_anew() {
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 4] = [
        ("an object", |it| it["spec"]["template"]["objects"][0]["kind"] = json!("Secret")),
        ("the secret", |it| it["spec"]["secret"] = json!({"name": "s"})),
        ("the requester", |it| it["spec"]["requester"]["groups"] = json!(["system:masters"])),
        ("an object, and no requester", |it| {
            it["spec"] = json!({"template": {"objects": [{"kind": "Secret"}]}});
        }),
    ];
    for (name, change) in changes {
        let mut object = kept();
        change(&mut object);
        object["metadata"]["annotations"][VERIFIED] = json!("2.bb");
        let came = came(&update(&object, &kept()));
        assert_eq!(came.asked, Some((NAMESPACE.to_owned(), "i".to_owned())), "{name}");
        let expected = "TemplateInstance.template.openshift.io \"i\" is invalid: spec: Forbidden: field is immutable";
        assert_eq!(message(&came.refused), expected, "{name}");
        let patched = patched(&object, &came.allowed);
        assert_eq!(is_verified(&patched, LONG_AGO), Ok(()), "{name}");
        assert!(is_verified(&patched, NOW).is_err(), "{name}: for another of its name");
        assert_eq!(patched["spec"]["requester"]["username"], "alice", "{name}");
        assert_eq!(patched["spec"]["template"], object["spec"]["template"], "{name}");
    }
    let mut object = kept();
    object["spec"]["secret"] = json!({"name": ""});
    let came = came(&update(&object, &kept()));
    assert!(message(&came.allowed).ends_with("spec.secret.name: Required value"));
}

#[test]
fn of_a_dry_run_nothing_is_sealed() {
    let mut object =
        instance(&json!({"name": "i", "annotations": {VERIFIED: "1.00"}}), &json!(null));
    let mut request = create(&object);
    request["dryRun"] = json!(true);
    let made = patched(&object, &came(&request).allowed);
    assert_eq!(made["metadata"]["annotations"], json!({}));
    assert_eq!(made["spec"]["requester"], alice());
    object = kept();
    object["spec"]["secret"] = json!({"name": "s"});
    let mut request = update(&object, &kept());
    request["dryRun"] = json!(true);
    let changed = patched(&object, &came(&request).allowed);
    assert_eq!(changed["metadata"]["annotations"][VERIFIED], "1.aa");
}

#[test]
fn a_change_that_the_broker_has_verified_is_let_in_from_whom_it_names() {
    let immutable = "spec: Forbidden: field is immutable";
    let spec = |requester: Value| {
        let mut spec = kept()["spec"].clone();
        spec["template"]["objects"][0]["kind"] = json!("Secret");
        spec["secret"] = json!({"name": "i-0a0a0a0a"});
        spec["requester"] = requester;
        spec
    };
    let bob = || json!({"username": "bob", "uid": "8", "groups": ["team"]});
    let as_bob = json!({"username": "bob", "uid": "8", "groups": ["team", "system:authenticated"]});
    let sealed_of = |word: Word, name: &str, spec: &Value, at: &str, generation: i64| {
        verified::seal(word, NAMESPACE, name, spec, (at.parse().unwrap(), generation), &key())
    };
    let sealed = |word, name: &str, spec: &Value, at: &str| sealed_of(word, name, spec, at, 1);
    let good = |requester: Value| sealed(Word::Broker, "i", &spec(requester), LONG_AGO);
    let mut other = spec(bob());
    other["secret"]["name"] = json!("other");
    for (case, requester, who, seal, is_let_in) in [
        ("the requester", alice(), alice(), good(alice()), true),
        ("another requester", bob(), as_bob.clone(), good(bob()), true),
        ("somebody who has read it", alice(), as_bob.clone(), good(alice()), false),
        (
            "one who has lost a group",
            bob(),
            json!({"username": "bob", "uid": "8", "groups": ["system:authenticated"]}),
            good(bob()),
            false,
        ),
        (
            "one whose uid the API server does not know",
            bob(),
            json!({"username": "bob", "groups": ["team", "system:authenticated"]}),
            good(bob()),
            true,
        ),
        (
            "one of another uid",
            bob(),
            json!({"username": "bob", "uid": "9", "groups": ["team", "system:authenticated"]}),
            good(bob()),
            false,
        ),
        (
            "of another spec",
            bob(),
            as_bob.clone(),
            sealed(Word::Broker, "i", &other, LONG_AGO),
            false,
        ),
        (
            "of another instance",
            bob(),
            as_bob.clone(),
            sealed(Word::Broker, "j", &spec(bob()), LONG_AGO),
            false,
        ),
        (
            "that it had in an earlier generation, or will have",
            bob(),
            as_bob.clone(),
            sealed_of(Word::Broker, "i", &spec(bob()), LONG_AGO, 2),
            false,
        ),
        (
            "of another that is made now",
            bob(),
            as_bob.clone(),
            sealed(Word::Broker, "i", &spec(bob()), NOW),
            false,
        ),
        (
            "what anybody can have of the webhook",
            bob(),
            as_bob.clone(),
            sealed(Word::Webhook, "i", &spec(bob()), LONG_AGO),
            false,
        ),
    ] {
        let mut object = kept();
        object["spec"] = spec(requester);
        object["metadata"]["annotations"][VERIFIED] = json!(seal);
        let mut request = update(&object, &kept());
        request["userInfo"] = who;
        let came = came(&request);
        assert_eq!(came.asked.is_none(), is_let_in, "{case}");
        match is_let_in {
            true => {
                let changed = patched(&object, &came.allowed);
                assert_eq!(changed, object, "{case}: as it is");
                assert_eq!(is_verified(&changed, LONG_AGO), Ok(()), "{case}");
            }
            false => assert!(message(&came.refused).ends_with(immutable), "{case}"),
        }
    }
    let mut faulty = kept();
    faulty["spec"]["secret"] = json!({"name": ""});
    let seal = sealed(Word::Broker, "i", &faulty["spec"], LONG_AGO);
    faulty["metadata"]["annotations"][VERIFIED] = json!(seal);
    let said = message(&came(&update(&faulty, &kept())).allowed);
    assert!(said.ends_with("spec.secret.name: Required value"), "{said}");
}

#[test]
fn the_requester_changes_what_is_ordered_where_that_is_let_in() {
    type Change = fn(&mut Value);
    let lost = || json!({"username": "alice", "uid": "7", "groups": ["system:authenticated"]});
    let changes: [(&str, Change, Value, bool); 7] = [
        ("an object", |it| it["template"]["objects"][0]["kind"] = json!("Secret"), alice(), true),
        ("the secret", |it| it["secret"] = json!({"name": "s"}), alice(), true),
        (
            "both, and no requester",
            |it| *it = json!({"template": {"objects": []}, "secret": {"name": "s"}}),
            alice(),
            true,
        ),
        (
            "the requester",
            |it| it["requester"]["groups"] = json!(["system:masters"]),
            alice(),
            false,
        ),
        ("something else", |it| it["extra"] = json!(1), alice(), false),
        (
            "somebody else",
            |it| it["secret"] = json!({"name": "s"}),
            json!({"username": "bob"}),
            false,
        ),
        ("of another identity", |it| it["secret"] = json!({"name": "s"}), lost(), false),
    ];
    for (case, change, who, is_let_in) in changes {
        let mut object = kept();
        change(&mut object["spec"]);
        let mut request = update(&object, &kept());
        request["userInfo"] = who;
        assert!(came(&request).asked.is_some(), "{case}: not unless it is said so");
        let came = came_where(Changes::ByRequester, &request);
        assert_eq!(came.asked.is_none(), is_let_in, "{case}");
        let changed = patched(&object, &came.allowed);
        assert_eq!(is_verified(&changed, LONG_AGO), Ok(()), "{case}");
        if is_let_in {
            assert_eq!(changed["spec"]["requester"], kept()["spec"]["requester"], "{case}");
        }
    }
    let mut faulty = kept();
    faulty["spec"]["secret"] = json!({"name": ""});
    let said = message(&came_where(Changes::ByRequester, &update(&faulty, &kept())).allowed);
    assert!(said.ends_with("spec.secret.name: Required value"), "{said}");
}
