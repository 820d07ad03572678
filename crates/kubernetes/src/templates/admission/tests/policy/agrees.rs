//! Whether a policy and the webhook come to the same.

use serde_json::{Value, json};

use super::super::{Came, Changes, Kind, VERIFIED, patched};
use super::language::{Asked, Verdict, fits};
use super::read::Policy;
use crate::templates::definition::definition;

/// The API server's end of a generated name.
const SUFFIX: &str = "x7v2q";

/// Checks that what comes of a request by the webhook comes of it by the policies, with the right to assign and without.
/// But for what the definitions refuse before policies are asked; for the seals of the broker, which policies cannot read;
/// and for nulls beyond the definitions, which are no change to the webhook.
pub(in super::super) fn agrees(changes: Changes, request: &Value, came: &Came) {
    let kinds = Kind::ALL.into_iter();
    let Some(kind) = kinds.clone().find(|kind| request["kind"]["kind"] == kind.name()) else {
        return;
    };
    let policy = Policy::of(policy_of(kind), changes == Changes::ByRequester);
    let is_matched = request["subResource"].is_null()
        && request["kind"]["group"] == crate::templates::names::GROUP
        && policy.names("operations").iter().any(|it| request["operation"] == **it);
    let is_senseless = came.allowed["status"]["code"] == 400;
    let sealed = request["object"]["metadata"]["annotations"][VERIFIED].as_str();
    let is_of_broker = sealed.is_some_and(|seal| seal.contains("broker."));
    if !is_matched || is_senseless || is_of_broker {
        let refused = came.allowed["allowed"] == false && came.asked.is_none();
        assert!(!refused || is_senseless || is_of_broker, "{came:?}: no policy is asked");
        return;
    }
    let schema = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"].take();
    let [mut object, mut old] = [&request["object"], &request["oldObject"]].map(Clone::clone);
    [&mut object, &mut old].into_iter().for_each(|it| without_nulls(it, &schema));
    let Ok(object) = filled(request, &object, &old) else {
        assert_eq!(came.allowed["allowed"], false, "{came:?}: policies refuse what cannot be read");
        return;
    };
    if object["metadata"]["name"].as_str().is_none_or(str::is_empty) {
        assert_eq!(came.allowed["allowed"], false, "{came:?}: the API server refuses it");
        return;
    }
    if kind == Kind::TemplateInstance && came.allowed["allowed"] == true {
        let theirs = &patched(&request["object"], &came.allowed)["spec"]["requester"];
        let ours = &object["spec"]["requester"];
        assert!(crate::templates::verified::same(theirs, ours), "{theirs} by the webhook: {ours}");
    }
    for (may, response) in [(true, &came.allowed), (false, &came.refused)] {
        let asked = Asked { request, object: &object, old: &old, may };
        let found = asked.judged_by(&policy);
        let expected = Verdict { refused: said(response), asked: came.asked.clone() };
        let is_same = found
            .as_ref()
            .is_ok_and(|found| found.refused == expected.refused && found.asked == expected.asked);
        assert!(
            is_same || !fits(&object, &open(&schema)) || is_of_nulls(&object, &old, &found),
            "{found:?}, and by the webhook {expected:?}: {request}"
        );
    }
}

pub(super) fn policy_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Template => "manciple-templates",
        Kind::TemplateInstance => "manciple-template-instances",
        Kind::BrokerTemplateInstance => "manciple-broker-template-instances",
    }
}

/// What the first policy makes of an object, with the name that the API server makes.
pub(super) fn filled(request: &Value, object: &Value, old: &Value) -> Result<Value, String> {
    let asked = Asked { request, object, old, may: false };
    let mut object = match request["kind"]["kind"] == Kind::TemplateInstance.name() {
        true => asked.changed_by(&Policy::of("manciple-template-requesters", false))?,
        false => object.clone(),
    };
    if let Some(from) = object["metadata"]["generateName"].as_str() {
        object["metadata"]["name"] = json!(format!("{from:.58}{SUFFIX}"));
    }
    Ok(object)
}

/// What the webhook says of what is wrong, without the name of the object.
fn said(response: &Value) -> Option<String> {
    let said = response["status"]["message"].as_str()?;
    let (_, wrongs) = said.split_once("is invalid: ").unwrap();
    Some(wrongs.to_owned())
}

/// The API server drops nulls where the definition does not want any.
fn without_nulls(value: &mut Value, schema: &Value) {
    let Some(members) = value.as_object_mut() else { return };
    let known = |key: &str| schema["properties"].get(key);
    members.retain(|key, value| {
        !value.is_null() || known(key).is_none_or(|schema| schema["nullable"] == true)
    });
    for (key, value) in members {
        known(key).into_iter().for_each(|schema| without_nulls(value, schema));
    }
}

/// A definition's schema as a JSON Schema: that has no `nullable`.
fn open(schema: &Value) -> Value {
    let mut open = match schema {
        Value::Object(members) => members.iter().map(|(key, it)| (key.clone(), open(it))).collect(),
        Value::Array(list) => list.iter().map(open).collect(),
        other => other.clone(),
    };
    if open["nullable"] == true && open["type"].is_string() {
        open["type"] = json!([open["type"], "null"]);
    }
    open
}

/// Whether a policy takes nulls in a template's objects for a change.
fn is_of_nulls(object: &Value, old: &Value, found: &Result<Verdict, String>) -> bool {
    fn has_nulls(value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::Array(list) => list.iter().any(has_nulls),
            Value::Object(map) => map.values().any(has_nulls),
            _ => false,
        }
    }
    let objects = &object["spec"]["template"]["objects"];
    has_nulls(objects)
        && crate::templates::verified::same(&object["spec"], &old["spec"])
        && found.as_ref().is_ok_and(|found| found.asked.is_some())
}
