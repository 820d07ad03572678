//! The ports of the engine: a [`Store`], a [`Runner`] and a [`Clock`], which a machine or a cluster provides.
//!
//! Each port has one contract suite in [`crate::testing`] that every adapter passes unchanged; an adapter
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

/// The version of a record: it changes with every write and never comes back, even after a removal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Version(pub String);

/// A record as it was read.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The record.
    pub record: Arc<Record>,
    /// The version that was read, which the write that follows from it expects.
    pub version: Version,
}

/// The two kinds of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Service instances.
    Instances,
    /// Bindings.
    Bindings,
}

/// A filter for the records of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Filter {
    /// All records, tombstones included.
    #[default]
    All,
    /// All records but tombstones.
    Live,
    /// Records with an operation in progress.
    Busy,
    /// Tombstones last written before this.
    DeletedBefore(Timestamp),
}

impl Filter {
    /// Whether a query with this filter returns the record.
    pub fn has(self, record: &Record) -> bool {
        match self {
            Self::All => true,
            Self::Live => record.is_live(),
            Self::Busy => record.is_busy(),
            Self::DeletedBefore(when) => !record.is_live() && record.updated_at < when,
        }
    }
}

/// A query for one page of records, in the order of their keys.
#[derive(Debug, Clone)]
pub struct Query {
    /// Instances or bindings.
    pub kind: Kind,
    /// Only records of this instance. If it has more than `limit`, a page without `after` may hold any of them.
    pub instance: Option<InstanceId>,
    /// Only records that pass this filter.
    pub filter: Filter,
    /// Only records behind this key.
    pub after: Option<Key>,
    /// The most records that the page holds.
    pub limit: usize,
}

/// An error of the store; each variant says what became of a write.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Somebody else wrote the record first, so nothing was written: the engine reads and decides again.
    #[error("the record was written by somebody else in the meantime")]
    Conflict,
    /// A deleted record of the same key is not wholly gone yet, because somebody else, who is named, still holds what
    /// is left of it. Nothing was written; a platform is told to come again.
    #[error("what is left of it is held by others: {0}")]
    Held(String),
    /// Too many writes are waiting; nothing was written. The same call may succeed later.
    #[error("too many writes are waiting")]
    Overloaded,
    /// The record, or the catalog, is larger than the store keeps; nothing was written.
    #[error("it is too large to be kept: {0}")]
    TooLarge(String),
    /// The store cannot be written or read (disk full, I/O error, no answer). Whether a write took effect is
    /// not known: the engine reads the record again before it decides anew.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// A record is there but cannot be read: it was tampered with, is damaged, or was sealed with another key.
    #[error("{key} cannot be read: {why}")]
    Unreadable {
        /// Which.
        key: String,
        /// Why.
        why: String,
    },
}

impl StoreError {
    /// This error as it is reported after an earlier write of the same request took effect: [`Self::Overloaded`], which
    /// promises that nothing was recorded, becomes [`Self::Unavailable`]. Platforms clean up nothing after the former.
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
    /// Why, without anything of the record's content.
    pub why: String,
}

impl From<Unreadable> for StoreError {
    fn from(unreadable: Unreadable) -> Self {
        Self::Unreadable { key: unreadable.key.to_string(), why: unreadable.why }
    }
}

/// One record of a page, or why it cannot be read.
pub type Scanned = Result<Stored, Unreadable>;

impl Stored {
    /// The key of a scanned record, whether the record can be read or not.
    pub fn key_of(scanned: &Scanned) -> &Key {
        match scanned {
            Ok(stored) => &stored.record.key,
            Err(unreadable) => &unreadable.key,
        }
    }
}

/// The port that keeps records and the last good catalog.
///
/// A write that returned `Ok` survives `kill -9` and power loss. Reads see every write that returned
/// before they began, and never wait for a writer.
///
/// An error ends one look of the engine, never an operation, but for [`StoreError::TooLarge`]: an operation in progress
/// is looked at again, 5 s after [`StoreError::Unreadable`], otherwise after 0.5 s, twice as long each time up to 8 s.
/// A request is refused: 422 for [`StoreError::Conflict`] (after 32 rounds) and [`StoreError::Held`], 429 for
/// [`StoreError::Overloaded`], 413 for [`StoreError::TooLarge`], 503 for [`StoreError::Unavailable`], else 500.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Reads a record; `None`: there is none.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`] if the record cannot be read, [`StoreError::Unavailable`] if the store cannot be.
    /// Only `Ok(None)` says that there is no record.
    async fn read(&self, key: &Key) -> Result<Option<Stored>, StoreError>;

    /// Reads a record as this process knows it: never older than what this process wrote or read last, but maybe older
    /// than what others wrote, if the store [lags](Self::lags). `None` also if nothing is known of it.
    ///
    /// # Errors
    /// As [`Self::read`].
    async fn glance(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        self.read(key).await
    }

    /// Does as [`Self::glance`], but the record may lack what is confidential: parameters, context, credentials and
    /// state. It says how the operation stands, so that a poll of `last_operation` needs no further read.
    ///
    /// # Errors
    /// As [`Self::read`].
    async fn glance_public(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        self.glance(key).await
    }

    /// The current record, if the store has it in memory: nothing is read for it. `None`: it is not in memory, or there
    /// is none; a write that expects no record finds out which.
    fn recall(&self, _: &Key) -> Option<Stored> {
        None
    }

    /// Whether a record has an operation in progress, as a [glance](Self::glance) would say, if the store knows that
    /// without reading anything; `None`: a glance has to tell.
    fn is_busy(&self, _: &Key) -> Option<bool> {
        None
    }

    /// Whether a [glance](Self::glance) may return an older record than a [read](Self::read).
    fn lags(&self) -> bool {
        false
    }

    /// Writes a record if it is still of the `expected` version (`None`: if there is none).
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if it is not, [`StoreError::Held`] if it is, but the record was deleted and cannot be
    /// followed by another yet, [`StoreError::TooLarge`] and [`StoreError::Overloaded`]: nothing is written. After
    /// [`StoreError::TooLarge`] the engine writes a smaller record, in which the operation has failed if need be.
    /// [`StoreError::Unavailable`]: it may be written.
    async fn write(
        &self,
        record: Arc<Record>,
        expected: Option<&Version>,
    ) -> Result<Version, StoreError>;

    /// Removes a record if it is still of the `expected` version. Survives a crash as a write does.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if it is not, or there is none, and [`StoreError::Overloaded`]: nothing is removed
    /// then. [`StoreError::Unavailable`]: it may be removed. The next sweep, after 10 minutes, tries again in any case.
    async fn remove(&self, key: &Key, expected: &Version) -> Result<(), StoreError>;

    /// Returns a page of records, each whole, or why it cannot be read. The page is shorter than the query's limit only
    /// if no more records follow, whatever is removed meanwhile; each record [passes](Filter::has) as it was read.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the store cannot be read, [`StoreError::Unreadable`] if something is there of
    /// which nobody can say which record it is: a page without it could not be taken for complete. A single record that
    /// cannot be read is no error, but an item of the page.
    async fn scan(&self, query: &Query) -> Result<Vec<Scanned>, StoreError>;

    /// Removes a record that cannot be read, for an operator: nobody knows its version, so nothing else can remove it.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if there is no such record or it can be read, and [`StoreError::Overloaded`]: nothing
    /// is removed then. [`StoreError::Unavailable`]: it may be removed.
    async fn discard(&self, key: &Key) -> Result<(), StoreError>;

    /// The keys of all records with an operation in progress, which a process takes up when it starts.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the store cannot say which: no operation is taken up then.
    async fn busy(&self) -> Result<Vec<Key>, StoreError>;

    /// Every plan that a live record has, once.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the store cannot say which: a new catalog is not put in force then, and the one
    /// before stays.
    async fn plans_in_use(&self) -> Result<Vec<(ServiceId, PlanId)>, StoreError>;

    /// The last good catalog, as it was saved; `None`: none was saved.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`] if it is damaged: the engine goes on without it, and saves the next answer of the
    /// broker over it. [`StoreError::Unavailable`] if the store cannot be read: a new catalog is not put in force then.
    async fn catalog(&self) -> Result<Option<Value>, StoreError>;

    /// Saves the last good catalog.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] if it is larger than is kept, and [`StoreError::Overloaded`]: the one before stays.
    /// After the former the engine tries without the plans that have left the catalog. [`StoreError::Unavailable`]: it
    /// may be saved. A catalog that was not saved is not put in force; the next refresh tries again.
    async fn save_catalog(&self, catalog: &Value) -> Result<(), StoreError>;

    /// Waits for a catalog that another process has saved and this one has not read. It resolves once for each, or for
    /// several at once, and never where there is only one process. Dropping the future loses no change.
    async fn catalog_changed(&self) {
        std::future::pending::<()>().await;
    }
}

/// A run to be started.
#[derive(Debug, Clone)]
pub struct Run {
    /// The name of the run: two starts of one name start it once.
    pub name: RunName,
    /// The work to do.
    pub work: Work,
    /// How long the run may take; after this the runner ends it, whether or not anybody watches.
    pub timeout: Duration,
    /// The extensions of the jobs contract that are in force for the run.
    pub capabilities: Vec<Capability>,
    /// The binding that the run removes, so that it can be redacted: the broker is not given it, but may well print it.
    pub removes: Option<Box<osb::BindingBody>>,
}

/// The state of a run, as far as it is known.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "one at a time, and gone at the next step")]
pub enum RunState {
    /// There is no such run.
    Absent,
    /// The run is alive.
    Running {
        /// What the broker says of its progress, if that is known; empty: it says nothing any more.
        progress: Option<String>,
    },
    /// The run has ended; its result is kept until it is released.
    Finished(Result<Output, RunFailure>),
    /// The run was started, is not alive, and left no result.
    Lost {
        /// What is known of its end, redacted.
        why: String,
    },
}

/// How a run failed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RunFailure {
    /// The reason, in one word.
    pub reason: Reason,
    /// The failure to tell people, with the redacted tail of the log.
    pub failure: Failure,
    /// The state that the run left for later operations although it failed: it may be all that says what is to be
    /// removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Sensitive<Value>>,
}

impl RunFailure {
    /// A failure that left no state.
    pub fn new(reason: Reason, failure: Failure) -> Self {
        Self { reason, failure, state: None }
    }

    /// The failure of a run that was not started, for a reason that stays.
    pub fn not_started(why: impl Into<String>) -> Self {
        Self::new(Reason::NotStarted, Failure::failed(why))
    }
}

/// Why a run was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The start failed for now: no process or memory to be had, or no answer. The engine observes the run, which may
    /// have been started if nobody heard the answer, and tries again after a pause; the operation fails after 8 in a
    /// row.
    #[error("{0}")]
    Transient(String),
    /// The runner is not ready to start runs: its process has just begun to lead and still reads what there is, or may
    /// not lead any more. The engine tries again for as long as that lasts; no operation fails because of it.
    #[error("{0}")]
    Unready(String),
    /// The start cannot succeed until somebody mends something: no such executable, not executable. Nothing was
    /// started, and the operation fails at once.
    #[error("{0}")]
    Permanent(String),
}

/// An error of the runner itself: it says nothing about the run.
#[derive(Debug, thiserror::Error)]
#[error("the runner is not available: {0}")]
pub struct RunnerError(pub String);

/// A broker's offer: its catalog, and the extensions of the jobs contract that it declares.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Offer {
    /// The catalog, without the keys in it that are meant for this program rather than for platforms.
    pub catalog: Value,
    /// The extensions that the broker declares.
    pub capabilities: Vec<Capability>,
    /// The extensions of single services, where several brokers are offered as one; any other service has
    /// `capabilities`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub of_service: BTreeMap<ServiceId, Vec<Capability>>,
}

impl Offer {
    /// The extensions that the broker of a service declares.
    pub fn of(&self, service: &ServiceId) -> &[Capability] {
        declared(&self.capabilities, &self.of_service, service)
    }
}

/// The extensions declared for a service: those of the service alone, or else those of all.
pub(crate) fn declared<'o>(
    of_all: &'o [Capability],
    of_service: &'o BTreeMap<ServiceId, Vec<Capability>>,
    service: &ServiceId,
) -> &'o [Capability] {
    of_service.get(service).map_or(of_all, Vec::as_slice)
}

/// The port that runs brokers: each run is one call of a broker for one attempt or one question.
///
/// An error of a method says nothing about the run, and no operation fails of a [`RunnerError`]: its record is looked
/// at again after 0.5 s, twice as long each time up to 8 s.
#[async_trait]
pub trait Runner: Send + Sync + 'static {
    /// Starts a run; `Ok` too if it exists already, whatever has become of it. Once `Ok`, the run's existence survives
    /// a crash, unless runs are [forgotten](Self::forgets): it is never [`RunState::Absent`] again until it is
    /// released.
    ///
    /// # Errors
    /// [`StartError::Permanent`]: nothing was started, and the operation fails at once. [`StartError::Transient`] and
    /// [`StartError::Unready`]: it is observed and started again after a pause; after 8 of the former in a row it
    /// fails. A question after external work fails no operation: it is put off.
    async fn start(&self, run: &Run) -> Result<(), StartError>;

    /// The state of a run now. The call may do what keeps the run going or ends it, and may be made at any time.
    ///
    /// # Errors
    /// If the state cannot be told: only [`RunState::Absent`] and [`RunState::Lost`] say that a run is gone.
    async fn observe(&self, name: &RunName) -> Result<RunState, RunnerError>;

    /// Does as [`Self::observe`], but does not look for a run that this process has not heard of: a run that another
    /// process started may be [`RunState::Absent`].
    ///
    /// # Errors
    /// As [`Self::observe`].
    async fn glance(&self, name: &RunName) -> Result<RunState, RunnerError> {
        self.observe(name).await
    }

    /// Waits until [`Self::observe`] may say something new. It may return without reason, and never waits
    /// for longer than a few seconds.
    async fn changed(&self, name: &RunName);

    /// Asks a run to end, then ends it by force if it does not. It is over when [`Self::observe`] says so. `Ok` if
    /// there is no such run.
    ///
    /// # Errors
    /// If the run could not be told: it may have been, and the engine asks again at its next look.
    async fn cancel(&self, name: &RunName) -> Result<(), RunnerError>;

    /// Forgets a run and its result, after ending it if it is alive; its log is kept for inspection.
    ///
    /// # Errors
    /// If the run may still be there, or alive. What the run brought is recorded by then; a sweep, each 10 minutes,
    /// releases what [`Self::unreleased`] names.
    async fn release(&self, name: &RunName) -> Result<(), RunnerError>;

    /// Every run that was started and not released, with the record that it is for.
    ///
    /// # Errors
    /// If the runs cannot be listed: the sweep releases nothing this time.
    ///
    /// # Errors
    /// If the runs cannot be listed: the sweep releases nothing this time.
    async fn unreleased(&self) -> Result<Vec<(RunName, Key)>, RunnerError>;

    /// Whether a run that [`Self::unreleased`] does not name may have left something that its release removes.
    fn hides_leftovers(&self) -> bool {
        false
    }

    /// Whether runs end with the process that started them and are unknown to any other. An absent run may then have
    /// done its work in a process that is gone.
    fn forgets(&self) -> bool {
        false
    }

    /// The redacted log of a run, released or not; `None`: there is none, or it is not kept any more.
    ///
    /// # Errors
    /// If the log cannot be read: the operator who asked is answered 503.
    async fn log(&self, name: &RunName) -> Result<Option<String>, RunnerError>;

    /// Asks the broker for its offer.
    ///
    /// # Errors
    /// If the broker could not be asked, failed, or printed no catalog: the catalog in force stays, and the broker is
    /// asked again after a pause.
    async fn offer(&self) -> Result<Offer, RunFailure>;
}

/// The port that tells the time.
#[async_trait]
pub trait Clock: Send + Sync + 'static {
    /// The time now; it may jump. Pauses and expiry depend on it. It must not go back by more than the time for which a
    /// tombstone is kept: after that nobody knows which names of runs were given, and they could come back.
    fn now(&self) -> Timestamp;

    /// Waits for at least `duration`; dropping the future ends the wait.
    async fn sleep(&self, duration: Duration);
}

/// A listener that is told of operations, for metrics and logs.
pub trait Observer: Send + Sync + 'static {
    /// Called when an operation has ended; the record holds it.
    fn ended(&self, record: &Record);

    /// Called when an operation does not get on, each time the [reason](crate::record::Operation::said) changes; not
    /// for what a broker says of its own progress.
    fn stuck(&self, record: &Record) {
        let _ = record;
    }
}

impl Observer for () {
    fn ended(&self, _: &Record) {}
}
