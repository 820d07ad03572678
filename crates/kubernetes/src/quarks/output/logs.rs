//! Who may read logs: few runs at once, for logs are large. Never all places go to runs whose logs could not be read
//! before, or to one namespace, where each write may wait for a webhook, or to one node, which may be dead. Nobody
//! blocks: whoever may not read yet gives its turn up, and comes again.

use std::collections::{HashMap, VecDeque};
use std::iter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::quarks::api::key::Key;
use crate::queue::Queue;

/// How many runs keep output from logs at once: it takes some 25 MB each, if it is as large as one agent brings.
const AT_ONCE: usize = 4;
/// How many of these runs may have several agents that bring more than that: it takes some 60 MB.
const LARGE_AT_ONCE: usize = 1;
/// How many of these runs may be ones whose logs could not be read the last time.
const FAILED_AT_ONCE: usize = 2;
/// How many of these runs may be in one namespace, even if no other waits: what was read is held until it is written,
/// and the next to come may be of another.
const OF_ONE_AT_ONCE: usize = 3;
/// After how long a run comes again that may not read yet, if it is not called before. A place is kept as long for a
/// run that has been called: it may have nothing to read any more.
const PAUSE: Duration = Duration::from_secs(2);
/// How much later it comes for each other run that waits, up to [`LONGEST`]: so that few come in a second.
const FOR_EACH: Duration = Duration::from_millis(50);
/// The pause after a first failure to read; doubled with each.
const AGAIN: Duration = Duration::from_secs(2);
/// The longest of these pauses.
const LONGEST: Duration = Duration::from_secs(60);
/// How long after the end of its pause a failure is forgotten: nobody asks any more for what could not be read.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// For how long after a log came from a node several are read from it at once. A dead node answers no call, and whoever
/// asks it keeps its place until the call is given up.
const HEARD: Duration = Duration::from_secs(10);

/// The runs that read logs, that wait to, and that could not.
pub(crate) struct Logs {
    queue: Arc<Queue<Key>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The places of all that read, and of those that are called to.
    places: Vec<Place>,
    /// The number of the place that was given last.
    given: u64,
    /// Those that wait, in the order in which they came.
    waiting: VecDeque<Waiting>,
    /// When logs that could not be read are read again, and the pause before that, by the uid of the Job.
    failed: HashMap<Arc<str>, (Instant, Duration)>,
    /// When a log last came from each node.
    heard: HashMap<Arc<str>, Instant>,
}

/// How much there is to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// At most as much as one agent brings.
    OfOne,
    /// More than that.
    Large,
}

/// A run whose logs are to be read.
struct Waiting {
    key: Key,
    job: Arc<str>,
    node: Option<Arc<str>>,
    size: Size,
}

/// One of the [`AT_ONCE`] places, with the run that has it.
struct Place {
    number: u64,
    of: Waiting,
    /// Whether its logs could not be read the last time.
    is_again: bool,
    /// When the run was called, if it has not come yet.
    called: Option<Instant>,
}

/// A permit to read logs, held until what was read is written.
pub(crate) struct Reading<'l> {
    logs: &'l Logs,
    number: u64,
}

impl Logs {
    /// No places; `queue` is where those who are called get their turn.
    pub(crate) fn of(queue: &Arc<Queue<Key>>) -> Self {
        Self { queue: Arc::clone(queue), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a run read the logs of its pod on a node now, or returns after how long to come again.
    pub(crate) fn read(
        &self,
        key: &Key,
        job: &Arc<str>,
        node: Option<&Arc<str>>,
        size: Size,
        now: Instant,
    ) -> Result<Reading<'_>, Duration> {
        let wants = Waiting { key: key.clone(), job: Arc::clone(job), node: node.cloned(), size };
        let mut state = self.lock();
        state.places.retain(|place| place.called.is_none() || place.of.key != wants.key);
        let failed = state.failed.get(&wants.job).map(|(at, _)| at.saturating_duration_since(now));
        state.forget_called(now);
        let later = match failed.filter(|pause| !pause.is_zero()) {
            Some(pause) => pause,
            None if !state.has_place(&wants) => state.put_off(wants),
            None => {
                state.waiting.retain(|waiting| waiting.key != wants.key);
                let number = state.give(wants, None);
                return Ok(Reading { logs: self, number });
            }
        };
        // The place that this run gave back may have become free for another.
        self.call(state, now);
        Err(later)
    }

    /// Gives up the place of a QuarksJob that is gone, or reads nothing any more.
    pub(in crate::quarks) fn forget(&self, key: &Key, now: Instant) {
        let mut state = self.lock();
        state.waiting.retain(|waiting| waiting.key != *key);
        state.places.retain(|place| place.called.is_none() || place.of.key != *key);
        self.call(state, now);
    }

    /// Calls all that may read now.
    fn call(&self, mut state: MutexGuard<'_, State>, now: Instant) {
        let called: Vec<Key> = iter::from_fn(|| state.call(now)).collect();
        drop(state);
        self.queue.push(called);
    }

    /// Notes that a log came from a node. If none had come from it lately, those who waited for that are called.
    pub(crate) fn came(&self, node: Option<&Arc<str>>, now: Instant) {
        let Some(node) = node else { return };
        let mut state = self.lock();
        state.forget_called(now);
        if state.heard.insert(Arc::clone(node), now).is_some() {
            return;
        }
        self.call(state, now);
    }

    /// Notes that the log of a Job could not be read from a node. It is tried again after a pause, twice as long as the
    /// one before.
    pub(crate) fn failed(&self, job: &Arc<str>, node: Option<&Arc<str>>, now: Instant) {
        let mut state = self.lock();
        node.and_then(|node| state.heard.remove(node));
        let failed = &mut state.failed;
        failed.retain(|_, (at, _)| now.saturating_duration_since(*at) < FORGOTTEN);
        let before = failed.get(job).map(|(_, pause)| *pause * 2);
        let pause = before.unwrap_or(AGAIN).min(LONGEST);
        failed.insert(Arc::clone(job), (now + pause, pause));
    }

    /// Notes that all logs of a Job were read.
    pub(crate) fn were_read(&self, job: &str) {
        self.lock().failed.remove(job);
    }
}

impl State {
    /// Whether a run may read whose pause, if it has one, is over. Callers have called [`Self::forget_called`] before.
    fn has_place(&self, wants: &Waiting) -> bool {
        let count = |is_such: &dyn Fn(&Place) -> bool| {
            self.places.iter().filter(|place| is_such(place)).count()
        };
        let is_asked =
            |node| count(&|place| place.asks(node)) > 0 && !self.heard.contains_key(node);
        let is_free = match self.failed.contains_key(&wants.job) {
            true => count(&|place| place.is_again) < FAILED_AT_ONCE,
            false => !wants.node.as_ref().is_some_and(is_asked),
        };
        let has_room = wants.size == Size::OfOne
            || count(&|place| place.of.size == Size::Large) < LARGE_AT_ONCE;
        let is_free = is_free && self.count_in(&wants.key.namespace) < OF_ONE_AT_ONCE;
        self.places.len() < AT_ONCE && is_free && has_room
    }

    /// How many places a namespace has.
    fn count_in(&self, namespace: &str) -> usize {
        self.places.iter().filter(|place| &*place.of.key.namespace == namespace).count()
    }

    fn give(&mut self, of: Waiting, called: Option<Instant>) -> u64 {
        self.given += 1;
        let is_again = self.failed.contains_key(&of.job);
        self.places.push(Place { number: self.given, of, is_again, called });
        self.given
    }

    /// Has a run wait, or go on waiting. Returns after how long it comes again if it is not called before.
    fn put_off(&mut self, wants: Waiting) -> Duration {
        match self.waiting.iter_mut().find(|waiting| waiting.key == wants.key) {
            Some(waiting) => *waiting = wants,
            None => self.waiting.push_back(wants),
        }
        let others = u32::try_from(self.waiting.len().saturating_sub(1)).unwrap_or(u32::MAX);
        LONGEST.min(PAUSE + FOR_EACH.saturating_mul(others))
    }

    /// Gives up the places of runs that were called and did not come, and forgets nodes that were not heard of lately.
    fn forget_called(&mut self, now: Instant) {
        let is_within = |at: &Instant, time| now.saturating_duration_since(*at) < time;
        self.places.retain(|place| place.called.iter().all(|at| is_within(at, PAUSE)));
        self.heard.retain(|_, at| is_within(at, HEARD));
    }

    /// Keeps a place for the next run that may read, first for one in whose namespace the fewest do, and returns its
    /// key.
    fn call(&mut self, now: Instant) -> Option<Key> {
        self.forget_called(now);
        let waiting = self.waiting.iter().enumerate();
        let ready = waiting.filter(|(_, waiting)| self.has_place(waiting));
        let (at, _) = ready.min_by_key(|(_, waiting)| self.count_in(&waiting.key.namespace))?;
        let next = self.waiting.remove(at)?;
        let key = next.key.clone();
        self.give(next, Some(now));
        Some(key)
    }
}

impl Place {
    /// Whether a log is read from this node, which may be dead: failed reads that are tried again do not count.
    fn asks(&self, node: &Arc<str>) -> bool {
        !self.is_again && self.of.node.as_ref() == Some(node)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut state = self.logs.lock();
        state.places.retain(|place| place.number != self.number);
        self.logs.call(state, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quarks::api::dialect::Dialect;

    /// Each in a namespace of its own.
    fn key(name: &str) -> Key {
        Key { dialect: Dialect::QuarksJob, namespace: name.into(), name: name.into() }
    }

    #[test]
    fn what_is_written_slowly_in_one_namespace_leaves_a_place_for_others() {
        let logs = Logs::of(&Arc::default());
        let read = |namespace: &str, name: &str| {
            let key = Key { namespace: namespace.into(), ..key(name) };
            logs.read(&key, &name.into(), None, Size::OfOne, Instant::now())
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
        let read =
            |name: &str| logs.read(&key(name), &name.into(), None, Size::OfOne, Instant::now());
        let reading: Vec<_> = ["a", "b", "c", "d"].map(|name| read(name).ok()).into();
        for waiting in [1, 2, 1000] {
            (0..waiting).for_each(|number| drop(read(&format!("w{number}"))));
            let pause = read("w0").err();
            assert_eq!(pause, Some(PAUSE + FOR_EACH * (waiting - 1)), "{waiting}");
        }
        (0..5000).for_each(|number| drop(read(&format!("w{number}"))));
        assert_eq!(read("w0").err(), Some(LONGEST), "none waits for longer");
        drop(reading);
    }

    #[test]
    fn whoever_is_called_is_overtaken_by_none_and_kept_a_place_for_a_while() {
        let logs = Logs::of(&Arc::default());
        let now = Instant::now();
        let read =
            |name: &str, now| logs.read(&key(name), &name.into(), None, Size::OfOne, now).ok();
        let mut reading: Vec<_> = ["a", "b", "c", "d"].map(|name| read(name, now)).into();
        assert!(read("e", now).is_none());
        reading.pop();
        assert!(read("new", now).is_none(), "the place is another's");
        assert!(read("e", now).is_some());
        assert!(read("f", now).is_none(), "it is kept for the one that came before");
        // By the clock it was called a little after this.
        let later = now + PAUSE * 2;
        assert!(read("later", later).is_some(), "who was called did not come");
    }

    #[tokio::test]
    async fn one_that_is_gone_keeps_no_place_and_the_next_is_called() {
        let (queue, now) = (Arc::default(), Instant::now());
        let logs = Logs::of(&queue);
        let read = |name: &str| logs.read(&key(name), &name.into(), None, Size::OfOne, now).ok();
        let mut reading: Vec<_> = ["a", "b", "c", "d"].map(read).into();
        for name in ["waits", "called", "next"] {
            assert!(read(name).is_none());
        }
        logs.forget(&key("waits"), now);
        reading.pop();
        let called = |queue: Arc<Queue<Key>>| async move {
            tokio::time::timeout(Duration::from_secs(60), queue.next(9)).await.ok()
        };
        assert_eq!(called(Arc::clone(&queue)).await, Some(key("called")));
        logs.forget(&key("called"), now);
        assert_eq!(called(queue).await, Some(key("next")), "its place is the next one's");
        assert!(read("next").is_some());
    }

    #[test]
    fn of_those_who_wait_one_of_a_namespace_with_fewer_is_called() {
        let logs = Logs::of(&Arc::default());
        let now = Instant::now();
        let read = |namespace: &str, name: &str| {
            let key = Key { namespace: namespace.into(), ..key(name) };
            logs.read(&key, &name.into(), None, Size::OfOne, now).ok()
        };
        let mut slow: Vec<_> = ["a", "b"].map(|name| read("slow", name)).into();
        let others = ["c", "d"].map(|name| read("other", name));
        for (namespace, name) in [("slow", "e"), ("other", "f"), ("third", "g")] {
            assert!(read(namespace, name).is_none(), "{name}");
        }
        slow.pop();
        assert!(read("slow", "e").is_none(), "it waited for longest, and its like have one");
        assert!(read("other", "f").is_none(), "its like have two");
        assert!(read("third", "g").is_some());
        drop(others);
    }

    #[tokio::test]
    async fn few_read_at_once_and_the_next_is_called_as_soon_as_one_has_read() {
        let (queue, now) = (Arc::default(), Instant::now());
        let logs = Logs::of(&queue);
        let read = |name: &str| logs.read(&key(name), &name.into(), None, Size::OfOne, now);
        let mut reading: Vec<_> = ["a", "b", "c", "d"].map(|name| read(name).ok()).into();
        assert!(reading.iter().all(Option::is_some));
        for (name, others) in [("e", 0), ("f", 1), ("e", 1)] {
            let pause = PAUSE + FOR_EACH * others;
            assert_eq!(read(name).err(), Some(pause), "{name} gives its turn up");
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
        let large = |name: &str| logs.read(&key(name), &name.into(), None, Size::Large, now);
        let first = large("a");
        assert!(first.is_ok());
        assert_eq!(large("b").err(), Some(PAUSE), "it gives its turn up");
        let other = logs.read(&key("c"), &"c".into(), None, Size::OfOne, now);
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
        let read = |name: &str, now| logs.read(&key(name), &name.into(), None, Size::OfOne, now);
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
        let read = |name: &str| logs.read(&key(name), &name.into(), None, Size::OfOne, later);
        let again = ["a", "b"].map(|name| read(name).ok());
        assert!(again.iter().all(Option::is_some));
        assert_eq!(read("c").err(), Some(PAUSE));
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
        let read =
            |name: &str, node, now| logs.read(&key(name), &name.into(), node, Size::OfOne, now);
        let one = read("a", dead, now);
        assert!(one.is_ok());
        assert_eq!(read("b", dead, now).err(), Some(PAUSE), "it may be dead");
        let another = read("c", well, now);
        assert!(another.is_ok(), "that is no other node's");
        let behind_another = Some(PAUSE + FOR_EACH);
        assert_eq!(read("d", well, now).err(), behind_another, "it may be as dead");
        logs.came(well, now);
        assert!(read("d", well, now).is_ok(), "it is not");
        assert_eq!(read("d", well, now + HEARD).err(), behind_another, "it may be by now");
        logs.came(dead, now);
        logs.failed(&"a".into(), dead, now);
        assert_eq!(read("b", dead, now).err(), behind_another, "it went since");
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
        let read =
            |name: &str| logs.read(&key(name), &name.into(), Some(&node), Size::OfOne, now).ok();
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
        let read =
            |name: &str, node| logs.read(&key(name), &name.into(), node, Size::OfOne, now).ok();
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
