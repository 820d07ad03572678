use data_encoding::BASE64;
use serde_json::{Value, json};

use super::{
    AdmissionContext, Changes, Judged, Kind, NOW, Review, came, create, instance, judge, kept, key,
    message, patched, request, update,
};
use crate::deep::Unread;
use crate::templates::names::VERIFIED;

#[test]
fn templates_are_read_when_they_are_made() {
    let faulty = json!({
        "apiVersion": "template.openshift.io/v1", "kind": "Template", "metadata": {"name": "t"},
        "parameters": [{"name": "a b"}], "objects": {},
    });
    let said = came(&request("CREATE", Kind::Template, &faulty, &Value::Null)).allowed;
    let expected = "Template.template.openshift.io \"t\" is invalid: [parameters[0].name: Invalid value: \"a b\": \
                    has to match ^[a-zA-Z0-9_]+$, objects: Invalid value: a map: has to be a list]";
    assert_eq!(message(&said), expected);
    let said = came(&request("UPDATE", Kind::Template, &faulty, &faulty)).allowed;
    assert_eq!(patched(&faulty, &said), faulty);
}

#[test]
fn objects_of_a_template_are_not_looked_at() {
    let template = json!({
        "apiVersion": "template.openshift.io/v1", "kind": "Template", "metadata": {"name": "t"},
        "objects": [{}, {"kind": "${KIND}"}, {"kind": 5, "metadata": "x"}, null, "text"],
    });
    let said = came(&request("CREATE", Kind::Template, &template, &Value::Null)).allowed;
    assert_eq!(patched(&template, &said), template);
}

#[test]
fn what_a_broker_keeps_may_be_changed() {
    let of = |namespace: &str, ids: Value| {
        let reference = |kind: &str| json!({"kind": kind, "name": "a", "namespace": namespace});
        json!({"metadata": {"name": "b"}, "spec": {
            "templateInstance": reference("TemplateInstance"), "secret": reference("Secret"),
            "bindingIDs": ids,
        }})
    };
    let (old, new) =
        (of("n", json!(null)), of("m", json!(["0ab1c2d3-0000-1111-2222-333344445555"])));
    let came = came(&request("UPDATE", Kind::BrokerTemplateInstance, &new, &old));
    assert_eq!((came.asked, patched(&new, &came.allowed)), (None, new));
}

#[test]
fn what_a_broker_keeps_is_checked() {
    let good = json!({
        "metadata": {"name": "b"}, "spec": {
            "templateInstance": {"kind": "TemplateInstance", "name": "a.b", "namespace": "n"},
            "secret": {"kind": "Secret", "name": "s", "namespace": "n"},
            "bindingIDs": ["0AB1c2d3-0000-1111-2222-333344445555"],
        },
    });
    let kind = Kind::BrokerTemplateInstance;
    let said = came(&request("UPDATE", kind, &good, &good)).allowed;
    assert_eq!(patched(&good, &said), good);
    for (name, path, value, expected) in [
        (
            "a kind",
            "/spec/secret/kind",
            json!("secret"),
            "spec.secret.kind: Invalid value: \"secret\": has to be Secret",
        ),
        ("no name", "/spec/secret/name", json!(""), "spec.secret.name: Required value"),
        (
            "a name",
            "/spec/templateInstance/name",
            json!("a..b"),
            "spec.templateInstance.name: Invalid value: \"a..b\": has to be a DNS-1123 subdomain",
        ),
        (
            "a namespace",
            "/spec/secret/namespace",
            json!("a.b"),
            "spec.secret.namespace: Invalid value: \"a.b\": has to be a DNS-1123 label",
        ),
        (
            "a binding",
            "/spec/bindingIDs/0",
            json!("x"),
            "spec.bindingIDs[0]: Invalid value: \"x\": has to be a UUID",
        ),
    ] {
        let mut object = good.clone();
        *object.pointer_mut(path).unwrap() = value;
        for operation in ["CREATE", "UPDATE"] {
            let said = message(&came(&request(operation, kind, &object, &good)).allowed);
            let expected = format!(
                "BrokerTemplateInstance.template.openshift.io \"b\" is invalid: {expected}"
            );
            assert_eq!(said, expected, "{name}");
        }
    }
}

#[test]
fn what_it_does_not_judge_is_let_in_as_it_is() {
    let object = instance(&json!({"name": "i"}), &json!({"username": "bob"}));
    type Change = fn(&mut Value);
    let changes: [(&str, Change, bool); 4] = [
        ("the status", |it| it["subResource"] = json!("status"), false),
        ("a removal", |it| it["operation"] = json!("DELETE"), false),
        ("another kind", |it| it["kind"]["kind"] = json!("Pod"), true),
        ("another group", |it| it["kind"]["group"] = json!("apps"), true),
    ];
    for (name, change, is_told) in changes {
        let mut request = create(&object);
        change(&mut request);
        let said = came(&request).allowed;
        assert_eq!(patched(&object, &said), object, "{name}");
        assert_eq!(said["uid"], "42", "{name}");
        assert_eq!(said["warnings"].is_array(), is_told, "{name}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let object = instance(&json!({"name": "i"}), &Value::Null);
    let mut changed = kept();
    changed["spec"]["secret"] = json!({"name": "s"});
    let mut ageless = kept();
    ageless["metadata"]["creationTimestamp"] = json!(null);
    for (name, request) in [
        ("no object", create(&Value::Null)),
        ("no map", create(&json!([1]))),
        ("metadata that are none", create(&json!({"metadata": "x", "spec": {}}))),
        ("no object as it was", update(&object, &Value::Null)),
        ("of no age", update(&changed, &ageless)),
    ] {
        let said = came(&request).allowed;
        assert_eq!(
            (&said["allowed"], &said["status"]["code"]),
            (&json!(false), &json!(400)),
            "{name}"
        );
    }
}

#[test]
fn what_is_no_review_is_malformed() {
    let good = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": create(&instance(&json!({"name": "i"}), &Value::Null)),
    });
    assert!(Review::read(good.to_string().as_bytes()).is_ok());
    for (name, path, value) in [
        ("an older version", "/apiVersion", json!("admission.k8s.io/v1beta1")),
        ("another kind", "/kind", json!("Pod")),
        ("no request", "/request", json!(null)),
        ("no uid", "/request/uid", json!(null)),
        ("no user", "/request/userInfo", json!(null)),
        ("a user that is none", "/request/userInfo/groups", json!([1])),
    ] {
        let mut review = good.clone();
        *review.pointer_mut(path).unwrap() = value;
        assert!(Review::read(review.to_string().as_bytes()).is_err(), "{name}");
    }
    for text in ["", "null", "[]", "{", &"[".repeat(100_000)] {
        assert!(Review::read(text.as_bytes()).is_err(), "{text:.9}");
    }
}

/// What is too much, or too deep, to be read: it is told to whoever brings it, and in nobody's way who does not.
#[test]
fn what_is_not_read_is_refused_where_it_is_news() {
    let of = |objects: &str| {
        let object =
            instance(&json!({"name": "i", "labels": {"a": "1"}}), &Value::Null).to_string();
        object.replace(r#"[{"kind":"ConfigMap"}]"#, objects)
    };
    let deep = of(&format!("{}1{}", "[".repeat(600), "]".repeat(600)));
    let heavy = of(&format!("[{}0]", r#"{"":0},"#.repeat(60_000)));
    let good = of("[]");
    let too_deep = "the TemplateInstance is nested more than 127 levels deep: make it flatter";
    let too_heavy = "the TemplateInstance would take more than 16 MiB of memory: let it have fewer maps and lists";
    let with_label = |object: &str| object.replace(r#""a":"1""#, r#""a":"2""#);
    let verified = |object: &str, seal: &str| {
        let annotations = format!(r#""annotations":{{"{VERIFIED}":"{seal}"}},"labels""#);
        object.replacen(r#""labels""#, &annotations, 1)
    };
    let (sealed, forged) = (verified(&heavy, "ours"), verified(&heavy, "another's"));
    let path = format!("/metadata/annotations/{}", VERIFIED.replace('/', "~1"));
    let back = json!([{"op": "add", "path": path, "value": "ours"}]);
    let all_back =
        json!([{"op": "add", "path": "/metadata/annotations", "value": {VERIFIED: "ours"}}]);
    let away = json!([{"op": "remove", "path": path}]);
    for (name, object, old, expected, patch) in [
        ("deep and new", &deep, "null", Some(too_deep), None),
        ("heavy and new", &heavy, "null", Some(too_heavy), None),
        ("it becomes heavy", &heavy, &*good, Some(too_heavy), None),
        ("it was heavy", &good, &*heavy, Some(too_heavy), None),
        ("its label changes", &with_label(&heavy), &*heavy, None, None),
        ("the label of a deep one", &with_label(&deep), &*deep, None, None),
        ("what is verified stays", &with_label(&sealed), &*sealed, None, None),
        ("it is replaced", &forged, &*sealed, None, Some(back)),
        ("it is taken away", &heavy, &*sealed, None, Some(all_back)),
        ("it is made up", &forged, &*heavy, None, Some(away)),
    ] {
        let review = review_of(object, old);
        let key = key();
        let changes = Changes::Refused;
        let means =
            AdmissionContext { seal: &key, now: NOW.parse().unwrap(), suffix: "x7v2q", changes };
        let Judged::Answered(answer) = judge(&review, &means) else { panic!("{name}") };
        let response = answer.document("42")["response"].clone();
        assert_eq!(response["status"]["message"].as_str(), expected, "{name}");
        assert_eq!(response["allowed"], expected.is_none(), "{name}");
        let patched = response["patch"].as_str().map(|patch| {
            serde_json::from_slice::<Value>(&BASE64.decode(patch.as_bytes()).unwrap()).unwrap()
        });
        assert_eq!(patched, patch, "{name}");
    }
}

/// What is asked of one that becomes this, and was that; both as JSON.
fn review_of(object: &str, old: &str) -> Review {
    let operation = if old == "null" { "CREATE" } else { "UPDATE" };
    let request = request(operation, Kind::TemplateInstance, &json!("object"), &json!("old"));
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request,
    });
    let text = review.to_string();
    let text = text.replace(r#""object":"object""#, &format!(r#""object":{object}"#));
    let text = text.replace(r#""oldObject":"old""#, &format!(r#""oldObject":{old}"#));
    Review::read(text.as_bytes()).unwrap()
}

/// As one with thousands of objects has it.
#[test]
fn the_status_and_managed_fields_are_in_nobodys_way() {
    let maps = |count: usize| format!("[{}0]", r#"{"":0},"#.repeat(count));
    let of = |name: &str, objects: &str, status: &str| {
        let metadata = json!({"name": name}).to_string();
        let metadata =
            metadata.replacen('{', &format!(r#"{{"managedFields":{},"#, maps(15_000)), 1);
        format!(
            r#"{{"metadata":{metadata},"spec":{{"template":{{"objects":{objects}}}}},"status":{status}}}"#
        )
    };
    let (objects, status) = (maps(15_000), maps(30_000));
    let review = review_of(&of("new", &objects, &status), &of("old", &objects, &status));
    assert_eq!(review.unread, None);
    for (name, object) in [("new", &review.object), ("old", &review.old)] {
        assert_eq!(object["metadata"], json!({"name": name}));
        assert_eq!(object["spec"]["template"]["objects"].as_array().unwrap().len(), 15_001);
        assert_eq!(object["status"], Value::Null);
    }
    let objects = maps(30_000);
    let review = review_of(&of("new", &objects, "{}"), "null");
    assert_eq!(review.unread.unwrap().why, Unread::TooHeavy);
}
