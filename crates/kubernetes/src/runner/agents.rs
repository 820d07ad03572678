//! The ConfigMaps with the agent: one for each content, made when the first run needs it, and removed when no Job uses
//! it any more.
//!
//! Replicas of two versions each have their own. A ConfigMap that is removed while it is needed is made again: a pod
//! that waits for it gets it then.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use serde_json::json;
use tokio::sync::Mutex;

use super::Shared;
use super::delivery::{AGENT_KEY, PackedAgent};
use super::places::Right;
use super::seen::Seen;
use super::stage::Stage;
use crate::calls::{CallError, call, created, find, in_background, next_page};
use crate::names;

/// The label of a Job that names the agent its pod mounts.
pub(crate) const AGENT: &str = "manciple.dev/agent";
/// The value of the label [`names::KEEPS`] on the ConfigMap of an agent.
const KEEPS_AGENT: &str = "agent";
/// How old the ConfigMap of another agent has to be before it is removed: its next run may be starting.
const OLD: Duration = Duration::from_secs(60 * 60);
/// How many ConfigMaps are listed at a time.
const PAGE: u32 = 20;
/// How often the ConfigMap is checked while a pod says that it is missing.
const LOOK: Duration = Duration::from_secs(3);

/// What is known of the agents' ConfigMaps.
#[derive(Default)]
pub(super) struct Agents {
    /// The known state by namespace. Its lock is held while the ConfigMap is made: where that takes long, other
    /// namespaces do not wait.
    of: std::sync::Mutex<HashMap<String, Arc<Mutex<Known>>>>,
    /// When other agents are looked for next; `None` before ours exists, or when there are no others.
    tidy: Mutex<Option<Instant>>,
}

/// What is known of our ConfigMap in a namespace.
#[derive(Default)]
struct Known {
    is_there: bool,
    /// When the ConfigMap was last checked, or made.
    looked: Option<Instant>,
}

impl Agents {
    fn of(&self, namespace: &str) -> Arc<Mutex<Known>> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(of.entry(namespace.to_owned()).or_default())
    }
}

impl Shared {
    /// Makes the agent's ConfigMap in a namespace, if the agent comes from one and it is not known to exist.
    pub(super) async fn bring_agent(&self, namespace: &str) -> Result<(), CallError> {
        // Other callers wait for this one.
        let known = self.agents.of(namespace);
        let mut known = known.lock().await;
        if !known.is_there {
            if let Some(agent) = self.delivery.config_map() {
                self.make_agent(namespace, agent).await?;
            }
            *known = Known { is_there: true, looked: Some(Instant::now()) };
            *self.agents.tidy.lock().await = Some(Instant::now());
        }
        Ok(())
    }

    async fn make_agent(&self, namespace: &str, agent: &PackedAgent) -> Result<(), CallError> {
        make(&self.config_maps(namespace), agent).await
    }

    /// Makes the ConfigMap again if this run's pod waits for it in vain. If that fails it is tried again after a pause;
    /// the run itself is reported, and ended, like any whose pod does not begin.
    pub(super) async fn mend_agent(&self, seen: &Seen) -> Result<(), CallError> {
        let Some(agent) = self.delivery.config_map() else { return Ok(()) };
        let (Some(pod), Some(job)) = (seen.pods.first(), &seen.job) else { return Ok(()) };
        let missing = format!("configmap {:?} not found", agent.name());
        let waits = seen.warning.as_ref().and_then(|warning| warning.of(&pod.uid));
        let waits = waits.is_some_and(|waits| waits.why.ends_with(&missing));
        if !waits || pod.gone || pod.stage != Stage::Waiting(None) {
            return Ok(());
        }
        let known = self.agents.of(&job.namespace);
        let mut known = known.lock().await;
        if known.looked.is_some_and(|when| when.elapsed() < LOOK) {
            return Ok(());
        }
        *known = Known { is_there: false, looked: Some(Instant::now()) };
        if find(self.config_maps(&job.namespace).get_metadata(agent.name())).await?.is_none() {
            tracing::warn!(config_map = agent.name(), "the agent's ConfigMap was removed");
            self.make_agent(&job.namespace, agent).await?;
        }
        known.is_there = true;
        Ok(())
    }

    /// Removes agents of other versions: once ours exists, and as long as there are any.
    pub(super) async fn sweep_agents(&self) {
        let due = *self.agents.tidy.lock().await;
        if due.is_none_or(|due| due > Instant::now()) {
            return;
        }
        let next = match self.tidy_agents(OLD).await {
            Ok(0) => None,
            Ok(_) => Some(Instant::now() + OLD),
            Err(error) => {
                tracing::warn!(%error, "agents of other versions cannot be looked for");
                Some(Instant::now() + OLD)
            }
        };
        *self.agents.tidy.lock().await = next;
    }

    /// Removes the ConfigMaps of other agents that are older than `old` and that no Job uses; how many others are left.
    pub(super) async fn tidy_agents(&self, old: Duration) -> Result<usize, CallError> {
        let mut left = 0;
        for namespace in &self.namespaces {
            left += match self.tidy_agents_of(namespace, old).await {
                Err(CallError::Forbidden(why))
                    if self.note_forbidden(namespace, Right::Agents, &why) =>
                {
                    0
                }
                tidied => tidied?,
            };
        }
        Ok(left)
    }

    async fn tidy_agents_of(&self, namespace: &str, old: Duration) -> Result<usize, CallError> {
        let ours = self.delivery.config_map().map(PackedAgent::name);
        let selector = format!("{}={KEEPS_AGENT}", names::KEEPS);
        let mut maps = ListParams::default().labels(&selector).limit(PAGE);
        let mut left = 0;
        loop {
            let page = call(self.config_maps(namespace).list_metadata(&maps)).await?;
            for map in page.items {
                if map.metadata.name.as_deref() != ours {
                    left += usize::from(self.stays(namespace, map.metadata, old).await?);
                }
            }
            let Some(next) = next_page(maps, page.metadata) else { return Ok(left) };
            maps = next;
        }
    }

    /// Removes the ConfigMap of another agent that is `old` and that no Job uses; whether one of another agent stays.
    async fn stays(
        &self,
        namespace: &str,
        map: ObjectMeta,
        old: Duration,
    ) -> Result<bool, CallError> {
        let made = created(&map);
        let Some(name) = map.name else { return Ok(false) };
        let age = u64::try_from(self.now_seconds().saturating_sub(made));
        if age.is_ok_and(|age| age < old.as_secs()) {
            return Ok(true);
        }
        let users = ListParams::default().labels(&format!("{AGENT}={name}")).limit(1);
        if !call(self.jobs(namespace).list_metadata(&users)).await?.items.is_empty() {
            return Ok(true);
        }
        match call(self.config_maps(namespace).delete(&name, &in_background(map.uid, None))).await {
            Ok(_) => tracing::info!(config_map = name, "an agent that no Job uses was removed"),
            Err(CallError::NotFound | CallError::Conflict) => {}
            Err(error) => return Err(error),
        }
        Ok(false)
    }

    fn config_maps(&self, namespace: &str) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), namespace)
    }
}

/// The ConfigMap of an agent, as it is made.
pub(crate) fn config_map(agent: &PackedAgent) -> Result<ConfigMap, CallError> {
    let name = agent.name();
    let labels = json!({names::MANAGED_BY.0: names::MANAGED_BY.1, names::KEEPS: KEEPS_AGENT});
    let map = json!({"metadata": {"name": name, "labels": labels}, "immutable": true});
    let mut map: ConfigMap =
        serde_json::from_value(map).map_err(|error| CallError::Unsent(error.to_string()))?;
    let content = ByteString(agent.content().to_vec());
    map.binary_data = Some([(AGENT_KEY.to_owned(), content)].into());
    Ok(map)
}

/// Makes the ConfigMap of an agent, unless it exists.
pub(crate) async fn make(
    config_maps: &Api<ConfigMap>,
    agent: &PackedAgent,
) -> Result<(), CallError> {
    let (name, map) = (agent.name(), config_map(agent)?);
    match call(config_maps.create(&PostParams::default(), &map)).await {
        Ok(_) => return Ok(()),
        Err(CallError::Exists) => {}
        Err(error) => return Err(error),
    }
    let found = call(config_maps.get(name)).await?;
    let same = |data: &std::collections::BTreeMap<String, ByteString>| {
        data.get(AGENT_KEY).is_some_and(|content| content.0 == agent.content())
    };
    match found.binary_data.as_ref().is_some_and(same) {
        true => Ok(()),
        false => Err(taken(agent)),
    }
}

/// Why the ConfigMap of an agent cannot be made: somebody's own has its name.
pub(crate) fn taken(agent: &PackedAgent) -> CallError {
    CallError::Hindered(format!(
        "the ConfigMap {} holds something else than the agent of that name: delete it",
        agent.name()
    ))
}
