//! The status codes of OpenShift's template service broker ("the original"), for platforms that rely on them; otherwise
//! the specification's are used.
//!
//! Behaviour that is only a defect of the original is not repeated: 409 for an identical order, 500 where a
//! TemplateInstance is missing, a binding of an instance that is not ready, incomplete credentials.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use engine::Engine;
use engine::record::{Key, Record};
use osb::catalog::PlanEntry;
use osb::{
    Action, Backend, BindRequest, BindingBody, BindingId, BindingView, Call, CompiledCatalog,
    DeprovisionRequest, Error, ErrorKind, InstanceId, InstanceView, LastOperation,
    LastOperationQuery, OperationState, ProvisionRequest, ProvisionedBody, Reply, UnbindRequest,
    UpdateRequest,
};

use super::identity;

/// Which status codes the broker answers with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StatusCodes {
    /// The status codes of the specification.
    #[default]
    Specification,
    /// The status codes of the original, which has neither PATCH nor GET of instances and bindings.
    Original,
}

/// The names of operations, which are all that the original says about them.
const PROVISIONING: &str = "provisioning";
const UPDATING: &str = "updating";
const DEPROVISIONING: &str = "deprovisioning";

/// Which instances are claimed, whether something is recorded of them or not. The original asks for no more.
#[async_trait]
pub(super) trait Claims: Send + Sync {
    async fn has(&self, instance: &InstanceId) -> Result<bool, Error>;
}

/// A backend over an engine, with the original's status codes.
pub(super) struct Strict<B> {
    inner: B,
    engine: Engine,
    claims: Arc<dyn Claims>,
}

/// The operation whose state is requested.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    /// An operation of the engine, by its id.
    Of(String),
    /// The removal of an existing instance that nobody has requested: it has not ended.
    Nothing,
    /// The removal of an instance that does not exist.
    Gone,
}

/// Whether an instance exists.
enum Live {
    /// The instance is recorded.
    Recorded(Arc<Record>),
    /// The instance was ordered elsewhere, and is still being made or removed; with its progress.
    Elsewhere(Box<LastOperation>),
    /// It was ordered elsewhere, and its TemplateInstance is not there any more: it can be unbound, and removed.
    Claimed,
    No,
}

impl<B: Backend> Strict<B> {
    pub(super) fn new(inner: B, engine: Engine, claims: Arc<dyn Claims>) -> Self {
        Self { inner, engine, claims }
    }

    /// Whether an instance is there, and what is recorded of it.
    async fn live(&self, call: &Call, instance: &InstanceId) -> Result<Live, Error> {
        let of = |record: Arc<Record>| match record.is_live() {
            true => Live::Recorded(record),
            false => Live::No,
        };
        if let Some(record) = self.stored(instance).await? {
            return Ok(of(record));
        }
        // An instance that was ordered elsewhere is recorded when its state is requested.
        let asked = self.inner.instance_last_operation(call, instance, Default::default()).await;
        let last = match asked {
            Ok(last) => Some(last),
            Err(error) if matches!(error.kind, ErrorKind::Gone | ErrorKind::NotFound) => None,
            Err(error) => return Err(error),
        };
        match (self.stored(instance).await?, last) {
            (Some(record), _) => Ok(of(record)),
            (None, Some(last)) => Ok(Live::Elsewhere(Box::new(last))),
            (None, None) if self.claims.has(instance).await? => Ok(Live::Claimed),
            (None, None) => Ok(Live::No),
        }
    }

    async fn stored(&self, instance: &InstanceId) -> Result<Option<Arc<Record>>, Error> {
        let key = Key::Instance(instance.clone());
        let stored = self.engine.store().read(&key).await.map_err(|error| {
            tracing::warn!(%error, "an instance cannot be read");
            Error::new(ErrorKind::Unavailable, "the instance cannot be read now; come again")
        })?;
        Ok(stored.map(|stored| stored.record))
    }

    /// Refuses what is asked of an instance that is not there; `if_claimed`: not where it is still claimed.
    async fn has_to_be_there(
        &self,
        call: &Call,
        instance: &InstanceId,
        if_claimed: bool,
    ) -> Result<(), Error> {
        identity::requester(call.originating_identity.as_ref())?;
        match self.live(call, instance).await? {
            Live::Recorded(_) | Live::Elsewhere(_) => Ok(()),
            Live::Claimed if if_claimed => Ok(()),
            Live::Claimed | Live::No => {
                Err(Error::bad_request("there is no such service instance"))
            }
        }
    }
}

/// The action that an operation's name means in the original.
///
/// # Errors
/// As in the original: without a name, or with another one.
fn action(operation: Option<&str>) -> Result<Action, Error> {
    match operation {
        Some(PROVISIONING) => Ok(Action::Provision),
        Some(DEPROVISIONING) => Ok(Action::Deprovision),
        Some(UPDATING) => Err(Error::bad_request("operation: nothing is ever updating here")),
        _ => Err(Error::bad_request("operation: has to be provisioning or deprovisioning")),
    }
}

/// The operation of an instance that a name means in the original.
///
/// # Errors
/// As in the original: without a name, or with another one; and for an instance that does not exist.
fn asked(record: Option<&Record>, operation: Option<&str>) -> Result<Asked, Error> {
    let action = action(operation)?;
    let Some(record) = record else {
        return match action {
            Action::Deprovision => Ok(Asked::Gone),
            _ => Err(Error::bad_request("there is no such service instance")),
        };
    };
    let now = &record.operation;
    let now = (now.action == action).then(|| now.id.clone());
    // A removal that was requested before the instance was ordered anew is not this one's.
    let past = record.past.iter().rev().filter(|past| past.created_at >= record.created_at);
    let before = || past.into_iter().find(|past| past.action == action).map(|past| past.id.clone());
    match (now.or_else(before), action) {
        (Some(id), _) => Ok(Asked::Of(id)),
        (None, Action::Deprovision) => Ok(Asked::Nothing),
        (None, _) => Ok(Asked::Of(record.operation.id.clone())),
    }
}

fn named<T>(reply: Reply<T>, operation: &str) -> Reply<T> {
    match reply {
        Reply::Accepted { body, .. } => Reply::Accepted { operation: operation.to_owned(), body },
        other => other,
    }
}

fn stands(state: OperationState) -> LastOperation {
    LastOperation {
        state,
        description: None,
        instance_usable: None,
        update_repeatable: None,
        retry_after: None,
    }
}

fn none_such<T>() -> Result<T, Error> {
    Err(Error::new(ErrorKind::MethodNotAllowed, "the route has no such method"))
}

#[async_trait]
impl<B: Backend> Backend for Strict<B> {
    fn catalog(&self) -> Option<Arc<CompiledCatalog>> {
        self.inner.catalog()
    }

    /// As the original, makes and removes instances asynchronously, and binds at once.
    fn requires_async(&self, action: Action, plan: Option<&PlanEntry>) -> bool {
        match action {
            Action::Provision | Action::Deprovision => true,
            Action::Update | Action::Bind | Action::Unbind => {
                self.inner.requires_async(action, plan)
            }
        }
    }

    async fn provision(
        &self,
        call: &Call,
        instance: &InstanceId,
        request: ProvisionRequest,
    ) -> Result<Reply<ProvisionedBody>, Error> {
        let reply = self.inner.provision(call, instance, request).await?;
        Ok(named(reply, PROVISIONING))
    }

    async fn update(
        &self,
        _: &Call,
        _: &InstanceId,
        _: UpdateRequest,
    ) -> Result<Reply<ProvisionedBody>, Error> {
        none_such()
    }

    async fn deprovision(
        &self,
        call: &Call,
        instance: &InstanceId,
        request: DeprovisionRequest,
    ) -> Result<Reply<()>, Error> {
        let reply = self.inner.deprovision(call, instance, request).await?;
        Ok(named(reply, DEPROVISIONING))
    }

    async fn instance(&self, _: &Call, _: &InstanceId) -> Result<InstanceView, Error> {
        none_such()
    }

    async fn instance_last_operation(
        &self,
        call: &Call,
        instance: &InstanceId,
        mut query: LastOperationQuery,
    ) -> Result<LastOperation, Error> {
        identity::requester(call.originating_identity.as_ref())?;
        let record = match self.live(call, instance).await? {
            Live::Recorded(record) => Some(record),
            // As long as the instance exists its removal has not ended either.
            Live::Elsewhere(last) => {
                return action(query.operation.as_deref()).map(|_| *last);
            }
            Live::Claimed if action(query.operation.as_deref())? == Action::Deprovision => {
                return Ok(stands(OperationState::InProgress));
            }
            Live::Claimed | Live::No => None,
        };
        let asked = asked(record.as_deref(), query.operation.as_deref())?;
        let is_removal = query.operation.as_deref() == Some(DEPROVISIONING);
        query.operation = match &asked {
            Asked::Gone => return Ok(stands(OperationState::Succeeded)),
            Asked::Of(id) => Some(id.clone()),
            Asked::Nothing => None,
        };
        match self.inner.instance_last_operation(call, instance, query).await {
            Ok(_) if asked == Asked::Nothing => Ok(stands(OperationState::InProgress)),
            // The instance was removed just now.
            Err(error) if is_removal && error.kind == ErrorKind::Gone => {
                Ok(stands(OperationState::Succeeded))
            }
            Err(error) if matches!(error.kind, ErrorKind::Gone | ErrorKind::NotFound) => {
                Err(Error::bad_request(error.description))
            }
            answer => answer,
        }
    }

    async fn bind(
        &self,
        call: &Call,
        instance: &InstanceId,
        binding: &BindingId,
        request: BindRequest,
    ) -> Result<Reply<BindingBody>, Error> {
        self.has_to_be_there(call, instance, false).await?;
        self.inner.bind(call, instance, binding, request).await
    }

    async fn unbind(
        &self,
        call: &Call,
        instance: &InstanceId,
        binding: &BindingId,
        request: UnbindRequest,
    ) -> Result<Reply<()>, Error> {
        self.has_to_be_there(call, instance, true).await?;
        self.inner.unbind(call, instance, binding, request).await
    }

    async fn binding(&self, _: &Call, _: &InstanceId, _: &BindingId) -> Result<BindingView, Error> {
        none_such()
    }

    async fn binding_last_operation(
        &self,
        _: &Call,
        _: &InstanceId,
        _: &BindingId,
        _: LastOperationQuery,
    ) -> Result<LastOperation, Error> {
        Err(Error::not_found("there is no such route"))
    }
}
