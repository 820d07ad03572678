use serde_json::{Value, json};

use super::{
    LONG_AGO, NAMESPACE, NOW, VERIFIED, alice, came, create, instance, is_verified, kept, message,
    patched, update,
};

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
