//! The writer: one thread, which commits all waiting changes in one transaction.
//!
//! ```text
//! callers ──seal──▶ queue ──▶ writer: BEGIN, each change with its own check, COMMIT (sync), answer all
//!                               └─ when nothing waits: a slice of key rotation, or clearing the log
//! ```
//!
//! A sync costs the same for one change as for hundreds, so while one is under way the next ones gather. Those who were
//! just answered are often back a moment after the first of them: a batch waits for as many as there were lately, but
//! only a part of the time that a commit takes. A change whose expected version is wrong fails alone. If the
//! transaction itself fails (disk full, I/O error), it is rolled back, everyone in it is told, and the next one is
//! tried afresh: when there is space again, writing goes on by itself.
//!
//! A commit that fails while syncing is not seen by any reader, and the next one overwrites it in the
//! log; only if the machine stops before that may it turn out, on the next start, to have happened.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::ports::StoreError;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use super::error::{in_short, unavailable};
use super::files::Files;
use super::keys::{self, Keyring};
use super::queue::{Answer, Change, Command, Mutation, Next, Orders, Patience};
use super::recent::Recent;
use super::rotate::{Rotator, Step};
use super::rows::{self, SealedRecord};
use super::status::Status;
use super::{Tuning, rotate};
use crate::seal::Cipher;

/// The most changes of one transaction, which bounds how long the first of them waits.
const BATCH: usize = 256;
/// The number of transactions after which there is a slice of rotation while changes keep coming.
const TRANSACTIONS_PER_SLICE: u32 = 8;
/// The divisor of the last commit's time that gives how long the writer waits for a batch to gather.
const GATHERING: u32 = 4;
/// The longest that the writer waits for a batch: a disk may hang for seconds.
const GATHERING_AT_MOST: Duration = Duration::from_millis(5);
/// How long no change must come before the log is cleared of what was removed.
const QUIET: Duration = Duration::from_secs(1);
/// The pause after a fault before background work, or a write that changes nothing, is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The pace of changes: how many came together lately, and how long a commit took.
#[derive(Debug, Default)]
pub(super) struct Pace {
    sizes: [usize; 2],
    commit: Duration,
}

impl Pace {
    fn committed(&mut self, size: usize, took: Duration) {
        self.sizes = [size, self.sizes[0]];
        self.commit = took;
    }

    /// The number of changes to expect in the next batch: by the last two, as a batch that began too early is followed
    /// by one with the rest.
    fn expected(&self) -> usize {
        self.sizes[0].max(self.sizes[1])
    }

    fn patience(&self) -> Duration {
        (self.commit / GATHERING).min(GATHERING_AT_MOST)
    }
}

/// The writer's state; [`Self::run`] is the thread.
pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) files: Files,
    pub(super) orders: Orders,
    pub(super) ring: Arc<Keyring>,
    pub(super) recent: Arc<Recent>,
    pub(super) operator: Cipher,
    pub(super) status: Arc<Status>,
    pub(super) pace: Pace,
    pub(super) tuning: Tuning,
    pub(super) last_version: i64,
    /// The count of messages that is reserved in the database; see [`keys::reserve`].
    pub(super) reserved: u64,
    pub(super) rotator: Option<Rotator>,
    /// Whether the log may hold content that was removed since.
    pub(super) unclean: bool,
    /// Whether the last write failed.
    pub(super) refusing: bool,
    /// Whether background work met a fault, so that it waits before it goes on.
    pub(super) troubled: bool,
}

impl Writer {
    /// Carries out orders until nobody can send any more.
    pub(super) fn run(mut self) {
        let mut transactions = 0_u32;
        loop {
            let next = self.orders.next(Patience {
                first: self.pause_before_background(),
                expected: self.pace.expected(),
                gathering: self.pace.patience(),
                most: BATCH,
            });
            match next {
                Next::Changes(batch) => {
                    self.commit(batch);
                    transactions = transactions.wrapping_add(1);
                    if transactions.is_multiple_of(TRANSACTIONS_PER_SLICE) && self.rotator.is_some()
                    {
                        self.work_in_background();
                    }
                }
                Next::Other(order) => self.serve(order),
                Next::Nothing => self.work_in_background(),
                Next::Closed => break,
            }
        }
        // A courtesy: the next start finds an empty log. Nothing is lost without it.
        let _ = rotate::clear_log(&self.connection);
    }

    fn serve(&mut self, order: Command) {
        match order {
            Command::Change(change) => self.commit(vec![change]),
            Command::Rotate(reply) => {
                let _ = reply.send(self.begin_rotation().map(|()| 0));
            }
            #[cfg(test)]
            Command::Hook(hook) => (hook.0)(&self.connection),
        }
    }

    fn commit(&mut self, batch: Vec<Change>) {
        if self.ring.snapshot().active().is_worn(self.tuning.messages_per_key)
            && let Err(error) = self.begin_rotation()
        {
            tracing::error!(%error, "a worn data key could not be replaced; trying again");
        }
        let begun = Instant::now();
        match self.try_commit(&batch) {
            Ok(answers) => {
                let took = begun.elapsed();
                self.pace.committed(batch.len(), took);
                self.status.committed(batch.len(), took);
                self.wrote(None);
                for (change, answer) in batch.into_iter().zip(answers) {
                    if let Ok(version) = answer {
                        keep(&self.recent, &change.what, version);
                    }
                    change.answer(answer);
                }
            }
            Err(error) => {
                let why = unavailable("writing", &error).to_string();
                self.status.failed();
                self.wrote(Some(in_short(&error)));
                tracing::error!(
                    error = why,
                    changes = batch.len(),
                    "the store could not be written"
                );
                self.roll_back();
                for change in batch {
                    change.answer(Err(unavailable("writing", &error)));
                }
            }
        }
    }

    /// Notes whether writing works.
    fn wrote(&mut self, refused: Option<&'static str>) {
        if refused.is_some() || std::mem::take(&mut self.refusing) {
            self.refusing = refused.is_some();
            self.status.set_refusing(refused);
        }
    }

    fn roll_back(&self) {
        if !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }

    /// Tries whether writing works again, though no change waits: a platform that probes readiness sends no orders
    /// until the store is ready.
    fn probe(&mut self) {
        match self.try_probe() {
            Ok(()) => {
                tracing::info!("the store can be written again");
                self.wrote(None);
            }
            Err(error) => {
                self.roll_back();
                self.wrote(Some(in_short(&error)));
            }
        }
    }

    /// Tries a write that skips a version: to write the same value again would be to write nothing.
    fn try_probe(&mut self) -> rusqlite::Result<()> {
        self.files.are_in_place()?;
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let version = self.last_version + 1;
        transaction.execute("UPDATE store SET last_version = ?1", [version])?;
        transaction.commit()?;
        self.last_version = version;
        Ok(())
    }

    fn try_commit(&mut self, batch: &[Change]) -> rusqlite::Result<Vec<Answer>> {
        self.files.are_in_place()?;
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let before = self.last_version;
        let mut answers = Vec::with_capacity(batch.len());
        let (mut removed, mut discarded) = (false, false);
        for change in batch {
            let answer = apply(&transaction, &self.ring, &change.what, self.last_version + 1)?;
            match &answer {
                Ok(0) => {
                    removed = true;
                    discarded |= matches!(change.what, Mutation::Discard(_));
                }
                Ok(version) => self.last_version = *version,
                Err(_) => {}
            }
            answers.push(answer);
        }
        // Nothing to sync if every check failed.
        if answers.iter().any(Result::is_ok) {
            if self.last_version != before {
                transaction
                    .prepare_cached("UPDATE store SET last_version = ?1 WHERE id = 1")?
                    .execute([self.last_version])?;
            }
            let active = self.ring.snapshot();
            let reserved = keys::reserve(&transaction, active.active(), self.reserved)?;
            transaction.commit()?;
            self.reserved = reserved;
            self.unclean |= removed;
        }
        if discarded && self.rotator.is_none() && self.ring.snapshot().retiring() > 0 {
            self.rotator = Some(Rotator::new(&self.tuning));
        }
        Ok(answers)
    }

    fn begin_rotation(&mut self) -> Result<(), StoreError> {
        let key = keys::transact(&mut self.connection, |transaction| {
            keys::make_active(transaction, &self.operator)
        })?;
        tracing::info!(data_key = key.id, "a new data key is in use; re-encrypting what is kept");
        let keys = self.ring.snapshot().with_active(key);
        self.reserved = keys::BLOCK;
        self.ring.replace(keys);
        self.rotator = Some(Rotator::new(&self.tuning));
        self.report_rotation();
        Ok(())
    }

    /// How long to wait for orders before background work is done; `None` if there is none.
    fn pause_before_background(&self) -> Option<Duration> {
        match &self.rotator {
            _ if self.refusing => Some(RETRY),
            Some(_) if self.troubled => Some(RETRY),
            Some(_) => Some(Duration::ZERO),
            None if self.unclean => Some(QUIET),
            None => None,
        }
    }

    fn work_in_background(&mut self) {
        if self.refusing {
            return self.probe();
        }
        let worked = match &mut self.rotator {
            Some(rotator) => rotator.step(&mut self.connection, &self.ring),
            None => rotate::clear_log(&self.connection).map(|cleared| {
                self.unclean = !cleared;
                Step::More
            }),
        };
        self.troubled = worked.is_err();
        self.report_rotation();
        match worked {
            Ok(Step::More) => {}
            Ok(Step::Done) => {
                self.rotator = None;
                self.unclean = true;
                tracing::info!(
                    "everything is encrypted with the new data key; the old one is gone"
                );
            }
            Ok(Step::Stuck) => self.rotator = None,
            Err(error) => {
                tracing::error!(
                    error = %unavailable("re-encrypting", &error),
                    "work in the background failed; trying again"
                );
            }
        }
        self.report_rotation();
    }

    fn report_rotation(&self) {
        let keys = self.ring.snapshot();
        self.status.rotation(keys.active().id, keys.retiring(), self.rotator.as_ref());
    }
}

/// Puts a changed record among the recent ones, for the next read.
fn keep(recent: &Recent, what: &Mutation, version: i64) {
    match what {
        Mutation::Write { record, .. } => {
            let SealedRecord { record, sealed } = &**record;
            recent.written(record, rows::version(version), sealed.bytes.len() as u64);
        }
        Mutation::Remove { key, .. } | Mutation::Discard(key) => recent.removed(key),
        Mutation::Save(..) => {}
    }
}

/// Carries out one change, and gives a written record this version.
///
/// The outer error is the transaction's, the inner one this change's alone.
fn apply(
    transaction: &Transaction<'_>,
    ring: &Keyring,
    what: &Mutation,
    version: i64,
) -> rusqlite::Result<Answer> {
    match what {
        Mutation::Write { record, expected } => {
            write(transaction, ring, record, *expected, version)
        }
        Mutation::Remove { key, expected } => {
            let removed = transaction
                .prepare_cached(
                    "DELETE FROM records
                     WHERE kind = ?1 AND instance = ?2 AND binding = ?3 AND version = ?4",
                )?
                .execute(params![
                    rows::kind(key),
                    key.instance().as_str(),
                    rows::binding(key),
                    expected
                ])?;
            Ok(if removed == 1 { Ok(0) } else { Err(StoreError::Conflict) })
        }
        Mutation::Save(document, sealed) => {
            let again = match sealed.brought_over(document.context(), ring) {
                Ok(again) => again,
                Err(why) => return Ok(Err(StoreError::Unavailable(why))),
            };
            let sealed = again.as_ref().unwrap_or(sealed);
            transaction
                .prepare_cached(
                    "INSERT INTO documents (name, data_key, sealed) VALUES (?1, ?2, ?3)
                     ON CONFLICT DO UPDATE
                     SET data_key = excluded.data_key, sealed = excluded.sealed",
                )?
                .execute(params![document.name(), sealed.data_key, sealed.bytes])?;
            Ok(Ok(0))
        }
        Mutation::Discard(key) => rotate::discard(transaction, ring, key),
    }
}

fn write(
    transaction: &Transaction<'_>,
    ring: &Keyring,
    record: &SealedRecord,
    expected: Option<i64>,
    version: i64,
) -> rusqlite::Result<Answer> {
    let SealedRecord { record, sealed } = record;
    // It may have been sealed just before a rotation began: nothing new may appear under an old key.
    let again = match sealed.brought_over(&rows::record_context(&record.key), ring) {
        Ok(again) => again,
        Err(why) => return Ok(Err(StoreError::Unavailable(why))),
    };
    let sealed = again.as_ref().unwrap_or(sealed);
    let values = params![
        rows::kind(&record.key),
        record.key.instance().as_str(),
        rows::binding(&record.key),
        version,
        record.is_busy(),
        !record.is_live(),
        rows::updated_at(record),
        record.ordered.service_id.as_str(),
        record.ordered.plan_id.as_str(),
        sealed.data_key,
        sealed.bytes,
        expected
    ];
    // Of one row each, and SQLite knows it: of a statement that may change several it keeps all pages as they
    // were, to undo it alone.
    let written = match expected {
        None => transaction
            .prepare_cached(
                "INSERT INTO records (kind, instance, binding, version, busy, deleted, updated_at,
                     service, plan, data_key, sealed)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
                 ON CONFLICT DO NOTHING",
            )?
            .execute(&values[..11])?,
        Some(_) => transaction
            .prepare_cached(
                "UPDATE records SET version = ?4, busy = ?5, deleted = ?6, updated_at = ?7,
                     service = ?8, plan = ?9, data_key = ?10, sealed = ?11
                 WHERE kind = ?1 AND instance = ?2 AND binding = ?3 AND version = ?12",
            )?
            .execute(values)?,
    };
    Ok(if written == 1 { Ok(version) } else { Err(StoreError::Conflict) })
}
