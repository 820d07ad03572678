//! TemplateInstances: a template becomes objects, in the name of whoever ordered it.
//!
//! ```text
//! TemplateInstance ──owns──▶ Secret        what it was begun with: values, requester; before anything is made
//!   spec.template            ──▶ objects    made by impersonating spec.requester; owned where Kubernetes
//!   spec.secret                             allows it, labelled everywhere
//!   status.objects, conditions
//! ```
//!
//! Of each look at an instance, in the order in which they take part:
//!
//! | | |
//! |---|---|
//! | what is there | `watch`, `seen`, `resource`, `table` |
//! | what is to be done | `step`, by `engine::instantiation`; `status`, `tell` |
//! | what is to be made | `values`, `objects`, `prepare`, `plan`, `kinds`, `requester`, `review`, `verified` |
//! | making it | `make`, `change`, `applied`, `await_ready`, `binding`, `exposed` |
//! | what was recorded | `record`, `packed`, `keep` |
//! | removing it | `ours`, `remove`, `strays` |
//! | looking after it | `drift`, `differences` |
//!
//! Beside them: `broker` orders instances for platforms, `admission` is the webhook, `preview` shows what would be made.
//!
//! An instance costs a write for each object and four: that it is held, its values, what was made of it, that it is
//! ready. What has failed costs nothing more; whether what is ready is still what was made is looked at from time to time.

pub mod admission;
mod applied;
mod await_ready;
mod binding;
pub mod broker;
mod change;
mod definition;
mod differences;
mod drift;
mod exposed;
mod kinds;
mod make;
pub mod names;
mod objects;
mod orphaned_records;
mod ours;
mod packed;
mod plan;
mod prepare;
pub mod preview;
pub mod record;
mod record_store;
mod remove;
mod requester;
mod resource;
mod review;
mod seen;
mod status;
mod step;
mod table;
mod tell;
mod trouble;
mod values;
pub mod verified;
mod watch;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::vital;
use kube::Client;
use kube::api::Api;
use ring::hmac;
use template::translate::Translation;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

pub use self::definition::definition;
pub use self::drift::Drift;
use self::kinds::Kinds;
use self::names::Kind;
use self::resource::Key;
use self::seen::SeenInstance;
use self::table::{Scope, Table};
use self::tell::Counters;
pub use self::tell::Counts;
use crate::calls::{CallError, find};
use crate::install::{self, InstallError};
use crate::lease::Lead;
use crate::own::{self, OwnError};
use crate::queue::{Queue, take_turns};
use crate::server_time::ServerTime;

/// Applies the definitions, and waits until they are served. Not for OpenShift, which serves these kinds itself.
///
/// # Errors
/// If the API server does not take one, or does not serve it within 15 s.
pub async fn install(client: Client) -> Result<(), InstallError> {
    install::install(client, Kind::ALL.map(definition)).await
}

/// Whether the API server serves these kinds without our definitions: OpenShift does.
///
/// # Errors
/// If it does not say.
pub async fn are_served_otherwise(client: &Client) -> Result<bool, TemplatesError> {
    let unanswered = |error: CallError| TemplatesError::Unanswered(error.to_string());
    let instance = Kind::TemplateInstance;
    if !install::knows(client, &instance.resource()).await.map_err(unanswered)? {
        return Ok(false);
    }
    let name = format!("{}.{}", instance.plural(), names::GROUP);
    Ok(!install::is_defined(client, &name).await.map_err(unanswered)?)
}

/// What the key of seals and the Lease are named by, unless several share a namespace.
pub const NAME: &str = "templates";
/// How many instances are worked on at a time, unless said otherwise.
pub const WORKERS: usize = 16;

/// How often it is looked whether objects are still what was made, unless said otherwise.
pub const DRIFT_INTERVAL: Duration = Duration::from_secs(3600);

/// For how long a call that was not answered may take effect, unless said otherwise: so long does an API server work on
/// one.
pub const LONGEST_CALL: Duration = Duration::from_secs(60);

/// Of so many workers one at most looks whether something has drifted: what is ordered does not wait for it.
const PART_OF_LOOKS: usize = 4;
/// How many watches of what is waited for there are at once, each a connection; further ones are asked for instead.
const WATCHES: usize = 500;

/// What the parameters of an instance come to is much from here on, in bytes.
const MUCH: usize = 512 * 1024;
/// Of those in which that is much so many are made, or looked at, at a time: several times that is there while objects are
/// sent and answered.
const LARGE_AT_ONCE: usize = 4;

/// A spec is heavy from here on, in bytes that it takes once it is read.
const HEAVY: usize = 1 << 20;
/// What the heavy ones that are worked on at once take together, in KiB. As they are made it is some four times that.
const HEAVY_AT_ONCE: usize = 32 << 10;

/// Whose word it is that a requester is who ordered an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requesters {
    /// That of whoever verified it: [`verified`].
    Verified,
    /// That of whoever made the instance: for clusters where whoever may make one may act for anybody, or where
    /// the API server verifies it itself.
    Trusted,
}

/// How TemplateInstances are made.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where what is ours is kept: the key of seals.
    pub namespace: String,
    /// What has to be told from others of its kind in that namespace.
    pub name: String,
    /// Whose word it is that a requester is who ordered an instance.
    pub requesters: Requesters,
    /// The namespaces whose instances are made; empty: all.
    pub watched: Vec<String>,
    /// How many instances are worked on at a time.
    pub workers: usize,
    /// What becomes of objects that are not what was made, unless their instance says otherwise.
    pub drift: Drift,
    /// How often that is looked at.
    pub drift_interval: Duration,
    /// How what only OpenShift has becomes what any Kubernetes has; `None`: it does not.
    pub translation: Option<Translation>,
    /// For how long a call that was not answered may take effect.
    pub longest_call: Duration,
}

/// Why there is no controller.
#[derive(Debug, thiserror::Error)]
pub enum TemplatesError {
    /// The API server does not say what it knows.
    #[error("the API server does not answer: {0}")]
    Unanswered(String),
    /// It does not know TemplateInstance.
    #[error(
        "the API server knows no TemplateInstance: apply the definitions, `manciple crds --templates`"
    )]
    NotInstalled,
    /// The key of seals cannot be had.
    #[error("the key of seals: {0}")]
    Key(OwnError),
}

/// Not its source: it is in the words already.
impl From<OwnError> for TemplatesError {
    fn from(error: OwnError) -> Self {
        Self::Key(error)
    }
}

/// The key that says that something is ours, for all replicas.
///
/// # Errors
/// If the Secret that it is kept in cannot be read or made.
pub async fn seal_key(client: Client, namespace: &str, name: &str) -> Result<hmac::Key, OwnError> {
    let key = own::digest_key(client, namespace, name).await?;
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &key))
}

/// Makes TemplateInstances while it leads, and knows of them before.
pub struct Controller {
    client: Client,
    time: Arc<ServerTime>,
    settings: Settings,
    kinds: Kinds,
    seal: hmac::Key,
    table: Mutex<Table>,
    queue: Arc<Queue<Key>>,
    counters: Counters,
    /// One for each watch of what is waited for.
    watches: Arc<Semaphore>,
    /// One for each look whether something has drifted.
    looks: Semaphore,
    /// One for each whose parameters come to much.
    large: Arc<Semaphore>,
    /// One for each KiB of those whose spec is heavy.
    heavy: Semaphore,
    /// An instance was gone while its objects were made.
    stray: Notify,
    /// Since when this is the one that acts, if it is.
    led_since: Mutex<Option<Instant>>,
}

impl Controller {
    /// Reads what has to be known before anything is made.
    ///
    /// # Errors
    /// If the API server does not answer, does not know the kinds, or does not let us.
    pub async fn open(client: Client, settings: Settings) -> Result<Arc<Self>, TemplatesError> {
        let (client, time) = ServerTime::of(&client, &settings.namespace);
        let knows = install::knows(&client, &Kind::TemplateInstance.resource()).await;
        if !knows.map_err(|error| TemplatesError::Unanswered(error.to_string()))? {
            return Err(TemplatesError::NotInstalled);
        }
        let seal = seal_key(client.clone(), &settings.namespace, &settings.name).await?;
        Ok(Arc::new(Self {
            kinds: Kinds::of(client.clone()),
            client,
            time,
            looks: Semaphore::new((settings.workers / PART_OF_LOOKS).max(1)),
            settings,
            seal,
            table: Mutex::default(),
            queue: Arc::default(),
            counters: Counters::default(),
            watches: Arc::new(Semaphore::new(WATCHES)),
            large: Arc::new(Semaphore::new(LARGE_AT_ONCE)),
            heavy: Semaphore::new(HEAVY_AT_ONCE),
            stray: Notify::new(),
            led_since: Mutex::default(),
        }))
    }

    /// Watches for ever, and acts while `lead` says that it leads. To be spawned; ends when it is dropped.
    pub async fn run(self: Arc<Self>, lead: Arc<Lead>) {
        let mut tasks = JoinSet::new();
        for scope in self.scopes() {
            let follow = Arc::clone(&self).follow(scope);
            tasks.spawn(vital::task("a watch of TemplateInstances", follow));
        }
        let mut held = lead.held();
        held.mark_changed();
        let woken = Arc::clone(&self);
        let turns = async move {
            let mut looks = JoinSet::new();
            while held.changed().await.is_ok() {
                let leads = *held.borrow_and_update();
                *woken.led_since() = leads.then(Instant::now);
                looks.shutdown().await;
                if leads {
                    let keys = woken.table().all();
                    woken.queue.push(keys);
                    let clear = Arc::clone(&woken).clear_strays();
                    looks.spawn(vital::task("the look for strays", clear));
                } else {
                    woken.table().give_up();
                }
            }
        };
        tasks.spawn(vital::task("the turn of who leads", turns));
        let (queue, workers) = (Arc::clone(&self.queue), self.settings.workers);
        let leads = || self.leads();
        let step = |key| {
            let controller = Arc::clone(&self);
            async move { controller.step(&key).await.map_err(|()| None) }
        };
        take_turns(queue, workers, leads, step).await;
    }

    /// Whether it acts, or can: it knows which instances there are.
    pub fn is_ready(&self) -> bool {
        let table = self.table();
        self.scopes().iter().all(|scope| table.listed.contains(scope))
    }

    fn scopes(&self) -> Vec<Scope> {
        let watched = self.settings.watched.iter().map(|namespace| Some(namespace.as_str().into()));
        let watched: Vec<Scope> = watched.collect();
        if watched.is_empty() { vec![None] } else { watched }
    }

    fn leads(&self) -> bool {
        self.led_since().is_some()
    }

    fn led_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.led_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::from_millisecond(self.time.now_millis()).unwrap_or_default()
    }

    fn instances(&self, namespace: &str) -> Api<SeenInstance> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Reads one again, for what is known of it is old. Whether it is still there.
    async fn refresh(&self, key: &Key) -> Result<bool, CallError> {
        let found = find(self.instances(&key.namespace).get(&key.name)).await?;
        let is_there = found.as_ref().and_then(Key::of).is_some_and(|found| found == *key);
        if let Some(seen) = found {
            self.table().learn(seen);
        }
        if !is_there {
            self.table().remove(key);
        }
        Ok(is_there)
    }
}
