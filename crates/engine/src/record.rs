//! The record: what the store keeps of an instance or a binding.
//!
//! One record is one unit of compare-and-set: it holds what was ordered, what was made, the current
//! operation and the last few before it. Nothing about an operation lives anywhere else, so a record
//! alone says what happens next.

use osb::{
    Action, BindResource, BindingBody, BindingId, InstanceMetadata, MaintenanceInfo, Object,
    OriginatingIdentity, PlanId, PreviousValues, Sensitive, ServiceId,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::key::Key;
use crate::names::RunName;

/// How many ended operations a record remembers beside the last.
pub const PAST_OPERATIONS: usize = 8;

/// A time, in milliseconds since 1970-01-01T00:00:00Z.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The time `duration` later; saturates.
    #[must_use]
    pub fn plus(self, duration: std::time::Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How long until `later`; zero if it has passed.
    pub fn until(self, later: Self) -> std::time::Duration {
        std::time::Duration::from_millis(later.0.saturating_sub(self.0))
    }
}

/// The record of an instance or a binding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The key of the record.
    pub key: Key,
    /// The stage of the instance's or binding's life.
    pub lifecycle: Lifecycle,
    /// The order in force: that of the last successful operation, or of the creation that is under way.
    pub ordered: Ordered,
    /// What the broker made, as it reported it.
    #[serde(default)]
    pub made: Made,
    /// The operation in progress, or the last one.
    pub operation: Operation,
    /// Ended operations before [`Self::operation`], oldest first, at most [`PAST_OPERATIONS`].
    #[serde(default)]
    pub past: Vec<PastOperation>,
    /// The number of the last operation: the time of its order, in milliseconds, or one more than the number before.
    /// With the key it names the operation, so that names do not come back where a tombstone is gone, or a store was
    /// restored.
    pub sequence: u64,
    /// When the id was first ordered (again, after a tombstone).
    pub created_at: Timestamp,
    /// When the record was last written.
    pub updated_at: Timestamp,
}

/// The stages of the life of an instance or binding.
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
    /// The creation is in progress.
    Creating,
    /// The instance or binding exists.
    Ready,
    /// The creation failed or was halted: something may exist. The instance or binding can be deleted or retried.
    Broken,
    /// The instance or binding is gone; the record is kept so that `last_operation` and a repeated delete have an
    /// answer.
    Deleted,
}

/// The order of an instance or a binding.
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
    /// Bindings: the application or other resource that is bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind_resource: Option<BindResource>,
    /// Bindings: the binding that this one replaces in a rotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predecessor_binding_id: Option<BindingId>,
}

impl Ordered {
    /// An order of this plan, without parameters or anything else.
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

/// What the broker made, as it reported it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Made {
    /// Instances: the dashboard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dashboard_url: Option<String>,
    /// Instances: the metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<InstanceMetadata>,
    /// Bindings: the credentials and other members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<BindingBody>,
    /// The state that the broker is given again in later operations (contract extension `state`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Sensitive<Value>>,
}

/// An operation on a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// The id of the operation, see [`crate::names`]: the token that a 202 carries.
    pub id: String,
    /// The action of the operation.
    pub action: Action,
    /// Updates: the [hash](crate::names::request_hash) of the request, which tells a repeated request from a different
    /// one. Empty for any other action: there the order is compared with the recorded one.
    pub request_hash: String,
    /// The phase of the operation.
    pub phase: Phase,
    /// The number of the attempt, from 1; a retry is a new attempt, whose run has a name of its own.
    pub attempt: u32,
    /// Updates: the order that is in force after success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Ordered>,
    /// Updates: the values before, as recorded, and what else the platform sent of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_values: Option<PreviousValues>,
    /// The platform's user who asked.
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
    /// The progress, for people: in the words of the broker, or of what runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// What the operation waits for, in the engine's words; it is kept apart from `progress`, which comes from the
    /// broker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// Updates with external work: what the broker said of the instance meanwhile.
    #[serde(default, skip_serializing_if = "Shown::is_empty")]
    pub shown: Shown,
    /// A creation: whether each request for it is held, so that nobody was told of it yet. It is undone where it does
    /// not end in time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
}

impl Operation {
    /// The state of the operation, for people: what it waits for, or else its progress.
    pub fn said(&self) -> Option<&str> {
        self.waits.as_deref().or(self.progress.as_deref())
    }
}

/// The public values that a broker reports of an instance during its update; in force once that has succeeded.
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
    /// Whether this was the create's first run, is not known to have been started, and was not seen since: if it is
    /// absent, nothing was made and nothing has to be removed.
    pub first: bool,
    /// Whether the run is over, and its state, if it left any, is recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
}

/// The phase of an operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "phase")]
pub enum Phase {
    /// The operation is recorded; the run of this attempt is not known to have been started.
    Pending {
        /// The time before which the run is not started: the pause before a retry.
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
        /// The broker's name for the external work.
        name: String,
        /// How often the broker was asked how it stands.
        polls: u32,
        /// When to ask next.
        next: Timestamp,
    },
    /// The operation ended well.
    Succeeded,
    /// The operation failed.
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
    /// The reason in one word, for metrics and scripts.
    pub reason: Reason,
    /// The reason for people, redacted.
    pub description: String,
    /// After an update or a deprovision: whether the instance still works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_usable: Option<bool>,
    /// After an update: whether it may be repeated as it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_repeatable: Option<bool>,
    /// After a failure that may pass, or of a busy broker: the seconds to wait before the platform asks again, as
    /// granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
}

impl OperationFailure {
    /// A failure with a reason and a description, and nothing else.
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

/// The ways in which an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The broker exited with a status other than 0.
    ExitStatus,
    /// The broker was ended by a signal that this program did not send.
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
    /// The operation was halted by a delete, or by an operator.
    Halted,
    /// The broker reported the failure itself, in a structured error.
    Reported,
    /// The broker does not do this.
    Unsupported,
    /// The broker said that the request asks for something impossible.
    Invalid,
    /// The broker said that the id is taken.
    Conflict,
    /// The broker said that something else is being done to the instance or binding.
    Busy,
    /// The instance of the binding is being deleted or was changed, or the instance to delete still has bindings.
    Refused,
}

impl Reason {
    /// The reason's word, as in JSON.
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
    /// The token that a 202 carried.
    pub id: String,
    /// The action of the operation.
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

    /// Whether the instance or binding exists, or may: true for everything but a tombstone.
    pub fn is_live(&self) -> bool {
        self.lifecycle != Lifecycle::Deleted
    }
}
