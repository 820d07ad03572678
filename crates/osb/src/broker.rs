//! The [`Broker`] trait, which a broker author implements, and the types of its methods.
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

/// The actions of a broker: the subcommands of the jobs contract that change something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Make a service instance.
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

/// The input of one run: everything that is known when it starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// The action to carry out.
    pub action: Action,
    /// The service of the instance.
    pub service_id: ServiceId,
    /// The plan of the instance; the new one in an update.
    pub plan_id: PlanId,
    /// The instance, or the instance of the binding.
    pub instance_id: InstanceId,
    /// The binding; for bind and unbind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding_id: Option<BindingId>,
    /// The operation's id, the same in every attempt: a name for external effects.
    pub operation_id: String,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// When the run will be ended, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u64>,
    /// The parameters as requested; empty when absent.
    #[serde(default)]
    pub parameters: Sensitive<Object>,
    /// The platform's context as requested; empty when absent.
    #[serde(default)]
    pub context: Sensitive<Object>,
    /// The plan and other values of the instance before an update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_values: Option<PreviousValues>,
    /// The version of the plan that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance_info: Option<MaintenanceInfo>,
    /// The application or other resource that is bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind_resource: Option<BindResource>,
    /// The binding that this one replaces in a rotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predecessor_binding_id: Option<BindingId>,
    /// The platform's user who asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub originating_identity: Option<OriginatingIdentity>,
    /// The state that earlier operations left in [`Output::state`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Sensitive<Value>>,
    /// The name of external work, as [`Output::external_operation`] gave it: the run then only asks how that stands,
    /// and the subcommand is `last-operation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_operation: Option<String>,
    /// The place to report progress to.
    #[serde(skip)]
    pub progress: Progress,
}

impl Work {
    /// Reads the parameters as the author's own type.
    ///
    /// # Errors
    /// [`FailureKind::Invalid`], naming the member that does not fit; values are not repeated.
    pub fn parameters<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        decode::from_value(Value::Object(self.parameters.expose().clone())).map_err(|why| {
            Failure::new(FailureKind::Invalid, format!("parameters do not fit: {why}"))
        })
    }
}

/// The progress of a run, as its broker reports it for people; shown by `last_operation`.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<Sink>>);

type Sink = dyn Fn(&str) + Send + Sync;

impl Progress {
    /// A progress that hands each report to `sink`.
    pub fn new(sink: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(sink)))
    }

    /// Reports how far the work is, in a sentence without secrets.
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

/// The output of a run that succeeded. Every member is optional; which have a meaning depends on the action.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// The dashboard of the instance; for provision and update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dashboard_url: Option<String>,
    /// The metadata of the instance; for provision and update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<InstanceMetadata>,
    /// The credentials and other members of a new binding; for bind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<BindingBody>,
    /// The state for the instance's later operations, handed to them in [`Work::state`]. At most 1 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Sensitive<Value>>,
    /// The name of external work: the operation goes on elsewhere under it, and [`Broker::last_operation`] is asked how
    /// it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_operation: Option<String>,
    /// With [`Self::external_operation`]: the seconds to wait before the first question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// A sentence for people, shown by `last_operation`. No secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// How external work stands ([`Output::external_operation`]).
#[derive(Debug, Clone, PartialEq)]
pub enum Standing {
    /// The work goes on.
    InProgress {
        /// How far the work is, for people; no secrets.
        description: Option<String>,
        /// The seconds to wait before the next question.
        retry_after: Option<u64>,
    },
    /// The work ended well, with this output.
    Succeeded(Box<Output>),
}

/// The kind of a failure: it decides whether there is a further attempt, and whether something may have been made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The work failed; something may have been made.
    Failed,
    /// The broker does not do this at all; nothing was made.
    Unsupported,
    /// The request asks for something impossible; nothing was made.
    Invalid,
    /// The id is taken by something else; nothing was made.
    Conflict,
    /// What is to be removed does not exist: a success of `unbind` and `deprovision`, elsewhere as [`Self::Failed`].
    Gone,
    /// Something else is being done to the instance or binding; nothing was made. The platform may ask again.
    Busy,
    /// A passing fault: there is a further attempt, if any is left.
    Transient,
}

/// The failure of a run, as its broker reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{description}")]
pub struct Failure {
    /// The kind of the failure.
    pub kind: FailureKind,
    /// The reason for people, shown to the platform's user. Non-empty; no secrets.
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

    /// A failure of kind [`FailureKind::Failed`] with a description.
    pub fn failed(description: impl Into<String>) -> Self {
        Self::new(FailureKind::Failed, description)
    }
}

/// A service broker, as its author sees it.
///
/// Each method may be called again for the same `operation_id` (a later attempt, after a crash):
/// it should then bring about the same thing rather than a second one. `deprovision` and `unbind` may
/// be called for something that was never made, and succeed then.
///
/// When [`Work::deadline`] passes during a call, the call is ended: in process at its next `await`, as `/bin/broker`
/// with its process. The operation then fails as with [`FailureKind::Failed`], without a further attempt. Under version
/// 1 of the jobs contract every failure counts as [`FailureKind::Failed`].
pub trait Broker: Send + Sync + 'static {
    /// The catalog that the broker offers.
    ///
    /// # Errors
    /// Of any kind: the catalog in force stays, and the broker is asked again after a pause.
    fn catalog(&self) -> impl Future<Output = Result<Catalog, Failure>> + Send;

    /// Makes an instance.
    ///
    /// # Errors
    /// [`FailureKind::Unsupported`], [`FailureKind::Invalid`], [`FailureKind::Conflict`] and [`FailureKind::Busy`]
    /// promise that nothing was made: said by the first attempt, the id is free again. [`FailureKind::Transient`] leads
    /// to a further attempt, if any is left. Otherwise the instance stays, failed, for a
    /// [deprovision](Self::deprovision) to remove.
    fn provision(&self, work: Work) -> impl Future<Output = Result<Output, Failure>> + Send;

    /// Removes an instance.
    ///
    /// # Errors
    /// [`FailureKind::Gone`] is a success. [`FailureKind::Transient`] leads to a further attempt, if any is left. After
    /// any other kind the operation has failed and the instance stays; the platform may ask again.
    fn deprovision(&self, work: Work) -> impl Future<Output = Result<Output, Failure>> + Send;

    /// Makes a binding. Without this method, services should be `bindable: false`.
    ///
    /// # Errors
    /// As [`Self::provision`]: what is left behind is for an [unbind](Self::unbind) to remove.
    fn bind(&self, work: Work) -> impl Future<Output = Result<Output, Failure>> + Send {
        unsupported(work.action)
    }

    /// Removes a binding.
    ///
    /// # Errors
    /// As [`Self::deprovision`]: unless it is gone, the binding stays.
    fn unbind(&self, work: Work) -> impl Future<Output = Result<Output, Failure>> + Send {
        unsupported(work.action)
    }

    /// Changes an instance.
    ///
    /// # Errors
    /// [`FailureKind::Transient`] leads to a further attempt, if any is left. Any other kind fails the update, and
    /// leaves the instance recorded as it was before; [`Failure::instance_usable`] and [`Failure::update_repeatable`]
    /// tell the platform what it may do. Nothing is removed.
    fn update(&self, work: Work) -> impl Future<Output = Result<Output, Failure>> + Send {
        unsupported(work.action)
    }

    /// Says how external work stands, which an earlier call left going elsewhere. `work` is the input of that call;
    /// `external_operation` the name that it answered.
    ///
    /// # Errors
    /// [`FailureKind::Transient`] says nothing about the work, nor does a deadline that passes: the question is
    /// repeated. Any other kind fails the operation, and whatever the kind, a new instance or binding stays for a
    /// deprovision or unbind to remove. [`FailureKind::Gone`] ends a removal well.
    fn last_operation(
        &self,
        work: Work,
        external_operation: &str,
    ) -> impl Future<Output = Result<Standing, Failure>> + Send {
        let _ = external_operation;
        let action = work.action;
        async move {
            let why = format!(
                "this broker cannot say how far a {action} has come: it lacks Broker::last_operation"
            );
            Err(Failure::new(FailureKind::Unsupported, why))
        }
    }
}

/// Has a broker carry out work by the method of its action.
///
/// # Errors
/// Those of the method.
pub async fn perform<B: Broker>(broker: &B, work: Work) -> Result<Output, Failure> {
    match work.action {
        Action::Provision => broker.provision(work).await,
        Action::Update => broker.update(work).await,
        Action::Bind => broker.bind(work).await,
        Action::Unbind => broker.unbind(work).await,
        Action::Deprovision => broker.deprovision(work).await,
    }
}

async fn unsupported<T>(action: Action) -> Result<T, Failure> {
    Err(Failure::new(FailureKind::Unsupported, format!("this broker does not support {action}")))
}
