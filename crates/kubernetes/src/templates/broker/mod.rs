//! The template service broker: it offers templates as services, as a broker like any other.
//!
//! ```text
//! OSB ──▶ Front: identity, ids, access ──▶ engine ──▶ TemplateBroker
//!                                                       ├─ BrokerTemplateInstance   ours, cluster-wide, named by the
//!                                                       │                           instance's id
//!                                                       └─ Secret, TemplateInstance  the requester's, owned by it;
//!                                                                                    a Secret for each change
//! ```
//!
//! The engine does what OSB asks of every broker: idempotency, conflicts, `last_operation`, tombstones. This module
//! does what is particular to templates, with OpenShift's words and names, so that instances made by OpenShift's broker
//! are known here.

mod adopt;
mod asked;
mod await_end;
mod bind;
mod catalog;
mod change;
mod claim;
mod front;
mod identity;
mod ids;
mod life;
mod offered;
mod parameters;
mod revision;
mod rights;
mod stock;
mod strict;
#[cfg(test)]
mod tests;
mod unsaved;

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

use engine::Engine;
use engine::ports::Store;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use osb::{Backend, Broker, Catalog, Failure, FailureKind, Output, Work};
use ring::hmac;

use self::front::Front;
pub use self::ids::Ids;
use self::offered::Templates;
pub use self::strict::StatusCodes;
use self::strict::Strict;
use self::unsaved::Unsaved;
use super::kinds::Kinds;
use super::names::Kind;
use super::requester::{MAY_NOT_IMPERSONATE, Requester};
use crate::calls::{CallError, call};
use crate::server_time::ServerTime;

/// The name under which the broker is served, the same as OpenShift's: `/brokers/template.openshift.io/v2`.
pub const NAME: &str = "template.openshift.io";

/// The settings of the template broker.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The namespace in which we keep our own resources.
    pub namespace: String,
    /// The namespaces whose templates are offered; where two templates have the same name, the one in the earlier
    /// namespace bears it.
    pub offered: Vec<String>,
    /// The namespaces in which instances are made; empty: all.
    pub watched: Vec<String>,
    /// How the ids of services are made.
    pub ids: Ids,
    /// Which status codes the broker answers with.
    pub status_codes: StatusCodes,
}

/// The template broker. Cheap to clone.
#[derive(Clone)]
pub struct TemplateBroker {
    client: Client,
    time: Arc<ServerTime>,
    seal: hmac::Key,
    templates: Arc<Templates>,
    kinds: Arc<Kinds>,
    status_codes: StatusCodes,
    /// The namespaces whose templates are offered.
    offered: Arc<[String]>,
    /// The namespaces in which instances are made; empty: all.
    watched: Arc<[String]>,
    /// The namespaces that exist, once they are known.
    places: Arc<RwLock<Option<HashSet<String>>>>,
}

impl TemplateBroker {
    /// A template broker; `seal` is the key of [`super::seal_key`].
    pub fn new(client: &Client, settings: Settings, seal: hmac::Key) -> Self {
        let (client, time) = ServerTime::of(client, &settings.namespace);
        let offered: Arc<[String]> = settings.offered.into();
        Self {
            templates: Templates::new(
                client.clone(),
                Arc::clone(&offered),
                settings.ids,
                settings.status_codes,
            ),
            status_codes: settings.status_codes,
            offered,
            kinds: Arc::new(Kinds::of(client.clone())),
            client,
            time,
            seal,
            watched: settings.watched.into(),
            places: Arc::default(),
        }
    }

    /// Keeps the catalog of an engine up to date, and removes the claims of namespaces that are gone, for ever. To be
    /// spawned.
    pub async fn keep(self, engine: Engine) {
        tokio::join!(Arc::clone(&self.templates).keep(engine.clone()), self.keep_claims(engine));
    }

    /// The backend to serve: the engine, behind the template broker's checks.
    pub fn backend(&self, engine: Engine) -> Arc<dyn Backend> {
        let front = Front::new(engine.clone(), self.clone());
        match self.status_codes {
            StatusCodes::Specification => Arc::new(front),
            StatusCodes::Original => Arc::new(Strict::new(front, engine, Arc::new(self.clone()))),
        }
    }

    /// Wraps a store so that it does not keep the catalog: each replica knows the templates.
    pub fn store(store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(Unsaved::new(store))
    }

    /// Whether a namespace is gone. The known namespaces may be outdated, so one that is not known is read.
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
        Timestamp::from_millisecond(self.time.now_millis()).unwrap_or_default()
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

    async fn update(&self, work: Work) -> Result<Output, Failure> {
        Box::pin(self.change(work)).await
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

/// The requester of a piece of work.
fn requester(work: &Work) -> Result<Requester, Failure> {
    identity::requester(work.originating_identity.as_ref())
        .map_err(|error| Failure::new(FailureKind::Invalid, error.to_string()))
}

fn transient(why: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Transient, why)
}

/// The failure of a call: a refusal is final, and a call without an answer may succeed later.
fn failed(what: &str, error: CallError) -> Failure {
    let words = format!("{what}: {error}");
    match error {
        CallError::Forbidden(said) if said.contains(MAY_NOT_IMPERSONATE) => transient(words),
        CallError::Forbidden(_)
        | CallError::Denied(_)
        | CallError::Invalid(_)
        | CallError::Exists
        | CallError::NotFound => Failure::failed(words),
        CallError::Conflict
        | CallError::Unserved
        | CallError::Overloaded(_)
        | CallError::Failed(_)
        | CallError::Unsent(_)
        | CallError::NoAnswer(_)
        | CallError::Hindered(_)
        | CallError::Stays(_) => transient(words),
    }
}
