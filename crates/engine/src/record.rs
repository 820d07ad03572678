//! What is kept of an instance or a binding.
//!
//! One record is one unit of compare-and-set: it holds what was ordered, what was made, the current
//! operation and the last few before it. Nothing about an operation lives anywhere else, so a record
//! alone says what happens next.

use std::fmt;

use osb::{
    Action, BindResource, BindingBody, BindingId, InstanceId, InstanceMetadata, MaintenanceInfo,
    Object, OriginatingIdentity, PlanId, PreviousValues, Sensitive, ServiceId,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::names::RunName;

/// How many ended operations a record remembers beside the last.
pub const PAST_OPERATIONS: usize = 8;

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// This much later; saturates.
    #[must_use]
    pub fn plus(self, duration: std::time::Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How long until `later`; zero if it has passed.
    pub fn until(self, later: Self) -> std::time::Duration {
        std::time::Duration::from_millis(later.0.saturating_sub(self.0))
    }
}

/// Names a record.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Key {
    /// A service instance.
    Instance(InstanceId),
    /// A binding of an instance. Binding ids are unique within their instance.
    Binding(InstanceId, BindingId),
}

impl Key {
    /// Names this binding of the instance; without one, the instance.
    pub fn of(instance: InstanceId, binding: Option<BindingId>) -> Self {
        match binding {
            Some(binding) => Self::Binding(instance, binding),
            None => Self::Instance(instance),
        }
    }

    /// The instance, or the instance of the binding.
    pub fn instance(&self) -> &InstanceId {
        match self {
            Self::Instance(instance) | Self::Binding(instance, _) => instance,
        }
    }

    /// The binding, if it is one.
    pub fn binding(&self) -> Option<&BindingId> {
        match self {
            Self::Instance(_) => None,
            Self::Binding(_, binding) => Some(binding),
        }
    }

    /// What removes it.
    pub fn removal(&self) -> Action {
        match self {
            Self::Instance(_) => Action::Deprovision,
            Self::Binding(..) => Action::Unbind,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instance(instance) => write!(f, "instance {instance}"),
            Self::Binding(instance, binding) => write!(f, "binding {binding} of {instance}"),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An instance or a binding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its name.
    pub key: Key,
    /// Where it is in its life.
    pub lifecycle: Lifecycle,
    /// What was ordered: by the last successful operation, or by the creation that is under way.
    pub ordered: Ordered,
    /// What the broker made.
    #[serde(default)]
    pub made: Made,
    /// The operation in progress, or the last one.
    pub operation: Operation,
    /// Ended operations before [`Self::operation`], oldest first, at most [`PAST_OPERATIONS`].
    #[serde(default)]
    pub past: Vec<PastOperation>,
    /// Of the last operation: when it was ordered, in milliseconds, or one more than that of the one before; with the key it
    /// names it. So names do not come back where a tombstone is gone, or a store was restored.
    pub sequence: u64,
    /// When the id was first ordered (again, after a tombstone).
    pub created_at: Timestamp,
    /// When the record was last written.
    pub updated_at: Timestamp,
}

/// Where a record is in its life.
///
/// ```text
/// Creating ──succeeded──▶ Ready ──deleted──▶ Deleted (a tombstone, for days)
///    └──failed──▶ Broken ──deleted──────────────┘
/// ```
///
/// An update or a deletion in progress, or failed, is seen in the operation, not here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifecycle {
    /// Its creation is in progress.
    Creating,
    /// It exists.
    Ready,
    /// Its creation failed or was halted: something may exist. It can be deleted or retried.
    Broken,
    /// It is gone; kept so that `last_operation` and a repeated delete have an answer.
    Deleted,
}

/// What was ordered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ordered {
    /// The service offering.
    pub service_id: ServiceId,
    /// The plan.
    pub plan_id: PlanId,
    /// The parameters; empty when none were given.
    #[serde(default)]
    pub parameters: Sensitive<Object>,
    /// The context; empty when none was given.
    #[serde(default)]
    pub context: Sensitive<Object>,
    /// Instances: the version of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance_info: Option<MaintenanceInfo>,
    /// Instances: the organization, as the platform named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub organization_guid: Option<String>,
    /// Instances: the space, as the platform named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space_guid: Option<String>,
    /// Bindings: what is bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind_resource: Option<BindResource>,
    /// Bindings: the binding whose successor this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predecessor_binding_id: Option<BindingId>,
}

impl Ordered {
    /// This plan, and nothing that is said beside it.
    pub fn bare(service_id: ServiceId, plan_id: PlanId) -> Self {
        Self {
            service_id,
            plan_id,
            parameters: Sensitive::default(),
            context: Sensitive::default(),
            maintenance_info: None,
            organization_guid: None,
            space_guid: None,
            bind_resource: None,
            predecessor_binding_id: None,
        }
    }
}

/// What the broker made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Made {
    /// Of an instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dashboard_url: Option<String>,
    /// Of an instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<InstanceMetadata>,
    /// Of a binding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<BindingBody>,
    /// What the broker wants to see again (contract extension `state`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Sensitive<Value>>,
}

/// An operation on a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// See [`crate::names`]. The token that a 202 carries.
    pub id: String,
    /// What it does.
    pub action: Action,
    /// Of an update what was asked for, as [`crate::names::request_hash`] says it: tells a repeated request from a
    /// different one. Of any other action empty: what is ordered is compared with what is recorded.
    pub request_hash: String,
    /// Where it stands.
    pub phase: Phase,
    /// From 1; a retry is a new attempt, under a name of its own.
    pub attempt: u32,
    /// Updates: what is in force after success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Ordered>,
    /// Updates: as the platform sent them, or as we know them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_values: Option<PreviousValues>,
    /// Who asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub originating_identity: Option<OriginatingIdentity>,
    /// A delete during a create: the create's run, to be halted before this one starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halts: Option<Halt>,
    /// When it was recorded.
    pub created_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// How far it is, for people: in the words of its broker, or of what runs that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// What it waits for, in words of ours: apart from `progress`, which may say the same and mean something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// Updates whose work goes on elsewhere: what was said of the instance meanwhile.
    #[serde(default, skip_serializing_if = "Shown::is_empty")]
    pub shown: Shown,
}

impl Operation {
    /// How it stands, for people: what it waits for, or how far it is.
    pub fn said(&self) -> Option<&str> {
        self.waits.as_deref().or(self.progress.as_deref())
    }
}

/// What a broker says of an instance for all to see; in force once its update has succeeded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// As [`Made::dashboard_url`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dashboard_url: Option<String>,
    /// As [`Made::metadata`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<InstanceMetadata>,
}

impl Shown {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The run of a create that a delete halts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halt {
    /// The run.
    pub run: RunName,
    /// It was the create's first, not known to have been started, and nobody has seen it since: if it is absent, nothing
    /// was made and nothing has to be removed.
    pub first: bool,
    /// It is over, and what it left, if anything, is kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
}

/// Where an operation stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "phase")]
pub enum Phase {
    /// Recorded; the run of this attempt is not known to have been started.
    Pending {
        /// Not to be started before this: a retry's backoff.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        not_before: Option<Timestamp>,
    },
    /// The run of this attempt was started. If it is absent now, it was lost.
    Started {
        /// When it was started.
        at: Timestamp,
    },
    /// The run ended and left work that goes on elsewhere (extension `last-operation`).
    External {
        /// The broker's name for it.
        name: String,
        /// How often it was asked after.
        polls: u32,
        /// When to ask next.
        next: Timestamp,
    },
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed(OperationFailure),
}

impl Phase {
    /// Whether the operation has ended.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed(_))
    }
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationFailure {
    /// In one word, for metrics and scripts.
    pub reason: Reason,
    /// For people, redacted.
    pub description: String,
    /// After an update or a deprovision: whether the instance still works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_usable: Option<bool>,
    /// After an update: whether it may be repeated as it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_repeatable: Option<bool>,
    /// Of a broker that is busy, or of a fault that may pass: seconds to wait before it is asked for again, as many as are
    /// granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
}

impl OperationFailure {
    /// One of which nothing is known but why.
    pub fn new(reason: Reason, description: impl Into<String>) -> Self {
        let description = description.into();
        Self {
            reason,
            description,
            instance_usable: None,
            update_repeatable: None,
            retry_after: None,
        }
    }
}

/// The ways in which an operation fails, each its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The broker exited with a status other than 0.
    ExitStatus,
    /// The broker was ended by a signal that was not ours.
    Killed,
    /// The broker ran over its time and was ended.
    Timeout,
    /// The broker printed something that is not JSON, or nothing.
    NotJson,
    /// The broker printed JSON that is not what the operation answers.
    WrongShape,
    /// The broker printed more than the limit.
    OutputTooLarge,
    /// The run could not be started.
    NotStarted,
    /// The run vanished without a result.
    Lost,
    /// Halted by a delete, or by an operator.
    Halted,
    /// The broker said so itself, in a structured error.
    Reported,
    /// The broker does not do this.
    Unsupported,
    /// The broker said that the request asks for something impossible.
    Invalid,
    /// The broker said that the id is taken.
    Conflict,
    /// The broker said that something else is being done to it.
    Busy,
    /// What it belongs to is being deleted, or still in use.
    Refused,
}

impl Reason {
    /// The word, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ExitStatus => "exit-status",
            Self::Killed => "killed",
            Self::Timeout => "timeout",
            Self::NotJson => "not-json",
            Self::WrongShape => "wrong-shape",
            Self::OutputTooLarge => "output-too-large",
            Self::NotStarted => "not-started",
            Self::Lost => "lost",
            Self::Halted => "halted",
            Self::Reported => "reported",
            Self::Unsupported => "unsupported",
            Self::Invalid => "invalid",
            Self::Conflict => "conflict",
            Self::Busy => "busy",
            Self::Refused => "refused",
        }
    }
}

/// An ended operation, as much as `last_operation` and a person need of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastOperation {
    /// The token.
    pub id: String,
    /// What it did.
    pub action: Action,
    /// How many attempts it took.
    pub attempts: u32,
    /// Why it failed; absent if it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<OperationFailure>,
    /// When it was recorded.
    pub created_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
}

impl Record {
    /// Whether an operation is in progress.
    pub fn is_busy(&self) -> bool {
        !self.operation.phase.is_terminal()
    }

    /// Whether it exists, or may: everything but a tombstone.
    pub fn is_live(&self) -> bool {
        self.lifecycle != Lifecycle::Deleted
    }
}
