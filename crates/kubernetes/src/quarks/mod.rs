//! QuarksJob and its ancestor ExtendedJob: Jobs that run when something happens, and whose output is kept.
//!
//! ```text
//! watches ──▶ Table ── state ──▶ engine::trigger::decide ──▶ one call each ──▶ Table
//!               ▲                                                               │
//!               └──────────────── what the API server answered ─────────────────┘
//! ```
//!
//! Each folder takes only from those before it, but adds methods to the [`Controller`]: what users write and read, and
//! how we name and mark what we make (`api`); what is known of that and of the cluster (`state`); what a run leaves
//! (`output`); and the Job and the pods of a run (`job`). `look` turns all that is known into the state that is decided
//! by, and `step` carries the decision out.
//!
//! A run costs five writes: its record, its Job, its Secret, its outcome, and the removal of the Job. It is
//! recorded in the same write that takes its trigger from the spec, its Job's name derives from its number,
//! and each step can be done again by whoever comes after: no trigger is lost, none makes two runs.

mod api;
mod counts;
mod decided;
mod install;
mod job;
mod look;
mod mend;
mod output;
mod state;
mod step;
mod tell;
pub mod view;
mod writing;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use engine::SystemClock;
use engine::ports::Clock;
use engine::vital;
use kube::Client;
use kube::api::Api;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

pub use self::api::definition::definition;
pub use self::api::dialect::{Dialect, VERSION};
use self::api::key::Key;
pub use self::api::lint::faults;
use self::counts::Counters;
pub use self::counts::Counts;
pub use self::install::install;
use self::output::logs::Logs;
use self::state::agents::Agents;
use self::state::object::content;
use self::state::table::Table;
use self::state::watch::LISTS_AT_ONCE;
use crate::calls::{CallError, call};
use crate::lease::Lead;
use crate::own;
use crate::queue::{Queue, take_turns};
use crate::runner::keys::{KeyError, Keys};
use crate::runner::{Delivery, agents};
use crate::server_time::ServerTime;
use crate::versions::has_native_sidecars;

/// How many QuarksJobs are worked on at a time by default.
pub const WORKERS: usize = 20;

/// How QuarksJobs are run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The namespace of the controller's own Secrets, such as the keys of reports.
    pub namespace: String,
    /// The name that tells this controller's own Secrets from those of others in that namespace.
    pub name: String,
    /// Which namespaces are monitored.
    pub monitored: Monitored,
    /// How the agent comes into pods.
    pub delivery: Delivery,
    /// Requests and limits of the sidecar that reads output, as a container has them; `None`: the default ones.
    pub agent_resources: Option<Value>,
    /// For how long ConfigMaps and Secrets have to be unchanged before their change triggers a run.
    pub settle: Duration,
    /// How many QuarksJobs are worked on at a time.
    pub workers: usize,
    /// How often a new key for reports is made; longer than any run.
    pub key_rotation: Duration,
    /// Whether containers whose command the template names are wrapped, instead of having a sidecar.
    pub wraps: bool,
    /// Whether a QuarksJob whose spec has [`faults`] waits until they are mended, instead of running as far as it can.
    pub strict: bool,
    /// Whether the names of Secrets begin with `namePrefix` as it is, instead of with one dash after it.
    pub verbatim_prefixes: bool,
    /// Whether the versions of a versioned Secret are immutable. Programs built on libraries of Kubernetes before 0.18
    /// do not know the member `immutable`, and drop it when they write a version back, which is then refused.
    pub immutable_versions: bool,
    /// Whether our definition is applied again where somebody else's, which drops what we write, has replaced it.
    pub mends_definitions: bool,
}

/// Which namespaces are monitored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Monitored {
    /// Namespaces with this value of the label `quarks.cloudfoundry.org/monitored`, and any value of
    /// `quarks.cloudfoundry.org/qjob-service-account`, as in the original.
    Labelled(String),
    /// Namespaces with this value of `quarks.cloudfoundry.org/monitored`, whether or not they have the other label:
    /// nothing here needs it.
    Marked(String),
    /// All namespaces.
    All,
}

impl Monitored {
    /// The label selector of the monitored namespaces; `None`: all.
    fn selector(&self) -> Option<String> {
        let label = |name| Dialect::QuarksJob.label(name);
        match self {
            Self::Labelled(id) => {
                Some(format!("{}={id},{}", label("monitored"), label("qjob-service-account")))
            }
            Self::Marked(id) => Some(format!("{}={id}", label("monitored"))),
            Self::All => None,
        }
    }
}

/// Why the controller cannot start.
#[derive(Debug, thiserror::Error)]
pub enum QuarksError {
    /// The keys of reports cannot be read or made.
    #[error("the keys of reports cannot be read or made: {0}")]
    Keys(String),
    /// The key of digests cannot be read or made.
    #[error("the key of digests: {0}")]
    DigestKey(String),
    /// The agent's ConfigMap cannot be made.
    #[error("the ConfigMap that brings the agent into pods cannot be made: {0}")]
    Agent(String),
    /// The API server does not say which version it is, or which kinds it knows.
    #[error("the API server does not answer: {0}")]
    Version(String),
    /// The API server knows neither QuarksJob nor ExtendedJob.
    #[error(
        "the API server knows neither QuarksJob nor ExtendedJob: apply their definitions, \
         `manciple crds`, or say --apply-crd"
    )]
    NotInstalled,
}

impl From<KeyError> for QuarksError {
    fn from(error: KeyError) -> Self {
        Self::Keys(error.to_string())
    }
}

/// The controller: runs QuarksJobs while it leads, and watches them before that.
pub struct Controller {
    client: Client,
    time: Arc<ServerTime>,
    settings: Settings,
    keys: Keys,
    native_sidecars: bool,
    /// The kinds that the API server knows, as far as it has said.
    dialects: tokio::sync::watch::Sender<Vec<Dialect>>,
    table: Mutex<Table>,
    queue: Arc<Queue<Key>>,
    counters: Counters,
    /// Whether this controller leads, and may act.
    leads: AtomicBool,
    /// The Lease by which this controller leads, once [`Self::run`] has been called.
    lead: OnceLock<Arc<Lead>>,
    /// Locks, by namespace: held while the agent's ConfigMap is made there.
    agents: Mutex<HashMap<Arc<str>, Arc<tokio::sync::Mutex<()>>>>,
    /// When our definitions were last applied again. Locked while that is done.
    mended: tokio::sync::Mutex<Option<Instant>>,
    logs: Logs,
    /// Permits: one is held for each list that is being read.
    lists: Semaphore,
}

impl Controller {
    /// Makes a controller: asks the API server for its version and kinds, and opens the keys.
    ///
    /// # Errors
    /// If the API server does not answer, refuses, or knows neither kind.
    pub async fn open(client: Client, settings: Settings) -> Result<Arc<Self>, QuarksError> {
        Self::open_by(Arc::new(SystemClock), client, settings).await
    }

    /// As [`Self::open`], with `clock` as the machine's clock: it may be wrong.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub async fn open_by(
        clock: Arc<dyn Clock>,
        client: Client,
        settings: Settings,
    ) -> Result<Arc<Self>, QuarksError> {
        let (client, time) = ServerTime::by(clock, &client, &settings.namespace);
        let (namespace, name) = (&settings.namespace, &settings.name);
        let keys = Keys::open(client.clone(), Arc::clone(&time), namespace, name).await?;
        let version = call(client.apiserver_version()).await;
        let version = version.map_err(|error| QuarksError::Version(error.to_string()))?;
        let native_sidecars = has_native_sidecars(&version);
        tracing::info!(version = version.git_version, native_sidecars, "the API server");
        let dialects = install::installed(&client).await;
        let dialects = dialects.map_err(|error| QuarksError::Version(error.to_string()))?;
        if dialects.is_empty() {
            return Err(QuarksError::NotInstalled);
        }
        let key = own::digest_key(client.clone(), &settings.namespace, &settings.name).await;
        let key = key.map_err(|error| QuarksError::DigestKey(error.to_string()))?;
        let mut table = Table::new(dialects.len(), &key);
        table.verbatim_prefixes = settings.verbatim_prefixes;
        if let Some(agent) = settings.delivery.config_map() {
            let map = agents::config_map(agent);
            let map = map.map_err(|error| QuarksError::Agent(error.to_string()))?;
            table.agents = Agents::of(agent.name(), content(&map));
        }
        let table = Mutex::new(table);
        let queue = Arc::default();
        Ok(Arc::new(Self {
            client,
            time,
            settings,
            keys,
            native_sidecars,
            dialects: tokio::sync::watch::Sender::new(dialects),
            table,
            logs: Logs::of(&queue),
            lists: Semaphore::new(LISTS_AT_ONCE),
            queue,
            counters: Counters::default(),
            leads: AtomicBool::new(false),
            lead: OnceLock::new(),
            agents: Mutex::default(),
            mended: tokio::sync::Mutex::default(),
        }))
    }

    /// Watches for ever, and acts while `lead` says that this controller leads. To be spawned; the watches end when it
    /// is dropped.
    pub async fn run(self: Arc<Self>, lead: Arc<Lead>) {
        let mut tasks = JoinSet::new();
        match self.settings.monitored.selector() {
            Some(selector) => {
                let follow = Arc::clone(&self).follow_namespaces(selector);
                tasks.spawn(vital::task("the watch of namespaces", follow));
            }
            None => {
                tasks = self.watch(&None);
                self.table().know_scopes();
            }
        }
        tasks.spawn(vital::task("the watches of others' pods", Arc::clone(&self).follow_peers()));
        tasks.spawn(vital::task("the look at kinds", Arc::clone(&self).follow_definitions()));
        tasks.spawn(vital::task("the end of sidecars", Arc::clone(&self).end_stray_sidecars()));
        let keys = Arc::clone(&self);
        let keeps = async move { keys.keys.keep(keys.settings.key_rotation).await };
        tasks.spawn(vital::task("the keys of reports", keeps));
        let mut held = lead.held();
        held.mark_changed();
        self.lead.get_or_init(|| lead);
        let woken = Arc::clone(&self);
        let turns = async move {
            while held.changed().await.is_ok() {
                let leads = *held.borrow_and_update();
                woken.leads.store(leads, Ordering::Relaxed);
                woken.table().others_may_have_acted();
                if leads {
                    let keys = woken.table().keys(None);
                    woken.queue.push(keys);
                }
            }
        };
        tasks.spawn(vital::task("the turn of who leads", turns));
        let (queue, workers) = (Arc::clone(&self.queue), self.settings.workers);
        let leads = || self.leads();
        let step = |key| {
            let controller = Arc::clone(&self);
            async move { controller.step(&key).await }
        };
        take_turns(queue, workers, leads, step).await;
    }

    /// Whether the controller acts or could: it knows which namespaces are monitored, and one of them, if there are
    /// any, was listed.
    pub fn is_ready(&self) -> bool {
        self.table().is_ready()
    }

    /// What has been counted since the start, and how many QuarksJobs and open runs there are now.
    pub fn counts(&self) -> Counts {
        let (known, going) = self.table().count();
        self.counters.with(known, going)
    }

    fn leads(&self) -> bool {
        self.leads.load(Ordering::Relaxed)
    }

    /// For how long nobody else may act; zero if this controller does not lead.
    fn leads_for(&self) -> Duration {
        let left = self.lead.get().map(|lead| lead.left()).unwrap_or_default();
        if self.leads() { left } else { Duration::ZERO }
    }

    /// Makes a call while nobody else may act, or fails: a call that took effect later could undo what another leader
    /// does.
    async fn while_it_leads<T>(
        &self,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let late = || CallError::NoAnswer("another may lead by now".to_owned());
        let left = self.leads_for();
        if left.is_zero() {
            return Err(late());
        }
        tokio::time::timeout(left, call).await.unwrap_or_else(|_| Err(late()))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), namespace)
    }
}
