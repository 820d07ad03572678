//! The registry: the `Broker`s of a namespace, as they are now.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::vital;
use futures_util::{StreamExt, pin_mut};
use kube::Client;
use kube::api::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Event, watcher};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::resource::Resource;
use super::seen::SeenBroker;
use crate::calls::{Again, watching};
use crate::text::PAGE;

/// How long the first list may take.
const FIRST_LIST: Duration = Duration::from_secs(60);

/// `Broker`s by name.
pub type Resources = BTreeMap<String, Arc<Resource>>;

/// The registry of `Broker`s: one watch for all who need them.
pub struct Registry {
    client: Client,
    namespace: String,
    known: watch::Receiver<Option<Resources>>,
    _task: JoinSet<()>,
}

/// The error where `Broker`s cannot be listed.
#[derive(Debug, thiserror::Error)]
#[error(
    "the Brokers of namespace {namespace} were not listed within {} s: is the definition \
     brokers.manciple.dev installed, and may we list them?", FIRST_LIST.as_secs()
)]
pub struct RegistryError {
    namespace: String,
}

impl Registry {
    /// Lists the `Broker`s of a namespace, and watches them from then on.
    ///
    /// # Errors
    /// If the API server does not answer, does not serve the kind, or denies access.
    pub async fn open(client: Client, namespace: &str) -> Result<Arc<Self>, RegistryError> {
        let (tell, mut known) = watch::channel(None);
        let api = Api::namespaced(client.clone(), namespace);
        let mut task = JoinSet::new();
        task.spawn(vital::task("the watch of Brokers", follow(api, tell)));
        let first = known.wait_for(Option::is_some);
        if !tokio::time::timeout(FIRST_LIST, first).await.is_ok_and(|first| first.is_ok()) {
            return Err(RegistryError { namespace: namespace.to_owned() });
        }
        Ok(Arc::new(Self { client, namespace: namespace.to_owned(), known, _task: task }))
    }

    /// The present `Broker`s.
    pub fn all(&self) -> Resources {
        self.known.borrow().clone().unwrap_or_default()
    }

    /// Whether there is a `Broker` of this name.
    pub fn has(&self, name: &str) -> bool {
        self.known.borrow().as_ref().is_some_and(|known| known.contains_key(name))
    }

    /// A channel that changes when a `Broker` changes, comes or goes.
    pub fn changes(&self) -> watch::Receiver<Option<Resources>> {
        self.known.clone()
    }

    pub(super) fn api(&self) -> Api<SeenBroker> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

async fn follow(api: Api<SeenBroker>, tell: watch::Sender<Option<Resources>>) {
    let stream = watcher(api, watching().page_size(PAGE)).backoff(Again::default());
    pin_mut!(stream);
    let mut listed = Resources::new();
    while let Some(event) = stream.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => insert(&mut listed, &object),
            Ok(Event::InitDone) => {
                tell.send_replace(Some(std::mem::take(&mut listed)));
            }
            Ok(Event::Apply(object)) => {
                tell.send_modify(|known| insert(known.get_or_insert_default(), &object));
            }
            Ok(Event::Delete(object)) => tell.send_modify(|known| {
                let name = object.metadata.name.unwrap_or_default();
                known.get_or_insert_default().remove(&name);
            }),
            Err(error) => tracing::warn!(%error, "the watch of Brokers was interrupted"),
        }
    }
}

fn insert(known: &mut Resources, seen: &SeenBroker) {
    if let Some(resource) = Resource::of(seen) {
        known.insert(resource.name.clone(), Arc::new(resource));
    }
}
