//! The templates of the namespaces that are offered, kept by a watch.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use engine::Engine;
use engine::ports::Offer;
use futures_util::{StreamExt, pin_mut};
use kube::Client;
use kube::api::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use osb::jobs::contract::Capability;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::catalog::{self, Offered};
use crate::calls::Again;
use crate::templates::seen::SeenTemplate;

const PAGE: u32 = 50;
/// Changes that come within this time are one.
const SETTLE: Duration = Duration::from_millis(200);
/// The pause before a catalog that could not be put in force is tried again.
const TROUBLE: Duration = Duration::from_secs(5);

/// A template, as the API server has it.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) namespace: String,
    pub(super) document: Value,
}

/// All that are offered.
pub(super) struct Templates {
    client: Client,
    namespaces: Vec<String>,
    known: RwLock<BTreeMap<String, Arc<Known>>>,
    /// How many of the namespaces were listed, and a count of what has changed.
    changed: watch::Sender<(usize, u64)>,
}

impl Templates {
    pub(super) fn new(client: Client, namespaces: Vec<String>) -> Arc<Self> {
        let changed = watch::Sender::new((0, 0));
        Arc::new(Self { client, namespaces, known: RwLock::default(), changed })
    }

    /// The one of a service, by its uid.
    pub(super) fn get(&self, uid: &str) -> Option<Arc<Known>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(uid).cloned()
    }

    /// What is offered now; `None` until all namespaces were listed.
    pub(super) fn offer(&self) -> Option<Offer> {
        if self.changed.borrow().0 < self.namespaces.len() {
            return None;
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut sorted: Vec<_> = known.iter().collect();
        let place = |namespace: &str| self.namespaces.iter().position(|it| it == namespace);
        sorted.sort_by_key(|(_, it)| {
            (place(&it.namespace), it.document["metadata"]["name"].to_string())
        });
        let offered = sorted.into_iter().map(|(uid, it)| Offered {
            uid,
            namespace: &it.namespace,
            document: &it.document,
        });
        let (catalog, refused) = catalog::catalog(offered);
        refused.iter().for_each(|why| tracing::warn!("not offered: {why}"));
        let catalog = serde_json::to_value(catalog).unwrap_or_default();
        Some(Offer { catalog, capabilities: vec![Capability::RequestFile], ..Offer::default() })
    }

    /// Puts in force what is offered, at each change, for ever. To be spawned.
    pub(super) async fn keep(self: Arc<Self>, engine: Engine) {
        let mut tasks = JoinSet::new();
        for namespace in self.namespaces.clone() {
            tasks.spawn(Arc::clone(&self).follow(namespace));
        }
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            if let Some(offer) = self.offer()
                && let Err(error) = engine.set_offer(offer).await
            {
                tracing::error!("the catalog before stays in force: {error}");
                tokio::time::sleep(TROUBLE).await;
                continue;
            }
            if changed.changed().await.is_err() {
                return;
            }
            tokio::time::sleep(SETTLE).await;
        }
    }

    async fn follow(self: Arc<Self>, namespace: String) {
        let api: Api<SeenTemplate> = Api::namespaced(self.client.clone(), &namespace);
        let config = Config { page_size: Some(PAGE), ..Config::default() };
        let events = watcher(api, config).backoff(Again::default());
        pin_mut!(events);
        let (mut listed, mut is_first) = (BTreeMap::new(), true);
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(object)) => listed.extend(known(&namespace, &object)),
                Ok(Event::InitDone) => {
                    self.replace(&namespace, std::mem::take(&mut listed));
                    self.tell(std::mem::take(&mut is_first));
                }
                Ok(Event::Apply(object)) => {
                    self.write(|all| all.extend(known(&namespace, &object)));
                    self.tell(false);
                }
                Ok(Event::Delete(object)) => {
                    let uid = object.metadata.uid.unwrap_or_default();
                    self.write(|all| drop(all.remove(&uid)));
                    self.tell(false);
                }
                Err(error) => {
                    tracing::warn!(namespace, %error, "its templates cannot be watched now");
                }
            }
        }
    }

    fn replace(&self, namespace: &str, listed: BTreeMap<String, Arc<Known>>) {
        self.write(|all| {
            all.retain(|_, it| it.namespace != namespace);
            all.extend(listed);
        });
    }

    fn write(&self, change: impl FnOnce(&mut BTreeMap<String, Arc<Known>>)) {
        change(&mut self.known.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn tell(&self, is_first: bool) {
        self.changed.send_modify(|(listed, count)| {
            *listed += usize::from(is_first);
            *count = count.wrapping_add(1);
        });
    }
}

fn known(namespace: &str, seen: &SeenTemplate) -> Option<(String, Arc<Known>)> {
    let uid = seen.metadata.uid.clone()?;
    let Some(document) = seen.document() else {
        let name = seen.metadata.name.as_deref().unwrap_or_default();
        tracing::warn!("not offered: template {namespace}/{name}: is nested too deep");
        return None;
    };
    Some((uid, Arc::new(Known { namespace: namespace.to_owned(), document })))
}
