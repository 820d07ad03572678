//! The engine: one handle to the records, the runs and the tasks of a broker's operations.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use tokio::sync::Notify;

use crate::driver;
use crate::names::{self, RunName};
use crate::permits::{Apart, Permits};
use crate::policy::Policy;
use crate::ports::{
    Clock, Filter, Kind, Observer, Query, Runner, Scanned, Store, StoreError, Stored,
};
use crate::record::{Key, OperationFailure, Phase, Reason, Record, Timestamp};
use crate::shared::Shared;
use crate::tasks::Tasks;

/// How often a sweep looks for old tombstones and leftover runs.
const SWEEP: Duration = Duration::from_secs(10 * 60);

/// The engine of one catalog. Cheap to clone; all clones are the same engine.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

/// The ports of an engine.
pub struct Ports {
    /// The store of the records.
    pub store: Arc<dyn Store>,
    /// The runner of the broker.
    pub runner: Arc<dyn Runner>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The listener that is told of ended and stuck operations.
    pub observer: Arc<dyn Observer>,
}

impl Engine {
    /// An engine over its ports. Nothing happens until [`Self::resume`].
    pub fn new(policy: Policy, ports: Ports) -> Self {
        let permits = Permits::new(policy.max_runs);
        Self {
            shared: Arc::new(Shared {
                policy,
                store: ports.store,
                runner: ports.runner,
                clock: ports.clock,
                observer: ports.observer,
                tasks: Tasks::default(),
                permits,
                apart: Apart::default(),
                drives: AtomicBool::new(true),
                turned: Notify::new(),
                in_force: RwLock::new(None),
                asked: AtomicU64::default(),
                answered: tokio::sync::Mutex::default(),
                looked_through: AtomicU64::new(0),
            }),
        }
    }

    /// Sets whether this process carries operations out; it does until told otherwise. A process that does not
    /// records what is asked of it, and answers; another, over the same store, does the rest. If two do, they only
    /// hinder each other: each step is a compare-and-set.
    pub fn set_driving(&self, drives: bool) {
        self.shared.drives.store(drives, Ordering::Relaxed);
        self.shared.turned.notify_one();
        self.shared.tasks.wake_all();
    }

    /// Whether this process carries operations out.
    pub fn drives(&self) -> bool {
        self.shared.drives()
    }

    /// Tells the engine that another process wrote this record; `busy`: it has an operation in progress now. To be
    /// called soon after the write; the call only saves time, for the engine finds such records itself later.
    pub fn heard_of(&self, key: &Key, busy: bool) {
        if self.shared.tasks.has(key) || (busy && self.shared.drives()) {
            driver::kick(&self.shared, key);
        }
    }

    /// Does as [`Self::heard_of`] for a record that may have been told of before: a task that it has already is not
    /// woken.
    pub fn told_again(&self, key: &Key, busy: bool) {
        if busy && self.shared.drives() && !self.shared.tasks.is_driven(key) {
            driver::kick(&self.shared, key);
        }
    }

    /// Takes up every operation that is in progress: runs that are alive are watched again, runs
    /// that ended are collected, runs that were never started are started. The same code path as
    /// that of a fresh request. Returns how many there are.
    ///
    /// Nothing is run as long as no catalog is in force ([`Engine::load_catalog`], [`Engine::set_offer`],
    /// [`Engine::keep_catalog`]): the catalog says what a broker can do.
    ///
    /// # Errors
    /// If the store cannot say which operations are in progress.
    pub async fn resume(&self) -> Result<usize, StoreError> {
        let busy = self.shared.store.busy().await?;
        for key in &busy {
            driver::kick(&self.shared, key);
        }
        Ok(busy.len())
    }

    /// Removes, every 10 minutes and for ever, tombstones past their time and runs whose operation has ended. To be
    /// spawned.
    pub async fn sweep(self) {
        loop {
            // One process is enough for it.
            if self.drives()
                && let Err(error) = self.sweep_once().await
            {
                tracing::warn!(%error, "could not sweep");
            }
            self.shared.clock.sleep(SWEEP).await;
        }
    }

    /// Sweeps once. Returns how many tombstones were removed.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn sweep_once(&self) -> Result<usize, StoreError> {
        self.release_leftovers().await?;
        let now = self.shared.clock.now();
        if self.shared.runner.hides_leftovers() {
            self.release_hidden(now).await?;
        }
        let age = u64::try_from(self.shared.policy.tombstones.as_millis()).unwrap_or(u64::MAX);
        let before = Timestamp(now.0.saturating_sub(age));
        let (mut removed, mut failed) = (0, Ok(()));
        let mut pages = Tombstones::before(before);
        while let Some(page) = pages.next(&*self.shared.store).await? {
            for stored in page.iter().flatten() {
                match self.shared.store.remove(&stored.record.key, &stored.version).await {
                    Ok(()) => removed += 1,
                    Err(StoreError::Conflict) => {}
                    // One that cannot be removed does not stop the others.
                    Err(error) => failed = Err(error),
                }
            }
        }
        failed.map(|()| removed)
    }

    /// Releases the leftovers of runs of which there is nothing but what they were given: such a run was halted, or
    /// refused, before there was more. They are found by the tombstones of their records: those that this process has
    /// not looked through yet.
    async fn release_hidden(&self, now: Timestamp) -> Result<(), StoreError> {
        let since = Timestamp(self.shared.looked_through.load(Ordering::Relaxed));
        let mut all = true;
        let mut pages = Tombstones::before(now);
        while let Some(page) = pages.next(&*self.shared.store).await? {
            let records = page.iter().flatten().map(|stored| &*stored.record);
            let new = records.filter(|record| record.updated_at >= since);
            let runs: Vec<RunName> = new.flat_map(unseen).collect();
            for run in runs {
                if let Err(error) = self.shared.runner.release(&run).await {
                    tracing::warn!(%run, %error, "what a run was given could not be removed");
                    all = false;
                }
            }
        }
        if all {
            // What others wrote may be heard of late.
            let heard = now.0.saturating_sub(u64::try_from(SWEEP.as_millis()).unwrap_or(u64::MAX));
            self.shared.looked_through.store(heard, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Releases the runs whose operation has ended: a crash between an outcome and the release of its run leaves the
    /// run's result behind.
    async fn release_leftovers(&self) -> Result<(), StoreError> {
        let runs = match self.shared.runner.unreleased().await {
            Ok(runs) => runs,
            // Tombstones go without it.
            Err(error) => {
                tracing::warn!(%error, "what is left of runs could not be looked for");
                return Ok(());
            }
        };
        for (run, key) in runs {
            let stored = match self.shared.store.read(&key).await {
                // Whether it needs the run nobody knows.
                Err(StoreError::Unreadable { .. }) => continue,
                read => read?,
            };
            if stored.is_some_and(|stored| needs(&stored.record, run.as_str())) {
                continue;
            }
            if let Err(error) = self.shared.runner.release(&run).await {
                tracing::warn!(%run, %error, "a leftover run could not be released");
            }
        }
        Ok(())
    }

    /// How many operations are in progress.
    pub fn in_progress(&self) -> usize {
        self.shared.tasks.len()
    }

    /// The store, for callers that read it directly.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }
}

/// The tombstones that were last written before a time, one page after the other: of bindings, then of instances.
struct Tombstones {
    filter: Filter,
    kind: Option<Kind>,
    after: Option<Key>,
}

impl Tombstones {
    fn before(time: Timestamp) -> Self {
        Self { filter: Filter::DeletedBefore(time), kind: Some(Kind::Bindings), after: None }
    }

    async fn next(&mut self, store: &dyn Store) -> Result<Option<Vec<Scanned>>, StoreError> {
        while let Some(kind) = self.kind {
            let (filter, after) = (self.filter, self.after.take());
            let page =
                store.scan(&Query { kind, instance: None, filter, after, limit: 256 }).await?;
            if let Some(last) = page.last() {
                self.after = Some(Stored::key_of(last).clone());
                return Ok(Some(page));
            }
            self.kind = (kind == Kind::Bindings).then_some(Kind::Instances);
        }
        Ok(None)
    }
}

/// The runs of a tombstone that may have ended before anything showed that they were there.
fn unseen(record: &Record) -> Vec<RunName> {
    let is_unseen =
        |failure: &OperationFailure| matches!(failure.reason, Reason::Halted | Reason::NotStarted);
    let past = record.past.iter().filter(|past| past.failure.as_ref().is_some_and(is_unseen));
    let mut runs: Vec<_> = past.map(|past| RunName::attempt(&past.id, past.attempts)).collect();
    if let Phase::Failed(failure) = &record.operation.phase
        && is_unseen(failure)
    {
        runs.push(RunName::attempt(&record.operation.id, record.operation.attempt));
    }
    runs
}

/// Whether the record's operation in progress still needs a run.
fn needs(record: &Record, run: &str) -> bool {
    let operation = &record.operation;
    let halted = operation.halts.as_ref().is_some_and(|halt| halt.run.as_str() == run);
    record.is_busy() && (halted || names::belongs(run, &operation.id))
}
