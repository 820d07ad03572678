//! The bodies of the operator's API: what `manciple instances` and its like print. No secrets.

use engine::history::{KeptOperation, OperationEntry};
use engine::names::RunName;
use engine::ports::Unreadable;
use engine::record::{
    Lifecycle, Operation, OperationFailure, PastOperation, Phase, Record, Timestamp,
};
use serde::{Deserialize, Serialize};

/// The record of an instance or a binding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordView {
    /// The instance, or the binding's instance.
    pub(crate) instance_id: String,
    /// The binding; absent for an instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) binding_id: Option<String>,
    /// `creating`, `ready`, `broken` or `deleted`.
    pub(crate) state: Lifecycle,
    /// The service.
    pub(crate) service_id: String,
    /// The plan.
    pub(crate) plan_id: String,
    /// When it was ordered; RFC 3339.
    pub(crate) created_at: String,
    /// When it last changed; RFC 3339.
    pub(crate) updated_at: String,
    /// The operation in progress, or the last one.
    pub(crate) operation: OperationView,
    /// The operations before it, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) past: Vec<OperationView>,
}

/// An operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OperationView {
    /// The token that the platform polls with.
    pub(crate) id: String,
    /// `provision`, `update`, `bind`, `unbind` or `deprovision`.
    pub(crate) action: String,
    /// `pending`, `running`, `external`, `succeeded` or `failed`.
    pub(crate) state: String,
    /// The attempt that it is at, or ended with.
    pub(crate) attempt: u32,
    /// The run of that attempt: the name that `manciple logs` takes.
    pub(crate) run: String,
    /// When it was recorded; RFC 3339.
    pub(crate) created_at: String,
    /// When it ended; RFC 3339; absent while it is in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended_at: Option<String>,
    /// The progress of the operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) progress: Option<String>,
    /// Why it failed, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Why it failed, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// After a failed update or deprovision: whether the instance still works, if the broker says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) instance_usable: Option<bool>,
    /// After a failed update: whether it may be repeated as it was, if the broker says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) update_repeatable: Option<bool>,
}

/// A page of records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Page {
    /// The records, in the order of their ids.
    pub(crate) items: Vec<RecordView>,
    /// The records that are there and cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) unreadable: Vec<UnreadableView>,
    /// Give this as `after` to get the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// A record that cannot be read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct UnreadableView {
    /// The instance, or the binding's instance.
    pub(crate) instance_id: String,
    /// The binding; absent for an instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) binding_id: Option<String>,
    /// Why.
    pub(crate) why: String,
}

impl From<Unreadable> for UnreadableView {
    fn from(unreadable: Unreadable) -> Self {
        Self {
            instance_id: unreadable.key.instance().to_string(),
            binding_id: unreadable.key.binding().map(ToString::to_string),
            why: unreadable.why,
        }
    }
}

/// An operation, with the instance or binding that it is on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Done {
    /// The instance, or the binding's instance.
    pub(crate) instance_id: String,
    /// The binding; absent for an instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) binding_id: Option<String>,
    /// The record's service.
    pub(crate) service_id: String,
    /// The record's plan.
    pub(crate) plan_id: String,
    #[serde(flatten)]
    pub(crate) operation: OperationView,
}

/// A page of operations. It may be short, even empty, and not be the last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OperationsPage {
    /// The operations, in the order of their records' ids.
    pub(crate) items: Vec<Done>,
    /// Give this as `after` to get the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// The target of a retry or a purge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Target {
    /// The instance, or the binding's instance.
    pub(crate) instance_id: String,
    /// The binding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) binding_id: Option<String>,
}

/// The log of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LogView {
    /// The run.
    pub(crate) run: String,
    /// The stderr of the run, redacted and capped.
    pub(crate) log: String,
}

fn time(at: Timestamp) -> String {
    let millis = i64::try_from(at.0).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(millis).map(|at| at.to_string()).unwrap_or_default()
}

impl From<&Record> for RecordView {
    fn from(record: &Record) -> Self {
        Self {
            instance_id: record.key.instance().to_string(),
            binding_id: record.key.binding().map(ToString::to_string),
            state: record.lifecycle,
            service_id: record.ordered.service_id.to_string(),
            plan_id: record.ordered.plan_id.to_string(),
            created_at: time(record.created_at),
            updated_at: time(record.updated_at),
            operation: OperationView::from(&record.operation),
            past: record.past.iter().map(OperationView::from).collect(),
        }
    }
}

impl From<&OperationEntry> for Done {
    fn from(entry: &OperationEntry) -> Self {
        let record = &entry.record;
        Self {
            instance_id: record.key.instance().to_string(),
            binding_id: record.key.binding().map(ToString::to_string),
            service_id: record.ordered.service_id.to_string(),
            plan_id: record.ordered.plan_id.to_string(),
            operation: match entry.operation() {
                KeptOperation::Last(operation) => operation.into(),
                KeptOperation::Past(past) => past.into(),
            },
        }
    }
}

impl From<&Operation> for OperationView {
    fn from(operation: &Operation) -> Self {
        let (state, failure) = match &operation.phase {
            Phase::Pending { .. } => ("pending", None),
            Phase::Started { .. } => ("running", None),
            Phase::External { .. } => ("external", None),
            Phase::Succeeded => ("succeeded", None),
            Phase::Failed(failure) => ("failed", Some(failure)),
        };
        Self {
            id: operation.id.clone(),
            action: operation.action.to_string(),
            state: state.to_owned(),
            attempt: operation.attempt,
            run: RunName::attempt(&operation.id, operation.attempt).to_string(),
            created_at: time(operation.created_at),
            ended_at: operation.ended_at.map(time),
            progress: operation.said().map(str::to_owned),
            reason: reason(failure),
            description: failure.map(|failure| failure.description.clone()),
            instance_usable: failure.and_then(|failure| failure.instance_usable),
            update_repeatable: failure.and_then(|failure| failure.update_repeatable),
        }
    }
}

impl From<&PastOperation> for OperationView {
    fn from(past: &PastOperation) -> Self {
        let failure = past.failure.as_ref();
        Self {
            id: past.id.clone(),
            action: past.action.to_string(),
            state: if failure.is_some() { "failed" } else { "succeeded" }.to_owned(),
            attempt: past.attempts,
            run: RunName::attempt(&past.id, past.attempts).to_string(),
            created_at: time(past.created_at),
            ended_at: Some(time(past.ended_at)),
            progress: None,
            reason: reason(failure),
            description: failure.map(|failure| failure.description.clone()),
            instance_usable: failure.and_then(|failure| failure.instance_usable),
            update_repeatable: failure.and_then(|failure| failure.update_repeatable),
        }
    }
}

fn reason(failure: Option<&OperationFailure>) -> Option<String> {
    failure.map(|failure| failure.reason.as_str().to_owned())
}
