//! The offered templates: those of the configured namespaces, kept up to date by watches.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use engine::Engine;
use engine::ports::Offer;
use engine::vital;
use futures_util::{StreamExt, pin_mut};
use kube::Client;
use kube::api::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Event, watcher};
use osb::jobs::contract::Capability;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::catalog;
use super::ids::Ids;
use super::stock::{OfferedTemplate, Stock};
use super::strict::StatusCodes;
use crate::calls::{Again, watching};
use crate::templates::seen::SeenTemplate;

const PAGE: u32 = 50;
/// Changes that come within this time become one new catalog.
const SETTLE: Duration = Duration::from_millis(200);
/// The pause before a catalog is tried again that could not be put in force.
const TROUBLE: Duration = Duration::from_secs(5);

/// All offered templates.
pub(super) struct Templates {
    client: Client,
    namespaces: Arc<[String]>,
    ids: Ids,
    codes: StatusCodes,
    stock: RwLock<Stock>,
    /// The logged reasons why templates are not offered: each is logged once.
    said: Mutex<BTreeSet<String>>,
    /// How many of the namespaces have been listed, and a count of changes.
    changed: watch::Sender<(usize, u64)>,
}

impl Templates {
    pub(super) fn new(
        client: Client,
        namespaces: Arc<[String]>,
        ids: Ids,
        codes: StatusCodes,
    ) -> Arc<Self> {
        Arc::new(Self {
            client,
            ids,
            codes,
            stock: RwLock::new(Stock::new(ids, Arc::clone(&namespaces))),
            namespaces,
            said: Mutex::default(),
            changed: watch::Sender::new((0, 0)),
        })
    }

    /// The template of a service.
    pub(super) fn get(&self, service: &str) -> Option<Arc<OfferedTemplate>> {
        self.stock.read().unwrap_or_else(PoisonError::into_inner).get(service).cloned()
    }

    /// How the ids of services are made.
    pub(super) fn ids(&self) -> Ids {
        self.ids
    }

    /// The present offer; `None` until all namespaces have been listed.
    pub(super) fn offer(&self) -> Option<Offer> {
        if self.changed.borrow().0 < self.namespaces.len() {
            return None;
        }
        let (templates, mut refused) =
            self.stock.read().unwrap_or_else(PoisonError::into_inner).offered();
        let (catalog, faulty) = catalog::catalog(templates.iter().map(|it| &**it), self.codes);
        refused.extend(faulty);
        self.say(refused);
        let catalog = serde_json::to_value(catalog).unwrap_or_default();
        // The progress tells how far an operation is, not that it is stuck.
        let capabilities = vec![Capability::Progress, Capability::RequestFile, Capability::Update];
        Some(Offer { catalog, capabilities, ..Offer::default() })
    }

    /// Logs which templates are newly not offered.
    fn say(&self, refused: Vec<String>) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let refused: BTreeSet<String> = refused.into_iter().collect();
        refused.difference(&said).for_each(|why| tracing::warn!("not offered: {why}"));
        *said = refused;
    }

    /// Puts the offer in force in an engine at each change, for ever. To be spawned.
    pub(super) async fn keep(self: Arc<Self>, engine: Engine) {
        let mut tasks = JoinSet::new();
        for namespace in self.namespaces.iter().cloned() {
            let follow = Arc::clone(&self).follow(namespace);
            tasks.spawn(vital::task("a watch of templates", follow));
        }
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            if let Some(offer) = self.offer()
                && let Err(error) = engine.set_offer(offer).await
            {
                tracing::error!("the catalog from before stays in force: {error}");
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
        let config = watching().page_size(PAGE);
        let events = watcher(api, config).backoff(Again::default());
        pin_mut!(events);
        let (mut listed, mut is_first) = (Vec::new(), true);
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(seen)) => listed.extend(self.template(&namespace, &seen)),
                Ok(Event::InitDone) => {
                    if is_first && listed.is_empty() {
                        tracing::warn!(namespace, "there are no templates in it to be offered");
                    }
                    let listed = std::mem::take(&mut listed);
                    self.write(|stock| stock.replace(&namespace, listed));
                    self.tell(std::mem::take(&mut is_first));
                }
                Ok(Event::Apply(seen)) => {
                    let template = self.template(&namespace, &seen);
                    let uid = seen.metadata.uid.unwrap_or_default();
                    self.write(|stock| match template {
                        Some(template) => stock.learn(template),
                        None => stock.forget(&uid),
                    });
                    self.tell(false);
                }
                Ok(Event::Delete(seen)) => {
                    let uid = seen.metadata.uid.unwrap_or_default();
                    self.write(|stock| stock.forget(&uid));
                    self.tell(false);
                }
                Err(error) => {
                    tracing::warn!(namespace, %error, "its templates cannot be watched now");
                }
            }
        }
    }

    fn template(&self, namespace: &str, seen: &SeenTemplate) -> Option<Arc<OfferedTemplate>> {
        let stock = self.stock.read().unwrap_or_else(PoisonError::into_inner);
        let unchanged = stock.unchanged(namespace, seen);
        drop(stock);
        let read = || Stock::read(self.ids, namespace, seen).map(Arc::new);
        unchanged
            .map_or_else(read, Ok)
            .inspect_err(|why| {
                let name = seen.metadata.name.as_deref().unwrap_or_default();
                tracing::warn!("not offered: template {namespace}/{name}: it {why}");
            })
            .ok()
    }

    fn write(&self, change: impl FnOnce(&mut Stock)) {
        change(&mut self.stock.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn tell(&self, is_first: bool) {
        self.changed.send_modify(|(listed, count)| {
            *listed += usize::from(is_first);
            *count = count.wrapping_add(1);
        });
    }
}
