//! Follows Secrets by name, each by a watch of its own, so that no others are read.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use engine::vital;
use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Event, watcher};
use tokio::sync::watch::{self, Receiver, Sender};

use crate::calls::{Again, watching};

/// How long the start waits for the API server to return a Secret, or to report that it does not exist.
const FIRST_LOOK: Duration = Duration::from_secs(10);

/// A Secret's data, by key.
pub type SecretData = BTreeMap<String, Vec<u8>>;

/// The followed Secrets, as they are now.
///
/// Needs `list` and `watch` on `secrets` of these names: a Role may name them (`resourceNames`).
pub struct Followed {
    namespace: String,
    known: RwLock<BTreeMap<String, SecretData>>,
    /// A counter that changes with every change of a Secret.
    changed: Sender<u64>,
}

impl Followed {
    /// Begins to follow Secrets, and waits a few seconds for their present state. A missing one may come later.
    pub async fn open(client: Client, namespace: &str, names: &[String]) -> Arc<Self> {
        let followed = Arc::new(Self {
            namespace: namespace.to_owned(),
            known: RwLock::default(),
            changed: Sender::new(0),
        });
        let mut looks = Vec::new();
        for name in names {
            let (seen, look) = watch::channel(false);
            looks.push(look);
            let api = Api::namespaced(client.clone(), namespace);
            let follow = Arc::clone(&followed).follow(api, name.clone(), seen);
            tokio::spawn(vital::task("a watch of a Secret", follow));
        }
        let all = async {
            for look in &mut looks {
                let _ = look.wait_for(|seen| *seen).await;
            }
        };
        if tokio::time::timeout(FIRST_LOOK, all).await.is_err() {
            tracing::warn!(namespace, "not all Secrets of auth.secrets could be read yet");
        }
        followed
    }

    /// The data of a Secret; `None` if it does not exist.
    pub fn get(&self, name: &str) -> Option<SecretData> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// A channel that changes with every change of a Secret.
    pub fn changed(&self) -> Receiver<u64> {
        self.changed.subscribe()
    }

    async fn follow(self: Arc<Self>, api: Api<Secret>, name: String, seen: Sender<bool>) {
        let only = watching().fields(&format!("metadata.name={name}"));
        let events = watcher(api, only).backoff(Again::default());
        pin_mut!(events);
        let mut listed = None;
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed = None,
                Ok(Event::InitApply(secret)) => listed = Some(secret),
                Ok(Event::InitDone) => {
                    self.set(&name, listed.take());
                    seen.send_replace(true);
                }
                Ok(Event::Apply(secret)) => self.set(&name, Some(secret)),
                Ok(Event::Delete(_)) => self.set(&name, None),
                // The known data stays: a failing watch says nothing about the Secret.
                Err(error) => tracing::warn!(
                    namespace = %self.namespace, secret = %name,
                    "the Secret cannot be watched now: {error}"
                ),
            }
        }
    }

    fn set(&self, name: &str, secret: Option<Secret>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        match secret {
            Some(secret) => {
                let data = secret.data.unwrap_or_default();
                let data = data.into_iter().map(|(key, value)| (key, value.0)).collect();
                known.insert(name.to_owned(), data);
            }
            None => {
                tracing::warn!(namespace = %self.namespace, secret = %name, "there is no such Secret");
                known.remove(name);
            }
        }
        drop(known);
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }
}
