//! A backend that answers as it is told and remembers what it heard, and requests to a server over it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use osb::catalog::{CompiledCatalog, PlanEntry, parse};
use osb::server::{Authentication, Credentials, Settings, router};
use osb::{
    Action, Backend, BindRequest, BindingBody, BindingId, BindingView, Call, DeprovisionRequest,
    Error, InstanceId, InstanceView, LastOperation, LastOperationQuery, OperationState,
    ProvisionRequest, ProvisionedBody, Reply, UnbindRequest, UpdateRequest,
};
use serde_json::{Value, json};
use tower_service::Service;

/// `Authorization` of the user whom every server here knows: `platform`, `secret`.
pub(crate) const AUTHORIZATION: &str = "Basic cGxhdGZvcm06c2VjcmV0";

pub(crate) const INSTANCE: &str = "/v2/service_instances/i";
pub(crate) const BINDING: &str = "/v2/service_instances/i/service_bindings/b";

/// What a backend was asked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Heard {
    Provision(InstanceId, ProvisionRequest),
    Update(InstanceId, UpdateRequest),
    Deprovision(InstanceId, DeprovisionRequest),
    Instance(InstanceId),
    InstanceLastOperation(InstanceId, LastOperationQuery),
    Bind(InstanceId, BindingId, BindRequest),
    Unbind(InstanceId, BindingId, UnbindRequest),
    Binding(InstanceId, BindingId),
    BindingLastOperation(InstanceId, BindingId, LastOperationQuery),
}

/// How a backend behaves before it answers.
#[derive(Clone, Default)]
pub(crate) enum Mood {
    #[default]
    Prompt,
    Panicking,
    /// Waits until there is a permit.
    Waiting(Arc<tokio::sync::Semaphore>),
}

/// What a backend answers.
#[derive(Clone)]
pub(crate) struct Answers {
    pub(crate) provision: Result<Reply<ProvisionedBody>, Error>,
    pub(crate) update: Result<Reply<ProvisionedBody>, Error>,
    pub(crate) bind: Result<Reply<BindingBody>, Error>,
    pub(crate) remove: Result<Reply<()>, Error>,
    pub(crate) last_operation: Result<LastOperation, Error>,
    pub(crate) instance: Result<InstanceView, Error>,
    pub(crate) binding: Result<BindingView, Error>,
}

pub(crate) struct Double {
    pub(crate) catalog: Mutex<Option<Arc<CompiledCatalog>>>,
    pub(crate) answers: Mutex<Answers>,
    pub(crate) mood: Mutex<Mood>,
    pub(crate) requires_async: AtomicBool,
    pub(crate) asked_async: Mutex<Vec<(Action, Option<String>)>>,
    pub(crate) heard: Mutex<Vec<(Call, Heard)>>,
    /// How many changes have come to their end.
    pub(crate) finished: std::sync::atomic::AtomicUsize,
}

impl Double {
    async fn hear(&self, call: &Call, heard: Heard) {
        self.heard.lock().unwrap().push((call.clone(), heard));
        let mood = self.mood.lock().unwrap().clone();
        match mood {
            Mood::Prompt => {}
            Mood::Panicking => panic!("as told"),
            Mood::Waiting(permits) => permits.acquire().await.unwrap().forget(),
        }
        self.finished.fetch_add(1, Ordering::SeqCst);
    }

    fn answers(&self) -> Answers {
        self.answers.lock().unwrap().clone()
    }
}

#[async_trait]
impl Backend for Double {
    fn catalog(&self) -> Option<Arc<CompiledCatalog>> {
        self.catalog.lock().unwrap().clone()
    }

    fn requires_async(&self, action: Action, plan: Option<&PlanEntry>) -> bool {
        let plan = plan.map(|entry| entry.plan.id.to_string());
        self.asked_async.lock().unwrap().push((action, plan));
        self.requires_async.load(Ordering::SeqCst)
    }

    async fn provision(
        &self,
        call: &Call,
        instance: &InstanceId,
        request: ProvisionRequest,
    ) -> Result<Reply<ProvisionedBody>, Error> {
        self.hear(call, Heard::Provision(instance.clone(), request)).await;
        self.answers().provision
    }

    async fn update(
        &self,
        call: &Call,
        instance: &InstanceId,
        request: UpdateRequest,
    ) -> Result<Reply<ProvisionedBody>, Error> {
        self.hear(call, Heard::Update(instance.clone(), request)).await;
        self.answers().update
    }

    async fn deprovision(
        &self,
        call: &Call,
        instance: &InstanceId,
        request: DeprovisionRequest,
    ) -> Result<Reply<()>, Error> {
        self.hear(call, Heard::Deprovision(instance.clone(), request)).await;
        self.answers().remove
    }

    async fn instance(&self, call: &Call, instance: &InstanceId) -> Result<InstanceView, Error> {
        self.hear(call, Heard::Instance(instance.clone())).await;
        self.answers().instance
    }

    async fn instance_last_operation(
        &self,
        call: &Call,
        instance: &InstanceId,
        query: LastOperationQuery,
    ) -> Result<LastOperation, Error> {
        self.hear(call, Heard::InstanceLastOperation(instance.clone(), query)).await;
        self.answers().last_operation
    }

    async fn bind(
        &self,
        call: &Call,
        instance: &InstanceId,
        binding: &BindingId,
        request: BindRequest,
    ) -> Result<Reply<BindingBody>, Error> {
        self.hear(call, Heard::Bind(instance.clone(), binding.clone(), request)).await;
        self.answers().bind
    }

    async fn unbind(
        &self,
        call: &Call,
        instance: &InstanceId,
        binding: &BindingId,
        request: UnbindRequest,
    ) -> Result<Reply<()>, Error> {
        self.hear(call, Heard::Unbind(instance.clone(), binding.clone(), request)).await;
        self.answers().remove
    }

    async fn binding(
        &self,
        call: &Call,
        instance: &InstanceId,
        binding: &BindingId,
    ) -> Result<BindingView, Error> {
        self.hear(call, Heard::Binding(instance.clone(), binding.clone())).await;
        self.answers().binding
    }

    async fn binding_last_operation(
        &self,
        call: &Call,
        instance: &InstanceId,
        binding: &BindingId,
        query: LastOperationQuery,
    ) -> Result<LastOperation, Error> {
        let heard = Heard::BindingLastOperation(instance.clone(), binding.clone(), query);
        self.hear(call, heard).await;
        self.answers().last_operation
    }
}

/// A catalog with a plan for every rule.
pub(crate) fn catalog() -> Value {
    let schema = json!({"parameters": {
        "$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
        "properties": {"size": {"type": "integer", "minimum": 1}, "password": {"type": "string", "maxLength": 5}}}});
    let strict = json!({"parameters": {
        "$schema": "http://json-schema.org/draft-07/schema#", "required": ["size"]}});
    json!({"services": [
        {"id": "db", "name": "postgres", "description": "A database", "bindable": true,
         "plan_updateable": true, "instances_retrievable": true, "bindings_retrievable": true,
         "allow_context_updates": true, "plans": [
            {"id": "small", "name": "small", "description": "d", "binding_rotatable": true,
             "maintenance_info": {"version": "1.0.0", "description": "first"},
             "schemas": {"service_instance": {"create": schema, "update": schema}, "service_binding": {"create": schema}}},
            {"id": "large", "name": "large", "description": "d"},
            {"id": "unbindable", "name": "unbindable", "description": "d", "bindable": false}]},
        {"id": "log", "name": "log", "description": "Logs", "bindable": true, "requires": ["syslog_drain"],
         "instances_retrievable": false, "bindings_retrievable": false,
         "plans": [
            {"id": "logs", "name": "logs", "description": "d"},
            {"id": "strict", "name": "strict", "description": "d", "binding_rotatable": true,
             "schemas": {"service_instance": {"create": strict, "update": strict},
                         "service_binding": {"create": strict}}}]}]})
}

/// A server over a [`Double`].
pub(crate) struct Rig {
    pub(crate) backend: Arc<Double>,
    pub(crate) router: Router,
}

pub(crate) fn settings() -> Settings {
    let credentials = Credentials::new().user("platform", "secret", "platform");
    Settings::new(Authentication::fixed(credentials))
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(settings())
    }

    pub(crate) fn with(settings: Settings) -> Self {
        let compiled = CompiledCatalog::compile(parse(&catalog()).unwrap()).unwrap();
        let done = || Reply::Done(ProvisionedBody::default());
        let answers = Answers {
            provision: Ok(Reply::Created(ProvisionedBody::default())),
            update: Ok(done()),
            bind: Ok(Reply::Created(BindingBody::default())),
            remove: Ok(Reply::Done(())),
            last_operation: Ok(LastOperation {
                state: OperationState::Succeeded,
                description: None,
                instance_usable: None,
                update_repeatable: None,
                retry_after: None,
            }),
            instance: Err(Error::not_found("no such instance")),
            binding: Err(Error::not_found("no such binding")),
        };
        let backend = Arc::new(Double {
            catalog: Mutex::new(Some(Arc::new(compiled))),
            answers: Mutex::new(answers),
            mood: Mutex::default(),
            requires_async: AtomicBool::new(false),
            asked_async: Mutex::default(),
            heard: Mutex::default(),
            finished: std::sync::atomic::AtomicUsize::new(0),
        });
        let router = router(Arc::clone(&backend) as Arc<dyn Backend>, settings);
        Self { backend, router }
    }

    /// Changes what the backend answers.
    pub(crate) fn answer(&self, change: impl FnOnce(&mut Answers)) -> &Self {
        change(&mut self.backend.answers.lock().unwrap());
        self
    }

    pub(crate) fn mood(&self, mood: Mood) {
        *self.backend.mood.lock().unwrap() = mood;
    }

    /// What the backend heard since it was last asked.
    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.heard_calls().into_iter().map(|(_, heard)| heard).collect()
    }

    pub(crate) fn heard_calls(&self) -> Vec<(Call, Heard)> {
        std::mem::take(&mut *self.backend.heard.lock().unwrap())
    }

    pub(crate) async fn send(&self, ask: Ask) -> Answer {
        Answer::of(self.router.clone().call(ask.0).await.unwrap()).await
    }
}

/// A request.
pub(crate) struct Ask(pub(crate) Request<Body>);

impl Ask {
    /// With credentials and a version.
    pub(crate) fn new(method: Method, path: &str) -> Self {
        Self::bare(method, path)
            .header("authorization", AUTHORIZATION)
            .header("x-broker-api-version", "2.17")
    }

    /// With no header at all.
    pub(crate) fn bare(method: Method, path: &str) -> Self {
        Self(Request::builder().method(method).uri(path).body(Body::empty()).unwrap())
    }

    /// Adds a header, even a second one of its name.
    pub(crate) fn header(mut self, name: &'static str, value: impl AsRef<[u8]>) -> Self {
        let value = http::HeaderValue::from_bytes(value.as_ref()).unwrap();
        self.0.headers_mut().append(name, value);
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.0.headers_mut().remove(name);
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.body(body.to_string()).header("content-type", "application/json")
    }

    pub(crate) fn body(mut self, body: impl Into<Body>) -> Self {
        *self.0.body_mut() = body.into();
        self
    }
}

pub(crate) fn get(path: &str) -> Ask {
    Ask::new(Method::GET, path)
}

pub(crate) fn put(path: &str, body: &Value) -> Ask {
    Ask::new(Method::PUT, path).json(body)
}

pub(crate) fn patch(path: &str, body: &Value) -> Ask {
    Ask::new(Method::PATCH, path).json(body)
}

pub(crate) fn delete(path: &str) -> Ask {
    Ask::new(Method::DELETE, path)
}

/// The body of a provision that is right, with members changed.
pub(crate) fn provision_with(changes: Value) -> Value {
    changed(
        json!({"service_id": "db", "plan_id": "small", "organization_guid": "o", "space_guid": "s"}),
        changes,
    )
}

/// The body of a bind that is right, with members changed.
pub(crate) fn bind_with(changes: Value) -> Value {
    changed(json!({"service_id": "db", "plan_id": "small"}), changes)
}

fn changed(mut body: Value, changes: Value) -> Value {
    let Value::Object(changes) = changes else { panic!("changes are an object") };
    body.as_object_mut().unwrap().extend(changes);
    body
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Vec<u8>,
}

impl Answer {
    pub(crate) async fn of(response: http::Response<Body>) -> Self {
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes().to_vec();
        Self { status: parts.status.as_u16(), headers: parts.headers, bytes }
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        serde_json::from_slice(&self.bytes).expect("the body is JSON")
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Asserts that it is a refusal, whole and well-formed, and gives its description.
    #[track_caller]
    pub(crate) fn refusal(&self, status: u16, word: &str) -> String {
        let body = self.json();
        assert_eq!((self.status, body["error"].as_str()), (status, Some(word)), "{body}");
        assert!(StatusCode::from_u16(status).is_ok());
        let description = body["description"].as_str().expect("a description").to_owned();
        assert!(!description.is_empty());
        description
    }

    /// Asserts that it is a 400 whose description names each of `names`.
    #[track_caller]
    pub(crate) fn names(&self, names: &[&str]) -> String {
        let description = self.refusal(400, "BadRequest");
        for name in names {
            let told = description.split("; ").any(|told| told.starts_with(&format!("{name}: ")));
            assert!(told, "{name} is not named: {description}");
        }
        description
    }
}
