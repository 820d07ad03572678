//! A queue of keys to be processed, each with its time: each key is processed at most once at a time, and those of one
//! namespace never occupy all workers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::policy::doubled;
use futures_util::FutureExt as _;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

/// The pause after the first failure; doubled with each further one.
const AGAIN: Duration = Duration::from_millis(250);
/// The longest pause after a failure.
const LONGEST: Duration = Duration::from_secs(30);
/// The longest time until a key is due: a clock cannot count to arbitrarily far times.
const FAR: Duration = Duration::from_secs(24 * 60 * 60);

/// One worker in this many, at least one, is reserved for other namespaces than the busiest: calls there may take long,
/// as where a webhook does not answer.
const PART_FOR_OTHERS: usize = 5;

/// A key that belongs to a namespace.
pub(crate) trait Placed {
    fn namespace(&self) -> &Arc<str>;
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looked {
    /// There is nothing to do until something happens.
    Idle,
    /// The next turn comes after this time, though nothing happens.
    Again(Duration),
    /// A call failed: the next turn comes after a pause that grows with each failure, and after this time at the
    /// latest.
    Failed { latest: Option<Duration> },
}

impl Looked {
    pub(crate) const AT_ONCE: Self = Self::Again(Duration::ZERO);
    pub(crate) const FAILED: Self = Self::Failed { latest: None };
}

impl From<Option<Duration>> for Looked {
    /// The next turn comes after this time, if there is one.
    fn from(again: Option<Duration>) -> Self {
        again.map_or(Self::Idle, Self::Again)
    }
}

/// A queue of keys that may have something to do.
pub(crate) struct Queue<K> {
    turns: Mutex<Turns<K>>,
    pushed: Notify,
}

struct Turns<K> {
    /// The keys of each namespace.
    places: BTreeMap<Arc<str>, Place<K>>,
    of: HashMap<K, Turn>,
}

/// The keys of one namespace.
struct Place<K> {
    due: BTreeSet<(Instant, K)>,
    /// How many of the keys are being processed.
    busy: usize,
}

#[derive(Default)]
struct Turn {
    /// When the key is due.
    due: Option<Instant>,
    /// Whether the key is being processed.
    busy: bool,
    /// Whether the key is to be processed again after that.
    again: bool,
    failures: u32,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        let turns = Turns { places: BTreeMap::new(), of: HashMap::new() };
        Self { turns: Mutex::new(turns), pushed: Notify::new() }
    }
}

impl<K: Clone + Ord + Hash + Placed> Queue<K> {
    fn lock(&self) -> MutexGuard<'_, Turns<K>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues keys to which something has happened.
    pub(crate) fn push(&self, keys: impl IntoIterator<Item = K>) {
        let mut turns = self.lock();
        let now = Instant::now();
        let mut any = false;
        for key in keys {
            any = true;
            let turn = turns.of.entry(key.clone()).or_default();
            // A failed key waits for its pause; what has happened may be what it needs.
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

    /// Waits for the next key that is due: from the namespace with the fewest keys being processed, and from none where
    /// `most` are.
    pub(crate) async fn next(&self, most: usize) -> K {
        loop {
            let pushed = self.pushed.notified();
            let wait = match self.lock().take(most, Instant::now()) {
                Ok(key) => return key,
                Err(wait) => wait,
            };
            match wait {
                Some(due) => {
                    let _ = tokio::time::timeout_at(due.into(), pushed).await;
                }
                None => pushed.await,
            }
        }
    }

    /// Notes that a key was processed.
    pub(crate) fn done(&self, key: K, looked: Looked) {
        let mut turns = self.lock();
        turns.freed(&key);
        let turn = turns.of.entry(key.clone()).or_default();
        turn.busy = false;
        let again = std::mem::take(&mut turn.again);
        turn.failures = match looked {
            Looked::Failed { .. } => turn.failures.saturating_add(1),
            Looked::Idle | Looked::Again(_) => 0,
        };
        let pause = match looked {
            _ if again => Some(Duration::ZERO),
            Looked::Idle => None,
            Looked::Again(pause) => Some(pause),
            Looked::Failed { latest } => {
                let pause = doubled(AGAIN, turn.failures, LONGEST);
                latest.into_iter().chain([pause]).min()
            }
        };
        match pause {
            Some(pause) => {
                turns.schedule(key, Instant::now() + pause.min(FAR));
                drop(turns);
                self.pushed.notify_one();
            }
            None => {
                turns.of.remove(&key);
                drop(turns);
                // Another key of the namespace may have waited for this one.
                self.pushed.notify_one();
            }
        }
    }
}

/// How many of the workers one namespace may occupy.
fn most(workers: usize) -> usize {
    (workers - (workers / PART_FOR_OTHERS).max(1)).max(1)
}

/// Processes the keys of a queue for ever, with this many workers; a key that comes up while this process does not lead
/// is dropped, because another one processes it.
pub(crate) async fn take_turns<K, F>(
    queue: Arc<Queue<K>>,
    workers: usize,
    leads: impl Fn() -> bool,
    step: impl Fn(K) -> F,
) where
    K: Clone + Ord + Hash + Placed + Send + 'static,
    F: Future<Output = Looked> + Send + 'static,
{
    let workers = workers.max(1);
    let most = most(workers);
    let workers = Arc::new(Semaphore::new(workers));
    let mut steps = JoinSet::new();
    loop {
        while steps.try_join_next().is_some() {}
        let Ok(permit) = Arc::clone(&workers).acquire_owned().await else { return };
        let key = queue.next(most).await;
        if !leads() {
            queue.done(key, Looked::Idle);
            continue;
        }
        // A panic while processing one key does not stop the others, or later turns.
        let step = AssertUnwindSafe(step(key.clone())).catch_unwind();
        let queue = Arc::clone(&queue);
        steps.spawn(async move {
            queue.done(key, step.await.unwrap_or(Looked::FAILED));
            drop(permit);
        });
    }
}

impl<K: Clone + Ord + Hash + Placed> Turns<K> {
    /// Schedules a key, unless it is due earlier anyway.
    fn schedule(&mut self, key: K, at: Instant) {
        let turn = self.of.entry(key.clone()).or_default();
        if turn.due.is_some_and(|due| due <= at) {
            return;
        }
        let before = turn.due.replace(at);
        let place = self.places.entry(Arc::clone(key.namespace()));
        let place = place.or_insert_with(|| Place { due: BTreeSet::new(), busy: 0 });
        if let Some(before) = before {
            place.due.remove(&(before, key.clone()));
        }
        place.due.insert((at, key));
    }

    /// Takes the next key that is due, or returns when the next one will be.
    fn take(&mut self, most: usize, now: Instant) -> Result<K, Option<Instant>> {
        let open = self.places.values_mut().filter(|place| place.busy < most);
        let firsts = open.filter_map(|place| Some((place.due.first()?.0, place)));
        let (due, waiting): (Vec<_>, Vec<_>) = firsts.partition(|(at, _)| *at <= now);
        let next = due.into_iter().min_by_key(|(at, place)| (place.busy, *at));
        let Some((_, key)) = next.and_then(|(_, place)| {
            place.busy += 1;
            place.due.pop_first()
        }) else {
            return Err(waiting.into_iter().map(|(at, _)| at).min());
        };
        let turn = self.of.entry(key.clone()).or_default();
        (turn.due, turn.busy, turn.again) = (None, true, false);
        Ok(key)
    }

    /// Notes that a key is not being processed any more.
    fn freed(&mut self, key: &K) {
        if let Some(place) = self.places.get_mut(key.namespace()) {
            place.busy = place.busy.saturating_sub(1);
            if place.busy == 0 && place.due.is_empty() {
                self.places.remove(key.namespace());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By its namespace and its number.
    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
    struct Key(Arc<str>, u32);

    impl Placed for Key {
        fn namespace(&self) -> &Arc<str> {
            &self.0
        }
    }

    fn key(namespace: &str, number: u32) -> Key {
        Key(Arc::from(namespace), number)
    }

    impl Queue<Key> {
        /// When the only one that waits is due.
        fn only(&self) -> Instant {
            let turns = self.lock();
            let mut due = turns.places.values().flat_map(|place| &place.due);
            due.next().map(|(due, _)| *due).unwrap()
        }

        fn take(&self, most: usize) -> Option<Key> {
            self.lock().take(most, Instant::now()).ok()
        }
    }

    #[test]
    fn a_pause_that_no_clock_counts_to_is_a_day() {
        let queue = Queue::default();
        queue.done(key("n", 1), Looked::Again(Duration::MAX));
        assert!(queue.only().duration_since(Instant::now()) <= FAR);
    }

    #[test]
    fn whoever_failed_waits_longer_each_time_but_for_no_longer_than_it_may() {
        let seconds = Duration::from_secs;
        for (failures, latest, expected) in [
            (0, None, AGAIN),
            (3, None, AGAIN * 8),
            (9, None, LONGEST),
            (9, Some(seconds(10)), seconds(10)),
            (0, Some(seconds(10)), AGAIN),
        ] {
            let queue = Queue::default();
            let turn = Turn { busy: true, failures, ..Turn::default() };
            queue.lock().of.insert(key("n", 1), turn);
            let before = Instant::now();
            queue.done(key("n", 1), Looked::Failed { latest });
            let pause = queue.only().duration_since(before);
            let is_as_expected = pause >= expected && pause < expected + seconds(1);
            assert!(is_as_expected, "{failures} failures, {latest:?}: {pause:?}");
        }
    }

    #[test]
    fn a_namespace_where_all_takes_long_leaves_room_for_others_and_they_come_first() {
        let queue = Queue::default();
        queue.push((0..9).map(|number| key("slow", number)));
        let taken: Vec<_> = std::iter::from_fn(|| queue.take(4)).collect();
        assert_eq!(taken.len(), 4, "no more than it may");
        queue.push([key("other", 1), key("other", 2)]);
        assert_eq!(queue.take(4), Some(key("other", 1)));
        queue.done(taken[0].clone(), Looked::Idle);
        assert_eq!(queue.take(4), Some(key("other", 2)), "it has the fewer");
        assert_eq!(queue.take(4), Some(key("slow", 4)), "one of it is done");
        assert_eq!(queue.take(4), None);

        for taken in &taken[1..] {
            queue.done(taken.clone(), Looked::Idle);
        }
        let rest: Vec<_> = std::iter::from_fn(|| queue.take(9)).collect();
        assert_eq!(rest.len(), 4);
        for key in [key("other", 1), key("other", 2), key("slow", 4)].into_iter().chain(rest) {
            queue.done(key, Looked::Idle);
        }
        let turns = queue.lock();
        assert!(turns.places.is_empty() && turns.of.is_empty(), "nothing is remembered of them");
    }

    #[tokio::test]
    async fn whoever_waits_for_room_in_its_namespace_is_taken_when_there_is_some() {
        let queue = Arc::new(Queue::default());
        queue.push([key("n", 1), key("n", 2)]);
        let first = queue.next(1).await;
        let waits = Arc::clone(&queue);
        let second = tokio::spawn(async move { waits.next(1).await });
        tokio::task::yield_now().await;
        queue.done(first, Looked::Idle);
        assert_eq!(second.await.unwrap(), key("n", 2));
    }

    #[test]
    fn one_worker_at_least_is_for_others_where_there_are_two() {
        for (workers, expected) in [(1, 1), (2, 1), (4, 3), (5, 4), (9, 8), (10, 8), (20, 16)] {
            assert_eq!(most(workers), expected, "of {workers}");
        }
    }
}
