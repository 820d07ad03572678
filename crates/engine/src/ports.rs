//! What a machine or a cluster provides: a [`Store`], a [`Runner`], a [`Clock`].
//!
//! Each has one contract suite in [`crate::testing`] that every adapter passes unchanged; an adapter
//! that needs a special case in the engine is a defect of the port.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use osb::jobs::contract::Capability;
use osb::{Failure, InstanceId, Output, PlanId, Sensitive, ServiceId, Work};
use serde_json::Value;

use crate::names::RunName;
use crate::record::{Key, Reason, Record, Timestamp};

/// A record's version: changes with every write, never comes back, even over a removal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Version(pub String);

/// A record as it was read.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The record.
    pub record: Arc<Record>,
    /// For the write that follows from it.
    pub version: Version,
}

/// What records are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Service instances.
    Instances,
    /// Bindings.
    Bindings,
}

/// Which records of a kind a query is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Filter {
    /// All, tombstones included.
    #[default]
    All,
    /// All but tombstones.
    Live,
    /// Those with an operation in progress.
    Busy,
    /// Tombstones last written before this.
    DeletedBefore(Timestamp),
}

impl Filter {
    /// Whether a query with this filter has such a record.
    pub fn has(self, record: &Record) -> bool {
        match self {
            Self::All => true,
            Self::Live => record.is_live(),
            Self::Busy => record.is_busy(),
            Self::DeletedBefore(when) => !record.is_live() && record.updated_at < when,
        }
    }
}

/// A page of records, in the order of their keys.
#[derive(Debug, Clone)]
pub struct Query {
    /// Instances or bindings.
    pub kind: Kind,
    /// Only of this instance. If it has more than `limit`, a page after no key may have any of them.
    pub instance: Option<InstanceId>,
    /// Only these.
    pub filter: Filter,
    /// Only after this key.
    pub after: Option<Key>,
    /// At most so many.
    pub limit: usize,
}

/// Why the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Somebody else wrote the record first: read again and decide again.
    #[error("the record was written by somebody else in the meantime")]
    Conflict,
    /// What is left of a former life of the record is held by somebody else, who has to let go of it first; nothing was
    /// written. Says by whom.
    #[error("what is left of it is held by others: {0}")]
    Held(String),
    /// Too many writes wait; nothing was written. Come again.
    #[error("too many writes are waiting")]
    Overloaded,
    /// The record, or the catalog, is larger than the store keeps; nothing was written.
    #[error("it is too large to be kept: {0}")]
    TooLarge(String),
    /// The store cannot be written or read (disk full, I/O error). Whether a write took effect is
    /// not known.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// A record is there but cannot be read: tampered with, damaged, or of another key.
    #[error("{key} cannot be read: {why}")]
    Unreadable {
        /// Which.
        key: String,
        /// Why.
        why: String,
    },
}

impl StoreError {
    /// The same, where something was recorded before: a server that has too much to do has recorded nothing otherwise, and
    /// platforms do not look after what they were refused so.
    #[must_use]
    pub fn of_what_is_recorded(self) -> Self {
        match self {
            Self::Overloaded => Self::Unavailable("it has too much to do".to_owned()),
            error => error,
        }
    }
}

/// A record that is there but cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Which.
    pub key: Key,
    /// Why; nothing of what it holds.
    pub why: String,
}

impl From<Unreadable> for StoreError {
    fn from(unreadable: Unreadable) -> Self {
        Self::Unreadable { key: unreadable.key.to_string(), why: unreadable.why }
    }
}

/// A record of a page.
pub type Scanned = Result<Stored, Unreadable>;

impl Stored {
    /// Its key, whether it can be read or not.
    pub fn key_of(scanned: &Scanned) -> &Key {
        match scanned {
            Ok(stored) => &stored.record.key,
            Err(unreadable) => &unreadable.key,
        }
    }
}

/// Keeps records.
///
/// A write that returned `Ok` survives `kill -9` and power loss. Reads see every write that returned
/// before they began, and never wait for a writer.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Reads a record; `None`: there is none.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`] if it cannot be read, [`StoreError::Unavailable`] if the store cannot be.
    async fn read(&self, key: &Key) -> Result<Option<Stored>, StoreError>;

    /// What is known of a record without asking anybody: never behind what this process wrote or read,
    /// but maybe behind what others wrote, if the store [lags](Self::lags). `None` also if nothing is
    /// known.
    async fn glance(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        self.read(key).await
    }

    /// The same without what is confidential: it may lack parameters, context, credentials and state. How an operation
    /// stands is in it, so nothing is to be read for who asks after that.
    async fn glance_public(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        self.glance(key).await
    }

    /// A record that is at hand, as it is: nothing is read for it, and nobody is asked. `None`: it is not
    /// at hand, or there is none; a write that expects none finds out which.
    fn recall(&self, _: &Key) -> Option<Stored> {
        None
    }

    /// Whether a record has an operation in progress, for all that is known without reading anything, as of a
    /// [glance](Self::glance); `None`: a glance will tell.
    fn is_busy(&self, _: &Key) -> Option<bool> {
        None
    }

    /// Whether a glance may see less than a read.
    fn lags(&self) -> bool {
        false
    }

    /// Writes a record if it is still of the `expected` version (`None`: if there is none).
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if it is not; nothing is written then. [`StoreError::Held`] if it is, and a record that was
    /// deleted cannot be followed by another yet. [`StoreError::TooLarge`] and [`StoreError::Overloaded`]: nothing is
    /// written. [`StoreError::Unavailable`]: it may be.
    async fn write(
        &self,
        record: Arc<Record>,
        expected: Option<&Version>,
    ) -> Result<Version, StoreError>;

    /// Removes a record if it is still of the `expected` version. Survives a crash as a write does.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if it is not, or there is none, and [`StoreError::Overloaded`]: nothing is removed then.
    /// [`StoreError::Unavailable`]: it may be.
    async fn remove(&self, key: &Key, expected: &Version) -> Result<(), StoreError>;

    /// A page of records, each whole or why it cannot be read. Fewer than the query's limit only where no more follow,
    /// whatever is removed meanwhile; each [passes](Filter::has) as it was read.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the store cannot be read, [`StoreError::Unreadable`] if nobody can say which record
    /// something is of: without it none of the others can be taken for all.
    async fn scan(&self, query: &Query) -> Result<Vec<Scanned>, StoreError>;

    /// Removes a record that cannot be read, which nothing else can remove: nobody knows its version.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if there is no such record or it can be read. [`StoreError::Unavailable`]: it may be removed.
    async fn discard(&self, key: &Key) -> Result<(), StoreError>;

    /// The keys of all records with an operation in progress: what a start has to look after.
    async fn busy(&self) -> Result<Vec<Key>, StoreError>;

    /// Every plan that a live record has, once.
    async fn plans_in_use(&self) -> Result<Vec<(ServiceId, PlanId)>, StoreError>;

    /// The last good catalog, as it was saved.
    async fn catalog(&self) -> Result<Option<Value>, StoreError>;

    /// Saves the last good catalog.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] if it is larger than is kept; the one before stays.
    async fn save_catalog(&self, catalog: &Value) -> Result<(), StoreError>;

    /// Resolves once for each catalog that another process has saved, or for several of them at once, unless it was
    /// read by now; never where there is but one process. To be dropped loses none.
    async fn catalog_changed(&self) {
        std::future::pending::<()>().await;
    }
}

/// A run to be started.
#[derive(Debug, Clone)]
pub struct Run {
    /// Its name: starting it twice is starting it once.
    pub name: RunName,
    /// What to do.
    pub work: Work,
    /// After this it is ended, whether or not anybody watches.
    pub timeout: Duration,
    /// The extensions of the contract that are in force for it.
    pub capabilities: Vec<Capability>,
    /// The binding that is to be removed: its broker is not given it, but may well print it.
    pub removes: Option<Box<osb::BindingBody>>,
}

/// What is known of a run.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "one at a time, and gone at the next step")]
pub enum RunState {
    /// There is no such run.
    Absent,
    /// It goes on.
    Running {
        /// How far it is, if that is known; empty if there is nothing to tell, whatever was told before.
        progress: Option<String>,
    },
    /// It ended; its result is kept until it is released.
    Finished(Result<Output, RunFailure>),
    /// It was started, is not running, and left no result.
    Lost {
        /// What is known of it, redacted.
        why: String,
    },
}

/// How a run failed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RunFailure {
    /// In one word.
    pub reason: Reason,
    /// What to tell people, with the redacted tail of the log.
    pub failure: Failure,
    /// What it left for later operations all the same: what is to be removed may be found by it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Sensitive<Value>>,
}

impl RunFailure {
    /// One that left nothing.
    pub fn new(reason: Reason, failure: Failure) -> Self {
        Self { reason, failure, state: None }
    }
}

/// Why a run was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// For now: no process or memory to be had. Nothing was started; may be tried again.
    #[error("{0}")]
    Transient(String),
    /// It is not known yet how: who starts it has just begun to lead, and still reads what there is. Nothing was
    /// refused, so an operation waits for as long as that lasts, and fails of it never.
    #[error("{0}")]
    Unready(String),
    /// It will not work until somebody mends it: no such executable, not executable.
    #[error("{0}")]
    Permanent(String),
}

/// The runner itself failed.
#[derive(Debug, thiserror::Error)]
#[error("the runner is not available: {0}")]
pub struct RunnerError(pub String);

/// What a broker offers and can do.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Offer {
    /// The catalog, without keys that are meant for us.
    pub catalog: Value,
    /// The extensions it declares.
    pub capabilities: Vec<Capability>,
    /// Those of a single service, where several brokers are offered as one; of any other service the above.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub of_service: BTreeMap<ServiceId, Vec<Capability>>,
}

impl Offer {
    /// What the broker of a service can do.
    pub fn of(&self, service: &ServiceId) -> &[Capability] {
        declared(&self.capabilities, &self.of_service, service)
    }
}

/// What is declared of a service: of it alone, or else of all.
pub(crate) fn declared<'o>(
    of_all: &'o [Capability],
    of_service: &'o BTreeMap<ServiceId, Vec<Capability>>,
    service: &ServiceId,
) -> &'o [Capability] {
    of_service.get(service).map_or(of_all, Vec::as_slice)
}

/// Runs brokers.
#[async_trait]
pub trait Runner: Send + Sync + 'static {
    /// Starts a run; `Ok` too if it exists already, whatever has become of it. Once `Ok`, the run's
    /// existence survives a crash, unless runs are [forgotten](Self::forgets): it is never [`RunState::Absent`] again
    /// until it is released.
    async fn start(&self, run: &Run) -> Result<(), StartError>;

    /// How a run is now. May do what keeps it going or ends it, and may be called at any time.
    async fn observe(&self, name: &RunName) -> Result<RunState, RunnerError>;

    /// As [`Self::observe`], but does not look for a run that this process has not heard of: one that another process
    /// started may be absent.
    async fn glance(&self, name: &RunName) -> Result<RunState, RunnerError> {
        self.observe(name).await
    }

    /// Waits until [`Self::observe`] may say something new. May return without reason; never waits
    /// for longer than a few seconds.
    async fn changed(&self, name: &RunName);

    /// Asks a run to end: politely, then not. It is over when [`Self::observe`] says so. `Ok` if
    /// there is no such run.
    async fn cancel(&self, name: &RunName) -> Result<(), RunnerError>;

    /// Forgets a run and its result; its log is kept for inspection. Ends it if it is alive.
    async fn release(&self, name: &RunName) -> Result<(), RunnerError>;

    /// Every run that was started and not released, with the record that it is for.
    async fn unreleased(&self) -> Result<Vec<(RunName, Key)>, RunnerError>;

    /// Whether a run that [`Self::unreleased`] does not name may have left something all the same, which its release
    /// removes.
    fn hides_leftovers(&self) -> bool {
        false
    }

    /// Whether a run ends with the process that started it, and is unknown to any other: one that is absent may have
    /// done its work then.
    fn forgets(&self) -> bool {
        false
    }

    /// The redacted log of a run, released or not.
    async fn log(&self, name: &RunName) -> Result<Option<String>, RunnerError>;

    /// Asks the broker what it offers.
    async fn offer(&self) -> Result<Offer, RunFailure>;
}

/// Tells the time.
#[async_trait]
pub trait Clock: Send + Sync + 'static {
    /// Now. May jump. Backoffs and expiry depend on it, and the names of runs on its not going back by more than the time
    /// for which a tombstone is kept: after that nobody knows which were given.
    fn now(&self) -> Timestamp;

    /// Waits, at least so long; ends when it is dropped.
    async fn sleep(&self, duration: Duration);
}

/// What is told of operations: metrics and logs.
pub trait Observer: Send + Sync + 'static {
    /// An operation ended; the record holds it.
    fn ended(&self, record: &Record);

    /// An operation does not get on; what is [said](crate::record::Operation::said) of it tells why, in other words than
    /// before. Not what a broker says of its own progress.
    fn stuck(&self, record: &Record) {
        let _ = record;
    }
}

impl Observer for () {
    fn ended(&self, _: &Record) {}
}
