//! The status of the store: why it takes no writes, and whether the file is damaged, which a server answers to probes;
//! and its figures, and the progress of a change of key, which benches and tests look at.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::rotate::Rotator;

/// The figures of the store since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Changes that wait or are being committed now; at the limit, new ones are refused.
    pub waiting: usize,
    /// Changes decided in transactions that succeeded, conflicts included.
    pub changes: u64,
    /// Transactions that succeeded.
    pub transactions: u64,
    /// Time spent in them, in microseconds.
    pub transaction_micros: u64,
    /// Transactions that failed: the disk is full or broken.
    pub failures: u64,
}

/// The progress of a change of the data key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rotation {
    /// The data key that everything new is sealed with; counts up.
    pub active_key: i64,
    /// Older data keys that rows may still be sealed with; 0 when no rotation is in progress.
    pub retiring_keys: usize,
    /// Whether the rotation goes on. If not although keys are retiring, rows that do not open
    /// keep them: see [`super::EmbeddedStore::verify`] and [`engine::ports::Store::discard`].
    pub running: bool,
    /// Rows seen in the present pass; the last pass only confirms.
    pub examined: u64,
    /// How many rows there were when the pass began.
    pub of: u64,
    /// How many rows of the pass do not open.
    pub unreadable: u64,
}

/// The status, shared between the writer and its readers.
#[derive(Debug, Default)]
pub(super) struct Status {
    changes: AtomicU64,
    transactions: AtomicU64,
    micros: AtomicU64,
    failures: AtomicU64,
    refusing: Mutex<Option<&'static str>>,
    damaged: AtomicBool,
    rotation: Mutex<Rotation>,
}

impl Status {
    pub(super) fn committed(&self, changes: usize, took: Duration) {
        self.changes.fetch_add(changes as u64, Ordering::Relaxed);
        self.transactions.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    pub(super) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets the reason why the last write failed; `None` if it did not.
    pub(super) fn set_refusing(&self, why: Option<&'static str>) {
        *self.refusing.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    pub(super) fn refusing(&self) -> Option<&'static str> {
        *self.refusing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the pages of the database are damaged.
    pub(super) fn set_damaged(&self) {
        self.damaged.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    pub(super) fn rotation(&self, active_key: i64, retiring: usize, rotator: Option<&Rotator>) {
        let mut rotation = self.rotation.lock().unwrap_or_else(PoisonError::into_inner);
        rotation.active_key = active_key;
        rotation.retiring_keys = retiring;
        rotation.running = rotator.is_some();
        if let Some(rotator) = rotator {
            rotation.examined = rotator.examined;
            rotation.of = rotator.of;
            rotation.unreadable = rotator.unreadable;
        }
    }

    pub(super) fn stats(&self, waiting: usize) -> Stats {
        Stats {
            waiting,
            changes: self.changes.load(Ordering::Relaxed),
            transactions: self.transactions.load(Ordering::Relaxed),
            transaction_micros: self.micros.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }

    pub(super) fn rotation_now(&self) -> Rotation {
        *self.rotation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
