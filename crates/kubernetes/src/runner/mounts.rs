//! Checks what pods mount, where a pod does not begin and nobody says why.
//!
//! A kubelet reports a missing mount in an event, but sends five events a second and queues the rest: on a busy node
//! they are minutes late. A pod that begins soon costs no call; all pods that wait for the same mount share one.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use tokio::sync::Mutex;

use super::Shared;
use super::needs::Need;
use super::seen::{Seen, Warning};
use super::stage::Stage;
use crate::calls::{CallError, find};

/// How many seconds a pod may take to begin before its mounts are checked.
const PATIENCE: i64 = 5;
/// How long an answer is used.
const FRESH: Duration = Duration::from_secs(3);

/// The last answers about mounts, by namespace and mount.
#[derive(Default)]
pub(super) struct Mounts(std::sync::Mutex<HashMap<(String, Need), Last>>);

/// When the API server answered, and whether the mount was missing; `None`: it does not say.
type Answer = Option<(Instant, Option<bool>)>;
type Last = Arc<Mutex<Answer>>;

impl Mounts {
    /// The last answer about a mount: the caller that holds its lock asks, and the others wait for the answer.
    fn of(&self, namespace: &str, need: &Need) -> Last {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_asked = |answer: &Arc<_>| Arc::strong_count(answer) > 1;
        let is_old = |answer: &Mutex<Answer>| answer.try_lock().is_ok_and(|it| !is_fresh(&it));
        all.retain(|_, answer| is_asked(answer) || !is_old(answer));
        Arc::clone(all.entry((namespace.to_owned(), need.clone())).or_default())
    }
}

fn is_fresh(answer: &Answer) -> bool {
    answer.is_some_and(|(when, _)| when.elapsed() < FRESH)
}

impl Shared {
    /// The reason why a pod does not begin, if that is unknown and something that it mounts is missing.
    pub(super) async fn look_for_mounts(&self, seen: &Seen, now: i64) -> Option<Warning> {
        let pod = seen.pods.first().filter(|pod| !pod.gone && pod.stage == Stage::Waiting(None))?;
        let known = seen.warning.as_ref().is_some_and(|warning| warning.of(&pod.uid).is_some());
        if known || pod.node.is_none() || now.saturating_sub(pod.created) < PATIENCE {
            return None;
        }
        for need in &pod.needs {
            if self.is_missing(&pod.namespace, need).await == Some(true) {
                return Some(Warning::of_mount(pod, &need.missing()));
            }
        }
        None
    }

    /// Whether a warning says that something is missing which is there by now. A kubelet does not take it back, and what
    /// the pod waits for next, a large image perhaps, may take long.
    pub(super) async fn is_overcome(&self, seen: &Seen) -> bool {
        let Some(pod) = seen.pods.first().filter(|pod| pod.stage == Stage::Waiting(None)) else {
            return false;
        };
        let warned = seen.warning.as_ref().and_then(|warning| warning.of(&pod.uid));
        let Some(warned) = warned else { return false };
        match pod.needs.iter().find(|need| warned.why.ends_with(&need.missing())) {
            Some(need) => self.is_missing(&pod.namespace, need).await == Some(false),
            None => false,
        }
    }

    async fn is_missing(&self, namespace: &str, need: &Need) -> Option<bool> {
        let last = self.mounts.of(namespace, need);
        let mut last = last.lock().await;
        if let Some((_, missing)) = last.filter(|_| is_fresh(&last)) {
            return missing;
        }
        let missing = self.look(namespace, need).await;
        let missing = missing
            .inspect_err(|error| tracing::debug!(%error, "what pods mount cannot be looked for"))
            .ok();
        *last = Some((Instant::now(), missing));
        missing
    }

    async fn look(&self, namespace: &str, need: &Need) -> Result<bool, CallError> {
        Ok(match need {
            Need::ConfigMap(name) => {
                let config_maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
                find(config_maps.get_metadata(name)).await?.is_none()
            }
            Need::Secret(name) => find(self.secrets(namespace).get_metadata(name)).await?.is_none(),
        })
    }
}
