//! `ServiceInstance` and `ServiceBinding`: their CustomResourceDefinitions, and how they show a record.
//!
//! `spec` is the first order, `status` the present state, including the plan after an update. `status.record` is the
//! record itself, as JSON in a string, so that numbers and nulls come back unchanged, which a patch would not
//! guarantee.

use engine::record::{Key, Lifecycle, Phase, Record};
use kube::discovery::ApiResource;
use osb::Action;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::conditions::condition;
use crate::definition::{
    Schema, age, column, condition_list, custom_resource, document, object, text,
};
use crate::names::{GROUP, VERSION};

/// One of our kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A service instance.
    ServiceInstance,
    /// A service binding.
    ServiceBinding,
}

impl Kind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::ServiceInstance, Self::ServiceBinding];

    /// The kind of a record.
    pub fn of(key: &Key) -> Self {
        match key {
            Key::Instance(_) => Self::ServiceInstance,
            Key::Binding(..) => Self::ServiceBinding,
        }
    }

    /// The kind, as manifests name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ServiceInstance => "ServiceInstance",
            Self::ServiceBinding => "ServiceBinding",
        }
    }

    /// The plural, as URL paths have it.
    pub fn plural(self) -> &'static str {
        match self {
            Self::ServiceInstance => "serviceinstances",
            Self::ServiceBinding => "servicebindings",
        }
    }

    /// The resource, as the client needs it.
    pub fn resource(self) -> ApiResource {
        ApiResource {
            group: GROUP.to_owned(),
            version: VERSION.to_owned(),
            api_version: api_version(),
            kind: self.name().to_owned(),
            plural: self.plural().to_owned(),
        }
    }
}

/// The `apiVersion` of our kinds: `manciple.dev/v1alpha1`.
pub fn api_version() -> String {
    format!("{GROUP}/{VERSION}")
}

/// The spec for the first write of a record: the order, without confidential parts. To change it with each update would
/// be a second write, and the two would disagree in between.
pub(crate) fn spec(broker: &str, record: &Record) -> Value {
    let ordered = &record.ordered;
    let mut spec = json!({
        "broker": broker,
        "instanceID": record.key.instance(),
        "serviceID": ordered.service_id,
        "planID": ordered.plan_id,
    });
    for (name, value) in [
        ("bindingID", record.key.binding().map(|id| json!(id))),
        ("organizationGUID", ordered.organization_guid.as_ref().map(|id| json!(id))),
        ("spaceGUID", ordered.space_guid.as_ref().map(|id| json!(id))),
        ("planVersion", ordered.maintenance_info.as_ref().map(|info| json!(info.version))),
        ("predecessorBindingID", ordered.predecessor_binding_id.as_ref().map(|id| json!(id))),
    ] {
        // Kubernetes 1.20 takes an empty string for null, and refuses it.
        if let Some(value) = value.filter(|value| *value != "") {
            spec[name] = value;
        }
    }
    spec
}

/// The status that shows a record to people; its member `record` is the record itself, as `written`.
pub(crate) fn status(written: &str, record: &Record, since: Since) -> Value {
    let operation = &record.operation;
    let (state, description) = match &operation.phase {
        Phase::Succeeded => ("Succeeded", None),
        Phase::Failed(failure) => ("Failed", Some(failure.description.as_str())),
        _ => ("InProgress", operation.said()),
    };
    json!({
        "record": written,
        "phase": phase(record),
        "lastOperation": {
            "id": operation.id,
            "action": operation.action,
            "state": state,
            "description": description.filter(|said| !said.is_empty()),
            "attempt": operation.attempt,
        },
        "planID": record.ordered.plan_id,
        "planVersion": plan_version(record),
        "dashboardURL": record.made.dashboard_url.as_deref().filter(|url| !url.is_empty()),
        "conditions": conditions(record, since),
    })
}

/// Whether each condition holds (Ready, Failed, Progressing), and since when, in milliseconds since 1970. A write that
/// does not change a condition keeps its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Since([(bool, u64); 3]);

impl Since {
    /// The times for a write that follows another.
    pub(crate) fn after(before: Option<Self>, record: &Record) -> Self {
        let ready = record.lifecycle == Lifecycle::Ready;
        let failed = matches!(record.operation.phase, Phase::Failed(_));
        let mut since = [ready, failed, record.is_busy()].map(|holds| (holds, record.updated_at.0));
        for (now, before) in since.iter_mut().zip(before.iter().flat_map(|before| before.0)) {
            if before.0 == now.0 {
                *now = before;
            }
        }
        Self(since)
    }
}

/// The version of the plan, if it has one: Kubernetes 1.20 takes an empty string for null, and refuses it.
fn plan_version(record: &Record) -> Option<&str> {
    let info = record.ordered.maintenance_info.as_ref()?;
    Some(info.version.as_str()).filter(|version| !version.is_empty())
}

/// The phase in one word, for `kubectl get`.
fn phase(record: &Record) -> &'static str {
    let (action, busy) = (record.operation.action, record.is_busy());
    match record.lifecycle {
        _ if busy && matches!(action, Action::Deprovision | Action::Unbind) => "Deleting",
        _ if busy && action == Action::Update => "Updating",
        Lifecycle::Creating => "Creating",
        Lifecycle::Ready => "Ready",
        Lifecycle::Broken => "Broken",
        Lifecycle::Deleted => "Deleted",
    }
}

/// The conditions. Ready: the instance or binding can be used. Failed: the last operation failed. Progressing: an
/// operation is in progress.
fn conditions(record: &Record, Since([ready, failed, progressing]): Since) -> Value {
    let operation = &record.operation;
    let failure = match &operation.phase {
        Phase::Failed(failure) => Some(failure),
        _ => None,
    };
    let goes_on = match &operation.phase {
        Phase::Pending { not_before: None } => "Waiting",
        Phase::Pending { not_before: Some(_) } => "WaitingToRetry",
        Phase::Started { .. } => "Running",
        Phase::External { .. } => "WorkElsewhere",
        Phase::Succeeded | Phase::Failed(_) => "Ended",
    };
    let condition = |kind: &str, (holds, since): (bool, u64), reason: &str, message: &str| {
        let status = if holds { "True" } else { "False" };
        condition(kind, status, (reason, message), None, &time(since))
    };
    let said = failure.map_or("", |failure| failure.description.as_str());
    let why = failure.map_or_else(|| "None".to_owned(), |failure| pascal(failure.reason.as_str()));
    let progress = operation.said().unwrap_or_default();
    let ready_message = if ready.0 { "" } else { said };
    json!([
        condition("Ready", ready, phase(record), ready_message),
        condition("Failed", failed, &why, said),
        condition("Progressing", progressing, goes_on, progress),
    ])
}

/// Turns `exit-status` into `ExitStatus`, the form of reasons.
pub(crate) fn pascal(words: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect::<String>()
    };
    words.split('-').map(word).collect()
}

/// A time as RFC 3339, in seconds, as conditions have it.
pub(crate) fn time(milliseconds: u64) -> String {
    let seconds = i64::try_from(milliseconds / 1000).unwrap_or(i64::MAX);
    let time = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX);
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The CustomResourceDefinition of one of our kinds.
pub(crate) fn definition(kind: Kind) -> Value {
    let short = match kind {
        Kind::ServiceInstance => "si",
        Kind::ServiceBinding => "sb",
    };
    let mut definition = custom_resource(&kind.resource(), &schema(kind), &columns(kind));
    let names = &mut definition["spec"]["names"];
    names["shortNames"] = json!([short]);
    names["categories"] = json!(["manciple"]);
    definition
}

fn columns(kind: Kind) -> Vec<Value> {
    let instance = ("Instance", ".spec.instanceID", 0);
    let ids = match kind {
        Kind::ServiceInstance => vec![instance],
        // A platform may give bindings of several instances the same id.
        Kind::ServiceBinding => vec![("Binding", ".spec.bindingID", 0), instance],
    };
    let ready = r#".status.conditions[?(@.type=="Ready")].status"#;
    let shown = [
        ("Plan", ".status.planID", 1),
        ("Phase", ".status.phase", 0),
        ("Ready", ready, 0),
        ("Operation", ".status.lastOperation.action", 0),
        ("State", ".status.lastOperation.state", 0),
        ("Description", ".status.lastOperation.description", 1),
    ];
    let columns = ids.into_iter().chain(shown);
    let columns = columns.map(|(name, path, priority)| column(name, "string", path, priority));
    columns.chain([age()]).collect()
}

fn schema(kind: Kind) -> Value {
    let mut ids = vec![
        ("broker", "The broker that it was ordered from."),
        ("instanceID", "The id that the platform gave the service instance."),
        ("serviceID", "The service offering, by its id in the catalog."),
        ("planID", "The plan that was ordered at first, by its id in the catalog."),
    ];
    let mut optional = vec![("predecessorBindingID", "The binding whose successor this is.")];
    match kind {
        Kind::ServiceInstance => {
            optional = vec![
                ("organizationGUID", "The organization, as the platform named it."),
                ("spaceGUID", "The space, as the platform named it."),
                (
                    "planVersion",
                    "The version of the plan (maintenance_info) that was ordered at first.",
                ),
            ];
        }
        Kind::ServiceBinding => {
            ids.push(("bindingID", "The id that the platform gave the binding."));
        }
    }
    let required: Vec<&str> = ids.iter().map(|(name, _)| *name).collect();
    ids.extend(optional);
    let properties = ids.iter().map(|(name, says)| (*name, text(says)));
    let spec = object("What was ordered.", properties).requires(&required);
    document(
        &format!("A {} that a platform ordered through the Open Service Broker API.", kind.name()),
        [("spec", spec), ("status", status_schema())],
    )
}

fn status_schema() -> Value {
    let operation = object(
        "The operation in progress, or the last one.",
        [
            ("id", text("Its id: the token that a 202 carries.")),
            ("action", text("provision, update, deprovision, bind or unbind.")),
            ("state", text("InProgress, Succeeded or Failed.")),
            ("description", text("What it says of itself, or why it failed.")),
            ("attempt", json!({"type": "integer", "description": "From 1."})),
        ],
    );
    object(
        "How it stands.",
        [
            ("phase", text("Creating, Ready, Updating, Deleting, Broken or Deleted.")),
            ("lastOperation", operation),
            ("planID", text("The plan that is in force, by its id in the catalog.")),
            ("planVersion", text("The version of that plan (maintenance_info) that is in force.")),
            ("dashboardURL", text("Where people manage the instance.")),
            ("record", text("What the broker keeps of it, as JSON. Not to be edited.")),
            ("conditions", condition_list("Ready, Failed or Progressing.", [])),
        ],
    )
}

#[cfg(test)]
mod tests {
    use engine::record::{OperationFailure, Reason, Timestamp};
    use engine::testing::store_contract::{sample, sample_binding};

    use super::*;

    /// What `last_operation` says, and the conditions, are of one write: they agree.
    #[test]
    fn how_a_record_stands_is_said_by_its_conditions_and_in_one_word() {
        let at = Timestamp(7);
        let failed = || Phase::Failed(OperationFailure::new(Reason::ExitStatus, "no disk left"));
        let external = || Phase::External { name: "x".to_owned(), polls: 1, next: at };
        let (creating, ready, broken) = (Lifecycle::Creating, Lifecycle::Ready, Lifecycle::Broken);
        let provision = Action::Provision;
        for (lifecycle, action, on, word, state, expected) in [
            (
                creating,
                provision,
                Phase::Pending { not_before: None },
                "Creating",
                "InProgress",
                ["Waiting", "None"],
            ),
            (
                creating,
                provision,
                Phase::Pending { not_before: Some(at) },
                "Creating",
                "InProgress",
                ["WaitingToRetry", "None"],
            ),
            (
                creating,
                provision,
                Phase::Started { at },
                "Creating",
                "InProgress",
                ["Running", "None"],
            ),
            (creating, provision, external(), "Creating", "InProgress", ["WorkElsewhere", "None"]),
            (ready, provision, Phase::Succeeded, "Ready", "Succeeded", ["Ended", "None"]),
            (broken, provision, failed(), "Broken", "Failed", ["Ended", "ExitStatus"]),
            (
                ready,
                Action::Update,
                Phase::Started { at },
                "Updating",
                "InProgress",
                ["Running", "None"],
            ),
            (ready, Action::Update, failed(), "Ready", "Failed", ["Ended", "ExitStatus"]),
            (
                ready,
                Action::Deprovision,
                Phase::Started { at },
                "Deleting",
                "InProgress",
                ["Running", "None"],
            ),
            (broken, Action::Deprovision, failed(), "Broken", "Failed", ["Ended", "ExitStatus"]),
        ] {
            for mut record in [sample("i"), sample_binding("i", "b")] {
                (record.lifecycle, record.operation.action) = (lifecycle, action);
                record.operation.phase = on.clone();
                let said = status("", &record, Since::after(None, &record));
                let name = format!("{lifecycle:?}, {action:?}: {on:?}");
                assert_eq!(
                    (&said["phase"], &said["lastOperation"]["state"]),
                    (&json!(word), &json!(state)),
                    "{name}"
                );
                let [progressing, failure] = expected;
                let holds = |it: bool| if it { "True" } else { "False" };
                let conditions: Vec<_> = said["conditions"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|it| {
                        ["type", "status", "reason"].map(|member| it[member].as_str().unwrap())
                    })
                    .collect();
                let expected = [
                    ["Ready", holds(lifecycle == ready), word],
                    ["Failed", holds(failure != "None"), failure],
                    ["Progressing", holds(state == "InProgress"), progressing],
                ];
                assert_eq!(conditions, expected, "{name}");
            }
        }
    }
}
