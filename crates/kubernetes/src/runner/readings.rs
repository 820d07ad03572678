//! Limits how many reports are read from logs at once.
//!
//! A report that has no room in its pod's status is in its log, and may take tens of megabytes until its outcome is
//! written. Many runs may end together, and a process that starts finds all that ended meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::names::RunName;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// How many reports are in memory at once.
const AT_ONCE: usize = 2;
/// How long a report that was read holds its place at most, whatever becomes of it.
const HELD: Duration = Duration::from_secs(30);
/// How often a waiting reader checks for a free place.
const LOOK: Duration = Duration::from_secs(1);

pub(super) struct Readings {
    room: Arc<Semaphore>,
    /// The room for logs that are read to be shown.
    shown: Semaphore,
    held: Mutex<HashMap<RunName, (Instant, OwnedSemaphorePermit)>>,
}

impl Default for Readings {
    fn default() -> Self {
        let room = || Semaphore::new(AT_ONCE);
        Self { room: Arc::new(room()), shown: room(), held: Mutex::default() }
    }
}

impl Readings {
    /// Waits until the report of this run may be read. The run has its place until it is left, or for [`HELD`].
    pub(super) async fn enter(&self, run: &RunName) {
        while !self.is_held(run) {
            let room = timeout(LOOK, Arc::clone(&self.room).acquire_owned()).await;
            if let Ok(Ok(place)) = room {
                self.lock().insert(run.clone(), (Instant::now(), place));
            }
        }
    }

    /// Waits until a log may be read to be shown: as many at once as reports, beside these. `None` is never returned, for
    /// the room is never closed.
    pub(super) async fn show(&self) -> Option<SemaphorePermit<'_>> {
        self.shown.acquire().await.ok()
    }

    /// Whether a run has a place.
    fn is_held(&self, run: &RunName) -> bool {
        let mut held = self.lock();
        held.retain(|_, (since, _)| since.elapsed() < HELD);
        held.contains_key(run)
    }

    /// Frees the place of a run: its outcome is written, or not wanted any more.
    pub(super) fn leave(&self, run: &RunName) {
        self.lock().remove(run);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunName, (Instant, OwnedSemaphorePermit)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn run(name: &str) -> RunName {
        RunName::parse(name).unwrap()
    }

    #[tokio::test]
    async fn few_are_read_at_once_and_another_when_one_is_left() {
        let readings = Readings::default();
        let [a, b, c] = ["provision-a", "provision-b", "provision-c"].map(run);
        readings.enter(&a).await;
        readings.enter(&b).await;
        readings.enter(&a).await;
        assert!(readings.enter(&c).now_or_never().is_none(), "there is no room");
        readings.leave(&a);
        readings.enter(&c).await;
        assert!(!readings.is_held(&a) && readings.is_held(&b) && readings.is_held(&c));
    }

    #[tokio::test]
    async fn few_logs_are_shown_at_once_beside_the_reports() {
        let readings = Readings::default();
        readings.enter(&run("provision-a")).await;
        readings.enter(&run("provision-b")).await;
        let first = readings.show().await;
        let _second = readings.show().await;
        assert!(readings.show().now_or_never().is_none(), "there is no room");
        drop(first);
        assert!(readings.show().now_or_never().is_some());
    }

    #[tokio::test]
    async fn what_becomes_of_nothing_keeps_no_other_for_ever() {
        let readings = Readings::default();
        for name in ["provision-a", "provision-b"] {
            readings.enter(&run(name)).await;
        }
        for (since, _) in readings.lock().values_mut() {
            *since -= HELD;
        }
        readings.enter(&run("provision-c")).await;
    }
}
