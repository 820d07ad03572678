//! A backend that accepts everything, counts its calls, and asserts that the requests can be kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use osb::catalog::{CompiledCatalog, PlanEntry, parse};
use osb::{
    Action, Backend, BindRequest, BindingBody, BindingId, BindingView, Call, DeprovisionRequest,
    Error, InstanceId, InstanceView, LastOperation, LastOperationQuery, OperationState, PlanId,
    ProvisionRequest, ProvisionedBody, Reply, ServiceId, UnbindRequest, UpdateRequest,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::assert_kept;

pub(super) struct Stub {
    catalog: Arc<CompiledCatalog>,
    asked: AtomicUsize,
}

impl Stub {
    pub(super) fn new() -> Self {
        let schema = json!({"parameters": {
            "$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
            "additionalProperties": {"maxLength": 20},
            "properties": {"size": {"type": "integer", "minimum": 1},
                           "password": {"type": "string", "maxLength": 5},
                           "region": {"enum": ["eu", "us"]},
                           "zone": {"pattern": "^[a-z]+-[0-9]$"}}}});
        let catalog = json!({"services": [
            {"id": "db", "name": "postgres", "description": "A database", "bindable": true,
             "plan_updateable": true, "instances_retrievable": true, "bindings_retrievable": true,
             "plans": [
                {"id": "small", "name": "small", "description": "d", "binding_rotatable": true,
                 "maintenance_info": {"version": "1.0.0"},
                 "schemas": {"service_instance": {"create": schema, "update": schema},
                             "service_binding": {"create": schema}}},
                {"id": "large", "name": "large", "description": "d"},
                {"id": "unbindable", "name": "none", "description": "d", "bindable": false}]},
            {"id": "log", "name": "log", "description": "Logs", "bindable": true,
             "requires": ["syslog_drain"],
             "plans": [{"id": "logs", "name": "logs", "description": "d"}]}]});
        let catalog = CompiledCatalog::compile(parse(&catalog).unwrap()).unwrap();
        Self { catalog: Arc::new(catalog), asked: AtomicUsize::new(0) }
    }

    /// How many times it was called since the last call of this method.
    pub(super) fn heard(&self) -> usize {
        self.asked.swap(0, Ordering::Relaxed)
    }

    fn hear<T>(&self, call: &Call, request: &T)
    where
        T: Serialize + DeserializeOwned + PartialEq + Clone + std::fmt::Debug,
    {
        self.asked.fetch_add(1, Ordering::Relaxed);
        // As deep within another document as a record has it.
        assert_kept(&vec![vec![vec![request.clone()]]]);
        assert_kept(&vec![vec![vec![call.originating_identity.clone()]]]);
    }
}

fn accepted<T: Default>(call: &Call) -> Reply<T> {
    if call.accepts_incomplete {
        return Reply::Accepted { operation: "op".to_owned(), body: T::default() };
    }
    Reply::Created(T::default())
}

fn succeeded() -> LastOperation {
    LastOperation {
        state: OperationState::Succeeded,
        description: None,
        instance_usable: None,
        update_repeatable: None,
        retry_after: Some(1),
    }
}

#[async_trait]
impl Backend for Stub {
    fn catalog(&self) -> Option<Arc<CompiledCatalog>> {
        Some(Arc::clone(&self.catalog))
    }

    fn requires_async(&self, _: Action, plan: Option<&PlanEntry>) -> bool {
        plan.is_some_and(|entry| entry.plan.id.as_str() == "large")
    }

    async fn provision(
        &self,
        call: &Call,
        _: &InstanceId,
        request: ProvisionRequest,
    ) -> Result<Reply<ProvisionedBody>, Error> {
        self.hear(call, &request);
        Ok(accepted(call))
    }

    async fn update(
        &self,
        call: &Call,
        _: &InstanceId,
        request: UpdateRequest,
    ) -> Result<Reply<ProvisionedBody>, Error> {
        self.hear(call, &request);
        Ok(accepted(call))
    }

    async fn deprovision(
        &self,
        call: &Call,
        _: &InstanceId,
        request: DeprovisionRequest,
    ) -> Result<Reply<()>, Error> {
        self.hear(call, &request);
        Ok(accepted(call))
    }

    async fn instance(&self, call: &Call, instance: &InstanceId) -> Result<InstanceView, Error> {
        self.hear(call, instance);
        Ok(InstanceView {
            service_id: ServiceId::new("db").unwrap(),
            plan_id: PlanId::new("small").unwrap(),
            dashboard_url: None,
            parameters: None,
            maintenance_info: None,
            metadata: None,
        })
    }

    async fn instance_last_operation(
        &self,
        call: &Call,
        _: &InstanceId,
        query: LastOperationQuery,
    ) -> Result<LastOperation, Error> {
        self.hear(call, &query);
        Ok(succeeded())
    }

    async fn bind(
        &self,
        call: &Call,
        _: &InstanceId,
        _: &BindingId,
        request: BindRequest,
    ) -> Result<Reply<BindingBody>, Error> {
        self.hear(call, &request);
        Ok(accepted(call))
    }

    async fn unbind(
        &self,
        call: &Call,
        _: &InstanceId,
        _: &BindingId,
        request: UnbindRequest,
    ) -> Result<Reply<()>, Error> {
        self.hear(call, &request);
        Ok(accepted(call))
    }

    async fn binding(
        &self,
        call: &Call,
        _: &InstanceId,
        binding: &BindingId,
    ) -> Result<BindingView, Error> {
        self.hear(call, binding);
        Ok(BindingView::default())
    }

    async fn binding_last_operation(
        &self,
        call: &Call,
        _: &InstanceId,
        _: &BindingId,
        query: LastOperationQuery,
    ) -> Result<LastOperation, Error> {
        self.hear(call, &query);
        Ok(succeeded())
    }
}
