//! Who reads logs now: of few runs at once, for what is in them is large, and never all of them of such runs whose logs did
//! not come before, or of one namespace, where each write may wait for a webhook, or of one node that may be dead. Nobody
//! waits for that: whoever may not read yet gives its turn up, and comes again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::table::Key;
use crate::queue::Queue;

/// Of how many runs output that is in logs is kept at once: it takes some 25 MB each, where it is as large as one agent
/// brings.
const AT_ONCE: usize = 4;
/// Of how many of them several agents bring more than that: it takes some 60 MB.
const LARGE_AT_ONCE: usize = 1;
/// Of how many of them it was not to be read the last time.
const FAILED_AT_ONCE: usize = 2;
/// Of how many of them in one namespace: what was read is held until it is written.
const OF_ONE_AT_ONCE: usize = 3;
/// After how long one comes again that may not read yet, if none of the others has called it before: whom they have called
/// may have nothing to read any more.
const PAUSE: Duration = Duration::from_secs(2);
/// So much later for each that waits: however many they are, so many come in a second.
const FOR_EACH: Duration = Duration::from_millis(50);
/// The pause after a first failure; doubled with each.
const AGAIN: Duration = Duration::from_secs(2);
/// The longest such pause.
const LONGEST: Duration = Duration::from_secs(60);
/// So long after its pause is over nobody asks any more for what could not be read.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// So long after a log came from a node, several are asked of it at once. A dead one answers none, and whoever asks it keeps
/// its place until the call is given up.
const HEARD: Duration = Duration::from_secs(10);

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
    /// Of those, what takes more room than others.
    large: usize,
    /// Where they are, once for each.
    namespaces: Vec<Arc<str>>,
    /// The nodes that the others are asked of, once for each.
    asked: Vec<Arc<str>>,
    /// The first of them first.
    waiting: VecDeque<Waiting>,
    /// When each is read again, and after which pause. By the uid of the Job.
    failed: HashMap<Arc<str>, (Instant, Duration)>,
    /// When a log came from a node last.
    heard: HashMap<Arc<str>, Instant>,
}

/// Whoever may not read yet.
struct Waiting {
    key: Key,
    job: Arc<str>,
    node: Option<Arc<str>>,
    is_large: bool,
}

impl Waiting {
    fn of(key: &Key, job: &Arc<str>, node: Option<&Arc<str>>, is_large: bool) -> Self {
        Self { key: key.clone(), job: Arc::clone(job), node: node.cloned(), is_large }
    }
}

/// Held by whoever reads, until what was read is written.
pub(super) struct Reading<'l> {
    logs: &'l Logs,
    namespace: Arc<str>,
    is_again: bool,
    is_large: bool,
    /// The node that it is asked of, unless it is again.
    asked: Option<Arc<str>>,
}

impl Logs {
    /// Whose turns are these.
    pub(super) fn of(queue: &Arc<Queue<Key>>) -> Self {
        Self { queue: Arc::clone(queue), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets one read the logs of a Job's pod on a node now, or says when to come again.
    pub(super) fn read(
        &self,
        key: &Key,
        job: &Arc<str>,
        node: Option<&Arc<str>>,
        now: Instant,
    ) -> Result<Reading<'_>, Duration> {
        self.begin(Waiting::of(key, job, node, false), now)
    }

    /// The same of what takes much more room than what one agent brings.
    pub(super) fn read_large(
        &self,
        key: &Key,
        job: &Arc<str>,
        node: Option<&Arc<str>>,
        now: Instant,
    ) -> Result<Reading<'_>, Duration> {
        self.begin(Waiting::of(key, job, node, true), now)
    }

    fn begin(&self, wants: Waiting, now: Instant) -> Result<Reading<'_>, Duration> {
        let mut state = self.lock();
        let failed = state.failed.get(&wants.job).map(|(at, _)| at.saturating_duration_since(now));
        if let Some(pause) = failed.filter(|pause| !pause.is_zero()) {
            return Err(pause);
        }
        if !state.has_place(&wants, now) {
            match state.waiting.iter_mut().find(|waiting| waiting.key == wants.key) {
                Some(waiting) => *waiting = wants,
                None => state.waiting.push_back(wants),
            }
            let others = state.waiting.len().saturating_sub(1);
            let waiting = u32::try_from(others).unwrap_or(u32::MAX);
            return Err(PAUSE + FOR_EACH.saturating_mul(waiting));
        }
        state.waiting.retain(|waiting| waiting.key != wants.key);
        let (is_again, is_large) = (failed.is_some(), wants.is_large);
        let namespace = wants.key.namespace;
        let asked = wants.node.filter(|_| !is_again);
        state.reading += 1;
        state.again += usize::from(is_again);
        state.large += usize::from(is_large);
        state.namespaces.push(Arc::clone(&namespace));
        state.asked.extend(asked.clone());
        drop(state);
        Ok(Reading { logs: self, namespace, is_again, is_large, asked })
    }

    /// A log came from a node. If none came from it before, those who waited for that are called.
    pub(super) fn came(&self, node: Option<&Arc<str>>, now: Instant) {
        let Some(node) = node else { return };
        let mut state = self.lock();
        state.heard.retain(|_, at| now.saturating_duration_since(*at) < HEARD);
        if state.heard.insert(Arc::clone(node), now).is_some() {
            return;
        }
        let called: Vec<Key> = (state.reading..AT_ONCE).map_while(|_| state.next(now)).collect();
        drop(state);
        self.queue.push(called);
    }

    /// The log of a Job was not to be read from a node. It is again after a pause, twice as long as the one before.
    pub(super) fn failed(&self, job: &Arc<str>, node: Option<&Arc<str>>, now: Instant) {
        let mut state = self.lock();
        node.and_then(|node| state.heard.remove(node));
        let failed = &mut state.failed;
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

impl State {
    /// Whether one may read whose pause, if it has one, is over.
    fn has_place(&self, wants: &Waiting, now: Instant) -> bool {
        let is_heard = |node| {
            let at = self.heard.get(node);
            at.is_some_and(|at| now.saturating_duration_since(*at) < HEARD)
        };
        let is_free = match self.failed.contains_key(&wants.job) {
            true => self.again < FAILED_AT_ONCE,
            false => wants.node.iter().all(|node| !self.asked.contains(node) || is_heard(node)),
        };
        let is_beside = |namespace: &&Arc<str>| **namespace == wants.key.namespace;
        let has_room = (!wants.is_large || self.large < LARGE_AT_ONCE)
            && self.namespaces.iter().filter(is_beside).count() < OF_ONE_AT_ONCE;
        self.reading < AT_ONCE && is_free && has_room
    }

    /// Who may read now, of those who wait the first.
    fn next(&mut self, now: Instant) -> Option<Key> {
        let at = self.waiting.iter().position(|waiting| self.has_place(waiting, now))?;
        self.waiting.remove(at).map(|waiting| waiting.key)
    }
}

/// Takes the first of these away.
fn take_one(from: &mut Vec<Arc<str>>, it: Option<&Arc<str>>) {
    if let Some(at) = from.iter().position(|one| Some(one) == it) {
        from.swap_remove(at);
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let next = {
            let mut state = self.logs.lock();
            state.reading -= 1;
            state.again -= usize::from(self.is_again);
            state.large -= usize::from(self.is_large);
            take_one(&mut state.namespaces, Some(&self.namespace));
            take_one(&mut state.asked, self.asked.as_ref());
            state.next(Instant::now())
        };
        self.logs.queue.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::super::dialect::Dialect;
    use super::*;

    /// Each in a namespace of its own.
    fn key(name: &str) -> Key {
        Key { dialect: Dialect::QuarksJob, namespace: name.into(), name: name.into() }
    }

    #[test]
    fn what_is_written_slowly_in_one_namespace_leaves_a_place_for_others() {
        let logs = Logs::of(&Arc::default());
        let read = |namespace: &str, name: &str| {
            let key = Key { namespace: namespace.into(), ..key(name) };
            logs.read(&key, &name.into(), None, Instant::now())
        };
        let mut slow: Vec<_> = ["a", "b", "c"].map(|name| read("slow", name).ok()).into();
        assert!(slow.iter().all(Option::is_some));
        assert_eq!(read("slow", "d").err(), Some(PAUSE), "it gives its turn up");
        let other = read("other", "e");
        assert!(other.is_ok());
        assert!(read("third", "f").is_err(), "there are as many as there may be");
        drop(other);
        assert!(read("slow", "d").is_err(), "that is no place of its own");
        slow.pop();
        assert!(read("slow", "d").is_ok());
    }

    #[test]
    fn however_many_wait_no_more_come_in_a_second_than_can_be_looked_at() {
        let logs = Logs::of(&Arc::default());
        let read = |name: &str| logs.read(&key(name), &name.into(), None, Instant::now());
        let reading: Vec<_> = ["a", "b", "c", "d"].map(|name| read(name).ok()).into();
        for waiting in [1, 2, 1000] {
            (0..waiting).for_each(|number| drop(read(&format!("w{number}"))));
            let pause = read("w0").err().unwrap();
            assert!(f64::from(waiting) / pause.as_secs_f64() <= 20.0, "{waiting}: {pause:?}");
        }
        drop(reading);
    }

    #[tokio::test]
    async fn few_read_at_once_and_the_next_is_called_as_soon_as_one_has_read() {
        let (queue, now) = (Arc::default(), Instant::now());
        let logs = Logs::of(&queue);
        let read = |name: &str| logs.read(&key(name), &name.into(), None, now);
        let mut reading: Vec<_> = ["a", "b", "c", "d"].map(|name| read(name).ok()).into();
        assert!(reading.iter().all(Option::is_some));
        for name in ["e", "f", "e"] {
            assert!(read(name).err() >= Some(PAUSE), "{name} gives its turn up");
        }
        for name in ["e", "f"] {
            reading.pop();
            let called = tokio::time::timeout(Duration::from_secs(60), queue.next(9)).await;
            assert_eq!(called.ok(), Some(key(name)));
            reading.push(read(name).ok());
            assert!(reading.iter().all(Option::is_some), "{name}");
        }
        assert!(logs.lock().waiting.is_empty(), "nobody is called twice");
    }

    #[tokio::test]
    async fn of_what_is_large_one_is_read_at_a_time_and_what_is_not_beside_it() {
        let (queue, now) = (Arc::default(), Instant::now());
        let logs = Logs::of(&queue);
        let large = |name: &str| logs.read_large(&key(name), &name.into(), None, now);
        let first = large("a");
        assert!(first.is_ok());
        assert_eq!(large("b").err(), Some(PAUSE), "it gives its turn up");
        let other = logs.read(&key("c"), &"c".into(), None, now);
        assert!(other.is_ok(), "what is not large has its place");
        drop(first);
        let called = tokio::time::timeout(Duration::from_secs(60), queue.next(9)).await;
        assert_eq!(called.ok(), Some(key("b")));
        assert!(large("b").is_ok());
    }

    #[test]
    fn what_could_not_be_read_is_after_longer_and_longer_pauses() {
        let logs = Logs::of(&Arc::default());
        let mut now = Instant::now();
        let mut pauses = Vec::new();
        let read = |name: &str, now| logs.read(&key(name), &name.into(), None, now);
        for _ in 0..7 {
            logs.failed(&"a".into(), None, now);
            let pause = read("a", now).err().unwrap();
            pauses.push(pause.as_secs());
            assert!(read("b", now).is_ok(), "it is no other's pause");
            now += pause;
            assert!(read("a", now).is_ok());
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60]);
        logs.were_read("a");
        logs.failed(&"a".into(), None, now);
        assert_eq!(read("a", now).err(), Some(AGAIN), "it went well meanwhile");
        logs.failed(&"b".into(), None, now + AGAIN + FORGOTTEN);
        assert!(!logs.lock().failed.contains_key("a"), "nobody asks for it any more");
    }

    #[test]
    fn those_that_could_not_be_read_take_no_place_of_those_that_can() {
        let logs = Logs::of(&Arc::default());
        let now = Instant::now();
        let later = now + AGAIN;
        for name in ["a", "b", "c", "d"] {
            logs.failed(&name.into(), None, now);
        }
        let read = |name: &str| logs.read(&key(name), &name.into(), None, later);
        let again = ["a", "b"].map(|name| read(name).ok());
        assert!(again.iter().all(Option::is_some));
        assert!(read("c").err() >= Some(PAUSE));
        let first = ["e", "f"].map(|name| read(name).ok());
        assert!(first.iter().all(Option::is_some));
        drop(again);
        assert!(read("c").is_ok(), "one of the two has been read");
    }

    #[test]
    fn of_a_node_from_which_nothing_came_one_is_read_at_a_time() {
        let logs = Logs::of(&Arc::default());
        let now = Instant::now();
        let nodes: [Arc<str>; 2] = ["dead", "well"].map(Arc::from);
        let [dead, well] = [Some(&nodes[0]), Some(&nodes[1])];
        let read = |name: &str, node, now| logs.read(&key(name), &name.into(), node, now);
        let one = read("a", dead, now);
        assert!(one.is_ok());
        assert!(read("b", dead, now).err() >= Some(PAUSE), "it may be dead");
        let another = read("c", well, now);
        assert!(another.is_ok(), "that is no other node's");
        assert!(read("d", well, now).err() >= Some(PAUSE), "it may be as dead");
        logs.came(well, now);
        assert!(read("d", well, now).is_ok(), "it is not");
        assert!(read("d", well, now + HEARD).err() >= Some(PAUSE), "it may be by now");
        logs.came(dead, now);
        logs.failed(&"a".into(), dead, now);
        assert!(read("b", dead, now).err() >= Some(PAUSE), "it went since");
        let later = now + AGAIN;
        assert!(read("a", dead, later).is_ok(), "who failed takes the places of those alone");
        drop(one);
        assert!(read("b", dead, now).is_ok(), "one at a time");
    }

    #[tokio::test]
    async fn those_who_waited_for_a_node_are_called_when_a_log_comes_from_it() {
        let (queue, now) = (Arc::default(), Instant::now());
        let logs = Logs::of(&queue);
        let node: Arc<str> = "node".into();
        let read = |name: &str| logs.read(&key(name), &name.into(), Some(&node), now).ok();
        let _first = read("a");
        for name in ["b", "c"] {
            assert!(read(name).is_none(), "{name} gives its turn up");
        }
        logs.came(Some(&node), now);
        for name in ["b", "c"] {
            let called = tokio::time::timeout(Duration::from_secs(60), queue.next(9)).await;
            assert_eq!(called.ok(), Some(key(name)));
        }
    }

    #[tokio::test]
    async fn whoever_has_read_calls_the_first_that_may() {
        let (queue, now) = (Arc::default(), Instant::now());
        let logs = Logs::of(&queue);
        let nodes: [Arc<str>; 2] = ["dead", "well"].map(Arc::from);
        let [dead, well] = [Some(&nodes[0]), Some(&nodes[1])];
        let read = |name: &str, node| logs.read(&key(name), &name.into(), node, now).ok();
        // However long this takes.
        logs.came(well, now + Duration::from_secs(3600));
        let _long = read("a", dead);
        let mut reading: Vec<_> = ["b", "c", "d"].map(|name| read(name, well)).into();
        for (name, node) in [("e", dead), ("f", dead), ("g", well), ("h", well)] {
            assert!(read(name, node).is_none(), "{name} gives its turn up");
        }
        for name in ["g", "h"] {
            reading.pop();
            let called = tokio::time::timeout(Duration::from_secs(60), queue.next(9)).await;
            assert_eq!(called.ok(), Some(key(name)));
            reading.push(read(name, well));
            assert!(reading.iter().all(Option::is_some), "{name}");
        }
    }
}
