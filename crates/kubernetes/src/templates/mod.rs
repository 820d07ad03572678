//! TemplateInstances: the controller makes the objects of a template in the name of the instance's requester.
//!
//! ```text
//! TemplateInstance ──owns──▶ Secret        the record: values, requester; written before any object is made
//!   spec.template            ──▶ objects    made by impersonating spec.requester; owned where Kubernetes
//!   spec.secret                             allows it, labelled everywhere
//!   status.objects, conditions
//! ```
//!
//! The modules, in the order in which they take part when the controller processes an instance:
//!
//! | | |
//! |---|---|
//! | what exists | `watch`, `seen`, `resource`, `table` |
//! | what is to be done | `step`, by `engine::instantiation`; `status`, `tell` |
//! | what is to be made | `values`, `objects`, `prepare`, `plan`, `kinds`, `requester`, `review`, `verified` |
//! | making it | `make`, `change`, `applied`, `await_ready`, `pods`, `binding`, `exposed` |
//! | the record | `record`, `record_store`, `packed` |
//! | removing it | `ours`, `remove`, `leave`, `orphaned_records` |
//! | checking it for drift | `drift`, `differences` |
//!
//! Beside them: `broker` orders instances for platforms, `admission` is the webhook, `preview` shows what would change.
//!
//! An instance costs one write for each object and four more: its finalizer, its record, the objects in its status, its
//! Ready condition. A failed instance costs nothing more; a ready one is checked for drift from time to time.

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
mod leave;
mod make;
pub mod names;
mod objects;
mod orphaned_records;
mod ours;
mod packed;
mod plan;
mod pods;
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
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

pub use self::definition::definition;
pub use self::drift::Drift;
use self::kinds::Kinds;
use self::names::Kind;
use self::orphaned_records::Strays;
use self::resource::Key;
use self::seen::SeenInstance;
use self::table::{Scope, Table};
use self::tell::Counters;
pub use self::tell::Counts;
use crate::calls::{CallError, find};
use crate::install::{self, InstallError};
use crate::lease::Lead;
use crate::own::{self, OwnError};
use crate::queue::{Looked, Queue, take_turns};
use crate::server_time::ServerTime;

/// Applies the CustomResourceDefinitions of the template kinds, and waits until the API server serves them. Not for
/// OpenShift, which serves these kinds itself.
///
/// # Errors
/// If the API server refuses a definition, or does not serve its kind within 15 s.
pub async fn install(client: Client) -> Result<(), InstallError> {
    install::install(client, Kind::ALL.map(definition)).await
}

/// Whether the API server serves the template kinds without our CustomResourceDefinitions: OpenShift does.
///
/// # Errors
/// If the API server does not answer.
pub async fn are_served_otherwise(client: &Client) -> Result<bool, TemplatesError> {
    let unanswered = |error: CallError| TemplatesError::Unanswered(error.to_string());
    let instance = Kind::TemplateInstance;
    if !install::knows(client, &instance.resource()).await.map_err(unanswered)? {
        return Ok(false);
    }
    let name = format!("{}.{}", instance.plural(), names::GROUP);
    Ok(!install::is_defined(client, &name).await.map_err(unanswered)?)
}

/// The default name, from which those of the Lease and of the Secret with the sealing key are derived; controllers that
/// share a namespace need others.
pub const NAME: &str = "templates";
/// How many instances are processed at a time, by default.
pub const WORKERS: usize = 16;

/// How often the objects of an instance are checked for drift, by default.
pub const DRIFT_INTERVAL: Duration = Duration::from_secs(3600);

/// For how long an unanswered call may still take effect, by default: an API server works on a call for that long.
pub const LONGEST_CALL: Duration = Duration::from_secs(60);

/// One worker in this many, at least one, may check instances for drift at a time: new instances do not wait for the
/// checks.
const PART_OF_LOOKS: usize = 4;
/// How many watches for the readiness of objects are open at once, each a connection; beyond them objects are polled.
const WATCHES: usize = 500;

/// From this many bytes on, the substituted parameters of an instance count as large.
const MUCH: usize = 512 * 1024;
/// At most this many instances with large parameters are processed at once: sending their objects takes several times
/// that memory.
const LARGE_AT_ONCE: usize = 4;

/// From this many bytes on, once it is parsed, a spec counts as heavy.
const HEAVY: usize = 1 << 20;
/// How many KiB the heavy specs that are processed at once may take together; making their objects takes some four
/// times that.
const HEAVY_AT_ONCE: usize = 32 << 10;

/// Who vouches that `spec.requester` of an instance is the user who ordered it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requesters {
    /// The admission webhook or another holder of the sealing key that verified the requester: [`verified`].
    Verified,
    /// Whoever creates the instance: for clusters in which everybody who may create one may act for anybody, or where
    /// the API server itself verifies the requester.
    Trusted,
}

/// The settings of the TemplateInstance controller.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The namespace of the Secret with the sealing key.
    pub namespace: String,
    /// The name that tells the Secret and the Lease of this controller from others in that namespace.
    pub name: String,
    /// Who vouches for the requester of an instance.
    pub requesters: Requesters,
    /// The namespaces whose instances are processed; empty: all.
    pub watched: Vec<String>,
    /// How many instances are processed at a time.
    pub workers: usize,
    /// What happens to drifted objects, unless their instance says otherwise.
    pub drift: Drift,
    /// How often instances are checked for drift.
    pub drift_interval: Duration,
    /// How OpenShift's kinds are translated to those of any Kubernetes; `None`: they are not.
    pub translation: Option<Translation>,
    /// For how long an unanswered call may still take effect.
    pub longest_call: Duration,
}

/// Why the template controller, or a part of it, cannot start.
#[derive(Debug, thiserror::Error)]
pub enum TemplatesError {
    /// The API server does not say which kinds it serves.
    #[error("the API server does not answer: {0}")]
    Unanswered(String),
    /// The API server does not serve TemplateInstance.
    #[error(
        "the API server knows no TemplateInstance: apply the definitions, `manciple crds --templates`"
    )]
    NotInstalled,
    /// The sealing key cannot be read or made.
    #[error("the key of seals: {0}")]
    Key(OwnError),
}

/// The error is not kept as the source: the message contains it already.
impl From<OwnError> for TemplatesError {
    fn from(error: OwnError) -> Self {
        Self::Key(error)
    }
}

/// The sealing key: an HMAC key, shared by all replicas, with which they recognise what they wrote.
///
/// # Errors
/// If the Secret of the key cannot be read or made.
pub async fn seal_key(client: Client, namespace: &str, name: &str) -> Result<hmac::Key, OwnError> {
    let key = own::digest_key(client, namespace, name).await?;
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &key))
}

/// The TemplateInstance controller: it watches instances always, and processes them while it leads.
pub struct Controller {
    client: Client,
    time: Arc<ServerTime>,
    settings: Settings,
    kinds: Kinds,
    seal: hmac::Key,
    table: Mutex<Table>,
    queue: Arc<Queue<Key>>,
    counters: Counters,
    /// One permit for each watch for the readiness of objects.
    watches: Arc<Semaphore>,
    /// One permit for each drift check.
    looks: Semaphore,
    /// One permit for each instance with large parameters.
    large: Arc<Semaphore>,
    /// One permit for each KiB of heavy specs.
    heavy: Semaphore,
    /// What may be left of instances that went while their objects were made.
    strays: Strays,
    /// Since when this controller leads, if it does.
    led_since: Mutex<Option<Instant>>,
}

impl Controller {
    /// Opens the controller: checks that the API server serves the kinds, and reads or makes the sealing key.
    ///
    /// # Errors
    /// If the API server does not answer, does not serve TemplateInstance, or denies access to the sealing key.
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
            strays: Strays::default(),
            led_since: Mutex::default(),
        }))
    }

    /// Watches instances for ever, and processes them while `lead` says that this controller leads. To be spawned; ends
    /// when it is dropped.
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
            let (mut looks, mut has_led) = (JoinSet::new(), false);
            while held.changed().await.is_ok() {
                let leads = *held.borrow_and_update();
                *woken.led_since() = leads.then(Instant::now);
                looks.shutdown().await;
                match leads {
                    true => {
                        let keys = woken.table().all();
                        woken.queue.push(keys);
                    }
                    false => woken.table().give_up(),
                }
                has_led |= leads;
                // Whoever has led may have made something that the next leader does not know of.
                if has_led {
                    let clear = Arc::clone(&woken).clear_strays(leads);
                    looks.spawn(vital::task("the look for strays", clear));
                }
            }
        };
        tasks.spawn(vital::task("the turn of who leads", turns));
        let (queue, workers) = (Arc::clone(&self.queue), self.settings.workers);
        let leads = || self.leads();
        let step = |key| {
            let controller = Arc::clone(&self);
            async move { controller.step(&key).await.map_or(Looked::FAILED, Looked::from) }
        };
        take_turns(queue, workers, leads, step).await;
    }

    /// Whether the controller is ready to act: it has listed the instances of all its scopes.
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

    /// Whether this controller has led without a break since `since`, which is of [`Controller::led_since`].
    fn still_leads(&self, since: Option<Instant>) -> bool {
        since.is_some() && *self.led_since() == since
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

    /// Reads an instance again, because what the table has of it may be old; whether it still exists.
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
