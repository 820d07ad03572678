//! Templates as services: the template service broker, as a broker like any other.
//!
//! ```text
//! OSB ──▶ Front: identity, ids, access ──▶ engine ──▶ TemplateBroker
//!                                                       ├─ BrokerTemplateInstance   ours, cluster-wide, named by the
//!                                                       │                           instance's id
//!                                                       └─ Secret, TemplateInstance  the requester's, owned by it
//! ```
//!
//! What OSB asks of a broker is the engine's: idempotency, conflicts, `last_operation`, tombstones. Here is what
//! becomes of templates, in the words and names of the original, so that what it made is known here.

mod bind;
mod catalog;
mod claim;
mod front;
mod identity;
mod life;
mod offered;
mod unsaved;

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

use engine::Engine;
use engine::ports::Store;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use osb::{Broker, Catalog, Failure, FailureKind, Output, Work};
use ring::hmac;

pub use self::front::Front;
use self::offered::Templates;
pub use self::unsaved::Unsaved;
use super::kinds::Kinds;
use super::names::Kind;
use super::requester::Requester;
use crate::calls::{CallError, call};
use crate::server_time::ServerTime;

/// The name under which the broker is served, as the original's: `/brokers/template.openshift.io/v2`.
pub const NAME: &str = "template.openshift.io";

/// The broker of templates. Cheap to clone.
#[derive(Clone)]
pub struct TemplateBroker {
    client: Client,
    time: Arc<ServerTime>,
    seal: hmac::Key,
    templates: Arc<Templates>,
    kinds: Arc<Kinds>,
    /// Where instances are made; empty: everywhere.
    watched: Arc<[String]>,
    /// The namespaces that there are, once they are known.
    places: Arc<RwLock<Option<HashSet<String>>>>,
}

impl TemplateBroker {
    /// A broker of the templates of these namespaces, whose instances are made in those that are `watched`, or, if
    /// there are none, everywhere. `namespace` is where what is ours is, `seal` the key of [`super::seal_key`].
    pub fn new(
        client: &Client,
        namespace: &str,
        namespaces: Vec<String>,
        watched: &[String],
        seal: hmac::Key,
    ) -> Self {
        let (client, time) = ServerTime::of(client, namespace);
        Self {
            templates: Templates::new(client.clone(), namespaces),
            kinds: Arc::new(Kinds::of(client.clone())),
            client,
            time,
            seal,
            watched: watched.into(),
            places: Arc::default(),
        }
    }

    /// Keeps the catalog of an engine, and what is left of namespaces that are gone, for ever. To be spawned.
    pub async fn keep(self, engine: Engine) {
        tokio::join!(Arc::clone(&self.templates).keep(engine.clone()), self.keep_claims(engine));
    }

    /// What is asked before the engine is.
    pub fn front(&self, engine: Engine) -> Front {
        Front::new(engine, self.clone())
    }

    /// A store whose catalog is not kept: each replica knows the templates.
    pub fn store(store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(Unsaved::new(store))
    }

    /// Whether a namespace is gone. What is known of them may be behind, so one that is not known is asked for.
    async fn is_gone(&self, namespace: &str) -> bool {
        let is_known = || {
            let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
            places.as_ref().is_none_or(|places| places.contains(namespace))
        };
        if is_known() {
            return false;
        }
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let only = ListParams::default().fields(&format!("metadata.name={namespace}"));
        let found = call(namespaces.list_metadata(&only)).await;
        found.is_ok_and(|found| found.items.is_empty())
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.time.now()).unwrap_or_default()
    }

    fn instances(&self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(client.clone(), namespace, &Kind::TemplateInstance.resource())
    }
}

impl Broker for TemplateBroker {
    async fn catalog(&self) -> Result<Catalog, Failure> {
        let offer = self.templates.offer();
        let offer = offer.ok_or_else(|| transient("the templates were not listed yet"))?;
        serde_json::from_value(offer.catalog).map_err(|error| Failure::failed(error.to_string()))
    }

    async fn provision(&self, work: Work) -> Result<Output, Failure> {
        Box::pin(self.order(work)).await
    }

    async fn deprovision(&self, work: Work) -> Result<Output, Failure> {
        Box::pin(self.withdraw(work)).await
    }

    async fn bind(&self, work: Work) -> Result<Output, Failure> {
        Box::pin(self.expose(work)).await
    }

    async fn unbind(&self, work: Work) -> Result<Output, Failure> {
        Box::pin(self.forget(work)).await
    }
}

/// Whose work it is.
fn requester(work: &Work) -> Result<Requester, Failure> {
    identity::requester(work.originating_identity.as_ref())
        .map_err(|error| Failure::new(FailureKind::Invalid, error.to_string()))
}

fn transient(why: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Transient, why)
}

/// What comes of a call that failed: who may not may never, and who is not answered may be later.
fn failed(what: &str, error: CallError) -> Failure {
    let words = format!("{what}: {error}");
    match error {
        CallError::Forbidden(said) if said.contains("cannot impersonate resource") => {
            transient(words)
        }
        CallError::Forbidden(_) | CallError::Invalid(_) | CallError::Exists => {
            Failure::failed(words)
        }
        CallError::NotFound => Failure::failed(words),
        CallError::Conflict
        | CallError::Overloaded(_)
        | CallError::Refused(_)
        | CallError::NoAnswer(_) => transient(words),
    }
}
