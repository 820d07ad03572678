//! Who reads logs now: of few runs at once, for what is in them is large, and never all of them of such runs whose logs did
//! not come before. Nobody waits for that: whoever may not read yet gives its turn up, and comes again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::table::Key;
use crate::queue::Queue;

/// Of how many runs output that is in logs is kept at once: it takes some 25 MB each, where it is as large as can be.
const AT_ONCE: usize = 4;
/// Of how many of them it was not to be read the last time.
const FAILED_AT_ONCE: usize = 2;
/// After how long one comes again that may not read yet, if none of the others has called it before.
const PAUSE: Duration = Duration::from_secs(2);
/// The pause after a first failure; doubled with each.
const AGAIN: Duration = Duration::from_secs(2);
/// The longest such pause.
const LONGEST: Duration = Duration::from_secs(60);
/// So long after its pause is over nobody asks any more for what could not be read.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// Those who read, who want to, and who could not.
pub(super) struct Logs {
    queue: Arc<Queue<Key>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    reading: usize,
    /// Of those, whose logs could not be read the last time.
    again: usize,
    /// The first of them first.
    waiting: VecDeque<Key>,
    /// When each is read again, and after which pause. By the uid of the Job.
    failed: HashMap<Arc<str>, (Instant, Duration)>,
}

/// Held by whoever reads, until what was read is written.
pub(super) struct Reading<'l> {
    logs: &'l Logs,
    is_again: bool,
}

impl Logs {
    /// Whose turns are these.
    pub(super) fn of(queue: &Arc<Queue<Key>>) -> Self {
        Self { queue: Arc::clone(queue), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets one read the logs of a Job now, or says when to come again.
    pub(super) fn read(&self, key: &Key, job: &str, now: Instant) -> Result<Reading<'_>, Duration> {
        let mut state = self.lock();
        let failed = state.failed.get(job).map(|(at, _)| at.saturating_duration_since(now));
        if let Some(pause) = failed.filter(|pause| !pause.is_zero()) {
            return Err(pause);
        }
        let is_again = failed.is_some();
        if state.reading >= AT_ONCE || is_again && state.again >= FAILED_AT_ONCE {
            if !state.waiting.contains(key) {
                state.waiting.push_back(key.clone());
            }
            return Err(PAUSE);
        }
        state.waiting.retain(|waiting| waiting != key);
        state.reading += 1;
        state.again += usize::from(is_again);
        drop(state);
        Ok(Reading { logs: self, is_again })
    }

    /// The log of a Job was not to be read. It is again after a pause, twice as long as the one before.
    pub(super) fn failed(&self, job: &Arc<str>, now: Instant) {
        let failed = &mut self.lock().failed;
        failed.retain(|_, (at, _)| now.saturating_duration_since(*at) < FORGOTTEN);
        let before = failed.get(job).map(|(_, pause)| *pause * 2);
        let pause = before.unwrap_or(AGAIN).min(LONGEST);
        failed.insert(Arc::clone(job), (now + pause, pause));
    }

    /// All of them were read.
    pub(super) fn were_read(&self, job: &str) {
        self.lock().failed.remove(job);
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let next = {
            let mut state = self.logs.lock();
            state.reading -= 1;
            state.again -= usize::from(self.is_again);
            state.waiting.pop_front()
        };
        self.logs.queue.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::super::dialect::Dialect;
    use super::*;

    fn key(name: &str) -> Key {
        Key { dialect: Dialect::QuarksJob, namespace: "n".into(), name: name.into() }
    }

    #[tokio::test]
    async fn few_read_at_once_and_the_next_is_called_as_soon_as_one_has_read() {
        let (queue, now) = (Arc::default(), Instant::now());
        let logs = Logs::of(&queue);
        let read = |name: &str| logs.read(&key(name), name, now);
        let mut reading: Vec<_> = ["a", "b", "c", "d"].map(|name| read(name).ok()).into();
        assert!(reading.iter().all(Option::is_some));
        for name in ["e", "f", "e"] {
            assert_eq!(read(name).err(), Some(PAUSE), "{name} gives its turn up");
        }
        for name in ["e", "f"] {
            reading.pop();
            let called = tokio::time::timeout(Duration::from_secs(60), queue.next()).await;
            assert_eq!(called.ok(), Some(key(name)));
            reading.push(read(name).ok());
            assert!(reading.iter().all(Option::is_some), "{name}");
        }
        assert!(logs.lock().waiting.is_empty(), "nobody is called twice");
    }

    #[test]
    fn what_could_not_be_read_is_after_longer_and_longer_pauses() {
        let logs = Logs::of(&Arc::default());
        let mut now = Instant::now();
        let mut pauses = Vec::new();
        for _ in 0..7 {
            logs.failed(&"a".into(), now);
            let pause = logs.read(&key("a"), "a", now).err().unwrap();
            pauses.push(pause.as_secs());
            assert!(logs.read(&key("b"), "b", now).is_ok(), "it is no other's pause");
            now += pause;
            assert!(logs.read(&key("a"), "a", now).is_ok());
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60]);
        logs.were_read("a");
        logs.failed(&"a".into(), now);
        assert_eq!(logs.read(&key("a"), "a", now).err(), Some(AGAIN), "it went well meanwhile");
        logs.failed(&"b".into(), now + AGAIN + FORGOTTEN);
        assert!(!logs.lock().failed.contains_key("a"), "nobody asks for it any more");
    }

    #[test]
    fn those_that_could_not_be_read_take_no_place_of_those_that_can() {
        let logs = Logs::of(&Arc::default());
        let now = Instant::now();
        let later = now + AGAIN;
        for name in ["a", "b", "c", "d"] {
            logs.failed(&name.into(), now);
        }
        let read = |name: &str| logs.read(&key(name), name, later);
        let again = ["a", "b"].map(|name| read(name).ok());
        assert!(again.iter().all(Option::is_some));
        assert_eq!(read("c").err(), Some(PAUSE));
        let first = ["e", "f"].map(|name| read(name).ok());
        assert!(first.iter().all(Option::is_some));
        drop(again);
        assert!(read("c").is_ok(), "one of the two has been read");
    }
}
