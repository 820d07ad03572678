//! The [`Backend`]: the interface between the HTTP server and whoever keeps the state.
//!
//! The server has already refused what can be refused without state: 401, 412, every 400,
//! `AsyncRequired` and `MaintenanceInfoConflict`. What a `Backend` decides is, in this order: 404, 410,
//! 409, 200 and 202 for something known, then `ConcurrencyError`.

use std::sync::Arc;

use async_trait::async_trait;

use crate::broker::Action;
use crate::catalog::{CompiledCatalog, PlanEntry};
use crate::error::Error;
use crate::model::{
    BindRequest, BindingBody, BindingId, BindingView, DeprovisionRequest, InstanceId, InstanceView,
    LastOperation, LastOperationQuery, OriginatingIdentity, ProvisionRequest, ProvisionedBody,
    UnbindRequest, UpdateRequest,
};

/// The parts of a request that accompany every request, whatever its body.
#[derive(Debug, Clone, Default)]
pub struct Call {
    /// `accepts_incomplete=true` was given.
    pub accepts_incomplete: bool,
    /// The user who asked the platform.
    pub originating_identity: Option<OriginatingIdentity>,
    /// `X-Broker-API-Request-Identity`, for logs.
    pub request_identity: Option<String>,
}

/// The successful answer to a request that changes something.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply<T> {
    /// 201: the instance or binding was made by this request, which waited for it.
    Created(T),
    /// 200: the resource is already as asked for, or was changed or removed by this request, which waited for it.
    Done(T),
    /// 202: the operation is recorded durably and in progress.
    Accepted {
        /// The token for `last_operation`.
        operation: String,
        /// The body as far as it is known already (`dashboard_url`). Bindings send nothing of it.
        body: T,
    },
}

/// The keeper of the state: the engine, or a test's double.
///
/// Every 2xx of these methods is durable before it is returned. A future that is dropped (the
/// client hung up) leaves nothing half done: the server runs them to their end regardless.
///
/// An error is sent as its [`ErrorKind`](crate::error::ErrorKind) says. Most platforms delete what they ordered after a
/// 5xx, and never after a 4xx: so a kind with a 4xx must mean that nothing was made. Any method may say
/// `TooManyRequests` or `PayloadTooLarge` (nothing was recorded), `Unavailable` (it may have been) and `Internal`.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// The catalog served now; `None` until the first one was read (the server answers 503).
    fn catalog(&self) -> Option<Arc<CompiledCatalog>>;

    /// Whether `action` on this plan may only be asked for with `accepts_incomplete=true`. `plan` is
    /// `None` when it has left the catalog or is not in the request.
    fn requires_async(&self, action: Action, plan: Option<&PlanEntry>) -> bool;

    /// Provisions an instance: section "Provisioning".
    ///
    /// # Errors
    /// `Conflict`, `ConcurrencyError` and `BadRequest`: nothing was recorded. A held operation that failed is a 4xx if
    /// nothing was made, else `Internal`; `Timeout` if it did not end in time: it is then being undone by a
    /// deprovision.
    async fn provision(
        &self,
        call: &Call,
        instance: &InstanceId,
        request: ProvisionRequest,
    ) -> Result<Reply<ProvisionedBody>, Error>;

    /// Updates an instance: section "Updating a Service Instance". Refuses too what needs the instance's plan:
    /// parameters that violate its schema, a plan that may not be changed.
    ///
    /// # Errors
    /// `NotFound`, `BadRequest`, `MaintenanceInfoConflict`, `Unprocessable` and `ConcurrencyError`: nothing was
    /// recorded, or a held update failed before it changed anything. `Timeout`: a held update did not end in time, and
    /// goes on.
    async fn update(
        &self,
        call: &Call,
        instance: &InstanceId,
        request: UpdateRequest,
    ) -> Result<Reply<ProvisionedBody>, Error>;

    /// Deprovisions an instance: section "Deprovisioning".
    ///
    /// # Errors
    /// `Gone` if there is no such instance. `BadRequest`, `ConcurrencyError` and `Unprocessable` (it has bindings):
    /// nothing was removed. `Timeout`: a held deprovision did not end in time, and goes on.
    async fn deprovision(
        &self,
        call: &Call,
        instance: &InstanceId,
        request: DeprovisionRequest,
    ) -> Result<Reply<()>, Error>;

    /// Fetches an instance: section "Fetching a Service Instance".
    ///
    /// # Errors
    /// `NotFound` if there is no such instance, or it is not made yet; `ConcurrencyError` while it is changed or
    /// removed.
    async fn instance(&self, call: &Call, instance: &InstanceId) -> Result<InstanceView, Error>;

    /// Says how an instance's operation stands: section "Polling Last Operation for Service Instances".
    ///
    /// # Errors
    /// `Gone` if the instance was deleted, `NotFound` if nothing is known of it. A failed operation is no error, but an
    /// answer.
    async fn instance_last_operation(
        &self,
        call: &Call,
        instance: &InstanceId,
        query: LastOperationQuery,
    ) -> Result<LastOperation, Error>;

    /// Makes a binding: sections "Binding" and "Rotating a Service Binding".
    ///
    /// # Errors
    /// As [`Self::provision`], and `NotFound` if there is no such instance; a bind that did not end in time is being
    /// undone by an unbind.
    async fn bind(
        &self,
        call: &Call,
        instance: &InstanceId,
        binding: &BindingId,
        request: BindRequest,
    ) -> Result<Reply<BindingBody>, Error>;

    /// Removes a binding: section "Unbinding".
    ///
    /// # Errors
    /// As [`Self::deprovision`].
    async fn unbind(
        &self,
        call: &Call,
        instance: &InstanceId,
        binding: &BindingId,
        request: UnbindRequest,
    ) -> Result<Reply<()>, Error>;

    /// Fetches a binding: section "Fetching a Service Binding".
    ///
    /// # Errors
    /// `NotFound` if there is no such binding, or it is not made yet.
    async fn binding(
        &self,
        call: &Call,
        instance: &InstanceId,
        binding: &BindingId,
    ) -> Result<BindingView, Error>;

    /// Says how a binding's operation stands: section "Polling Last Operation for Service Bindings".
    ///
    /// # Errors
    /// As [`Self::instance_last_operation`].
    async fn binding_last_operation(
        &self,
        call: &Call,
        instance: &InstanceId,
        binding: &BindingId,
        query: LastOperationQuery,
    ) -> Result<LastOperation, Error>;
}
