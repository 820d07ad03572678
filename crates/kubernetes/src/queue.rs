//! Who is to be looked at, and when: each at most once at a time.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

/// The pause after a first failure; doubled with each.
const AGAIN: Duration = Duration::from_millis(250);
/// The longest such pause.
const LONGEST: Duration = Duration::from_secs(30);
/// Nobody waits for longer: more than some years no clock may count to.
const FAR: Duration = Duration::from_secs(24 * 60 * 60);

/// How a look ended: when to look again though nothing happens, or that it failed; then it is after a pause, and after
/// so long at the latest.
pub(crate) type Looked = Result<Option<Duration>, Option<Duration>>;

/// A queue of those who may have something to do.
pub(crate) struct Queue<K> {
    turns: Mutex<Turns<K>>,
    pushed: Notify,
}

struct Turns<K> {
    due: BTreeSet<(Instant, K)>,
    of: HashMap<K, Turn>,
}

#[derive(Default)]
struct Turn {
    /// When it is looked at.
    due: Option<Instant>,
    /// It is being looked at.
    busy: bool,
    /// To be looked at again when that is done.
    again: bool,
    failures: u32,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        let turns = Turns { due: BTreeSet::new(), of: HashMap::new() };
        Self { turns: Mutex::new(turns), pushed: Notify::new() }
    }
}

impl<K: Clone + Ord + Hash> Queue<K> {
    fn lock(&self) -> MutexGuard<'_, Turns<K>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something has happened to these.
    pub(crate) fn push(&self, keys: impl IntoIterator<Item = K>) {
        let mut turns = self.lock();
        let now = Instant::now();
        let mut any = false;
        for key in keys {
            any = true;
            let turn = turns.of.entry(key.clone()).or_default();
            // Whoever failed waits; what has happened may be what it waits for.
            match turn.busy {
                true => turn.again = true,
                false => turns.schedule(key, now),
            }
        }
        drop(turns);
        if any {
            self.pushed.notify_one();
        }
    }

    /// The next whose turn it is, waited for.
    pub(crate) async fn next(&self) -> K {
        loop {
            let pushed = self.pushed.notified();
            let wait = {
                let mut turns = self.lock();
                let first = turns.due.first().cloned();
                match first {
                    Some((due, key)) if due <= Instant::now() => {
                        turns.due.pop_first();
                        let turn = turns.of.entry(key.clone()).or_default();
                        (turn.due, turn.busy, turn.again) = (None, true, false);
                        return key;
                    }
                    Some((due, _)) => Some(due),
                    None => None,
                }
            };
            match wait {
                Some(due) => {
                    let _ = tokio::time::timeout_at(due.into(), pushed).await;
                }
                None => pushed.await,
            }
        }
    }

    /// It was looked at.
    pub(crate) fn done(&self, key: K, looked: Looked) {
        let mut turns = self.lock();
        let turn = turns.of.entry(key.clone()).or_default();
        turn.busy = false;
        let again = std::mem::take(&mut turn.again);
        turn.failures = if looked.is_ok() { 0 } else { turn.failures.saturating_add(1) };
        let pause = match looked {
            _ if again => Some(Duration::ZERO),
            Ok(pause) => pause,
            Err(latest) => {
                let pause = AGAIN.saturating_mul(1 << turn.failures.min(10).saturating_sub(1));
                latest.into_iter().chain([pause, LONGEST]).min()
            }
        };
        match pause {
            Some(pause) => {
                turns.schedule(key, Instant::now() + pause.min(FAR));
                drop(turns);
                self.pushed.notify_one();
            }
            None => drop(turns.of.remove(&key)),
        }
    }
}

/// Takes turns for ever, so many at a time; only while it leads, for whose turn comes then is looked at by another.
pub(crate) async fn take_turns<K, F>(
    queue: Arc<Queue<K>>,
    workers: usize,
    leads: impl Fn() -> bool,
    step: impl Fn(K) -> F,
) where
    K: Clone + Ord + Hash + Send + 'static,
    F: Future<Output = Looked> + Send + 'static,
{
    let workers = Arc::new(Semaphore::new(workers.max(1)));
    let mut steps = JoinSet::new();
    loop {
        while steps.try_join_next().is_some() {}
        let Ok(permit) = Arc::clone(&workers).acquire_owned().await else { return };
        let key = queue.next().await;
        if !leads() {
            queue.done(key, Ok(None));
            continue;
        }
        // A defect in one look is no reason never to look again.
        let step = AssertUnwindSafe(step(key.clone())).catch_unwind();
        let queue = Arc::clone(&queue);
        steps.spawn(async move {
            queue.done(key, step.await.unwrap_or(Err(None)));
            drop(permit);
        });
    }
}

impl<K: Clone + Ord + Hash> Turns<K> {
    /// No later than it is due anyway.
    fn schedule(&mut self, key: K, at: Instant) {
        let turn = self.of.entry(key.clone()).or_default();
        if turn.due.is_some_and(|due| due <= at) {
            return;
        }
        let before = turn.due.replace(at);
        if let Some(before) = before {
            self.due.remove(&(before, key.clone()));
        }
        self.due.insert((at, key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_that_no_clock_counts_to_is_a_day() {
        let queue = Queue::default();
        queue.done("a", Ok(Some(Duration::MAX)));
        let (due, _) = queue.lock().due.pop_first().unwrap();
        assert!(due.duration_since(Instant::now()) <= FAR);
    }

    #[test]
    fn whoever_failed_waits_longer_each_time_but_for_no_longer_than_it_may() {
        let queue = Queue::default();
        let seconds = Duration::from_secs;
        for (failures, latest, expected) in [
            (0, None, AGAIN),
            (3, None, AGAIN * 8),
            (9, None, LONGEST),
            (9, Some(seconds(10)), seconds(10)),
            (0, Some(seconds(10)), AGAIN),
        ] {
            queue.lock().of.insert("a", Turn { busy: true, failures, ..Turn::default() });
            let before = Instant::now();
            queue.done("a", Err(latest));
            let mut turns = queue.lock();
            let (due, _) = turns.due.pop_first().unwrap();
            turns.of.clear();
            let pause = due.duration_since(before);
            let is_as_expected = pause >= expected && pause < expected + seconds(1);
            assert!(is_as_expected, "{failures} failures, {latest:?}: {pause:?}");
        }
    }
}
