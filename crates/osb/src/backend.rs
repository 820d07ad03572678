//! What the HTTP server asks of whoever keeps the state.
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

/// What accompanies every request.
#[derive(Debug, Clone, Default)]
pub struct Call {
    /// `accepts_incomplete=true` was given.
    pub accepts_incomplete: bool,
    /// Who asked the platform.
    pub originating_identity: Option<OriginatingIdentity>,
    /// `X-Broker-API-Request-Identity`, for logs.
    pub request_identity: Option<String>,
}

/// How a request that changes something was answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply<T> {
    /// 201: made by this request, which waited for it.
    Created(T),
    /// 200: as it is already, or changed by this request, which waited for it.
    Done(T),
    /// 202: recorded durably; in progress.
    Accepted {
        /// The token for `last_operation`.
        operation: String,
        /// What is known already (`dashboard_url`). Bindings send nothing of it.
        body: T,
    },
}

/// Whoever keeps the state: the engine, or a test's double.
///
/// Every 2xx of these methods is durable before it is returned. A future that is dropped (the
/// client hung up) leaves nothing half done: the server runs them to their end regardless.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// The catalog served now; `None` until the first one was read (the server answers 503).
    fn catalog(&self) -> Option<Arc<CompiledCatalog>>;

    /// Whether `action` on this plan may only be asked for with `accepts_incomplete=true`. `plan` is
    /// `None` when it has left the catalog or is not in the request.
    fn requires_async(&self, action: Action, plan: Option<&PlanEntry>) -> bool;

    /// Section "Provisioning".
    async fn provision(
        &self,
        call: &Call,
        instance: &InstanceId,
        request: ProvisionRequest,
    ) -> Result<Reply<ProvisionedBody>, Error>;

    /// Section "Updating a Service Instance". Refuses too what needs the instance's plan: parameters
    /// that violate its schema, a plan that may not be changed.
    async fn update(
        &self,
        call: &Call,
        instance: &InstanceId,
        request: UpdateRequest,
    ) -> Result<Reply<ProvisionedBody>, Error>;

    /// Section "Deprovisioning".
    async fn deprovision(
        &self,
        call: &Call,
        instance: &InstanceId,
        request: DeprovisionRequest,
    ) -> Result<Reply<()>, Error>;

    /// Section "Fetching a Service Instance".
    async fn instance(&self, call: &Call, instance: &InstanceId) -> Result<InstanceView, Error>;

    /// Section "Polling Last Operation for Service Instances".
    async fn instance_last_operation(
        &self,
        call: &Call,
        instance: &InstanceId,
        query: LastOperationQuery,
    ) -> Result<LastOperation, Error>;

    /// Sections "Binding" and "Rotating a Service Binding".
    async fn bind(
        &self,
        call: &Call,
        instance: &InstanceId,
        binding: &BindingId,
        request: BindRequest,
    ) -> Result<Reply<BindingBody>, Error>;

    /// Section "Unbinding".
    async fn unbind(
        &self,
        call: &Call,
        instance: &InstanceId,
        binding: &BindingId,
        request: UnbindRequest,
    ) -> Result<Reply<()>, Error>;

    /// Section "Fetching a Service Binding".
    async fn binding(
        &self,
        call: &Call,
        instance: &InstanceId,
        binding: &BindingId,
    ) -> Result<BindingView, Error>;

    /// Section "Polling Last Operation for Service Bindings".
    async fn binding_last_operation(
        &self,
        call: &Call,
        instance: &InstanceId,
        binding: &BindingId,
        query: LastOperationQuery,
    ) -> Result<LastOperation, Error>;
}
