//! The controller's counters.

use std::sync::atomic::{AtomicU64, Ordering};

/// What has been counted since the start, and how many QuarksJobs and open runs there are now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// QuarksJobs that exist in the monitored namespaces.
    pub known: usize,
    /// Runs that have not ended.
    pub going: usize,
    /// Runs whose Job was made.
    pub started: u64,
    /// Runs that succeeded, and whose output is kept.
    pub succeeded: u64,
    /// Runs that failed.
    pub failed: u64,
    /// Looks at a QuarksJob that ended because a call failed.
    pub looks_failed: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) started: Counter,
    pub(super) succeeded: Counter,
    pub(super) failed: Counter,
    pub(super) looks_failed: Counter,
}

#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(super) fn with(&self, known: usize, going: usize) -> Counts {
        Counts {
            known,
            going,
            started: self.started.get(),
            succeeded: self.succeeded.get(),
            failed: self.failed.get(),
            looks_failed: self.looks_failed.get(),
        }
    }
}
