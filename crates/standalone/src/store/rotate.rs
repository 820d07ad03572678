//! Rotates the data key: everything is sealed again with a new one, then the old one is deleted.
//!
//! ```text
//! new key active ──▶ pass over all rows, slice by slice ──▶ a pass that finds nothing ──▶ old keys deleted
//!                        ▲                      │                                          log cleared
//!                        └── something was old ─┘
//! ```
//!
//! Each slice is a transaction, and where a pass stands is not recorded: after an interruption it
//! begins again and steps over what is done. Old keys are deleted only after a whole pass met no row
//! of theirs, in which time nothing new could appear under them. A row that does not open with its key
//! stops that: its key is kept, nothing is thrown away, and the row is reported until it is discarded.

use engine::ports::StoreError;
use engine::record::Key;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::Tuning;
use super::keys::Keyring;
use super::queue::Answer;
use super::rows::{self, Document, Sealed};

/// The number of bytes at which a slice ends early: records may be large.
const SLICE_BYTES: usize = 1 << 20;

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// There is more to do.
    More,
    /// Only the active key is left.
    Done,
    /// Some rows do not open: old keys stay for them.
    Stuck,
}

/// The state of a rotation, in memory only.
#[derive(Debug)]
pub(super) struct Rotator {
    slice: u64,
    /// The number of slices after which a test ends the rotation.
    slices_left: Option<u32>,
    /// The last row that this pass has seen.
    after: i64,
    /// Whether something was sealed again in this pass.
    changed: bool,
    /// Rows seen in this pass.
    pub(super) examined: u64,
    /// Rows in the store when the pass began.
    pub(super) of: u64,
    /// Rows of this pass that do not open.
    pub(super) unreadable: u64,
}

impl Rotator {
    pub(super) fn new(tuning: &Tuning) -> Self {
        Self {
            slice: tuning.rotation_slice,
            slices_left: tuning.rotation_slices,
            after: i64::MIN,
            changed: false,
            examined: 0,
            of: 0,
            unreadable: 0,
        }
    }

    /// Seals the next slice.
    ///
    /// # Errors
    /// What SQLite says; the slice has not happened.
    pub(super) fn step(
        &mut self,
        connection: &mut Connection,
        ring: &Keyring,
    ) -> rusqlite::Result<Step> {
        if let Some(left) = &mut self.slices_left {
            match left.checked_sub(1) {
                Some(fewer) => *left = fewer,
                None => return Ok(Step::Stuck),
            }
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Deferred)?;
        if self.after == i64::MIN {
            self.of = transaction
                .query_row("SELECT count(*) FROM records", [], |row| row.get::<_, i64>(0))?
                .unsigned_abs();
            for document in Document::ALL {
                self.changed |= bring_over_document(&transaction, ring, document)?;
            }
        }
        let slice = self.bring_over_records(&transaction, ring)?;
        transaction.commit()?;

        self.examined += slice.seen;
        self.changed |= slice.changed;
        self.unreadable += slice.unreadable;
        if let Some(last) = slice.last {
            self.after = last;
        }
        if !slice.ended {
            return Ok(Step::More);
        }
        if self.changed {
            self.begin_pass();
            return Ok(Step::More);
        }
        if self.unreadable > 0 {
            tracing::error!(
                rows = self.unreadable,
                "some rows do not open: the old data keys are kept for them; what is listed as unreadable \
                 of them can be purged"
            );
            return Ok(Step::Stuck);
        }
        connection.execute("DELETE FROM data_keys WHERE active = 0", [])?;
        ring.replace(ring.snapshot().only_active());
        Ok(Step::Done)
    }

    fn begin_pass(&mut self) {
        self.after = i64::MIN;
        self.changed = false;
        self.examined = 0;
        self.unreadable = 0;
    }

    fn bring_over_records(
        &self,
        transaction: &Transaction<'_>,
        ring: &Keyring,
    ) -> rusqlite::Result<Slice> {
        let keys = ring.snapshot();
        let active = keys.active().id;
        let mut select = transaction.prepare_cached(
            "SELECT id, data_key, instance, binding,
                    CASE WHEN data_key = ?2 THEN NULL ELSE sealed END
             FROM records WHERE id > ?1 ORDER BY id",
        )?;
        let mut slice = Slice::default();
        let mut old = Vec::new();
        let mut bytes_held = 0;
        let mut rows = select.query(params![self.after, active])?;
        while slice.seen < self.slice && bytes_held < SLICE_BYTES {
            let Some(row) = rows.next()? else {
                slice.ended = true;
                break;
            };
            let id: i64 = row.get(0)?;
            slice.seen += 1;
            slice.last = Some(id);
            if let Some(bytes) = row.get::<_, Option<Vec<u8>>>(4)? {
                bytes_held += bytes.len();
                let sealed = Sealed { data_key: row.get(1)?, bytes };
                old.push((id, rows::read_key(row, 2)?, sealed));
            }
        }
        drop(rows);
        let mut update = transaction
            .prepare_cached("UPDATE records SET data_key = ?2, sealed = ?3 WHERE id = ?1")?;
        for (id, key, sealed) in old {
            match sealed.brought_over(&rows::record_context(&key), ring) {
                Ok(Some(again)) => {
                    update.execute(params![id, again.data_key, again.bytes])?;
                    slice.changed = true;
                }
                Ok(None) => {}
                Err(why) => {
                    tracing::error!(%key, why, "cannot be re-encrypted");
                    slice.unreadable += 1;
                }
            }
        }
        Ok(slice)
    }
}

#[derive(Default)]
struct Slice {
    seen: u64,
    last: Option<i64>,
    /// Whether there is no row behind the last.
    ended: bool,
    changed: bool,
    unreadable: u64,
}

fn bring_over_document(
    transaction: &Transaction<'_>,
    ring: &Keyring,
    document: Document,
) -> rusqlite::Result<bool> {
    let sealed = transaction
        .query_row(
            "SELECT data_key, sealed FROM documents WHERE name = ?1",
            [document.name()],
            |row| Ok(Sealed { data_key: row.get(0)?, bytes: row.get(1)? }),
        )
        .optional()?;
    let Some(sealed) = sealed else { return Ok(false) };
    match sealed.brought_over(document.context(), ring) {
        Ok(None) => Ok(false),
        Ok(Some(again)) => {
            transaction.execute(
                "UPDATE documents SET data_key = ?1, sealed = ?2 WHERE name = ?3",
                params![again.data_key, again.bytes, document.name()],
            )?;
            Ok(true)
        }
        Err(why) => {
            // Both are made anew: the catalog is asked of the broker, the runner key is drawn. No
            // data key is kept for them.
            let document = document.name();
            tracing::error!(document, why, "a document cannot be re-encrypted; it is removed");
            transaction.execute("DELETE FROM documents WHERE name = ?1", [document])?;
            Ok(true)
        }
    }
}

/// Removes a record if it does not open; whatever opens is left alone.
pub(super) fn discard(
    transaction: &Transaction<'_>,
    ring: &Keyring,
    key: &Key,
) -> rusqlite::Result<Answer> {
    let found: Option<(i64, i64, Vec<u8>)> = transaction
        .query_row(
            "SELECT id, data_key, sealed FROM records
             WHERE kind = ?1 AND instance = ?2 AND binding = ?3",
            params![rows::kind(key), key.instance().as_str(), rows::binding(key)],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .optional()?;
    let Some((id, data_key, sealed)) = found else { return Ok(Err(StoreError::Conflict)) };
    if rows::open_record(ring, &ring.snapshot(), key, data_key, &sealed).is_ok() {
        return Ok(Err(StoreError::Conflict));
    }
    transaction.execute("DELETE FROM records WHERE id = ?1", [id])?;
    Ok(Ok(0))
}

/// Brings the log into the database and empties it, so that nothing of what was removed or replaced
/// is left in it. `false` if a reader still stands in it.
///
/// # Errors
/// What SQLite says; nothing is lost.
pub(super) fn clear_log(connection: &Connection) -> rusqlite::Result<bool> {
    connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))
        .map(|busy| busy == 0)
}
