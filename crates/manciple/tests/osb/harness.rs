//! A broker behind the real server and the real engine, in memory; every exchange with it is held
//! against our OpenAPI document.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use engine::ports::{Offer, Store};
use engine::testing::scripted_runner::{Act, fitting_output};
use engine::testing::{MemoryStore, ScriptedRunner, TestClock};
use engine::{Engine, Policy, Ports};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use osb::Work;
use osb::jobs::contract::Capability;
use osb::server::{Authentication, Credentials, Settings};
use serde_json::{Value, json};
use tower_service::Service;

use crate::document::Document;

/// The id of the service, as all tests use it.
pub(crate) const SERVICE: &str = "6f1b9a52-service";
/// A plan that can be changed, bound and rotated.
pub(crate) const SMALL: &str = "small-id";
/// Another one, without schemas.
pub(crate) const LARGE: &str = "large-id";
/// A plan that cannot be changed, bound or rotated.
pub(crate) const FIXED: &str = "fixed-id";

pub(crate) struct Api {
    pub(crate) router: Router,
    pub(crate) runner: ScriptedRunner,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) engine: Engine,
    document: Document,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn is(&self, status: u16) -> &Self {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        self
    }

    /// Its error word.
    pub(crate) fn word(&self) -> &str {
        self.body["error"].as_str().unwrap_or_default()
    }

    /// That it is refused with this status and word, and with a description that says `said`.
    pub(crate) fn refused(&self, status: u16, word: &str, said: &str) {
        self.is(status);
        assert_eq!(self.word(), word, "{self:?}");
        let description = self.body["description"].as_str().unwrap_or_default();
        assert!(description.contains(said), "{said:?} is not said in {self:?}");
    }

    pub(crate) fn operation(&self) -> String {
        self.is(202);
        self.body["operation"].as_str().expect("a 202 has an operation").to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// The catalog of the tests.
pub(crate) fn catalog() -> Value {
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": { "size": { "type": "integer", "maximum": 10 } },
        "additionalProperties": true,
    });
    let parameters = json!({ "parameters": schema });
    json!({ "services": [{
        "id": SERVICE, "name": "db", "description": "a database", "bindable": true,
        "plan_updateable": true,
        "plans": [
            { "id": SMALL, "name": "small", "description": "a small one",
              "binding_rotatable": true, "maximum_polling_duration": 600,
              "maintenance_info": { "version": "1.2.3" },
              "schemas": {
                "service_instance": { "create": parameters, "update": parameters },
                "service_binding": { "create": parameters },
              } },
            { "id": LARGE, "name": "large", "description": "a large one" },
            { "id": FIXED, "name": "fixed", "description": "as it is", "bindable": false,
              "plan_updateable": false },
        ],
    }]})
}

/// What differs from the usual broker.
pub(crate) struct Setup {
    pub(crate) catalog: Value,
    pub(crate) policy: Policy,
    pub(crate) settings: Settings,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            catalog: catalog(),
            policy: Policy::default(),
            settings: Settings::new(Authentication::Disabled),
        }
    }
}

impl Api {
    pub(crate) async fn new() -> Self {
        Self::with(Setup::default()).await
    }

    pub(crate) async fn with(setup: Setup) -> Self {
        let runner = ScriptedRunner::default();
        let store = Arc::new(MemoryStore::default());
        let ports = Ports {
            store: Arc::clone(&store) as Arc<dyn Store>,
            runner: Arc::new(runner.clone()),
            clock: Arc::new(TestClock::default()),
            observer: Arc::new(()),
        };
        let engine = Engine::new(setup.policy, ports);
        let capabilities =
            vec![Capability::Update, Capability::LastOperation, Capability::StructuredErrors];
        engine
            .set_offer(Offer { catalog: setup.catalog, capabilities, ..Offer::default() })
            .await
            .unwrap();
        let router = osb::server::router(Arc::new(engine.clone()), setup.settings);
        Self { router, runner, store, engine, document: Document::ours() }
    }

    /// A broker that asks who is there.
    pub(crate) async fn guarded() -> Self {
        let credentials = Credentials::new()
            .user("platform", "planted-password", "platform")
            .token("ci", "planted-token", "platform");
        let settings = Settings::new(Authentication::fixed(credentials));
        Self::with(Setup { settings, ..Setup::default() }).await
    }

    /// Sends a request as it is.
    pub(crate) async fn raw(&self, request: Request<Body>) -> Answer {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let response = self.router.clone().call(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let body = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes).expect("every body is JSON")
        };
        let answer = Answer { status: parts.status, headers: parts.headers, body };
        self.document.check_answer(&method, &path, &answer);
        answer
    }

    /// Sends a request with the version header, and a body if there is one.
    pub(crate) async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        self.send_with(method, path, body, &[]).await
    }

    pub(crate) async fn send_with(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("x-broker-api-version")) {
            request = request.header("X-Broker-API-Version", "2.17");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = match body {
            None => Body::empty(),
            Some(body) => {
                request = request.header("Content-Type", "application/json");
                Body::from(body.to_string())
            }
        };
        self.raw(request.body(body).unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, None).await
    }

    /// `PUT`s a body that is good by our document.
    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        self.document.check_request(&Method::PUT, path, &body);
        self.send(Method::PUT, path, Some(body)).await
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> Answer {
        self.document.check_request(&Method::PATCH, path, &body);
        self.send(Method::PATCH, path, Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, None).await
    }

    pub(crate) async fn provision(&self, id: &str, members: Value) -> Answer {
        self.put(&instance(id), order(members)).await
    }

    pub(crate) async fn update(&self, id: &str, members: Value) -> Answer {
        let mut body = json!({ "service_id": SERVICE });
        merge(&mut body, members);
        self.patch(&instance(id), body).await
    }

    pub(crate) async fn deprovision(&self, id: &str) -> Answer {
        self.delete(&format!("{}&{}", instance(id), ids())).await
    }

    pub(crate) async fn bind(&self, id: &str, binding_id: &str, members: Value) -> Answer {
        let mut body = json!({ "service_id": SERVICE, "plan_id": SMALL });
        merge(&mut body, members);
        self.put(&binding(id, binding_id), body).await
    }

    pub(crate) async fn unbind(&self, id: &str, binding_id: &str) -> Answer {
        self.delete(&format!("{}&{}", binding(id, binding_id), ids())).await
    }

    /// Polls to the end; the answer is the last poll's.
    pub(crate) async fn finish(&self, path: &str, operation: &str) -> Answer {
        let path = path.split('?').next().unwrap_or_default();
        for _ in 0..10_000 {
            let answer = self.get(&format!("{path}/last_operation?operation={operation}")).await;
            if answer.body["state"] != "in progress" {
                return answer;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("{operation} does not end");
    }

    /// The same, of one that does what was asked.
    pub(crate) async fn succeeds(&self, path: &str, operation: &str) -> Answer {
        let answer = self.finish(path, operation).await;
        assert_eq!(
            (answer.status, &answer.body["state"]),
            (StatusCode::OK, &json!("succeeded")),
            "{answer:?}"
        );
        answer
    }

    /// An instance that is made.
    pub(crate) async fn provisioned(&self, id: &str) {
        let operation = self.provision(id, json!({})).await.operation();
        let answer = self.finish(&instance(id), &operation).await;
        assert_eq!(answer.body["state"], "succeeded", "{answer:?}");
    }

    /// A binding that is made.
    pub(crate) async fn bound(&self, id: &str, binding_id: &str) {
        let operation = self.bind(id, binding_id, json!({})).await.operation();
        let answer = self.finish(&binding(id, binding_id), &operation).await;
        assert_eq!(answer.body["state"], "succeeded", "{answer:?}");
    }

    /// Every run takes this long.
    pub(crate) fn slow(&self, duration: Duration) {
        self.runner.script(move |work: &Work| Act::End(duration, Ok(fitting_output(work))));
    }
}

/// The path of an instance, asynchronous.
pub(crate) fn instance(id: &str) -> String {
    format!("/v2/service_instances/{id}?accepts_incomplete=true")
}

/// The path of a binding, asynchronous.
pub(crate) fn binding(id: &str, binding: &str) -> String {
    format!("/v2/service_instances/{id}/service_bindings/{binding}?accepts_incomplete=true")
}

/// The path without `accepts_incomplete`.
pub(crate) fn held(path: &str) -> String {
    path.replace("?accepts_incomplete=true", "")
}

/// The query of a delete.
pub(crate) fn ids() -> String {
    format!("service_id={SERVICE}&plan_id={SMALL}")
}

/// The body of a provision.
pub(crate) fn order(members: Value) -> Value {
    let mut body = json!({
        "service_id": SERVICE, "plan_id": SMALL,
        "organization_guid": "org", "space_guid": "space",
    });
    merge(&mut body, members);
    body
}

/// `null` removes a member.
pub(crate) fn merge(body: &mut Value, members: Value) {
    let (Value::Object(body), Value::Object(members)) = (body, members) else { panic!("objects") };
    for (name, value) in members {
        if value.is_null() {
            body.remove(&name);
        } else {
            body.insert(name, value);
        }
    }
}
