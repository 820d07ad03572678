//! Helpers for reading the status of any kind.

use serde_json::Value;

use super::Readiness;

pub(super) fn waiting(what: impl Into<String>) -> Readiness {
    Readiness::Waiting(what.into())
}

pub(super) fn failed(what: impl Into<String>) -> Readiness {
    Readiness::Failed(what.into())
}

/// A condition, if the status has it. The last one counts, where it has several.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().rev().find(|condition| condition["type"] == kind)
}

/// A condition, if its status is `True`.
pub(super) fn true_condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    condition(object, kind).filter(|condition| condition["status"] == "True")
}

/// A condition as people read it: `Ready is False, NoSpace: the disk is full`.
pub(super) fn described(condition: &Value) -> String {
    let text = |of: &str| condition[of].as_str().unwrap_or_default().trim();
    let said = format!("{} is {}", text("type"), text("status"));
    with_reason(&said, text("reason"), text("message"))
}

pub(super) fn with_reason(said: &str, reason: &str, message: &str) -> String {
    match (reason, message) {
        ("", "") => said.to_owned(),
        (one, "") | ("", one) => format!("{said}: {one}"),
        (reason, message) => format!("{said}, {reason}: {message}"),
    }
}

/// A number of the status, 0 where it is missing.
pub(super) fn count(object: &Value, of: &str) -> i64 {
    object["status"][of].as_i64().unwrap_or(0)
}

/// How many replicas are wanted. The API server sets that to 1 if nobody does.
pub(super) fn replicas(object: &Value) -> i64 {
    object["spec"]["replicas"].as_i64().unwrap_or(1)
}

pub(super) fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or(0)
}

pub(super) const UNOBSERVED: &str = "its controller has not seen the latest change yet";
