mod changing;
mod making;
mod others;
mod policy;

use data_encoding::BASE64;
use ring::hmac;
use serde_json::{Value, json};

use super::Changes;
use super::decide::judge;
use super::judged::{AdmissionContext, Judged};
use super::review::Review;
use crate::templates::names::{GROUP, Kind, VERIFIED};
use crate::templates::resource::Instance;
use crate::templates::seen::SeenInstance;
use crate::templates::verified;

const NAMESPACE: &str = "shop";
const NOW: &str = "2026-11-22T12:00:00Z";
const LONG_AGO: &str = "2025-01-01T00:00:00Z";

fn key() -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, b"a key of seals")
}

/// What comes of a request: the answer's response, and whether it depends on the right to assign, which is had.
#[derive(Debug, Clone)]
struct Came {
    asked: Option<(String, String)>,
    allowed: Value,
    refused: Value,
}

fn came(request: &Value) -> Came {
    came_where(Changes::Refused, request)
}

fn came_where(changes: Changes, request: &Value) -> Came {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request,
    });
    let review = Review::read(review.to_string().as_bytes()).unwrap();
    let key = key();
    let means =
        AdmissionContext { seal: &key, now: NOW.parse().unwrap(), suffix: "x7v2q", changes };
    let response =
        |answer: &super::answer::Answer| answer.document(&review.uid)["response"].clone();
    let came = match judge(&review, &means) {
        Judged::Answered(answer) => {
            Came { asked: None, allowed: response(&answer), refused: response(&answer) }
        }
        Judged::Depends { who, on, allowed, refused } => {
            assert_eq!(who, review.who, "it is asked of the whole identity");
            let asked = Some((on.namespace, on.name));
            Came { asked, allowed: response(&allowed), refused: response(&refused) }
        }
    };
    policy::agrees(changes, request, &came);
    came
}

fn alice() -> Value {
    json!({
        "username": "alice", "uid": "7", "groups": ["team", "system:authenticated"],
        "extra": {"example.org/scope": ["full"]},
    })
}

fn template() -> Value {
    json!({"metadata": {"name": "web"}, "objects": [{"kind": "ConfigMap"}], "parameters": [{"name": "A_1"}]})
}

fn instance(metadata: &Value, requester: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "template.openshift.io/v1", "kind": "TemplateInstance",
        "metadata": metadata, "spec": {"template": template()},
    });
    if !requester.is_null() {
        object["spec"]["requester"] = requester.clone();
    }
    object
}

fn request(operation: &str, kind: Kind, object: &Value, old: &Value) -> Value {
    json!({
        "uid": "42", "operation": operation, "namespace": NAMESPACE, "userInfo": alice(),
        "kind": {"group": GROUP, "version": "v1", "kind": kind.name()},
        "object": object, "oldObject": old, "dryRun": false,
    })
}

fn create(object: &Value) -> Value {
    request("CREATE", Kind::TemplateInstance, object, &Value::Null)
}

fn update(object: &Value, old: &Value) -> Value {
    request("UPDATE", Kind::TemplateInstance, object, old)
}

/// One as it is kept.
fn kept() -> Value {
    let metadata = json!({
        "name": "i", "namespace": NAMESPACE, "uid": "u", "resourceVersion": "1",
        "creationTimestamp": LONG_AGO, "annotations": {VERIFIED: "1.aa", "other": "1"},
    });
    instance(&metadata, &alice())
}

/// An object with what a response does to it.
fn patched(object: &Value, response: &Value) -> Value {
    assert_eq!(response["allowed"], true, "{response}");
    let mut object = object.clone();
    let Some(patch) = response["patch"].as_str() else { return object };
    assert_eq!(response["patchType"], "JSONPatch");
    let operations: Vec<Value> =
        serde_json::from_slice(&BASE64.decode(patch.as_bytes()).unwrap()).unwrap();
    for operation in operations {
        let path = operation["path"].as_str().unwrap();
        let (parent, member) = path.rsplit_once('/').unwrap();
        let parent = object.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        let member = member.replace("~1", "/");
        match operation["op"].as_str().unwrap() {
            "add" => drop(parent.insert(member, operation["value"].clone())),
            "remove" => drop(parent.remove(&member).expect("it can be removed")),
            other => panic!("{other}"),
        }
    }
    object
}

/// Whether the controller takes it.
fn is_verified(object: &Value, created: &str) -> Result<(), String> {
    let mut object = object.clone();
    object["metadata"]["namespace"] = json!(NAMESPACE);
    object["metadata"]["uid"] = json!("u");
    object["metadata"]["resourceVersion"] = json!("1");
    object["metadata"]["creationTimestamp"] = json!(created);
    let seen: SeenInstance = serde_json::from_str(&object.to_string()).unwrap();
    verified::check(&Instance::of(seen).unwrap(), &key())
}

fn message(response: &Value) -> String {
    assert_eq!(response["allowed"], false, "{response}");
    response["status"]["message"].as_str().unwrap().to_owned()
}
