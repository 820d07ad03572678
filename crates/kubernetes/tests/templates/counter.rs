//! The broker of templates as platforms reach it, over HTTP, and a controller that makes what is ordered.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, to_bytes};
use data_encoding::BASE64;
use engine::in_process::InProcess;
use engine::policy::{OnBound, OnLost};
use engine::ports::Store;
use engine::testing::MemoryStore;
use engine::{Engine, Policy, Ports, SystemClock};
use http::Request;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kubernetes::templates::broker::{Settings, TemplateBroker};
use kubernetes::templates::names::Kind;
use kubernetes::templates::seal_key;
use osb::server::{self, Authentication};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tower::ServiceExt as _;

use super::harness::Town;
use super::rights::of_orders;
use super::support::wait;

/// The longest that anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// What a platform is answered.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Answer {
    /// What it says to people.
    pub(crate) fn words(&self) -> &str {
        self.body["description"].as_str().unwrap_or_default()
    }
}

/// A server.
pub(crate) struct Counter {
    pub(crate) town: Town,
    store: Arc<dyn Store>,
    settings: Settings,
    router: Router,
    keeps: JoinSet<()>,
}

impl Counter {
    /// With a controller, and the templates of a namespace that `editor` may edit and `viewer` view.
    pub(crate) async fn new(test: &str, templates: &[Value]) -> Self {
        Self::of(Town::new(test).await, templates).await
    }

    /// The same in a namespace that there is.
    pub(crate) async fn of(town: Town, templates: &[Value]) -> Self {
        let client = town.cluster.client.clone();
        let offered = vec![town.cluster.namespace.clone()];
        for template in templates {
            town.make(template.clone()).await;
        }
        Self::with(town, &client, offered, templates.len()).await
    }

    /// One that asks the API server by this client, once it offers so many templates of these namespaces.
    pub(crate) async fn with(
        town: Town,
        client: &Client,
        offered: Vec<String>,
        count: usize,
    ) -> Self {
        let settings =
            Settings { namespace: town.settings.namespace.clone(), offered, ..Settings::default() };
        let store: Arc<dyn Store> = TemplateBroker::store(Arc::new(MemoryStore::default()));
        let (router, keeps) = serve(client, &settings, &store).await;
        let counter = Self { town, store, settings, router, keeps };
        counter.town.grant("editor", of_orders()).await;
        counter.until_offered(count).await;
        counter
    }

    /// A second server over the same records, as another replica is.
    pub(crate) async fn replica(&mut self) -> Router {
        let client = self.town.cluster.client.clone();
        let (router, mut keeps) = serve(&client, &self.settings, &self.store).await;
        self.keeps.spawn(async move { while keeps.join_next().await.is_some() {} });
        self.until_of(&router, 1).await;
        router
    }

    /// Is begun anew, without the records that it had.
    pub(crate) async fn forget(&mut self) {
        let offered = self.services().await.len();
        self.keeps.abort_all();
        self.store = TemplateBroker::store(Arc::new(MemoryStore::default()));
        let client = self.town.cluster.client.clone();
        (self.router, self.keeps) = serve(&client, &self.settings, &self.store).await;
        self.until_offered(offered).await;
    }

    async fn until_offered(&self, count: usize) {
        self.until_of(&self.router, count).await;
    }

    async fn until_of(&self, router: &Router, count: usize) {
        wait::until("they are never offered", PATIENCE, async || {
            let answer = send(router, "", "GET", "/catalog", None).await;
            let offered = answer.body["services"].as_array();
            let is_so = offered.is_some_and(|all| all.len() >= count);
            if is_so { Ok(()) } else { Err(answer) }
        })
        .await;
    }

    /// What is offered.
    pub(crate) async fn services(&self) -> Vec<Value> {
        let catalog = self.send("", "GET", "/catalog", None).await.body;
        catalog["services"].as_array().cloned().unwrap_or_default()
    }

    /// The id of the service of this name.
    pub(crate) async fn service(&self, name: &str) -> String {
        let all = self.services().await;
        let service = all.iter().find(|it| it["name"] == name);
        service.unwrap_or_else(|| panic!("no {name}: {all:?}"))["id"].as_str().unwrap().to_owned()
    }

    /// Sends as a user; nobody, if it is empty.
    pub(crate) async fn send(
        &self,
        user: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Answer {
        send(&self.router, user, method, path, body).await
    }

    /// What an order of a service says.
    pub(crate) fn order(&self, service: &str, parameters: Value) -> Value {
        json!({
            "service_id": service, "plan_id": service,
            "organization_guid": "o", "space_guid": "s", "parameters": parameters,
            "context": {"platform": "kubernetes", "namespace": self.town.cluster.namespace},
        })
    }

    /// Orders `sample` as the editor, without parameters.
    pub(crate) async fn ordered(&self, id: &str) -> Answer {
        let order = self.order(&self.service("sample").await, json!({}));
        self.send("editor", "PUT", &put(id), Some(&order)).await
    }

    /// The same, until it is ready.
    pub(crate) async fn made(&self, id: &str) {
        let answer = self.ordered(id).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        let settled = self.settled(id).await;
        assert_eq!(settled.body["state"], "succeeded", "{settled:?}");
    }

    /// How the last operation of an instance ends.
    pub(crate) async fn settled(&self, id: &str) -> Answer {
        let path = format!("/service_instances/{id}/last_operation");
        wait::until("it never ends", PATIENCE, async || {
            let answer = self.send("editor", "GET", &path, None).await;
            if answer.body["state"] == "in progress" { Err(answer) } else { Ok(answer) }
        })
        .await
    }

    /// Binds as a user.
    pub(crate) async fn bind(&self, user: &str, id: &str, binding: &str) -> Answer {
        let service = self.service("sample").await;
        let bind = json!({"service_id": service, "plan_id": service});
        self.send(user, "PUT", &bound(id, binding), Some(&bind)).await
    }

    /// Unbinds as the editor.
    pub(crate) async fn unbind(&self, id: &str, binding: &str) -> Answer {
        let service = self.service("sample").await;
        let path = format!("{}?service_id={service}&plan_id={service}", bound(id, binding));
        self.send("editor", "DELETE", &path, None).await
    }

    /// Deprovisions as a user.
    pub(crate) async fn removed(&self, user: &str, id: &str) -> Answer {
        let service = self.service("sample").await;
        let path = format!("{}&service_id={service}&plan_id={service}", put(id));
        self.send(user, "DELETE", &path, None).await
    }

    /// The BrokerTemplateInstance of an instance.
    pub(crate) async fn claim(&self, id: &str) -> Option<Value> {
        let found = self.claims().get_opt(id).await.unwrap();
        found.map(|found| serde_json::to_value(found).unwrap())
    }

    fn claims(&self) -> Api<DynamicObject> {
        let resource = Kind::BrokerTemplateInstance.resource();
        Api::all_with(self.town.cluster.client.clone(), &resource)
    }

    /// Removes the namespace, and the claims of it, which are of the whole cluster.
    pub(crate) async fn remove(mut self) {
        self.keeps.abort_all();
        for claim in self.claims().list(&Default::default()).await.unwrap() {
            if claim.data["spec"]["templateInstance"]["namespace"] == self.town.cluster.namespace {
                let name = claim.metadata.name.unwrap();
                let _ = self.claims().delete(&name, &Default::default()).await;
            }
        }
        self.town.remove().await;
    }
}

/// The path of an order.
pub(crate) fn put(id: &str) -> String {
    format!("/service_instances/{id}?accepts_incomplete=true")
}

/// The path of a binding.
pub(crate) fn bound(id: &str, binding: &str) -> String {
    format!("/service_instances/{id}/service_bindings/{binding}")
}

/// An id that nobody else has: BrokerTemplateInstances are of the whole cluster.
pub(crate) fn id() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let last = (u64::from(process::id()) << 16 | count) & 0xffff_ffff_ffff;
    format!("{:08x}-{:04x}-4000-8000-{last:012x}", now & 0xffff_ffff, (now >> 32) & 0xffff)
}

async fn serve(
    client: &Client,
    settings: &Settings,
    store: &Arc<dyn Store>,
) -> (Router, JoinSet<()>) {
    let seal = seal_key(client.clone(), &settings.namespace, "templates").await.unwrap();
    let broker = TemplateBroker::new(client, settings.clone(), seal);
    let ports = Ports {
        store: Arc::clone(store),
        runner: Arc::new(InProcess::new(broker.clone())),
        clock: Arc::new(SystemClock),
        observer: Arc::new(()),
    };
    // As it is served.
    let policy = Policy {
        lost: OnLost::Retry,
        attempts: 1_000,
        max_runs: 10_000,
        bound: OnBound::Cascade,
        ..Policy::default()
    };
    let engine = Engine::new(policy, ports);
    let router = server::router(
        broker.backend(engine.clone()),
        server::Settings::new(Authentication::Disabled),
    );
    let mut keeps = JoinSet::new();
    keeps.spawn(broker.keep(engine));
    (router, keeps)
}

/// Sends as a user, who is all that the platform says of them; nobody, if it is empty.
pub(crate) async fn send(
    router: &Router,
    user: &str,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Answer {
    let mut request = Request::builder()
        .method(method)
        .uri(format!("/v2{path}"))
        .header("X-Broker-API-Version", "2.17")
        .header("Content-Type", "application/json");
    if !user.is_empty() {
        let identity = BASE64.encode(json!({"username": user}).to_string().as_bytes());
        let identity = format!("kubernetes {identity}");
        request = request.header("X-Broker-API-Originating-Identity", identity);
    }
    let body = body.map(Value::to_string).unwrap_or_default();
    let request = request.body(Body::from(body)).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    Answer { status, body: serde_json::from_slice(&body).unwrap_or_default() }
}
