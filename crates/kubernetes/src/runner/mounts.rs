//! What pods mount: looked for where a pod does not begin and nobody says why.
//!
//! A kubelet says so in an event, but sends five a second and queues the rest: on a busy node that is minutes
//! late. A pod that begins soon costs no question; of those that do not, all runs share one.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use serde_json::Value;
use tokio::sync::Mutex;

use super::Shared;
use super::delivery::PackedAgent;
use super::seen::{Stage, Warning};
use super::settings::JobSettings;
use super::watch::Seen;
use crate::calls::{CallError, find};

/// How long a pod may take to begin before something is looked for, in seconds.
const PATIENCE: i64 = 5;
/// How long an answer is good for.
const FRESH: Duration = Duration::from_secs(3);

/// What was found to be missing last, if anything was.
#[derive(Default)]
pub(super) struct Mounts(Mutex<Option<(Instant, Option<String>)>>);

impl Shared {
    /// Why a pod does not begin, if that is not known and something it mounts is not there.
    pub(super) async fn look_for_mounts(&self, seen: &Seen, now: i64) -> Option<Warning> {
        let pod = seen.pods.first().filter(|pod| !pod.gone && pod.stage == Stage::Waiting(None))?;
        let known = seen.warning.as_ref().is_some_and(|warning| warning.of(&pod.uid).is_some());
        if known || pod.node.is_none() || now.saturating_sub(pod.created) < PATIENCE {
            return None;
        }
        Some(Warning::of_mount(pod, &self.missing().await?))
    }

    async fn missing(&self) -> Option<String> {
        let mut last = self.mounts.0.lock().await;
        if let Some((when, missing)) = last.as_ref()
            && when.elapsed() < FRESH
        {
            return missing.clone();
        }
        let missing = self.look().await.unwrap_or_else(|error| {
            tracing::debug!(%error, "what pods mount cannot be looked for");
            None
        });
        *last = Some((Instant::now(), missing.clone()));
        missing
    }

    /// In the kubelet's words, so that they do not change when its own arrive.
    async fn look(&self) -> Result<Option<String>, CallError> {
        let (namespace, client) = (&self.settings.namespace, &self.client);
        let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        for name in mounted(&self.settings, Of::ConfigMap) {
            if find(config_maps.get_metadata(name)).await?.is_none() {
                return Ok(Some(format!("configmap {name:?} not found")));
            }
        }
        for name in mounted(&self.settings, Of::Secret) {
            if find(self.secrets().get_metadata(name)).await?.is_none() {
                return Ok(Some(format!("secret {name:?} not found")));
            }
        }
        Ok(None)
    }
}

#[derive(Clone, Copy)]
enum Of {
    ConfigMap,
    Secret,
}

/// What has to be there before a pod can begin.
fn mounted(settings: &JobSettings, of: Of) -> impl Iterator<Item = &str> {
    let (agent, own, source, name) = match of {
        Of::ConfigMap => {
            (settings.delivery.config_map(), &settings.config_map, "configMap", "name")
        }
        Of::Secret => (None, &settings.secret, "secret", "secretName"),
    };
    let sources = settings.pod.volumes.iter().filter_map(move |volume| volume.get(source));
    let needed = sources.filter(|source| source.get("optional") != Some(&Value::Bool(true)));
    let ours = agent.map(PackedAgent::name).into_iter().chain(own.as_deref());
    ours.chain(needed.filter_map(move |source| source.get(name)?.as_str()))
}
