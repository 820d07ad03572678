//! Observes every answer on the way, for the checks of what holds of all answers.

use std::time::Duration;

use serde_json::Value;

use super::chosen::{Chosen, list};
use super::message::{Answer, Kind};
use super::report::Verdict;
use crate::client::REQUEST_IDENTITY_HEADER;

/// An observer of answers; `None` if the check is not about such an answer.
type Observer = fn(&Answer, Option<&Chosen>) -> Option<Verdict>;

const OBSERVERS: &[(&str, Observer)] = &[
    ("identity-echo", |answer, _| answer.is_success().then(|| echoes_identity(answer))),
    ("identity-echo-refused", |answer, _| answer.is_refusal().then(|| echoes_identity(answer))),
    ("content-type", |answer, _| content_type(answer)),
    ("error-members", |answer, _| answer.is_refusal().then(|| error_members(answer))),
    ("usable-placement", |answer, _| {
        let allowed = [Kind::Update, Kind::Deprovision, Kind::InstanceLast];
        misplaced(answer, "instance_usable", &allowed)
    }),
    ("repeatable-placement", |answer, _| {
        misplaced(answer, "update_repeatable", &[Kind::Update, Kind::InstanceLast])
    }),
    ("operation-length", |answer, _| operation_length(answer)),
    ("dashboard-url", |answer, _| dashboard_url(answer)),
    ("metadata", |answer, _| instance_metadata(answer)),
    ("last-operation", |answer, _| last_operation(answer)),
    ("retry-after", |answer, _| retry_after(answer)),
    ("bind-early-secrets", |answer, _| early_secrets(answer)),
    ("bind-permissions", |answer, chosen| {
        binding(answer).and_then(|body| permissions(answer, body, chosen?))
    }),
    ("bind-volume-mounts", |answer, _| each(answer, "volume_mounts", is_volume_mount)),
    ("bind-endpoints", |answer, _| each(answer, "endpoints", is_endpoint)),
    ("bind-expiry", |answer, _| binding(answer).and_then(|body| expiry(answer, &body["metadata"]))),
    ("answers-in-time", |answer, _| {
        let in_time = answer.status != 0 && answer.elapsed < Duration::from_secs(60);
        Some(if in_time { Verdict::Pass } else { answer.fault("no answer in time") })
    }),
];

pub(super) fn look(answer: &Answer, chosen: Option<&Chosen>) -> Vec<(&'static str, Verdict)> {
    OBSERVERS.iter().filter_map(|(id, observer)| Some((*id, observer(answer, chosen)?))).collect()
}

/// The verdict on an answer: a pass, or the fault.
fn judge(answer: &Answer, fault: Option<&str>) -> Verdict {
    fault.map_or(Verdict::Pass, |fault| answer.fault(fault))
}

fn echoes_identity(answer: &Answer) -> Verdict {
    let sent = answer.ask.headers.get(REQUEST_IDENTITY_HEADER);
    let echoed = sent == answer.headers.get(REQUEST_IDENTITY_HEADER);
    judge(answer, (!echoed).then_some("X-Broker-API-Request-Identity did not come back"))
}

fn content_type(answer: &Answer) -> Option<Verdict> {
    if answer.json.is_null() || answer.status == 304 {
        return None;
    }
    let declared = answer.headers.get("content-type").and_then(|value| value.to_str().ok());
    let declared = declared.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
    let right = declared.eq_ignore_ascii_case("application/json");
    Some(judge(answer, (!right).then_some("its Content-Type is not application/json")))
}

fn error_members(answer: &Answer) -> Verdict {
    let text = |name: &str| match &answer.json[name] {
        Value::Null => answer.json.get(name).is_none(),
        Value::String(text) => !text.is_empty(),
        _ => false,
    };
    let word = answer.json["error"].as_str().unwrap_or("Word");
    let is_word = word.chars().all(|c| c.is_ascii_alphanumeric());
    let fault = if !text("error") {
        Some("error is not a non-empty string")
    } else if !is_word {
        Some("error is not one word")
    } else if !text("description") {
        Some("description is not a non-empty string")
    } else {
        None
    };
    judge(answer, fault)
}

fn misplaced(answer: &Answer, name: &str, allowed: &[Kind]) -> Option<Verdict> {
    let reports =
        answer.is_refusal() || matches!(answer.ask.kind, Kind::InstanceLast | Kind::BindingLast);
    if !reports {
        return None;
    }
    let misplaced = answer.json.get(name).is_some() && !allowed.contains(&answer.ask.kind);
    Some(judge(answer, misplaced.then(|| format!("{name} does not belong there")).as_deref()))
}

fn operation_length(answer: &Answer) -> Option<Verdict> {
    if answer.status != 202 {
        return None;
    }
    let fits = match &answer.json["operation"] {
        Value::Null => true,
        Value::String(operation) => operation.chars().count() <= 10_000,
        _ => false,
    };
    Some(judge(answer, (!fits).then_some("operation is not a string of at most 10,000 characters")))
}

fn describes_instance(answer: &Answer) -> bool {
    let kind = matches!(answer.ask.kind, Kind::Provision | Kind::Update | Kind::Instance);
    kind && answer.is_success()
}

fn dashboard_url(answer: &Answer) -> Option<Verdict> {
    describes_instance(answer).then(|| {
        let url = &answer.json["dashboard_url"];
        let right = url.is_null() || url.is_string();
        judge(answer, (!right).then_some("dashboard_url is neither a string nor null"))
    })
}

fn instance_metadata(answer: &Answer) -> Option<Verdict> {
    let metadata = answer.json.get("metadata").filter(|_| describes_instance(answer))?;
    let labels = match &metadata["labels"] {
        Value::Null => true,
        Value::Object(labels) => labels.values().all(Value::is_string),
        _ => false,
    };
    let attributes = metadata["attributes"].is_null() || metadata["attributes"].is_object();
    let right = labels && attributes && (metadata.is_object() || metadata.is_null());
    Some(judge(answer, (!right).then_some("metadata has other than labels and attributes")))
}

fn last_operation(answer: &Answer) -> Option<Verdict> {
    let polls = matches!(answer.ask.kind, Kind::InstanceLast | Kind::BindingLast);
    (polls && answer.status == 200).then(|| {
        let state = answer.json["state"].as_str().unwrap_or_default();
        let description = answer.json.get("description");
        let fault = if !["in progress", "succeeded", "failed"].contains(&state) {
            Some("state is none of the three")
        } else if description.is_some_and(|text| text.as_str().is_none_or(str::is_empty)) {
            Some("description is not a non-empty string")
        } else {
            None
        };
        judge(answer, fault)
    })
}

fn retry_after(answer: &Answer) -> Option<Verdict> {
    let value = answer.headers.get("retry-after")?;
    let seconds = value.to_str().ok().and_then(|value| value.parse::<u64>().ok());
    Some(judge(answer, seconds.is_none().then_some("Retry-After is not a number of seconds")))
}

fn early_secrets(answer: &Answer) -> Option<Verdict> {
    const GIFTS: [&str; 5] =
        ["credentials", "syslog_drain_url", "route_service_url", "volume_mounts", "endpoints"];
    (answer.ask.kind == Kind::Bind && answer.status == 202).then(|| {
        let carries = GIFTS.iter().any(|name| answer.json.get(*name).is_some());
        judge(answer, carries.then_some("a 202 gives nothing of the binding"))
    })
}

/// The body of an answer that gives a binding.
fn binding(answer: &Answer) -> Option<&Value> {
    let gives = match answer.ask.kind {
        Kind::Bind => matches!(answer.status, 200 | 201),
        Kind::Binding => answer.status == 200,
        _ => false,
    };
    gives.then_some(&answer.json)
}

fn permissions(answer: &Answer, body: &Value, chosen: &Chosen) -> Option<Verdict> {
    let needs = [
        ("syslog_drain_url", "syslog_drain"),
        ("route_service_url", "route_forwarding"),
        ("volume_mounts", "volume_mount"),
    ];
    let given = |name: &str| !body[name].is_null();
    let fault = needs.iter().find(|(name, needed)| given(name) && !chosen.requires(needed));
    let fault = fault.map(|(name, needed)| format!("{name}, without requiring {needed}"));
    Some(judge(answer, fault.as_deref()))
}

/// Judges every member of a list of a binding; nothing to judge if there is none.
fn each(answer: &Answer, name: &str, is_right: fn(&Value) -> bool) -> Option<Verdict> {
    let value = &binding(answer)?[name];
    if value.is_null() {
        return None;
    }
    let right = value.as_array().is_some_and(|values| values.iter().all(is_right));
    Some(judge(answer, (!right).then(|| format!("{name} are not complete")).as_deref()))
}

fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

fn is_volume_mount(mount: &Value) -> bool {
    is_text(&mount["driver"])
        && is_text(&mount["container_dir"])
        && matches!(mount["mode"].as_str(), Some("r" | "rw"))
        && mount["device_type"] == "shared"
        && is_text(&mount["device"]["volume_id"])
}

fn is_endpoint(endpoint: &Value) -> bool {
    let is_port = |port: &Value| {
        let parts = port.as_str().map(|port| port.split('-').collect::<Vec<_>>());
        parts.is_some_and(|parts| {
            parts.len() <= 2 && parts.iter().all(|part| part.parse::<u16>().is_ok())
        })
    };
    let ports = list(endpoint, "ports");
    let protocol = &endpoint["protocol"];
    is_text(&endpoint["host"])
        && !ports.is_empty()
        && ports.iter().all(is_port)
        && (protocol.is_null() || matches!(protocol.as_str(), Some("tcp" | "udp" | "all")))
}

fn expiry(answer: &Answer, metadata: &Value) -> Option<Verdict> {
    let (expires, renew) = (&metadata["expires_at"], &metadata["renew_before"]);
    if expires.is_null() && renew.is_null() {
        return None;
    }
    let times: Vec<_> =
        [renew, expires].into_iter().filter(|time| !time.is_null()).map(time).collect();
    let fault = if times.iter().any(Option::is_none) {
        Some("a time is not yyyy-mm-ddThh:mm:ss.sZ")
    } else if !times.is_sorted() {
        Some("renew_before is later than expires_at")
    } else {
        None
    };
    Some(judge(answer, fault))
}

/// Parses a time of the form `yyyy-mm-ddThh:mm:ss.sZ`, where the last `s` stands for one or more digits.
fn time(value: &Value) -> Option<jiff::Timestamp> {
    let text = value.as_str()?;
    let fraction = text.strip_suffix('Z')?.get(19..)?.strip_prefix('.')?;
    let digits = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let shape = text.get(10..11) == Some("T") && digits;
    shape.then(|| text.parse().ok()).flatten()
}
