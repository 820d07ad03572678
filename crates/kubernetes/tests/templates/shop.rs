//! The broker of templates before an API server, and a controller that a test plays: what is ordered is taken up when
//! the test says so.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use engine::in_process::InProcess;
use engine::testing::MemoryStore;
use engine::{Engine, Policy, Ports, SystemClock};
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::client::Body;
use kubernetes::templates::broker::{Settings, TemplateBroker};
use kubernetes::templates::names::Kind;
use kubernetes::templates::seal_key;
use osb::{Broker, Failure, Output, Work};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::harness::{Town, condition};
use super::support::wait;
use super::webhook::User;

/// The longest that anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

pub(crate) struct Shop {
    pub(crate) town: Town,
    pub(crate) broker: TemplateBroker,
    /// Of the instance, and of all that is made of it.
    pub(crate) id: String,
    /// The service of the template `sample`.
    service: String,
    writes: Writes,
    _keeps: JoinSet<()>,
}

/// A client of which a test says how many calls that write it answers; the next one is carried out, and never
/// answered: as if the process had been killed then.
#[derive(Clone)]
struct Writes(Arc<AtomicUsize>);

impl Writes {
    fn of(&self, client: &Client, namespace: &str) -> Client {
        let (base, left) = (client.clone(), self.clone());
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (base, left) = (base.clone(), left.clone());
            async move {
                let is_write = request.method() != http::Method::GET;
                let answer = base.send(request).await;
                let was = left.0.load(Ordering::SeqCst);
                if is_write && was == 0 {
                    std::future::pending::<()>().await;
                }
                if is_write && was != usize::MAX {
                    left.0.store(was - 1, Ordering::SeqCst);
                }
                answer
            }
        });
        Client::new(service, namespace)
    }
}

impl Shop {
    /// With a template `sample` of this content, in a namespace that `editor` may edit and `viewer` view.
    pub(crate) async fn new(test: &str, template: Value) -> Self {
        let town = Town::still(test).await;
        Self::of(town, template).await
    }

    pub(crate) async fn of(town: Town, template: Value) -> Self {
        let namespace = town.cluster.namespace.clone();
        town.make(template).await;
        let made = town.object("template.openshift.io/v1", "Template", "sample").await.unwrap();
        let service = made["metadata"]["uid"].as_str().unwrap().to_owned();
        let writes = Writes(Arc::new(AtomicUsize::new(usize::MAX)));
        let client = writes.of(&town.cluster.client, &namespace);
        let seal = seal_key(client.clone(), &namespace, "templates").await.unwrap();
        let settings = Settings {
            namespace: namespace.clone(),
            offered: vec![namespace.clone()],
            ..Settings::default()
        };
        let broker = TemplateBroker::new(&client, settings, seal);
        let ports = Ports {
            store: TemplateBroker::store(Arc::new(MemoryStore::default())),
            runner: Arc::new(InProcess::new(broker.clone())),
            clock: Arc::new(SystemClock),
            observer: Arc::new(()),
        };
        let mut keeps = JoinSet::new();
        keeps.spawn(broker.clone().keep(Engine::new(Policy::default(), ports)));
        let shop = Self { town, broker, id: namespace, service, writes, _keeps: keeps };
        shop.offered(|_| true).await;
        shop.town.bind("other", "edit").await;
        for user in ["editor", "other"] {
            let user = User::of(&shop.town, user, &[]);
            user.may(&shop.town, &["create", "get", "update", "delete"]).await;
        }
        shop
    }

    /// The version of the plan, once it is so.
    pub(crate) async fn offered(&self, holds: impl Fn(&str) -> bool) -> String {
        wait::until("it is never offered", PATIENCE, async || {
            let catalog = self.broker.catalog().await.ok();
            let plan = catalog.as_ref().and_then(|it| it.services.first()?.plans.first());
            let version = plan.and_then(|it| Some(it.maintenance_info.as_ref()?.version.clone()));
            version.filter(|version| holds(version)).ok_or(catalog)
        })
        .await
    }

    pub(crate) fn work(&self, action: &str, operation: &str, more: Value) -> Work {
        let identity = json!({"platform": "kubernetes", "value": {"username": "editor"}});
        let mut work = json!({
            "action": action, "service_id": self.service, "plan_id": self.service,
            "instance_id": self.id, "operation_id": operation, "attempt": 1,
            "context": {"platform": "kubernetes", "namespace": self.town.cluster.namespace},
            "originating_identity": identity,
        });
        work.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(work).unwrap()
    }

    /// Says, as the controller would, that what is ordered now has ended; once it is of a later generation than this.
    pub(crate) async fn end(&self, after: i64, failure: Option<&str>) -> i64 {
        let generation = wait::until("nothing is ordered", PATIENCE, async || {
            let found = self.town.instances().get_opt(&self.id).await.unwrap();
            let generation = found.and_then(|it| it.metadata.generation).unwrap_or_default();
            if generation > after { Ok(generation) } else { Err(generation) }
        })
        .await;
        let conditions = match failure {
            None => json!([{"type": "Ready", "status": "True", "reason": "Created"}]),
            Some(why) => json!([
                {"type": "Ready", "status": "False", "reason": "Failed"},
                {"type": "InstantiateFailure", "status": "True", "reason": "Failed", "message": why},
            ]),
        };
        let status = json!({"conditions": conditions, "observedGeneration": generation});
        self.town.patch(&self.id, "status", json!({"status": status})).await;
        generation
    }

    /// An order that has ended well; its generation.
    pub(crate) async fn ordered(&self, parameters: Value) -> i64 {
        let work = self.work("provision", "p", json!({"parameters": parameters}));
        let (made, generation) = self.ended(self.broker.provision(work), 0, None).await;
        made.unwrap();
        assert_eq!(condition(&self.town.get(&self.id).await, "Ready")["status"], "True");
        generation
    }

    /// A change that ends so, and its generation.
    pub(crate) async fn changed(
        &self,
        operation: &str,
        more: Value,
        after: i64,
        failure: Option<&str>,
    ) -> (Result<Output, Failure>, i64) {
        let work = self.work("update", operation, more);
        self.ended(self.broker.update(work), after, failure).await
    }

    /// What comes of work, where the controller says this of it; and the generation of that.
    pub(crate) async fn ended(
        &self,
        work: impl Future<Output = Result<Output, Failure>>,
        after: i64,
        failure: Option<&str>,
    ) -> (Result<Output, Failure>, i64) {
        let mut work = pin!(timeout(PATIENCE, work));
        let came = tokio::select! {
            came = &mut work => came,
            _ = self.end(after, failure) => work.await,
        };
        let found = self.town.instances().get_opt(&self.id).await.unwrap();
        let generation = found.and_then(|it| it.metadata.generation).unwrap_or_default();
        (came.expect("it never ends"), generation)
    }

    /// Answers so many calls that write, and then no more.
    pub(crate) fn dies_after(&self, writes: usize) {
        self.writes.0.store(writes, Ordering::SeqCst);
    }

    /// Answers all calls.
    pub(crate) fn lives(&self) {
        self.writes.0.store(usize::MAX, Ordering::SeqCst);
    }

    /// The Secrets of parameters.
    pub(crate) async fn secrets(&self) -> Vec<String> {
        let all = self.town.objects("v1", "Secret").list(&Default::default()).await.unwrap();
        let names = all.into_iter().filter_map(|it| it.metadata.name);
        names.filter(|name| name.starts_with(&self.id)).collect()
    }

    /// The Secret that the claim names.
    pub(crate) async fn claimed(&self) -> Value {
        let claims = self.claims();
        claims.get(&self.id).await.unwrap().data["spec"]["secret"]["name"].take()
    }

    /// Changes the template.
    pub(crate) async fn revise(&self, change: Value) {
        let templates = self.town.objects("template.openshift.io/v1", "Template");
        let patch = Patch::Merge(change);
        templates.patch("sample", &PatchParams::default(), &patch).await.unwrap();
    }

    fn claims(&self) -> Api<DynamicObject> {
        let resource = Kind::BrokerTemplateInstance.resource();
        Api::all_with(self.town.cluster.client.clone(), &resource)
    }

    /// Removes the namespace, and the claim, which is of the whole cluster.
    pub(crate) async fn remove(self) {
        let _ = self.claims().delete(&self.id, &Default::default()).await;
        self.town.remove().await;
    }
}
