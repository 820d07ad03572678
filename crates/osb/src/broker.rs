//! What a broker author writes.
//!
//! A [`Broker`] does the work and nothing else: idempotency, conflicts, concurrency, the
//! asynchronous protocol, status codes and redaction are the framework's. The same broker runs in
//! process, and as `/bin/broker` through [`crate::jobs::main`].

use std::future::Future;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::decode;
use crate::model::{
    BindResource, BindingBody, BindingId, Catalog, InstanceId, InstanceMetadata, MaintenanceInfo,
    Object, OriginatingIdentity, PlanId, PreviousValues, Sensitive, ServiceId,
};

/// What is to be done: the subcommands of the jobs contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Make an instance.
    Provision,
    /// Change an instance.
    Update,
    /// Make a binding.
    Bind,
    /// Remove a binding.
    Unbind,
    /// Remove an instance.
    Deprovision,
}

impl Action {
    /// Every action, in the order of an instance's life.
    pub const ALL: [Self; 5] =
        [Self::Provision, Self::Update, Self::Bind, Self::Unbind, Self::Deprovision];

    /// The subcommand's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Provision => "provision",
            Self::Update => "update",
            Self::Bind => "bind",
            Self::Unbind => "unbind",
            Self::Deprovision => "deprovision",
        }
    }
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One piece of work: everything that is known when a run starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// What to do.
    pub action: Action,
    /// Of which service.
    pub service_id: ServiceId,
    /// Of which plan; the new one in an update.
    pub plan_id: PlanId,
    /// To which instance.
    pub instance_id: InstanceId,
    /// To which binding; for bind and unbind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding_id: Option<BindingId>,
    /// The operation: the same in every attempt. A name for external effects.
    pub operation_id: String,
    /// From 1.
    pub attempt: u32,
    /// When the run will be ended, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u64>,
    /// As requested; empty when absent.
    #[serde(default)]
    pub parameters: Sensitive<Object>,
    /// As requested; empty when absent.
    #[serde(default)]
    pub context: Sensitive<Object>,
    /// What the instance was before an update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_values: Option<PreviousValues>,
    /// The version asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance_info: Option<MaintenanceInfo>,
    /// What is bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind_resource: Option<BindResource>,
    /// The binding whose successor this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predecessor_binding_id: Option<BindingId>,
    /// Who asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub originating_identity: Option<OriginatingIdentity>,
    /// What the instance's earlier operations left behind in [`Output::state`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Sensitive<Value>>,
    /// Asks after work that goes on elsewhere, under the name that [`Output::external_operation`]
    /// gave: the subcommand is then `last-operation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_operation: Option<String>,
    /// Where to say how far the work is.
    #[serde(skip)]
    pub progress: Progress,
}

impl Work {
    /// The parameters as the author's own type.
    ///
    /// # Errors
    /// [`FailureKind::Invalid`], naming the member that does not fit; values are not repeated.
    pub fn parameters<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        decode::from_value(Value::Object(self.parameters.expose().clone())).map_err(|why| {
            Failure::new(FailureKind::Invalid, format!("parameters do not fit: {why}"))
        })
    }
}

/// Tells people how far the work is; shown by `last_operation`.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<Sink>>);

type Sink = dyn Fn(&str) + Send + Sync;

impl Progress {
    /// Reports to `sink`.
    pub fn new(sink: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(sink)))
    }

    /// Says how far the work is, in a sentence without secrets.
    pub fn report(&self, description: &str) {
        if let Some(sink) = &self.0 {
            sink(description);
        }
    }
}

impl PartialEq for Progress {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl std::fmt::Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Progress")
    }
}

/// What a piece of work made. Every member is optional; which have a meaning depends on the action.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// Provision and update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dashboard_url: Option<String>,
    /// Provision and update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<InstanceMetadata>,
    /// Bind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<BindingBody>,
    /// Handed to the instance's later operations, in [`Work::state`]. At most 1 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Sensitive<Value>>,
    /// The work goes on elsewhere under this name, and is to be asked after by
    /// [`Broker::last_operation`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_operation: Option<String>,
    /// With [`Self::external_operation`]: seconds to wait before it is asked after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// For people: shown by `last_operation`. No secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// How work stands that goes on elsewhere ([`Output::external_operation`]).
#[derive(Debug, Clone, PartialEq)]
pub enum Standing {
    /// It goes on.
    InProgress {
        /// How far it is, for people; no secrets.
        description: Option<String>,
        /// Seconds to wait before it is asked after again.
        retry_after: Option<u64>,
    },
    /// It ended well, and made this.
    Succeeded(Box<Output>),
}

/// Why a piece of work failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// It failed; something may have been made.
    Failed,
    /// The broker does not do this at all.
    Unsupported,
    /// The request asks for something impossible; nothing was made.
    Invalid,
    /// The id is taken by something else; nothing was made.
    Conflict,
    /// What is to be removed does not exist.
    Gone,
    /// Something else is being done to it; nothing was made.
    Busy,
    /// A passing fault: the same attempt may succeed later.
    Transient,
}

/// A piece of work that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{description}")]
pub struct Failure {
    /// In which way.
    pub kind: FailureKind,
    /// For people: shown to the platform's user. Non-empty; no secrets.
    pub description: String,
    /// After an update or deprovision: whether the instance still works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_usable: Option<bool>,
    /// After an update: whether it may be repeated as it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_repeatable: Option<bool>,
    /// For [`FailureKind::Transient`] and [`FailureKind::Busy`]: seconds to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
}

impl Failure {
    /// A failure with a description.
    pub fn new(kind: FailureKind, description: impl Into<String>) -> Self {
        Self {
            kind,
            description: description.into(),
            instance_usable: None,
            update_repeatable: None,
            retry_after: None,
        }
    }

    /// The common one: it failed, and this is why.
    pub fn failed(description: impl Into<String>) -> Self {
        Self::new(FailureKind::Failed, description)
    }
}

/// A service broker, as its author sees it.
///
/// Each method may be called again for the same `operation_id` (a later attempt, after a crash):
/// it should then bring about the same thing rather than a second one. `deprovision` and `unbind` may
/// be called for something that was never made, and succeed then.
pub trait Broker: Send + Sync + 'static {
    /// What is offered.
    fn catalog(&self) -> impl Future<Output = Result<Catalog, Failure>> + Send;

    /// Makes an instance.
    fn provision(&self, work: Work) -> impl Future<Output = Result<Output, Failure>> + Send;

    /// Removes an instance.
    fn deprovision(&self, work: Work) -> impl Future<Output = Result<Output, Failure>> + Send;

    /// Makes a binding. Without it, services should be `bindable: false`.
    fn bind(&self, work: Work) -> impl Future<Output = Result<Output, Failure>> + Send {
        unsupported(work.action)
    }

    /// Removes a binding.
    fn unbind(&self, work: Work) -> impl Future<Output = Result<Output, Failure>> + Send {
        unsupported(work.action)
    }

    /// Changes an instance.
    fn update(&self, work: Work) -> impl Future<Output = Result<Output, Failure>> + Send {
        unsupported(work.action)
    }

    /// Says how work stands that was left going elsewhere. `work` is what was asked for;
    /// `external_operation` what it answered. A failure is the failure of that work, but for
    /// [`FailureKind::Transient`], after which it is asked after again.
    fn last_operation(
        &self,
        work: Work,
        external_operation: &str,
    ) -> impl Future<Output = Result<Standing, Failure>> + Send {
        let _ = external_operation;
        unsupported(work.action)
    }
}

async fn unsupported<T>(action: Action) -> Result<T, Failure> {
    Err(Failure::new(FailureKind::Unsupported, format!("this broker does not support {action}")))
}
