//! A world that outlives its engines: a store and a runner, and the requests of a platform.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::sync::Arc;
use std::time::Duration;

use engine::ports::{Offer, Runner, Store};
use engine::record::{Key, Record};
use engine::testing::mortal::{Life, Mortal};
use engine::testing::{MemoryStore, ScriptedRunner, TestClock};
use engine::{Engine, Policy, Ports};
use osb::jobs::contract::Capability;
use osb::{
    Backend, BindRequest, BindingBody, BindingId, Call, DeprovisionRequest, Error, InstanceId,
    LastOperation, LastOperationQuery, OperationState, PlanId, ProvisionRequest, ProvisionedBody,
    Reply, ServiceId, UnbindRequest, UpdateRequest,
};
use serde_json::{Value, json};

#[derive(Default)]
pub(crate) struct World {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) runner: ScriptedRunner,
    pub(crate) policy: Policy,
    clock: Arc<TestClock>,
}

pub(crate) fn catalog() -> Value {
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": { "size": { "type": "integer", "maximum": 10 } },
    });
    json!({ "services": [{
        "id": "service", "name": "db", "description": "a database", "bindable": true,
        "plan_updateable": true, "allow_context_updates": true,
        "plans": [
            { "id": "small", "name": "small", "description": "small", "binding_rotatable": true,
              "schemas": { "service_instance": { "update": { "parameters": schema } } },
              "maintenance_info": { "version": "1.0.0" } },
            { "id": "large", "name": "large", "description": "large" },
            { "id": "fixed", "name": "fixed", "description": "fixed", "plan_updateable": false },
        ],
    }]})
}

pub(crate) fn offer() -> Offer {
    let capabilities = vec![Capability::Update, Capability::LastOperation];
    Offer { catalog: catalog(), capabilities, ..Offer::default() }
}

impl World {
    /// An engine that dies with `life`.
    pub(crate) fn mortal(&self, life: &Arc<Life>) -> Engine {
        let store: Arc<dyn Store> = Arc::clone(&self.store) as _;
        let runner: Arc<dyn Runner> = Arc::new(self.runner.clone());
        let ports = Ports {
            store: Arc::new(Mortal { inner: store, life: Arc::clone(life) }),
            runner: Arc::new(Mortal { inner: runner, life: Arc::clone(life) }),
            clock: Arc::clone(&self.clock) as _,
            observer: Arc::new(()),
        };
        Engine::new(self.policy.clone(), ports)
    }

    /// An engine that does not die, with the catalog in force.
    pub(crate) async fn engine(&self) -> Engine {
        let engine = self.mortal(&Life::of(i64::MAX));
        engine.set_offer(offer()).await.unwrap();
        engine
    }

    pub(crate) async fn record(&self, key: &Key) -> Option<Arc<Record>> {
        self.store.read(key).await.unwrap().map(|stored| stored.record)
    }
}

pub(crate) fn id(text: &str) -> InstanceId {
    InstanceId::new(text).unwrap()
}

pub(crate) fn binding_id(text: &str) -> BindingId {
    BindingId::new(text).unwrap()
}

pub(crate) fn service() -> ServiceId {
    ServiceId::new("service").unwrap()
}

pub(crate) fn plan(text: &str) -> PlanId {
    PlanId::new(text).unwrap()
}

pub(crate) fn asynchronous() -> Call {
    Call { accepts_incomplete: true, ..Call::default() }
}

pub(crate) fn provision(parameters: Value) -> ProvisionRequest {
    serde_json::from_value(json!({
        "service_id": "service", "plan_id": "small",
        "organization_guid": "org", "space_guid": "space",
        "parameters": parameters,
    }))
    .unwrap()
}

pub(crate) fn update(members: Value) -> UpdateRequest {
    let mut value = json!({ "service_id": "service" });
    value.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    serde_json::from_value(value).unwrap()
}

pub(crate) fn bind(parameters: Value) -> BindRequest {
    serde_json::from_value(json!({
        "service_id": "service", "plan_id": "small", "parameters": parameters,
    }))
    .unwrap()
}

pub(crate) fn deprovision() -> DeprovisionRequest {
    DeprovisionRequest { service_id: service(), plan_id: plan("small") }
}

pub(crate) fn unbind() -> UnbindRequest {
    UnbindRequest { service_id: service(), plan_id: plan("small") }
}

pub(crate) fn operation<T: std::fmt::Debug>(reply: Reply<T>) -> String {
    match reply {
        Reply::Accepted { operation, .. } => operation,
        other => panic!("not accepted: {other:?}"),
    }
}

pub(crate) fn query(operation: &str) -> LastOperationQuery {
    LastOperationQuery { operation: Some(operation.into()), ..LastOperationQuery::default() }
}

/// The engine as a platform sees it, with the ids that every test uses.
pub(crate) struct Platform(pub(crate) Engine);

impl Platform {
    pub(crate) async fn provision(
        &self,
        parameters: Value,
    ) -> Result<Reply<ProvisionedBody>, Error> {
        self.0.provision(&asynchronous(), &id("i"), provision(parameters)).await
    }

    pub(crate) async fn update(&self, members: Value) -> Result<Reply<ProvisionedBody>, Error> {
        self.0.update(&asynchronous(), &id("i"), update(members)).await
    }

    pub(crate) async fn deprovision(&self) -> Result<Reply<()>, Error> {
        self.0.deprovision(&asynchronous(), &id("i"), deprovision()).await
    }

    pub(crate) async fn bind(&self, parameters: Value) -> Result<Reply<BindingBody>, Error> {
        self.0.bind(&asynchronous(), &id("i"), &binding_id("b"), bind(parameters)).await
    }

    pub(crate) async fn unbind(&self) -> Result<Reply<()>, Error> {
        self.0.unbind(&asynchronous(), &id("i"), &binding_id("b"), unbind()).await
    }

    pub(crate) async fn poll(&self, operation: &str) -> Result<LastOperation, Error> {
        self.0.instance_last_operation(&Call::default(), &id("i"), query(operation)).await
    }

    pub(crate) async fn poll_binding(&self, operation: &str) -> Result<LastOperation, Error> {
        let call = Call::default();
        self.0.binding_last_operation(&call, &id("i"), &binding_id("b"), query(operation)).await
    }

    /// Polls the instance to the operation's end.
    pub(crate) async fn wait(&self, operation: &str) -> LastOperation {
        for _ in 0..100_000 {
            let answer = self.poll(operation).await.unwrap();
            if answer.state != OperationState::InProgress {
                return answer;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("{operation} does not end");
    }

    pub(crate) async fn wait_binding(&self, operation: &str) -> LastOperation {
        for _ in 0..100_000 {
            let answer = self.poll_binding(operation).await.unwrap();
            if answer.state != OperationState::InProgress {
                return answer;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("{operation} does not end");
    }

    /// Provisions the instance to its end.
    pub(crate) async fn provisioned(&self) {
        let operation = operation(self.provision(json!({})).await.unwrap());
        assert_eq!(self.wait(&operation).await.state, OperationState::Succeeded);
    }

    pub(crate) async fn bound(&self) {
        let operation = operation(self.bind(json!({})).await.unwrap());
        assert_eq!(self.wait_binding(&operation).await.state, OperationState::Succeeded);
    }
}
