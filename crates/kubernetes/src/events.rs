//! Writes Events, for users who have only `kubectl describe`: an operation that failed, or does not progress, and why.
//!
//! Normal progress is in the conditions, which are written anyway; an event for each step would cost a call each.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use engine::Observer;
use engine::record::{Key, Phase, Record};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::calls::{CallError, call, is_of_a_namespace_that_goes};
use crate::names;
use crate::resources::{self, Kind, pascal, time};
use crate::store::KubernetesStore;

/// How many events are written at a time; the others wait.
const AT_ONCE: usize = 64;
/// How many of them in one namespace, where a webhook may be slow to admit each.
const OF_ONE_AT_ONCE: usize = 16;
/// How many events of one namespace may be being written or wait; further ones are dropped.
const OF_ONE: usize = 1024;
/// How many events of all namespaces together may be being written or wait.
const OF_ALL: usize = 4096;

/// How many bytes of a message the API server takes.
const MAX_NOTE_BYTES: usize = 1024;

/// An observer that writes events for operations, and passes everything on to the next observer.
pub struct Events {
    store: Arc<KubernetesStore>,
    next: Arc<dyn Observer>,
}

impl Events {
    /// Writes events for the records of a store, and passes everything on.
    pub fn new(store: Arc<KubernetesStore>, next: Arc<dyn Observer>) -> Self {
        Self { store, next }
    }
}

impl Observer for Events {
    fn ended(&self, record: &Record) {
        self.next.ended(record);
        self.tell(record);
    }

    fn stuck(&self, record: &Record) {
        self.next.stuck(record);
        self.tell(record);
    }
}

impl Events {
    fn tell(&self, record: &Record) {
        let Some((name, uid, namespace)) = self.store.resource(&record.key) else { return };
        let event = event(record, &name, &uid, &namespace);
        event.into_iter().for_each(|event| write(self.store.events(), event));
    }
}

/// Writes an event for a resource that somebody has deleted and that stays. As long as it stays for the same reason and
/// the event is kept, an hour by default, that is one event; after that it is written again.
pub(crate) fn tell_why_it_stays(store: &KubernetesStore, key: &Key, why: &str) {
    let Some((name, uid, namespace)) = store.resource(key) else { return };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let told = Told {
        api_version: &resources::api_version(),
        kind: Kind::of(key).name(),
        namespace: &namespace,
        name: &name,
        uid: &uid,
        reason: "DeletionRefused",
        message: &format!("it was deleted, and stays for now: {why}"),
        at: &time(u64::try_from(now).unwrap_or_default()),
    };
    let event = warning(&format!("{name}.deletion-refused-{}", names::hash([why])), &told);
    event.into_iter().for_each(|event| write(store.events(), event));
}

/// Writes an event in the background. Nothing depends on it; that the right is missing is logged once.
pub(crate) fn write(events: Api<Event>, event: Event) {
    static SAID: AtomicBool = AtomicBool::new(false);
    static LINES: LazyLock<Arc<Lines>> = LazyLock::new(Arc::default);
    let namespace = event.metadata.namespace.clone().unwrap_or_default();
    let Some(place) = Lines::enter(&LINES, &namespace) else { return };
    tokio::spawn(async move {
        let _turn = place.turn().await;
        match call(events.create(&PostParams::default(), &event)).await {
            Ok(_) | Err(CallError::Exists) => {}
            Err(CallError::Forbidden(why))
                if lacks_right(&why) && !SAID.swap(true, Ordering::Relaxed) =>
            {
                tracing::warn!(
                    why,
                    "no events can be written, which explain failures in kubectl describe: grant create of events"
                );
            }
            Err(error) => tracing::debug!(%error, "an event was not written"),
        }
    });
}

/// The events that wait to be written, in a line for each namespace.
struct Lines {
    waiting: Mutex<Waiting>,
    room: Arc<Semaphore>,
    turns: Semaphore,
}

#[derive(Default)]
struct Waiting {
    by_namespace: HashMap<String, Line>,
    /// Whether it was logged that there is no room for more.
    said: bool,
}

struct Line {
    length: usize,
    turns: Arc<Semaphore>,
    /// Whether it was logged that the line is full.
    said: bool,
}

/// The place of an event in its line.
struct Place {
    lines: Arc<Lines>,
    namespace: String,
    turns: Arc<Semaphore>,
    _room: OwnedSemaphorePermit,
}

impl Default for Lines {
    fn default() -> Self {
        let room = Arc::new(Semaphore::new(OF_ALL));
        Self { waiting: Mutex::default(), room, turns: Semaphore::new(AT_ONCE) }
    }
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters the line of a namespace; `None` if that is full, or all lines together, which is logged once, until
    /// nobody waits.
    fn enter(lines: &Arc<Self>, namespace: &str) -> Option<Place> {
        let mut waiting = lines.lock();
        let length = waiting.by_namespace.get(namespace).map_or(0, |line| line.length);
        let room = Arc::clone(&lines.room).try_acquire_owned().ok();
        let Some(room) = room.filter(|_| length < OF_ONE) else {
            let Waiting { by_namespace, said } = &mut *waiting;
            let line = by_namespace.get_mut(namespace).filter(|_| length == OF_ONE);
            if !std::mem::replace(line.map_or(said, |line| &mut line.said), true) {
                tracing::warn!(namespace, "events are not written: too many wait to be");
            }
            return None;
        };
        let line = waiting.by_namespace.entry(namespace.to_owned()).or_insert_with(|| Line {
            length: 0,
            turns: Arc::new(Semaphore::new(OF_ONE_AT_ONCE)),
            said: false,
        });
        line.length += 1;
        let turns = Arc::clone(&line.turns);
        drop(waiting);
        let (lines, namespace) = (Arc::clone(lines), namespace.to_owned());
        Some(Place { lines, namespace, turns, _room: room })
    }
}

impl Place {
    /// Waits for a turn in the namespace, and then for one among all.
    async fn turn(&self) -> [Option<SemaphorePermit<'_>>; 2] {
        // The semaphores are never closed.
        [self.turns.acquire().await.ok(), self.lines.turns.acquire().await.ok()]
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = self.lines.lock();
        let Some(line) = waiting.by_namespace.get_mut(&self.namespace) else { return };
        line.length -= 1;
        if line.length == 0 {
            waiting.by_namespace.remove(&self.namespace);
        }
        waiting.said &= !waiting.by_namespace.is_empty();
    }
}

/// Whether an event was forbidden because the right is missing, and not because its namespace is being deleted or full.
fn lacks_right(why: &str) -> bool {
    !is_of_a_namespace_that_goes(why) && !why.contains("exceeded quota")
}

/// The event of an operation; `None` if there is nothing to explain. Its name is the same for the same end of an
/// operation, and for the same reason why it does not progress: two leaders write it once.
fn event(record: &Record, name: &str, uid: &str, namespace: &str) -> Option<Event> {
    let operation = &record.operation;
    let action = operation.action.as_str();
    let (what, at, message, which) = match (&operation.phase, operation.said()) {
        (Phase::Failed(failure), _) => {
            let why = pascal(failure.reason.as_str());
            let message = format!("{why} ({action}): {}", failure.description);
            ("Failed", operation.ended_at.unwrap_or(record.updated_at), message, String::new())
        }
        (_, Some(said)) if record.is_busy() => {
            let which = format!(".{}", names::hash([said]));
            ("Waits", record.updated_at, said.to_owned(), which)
        }
        _ => return None,
    };
    let told = Told {
        api_version: &resources::api_version(),
        kind: Kind::of(&record.key).name(),
        namespace,
        name,
        uid,
        reason: &format!("{}{what}", pascal(action)),
        message: &message,
        at: &time(at.0),
    };
    warning(&format!("{name}.{}{which}", operation.id), &told)
}

/// The content of an event.
pub(crate) struct Told<'t> {
    pub(crate) api_version: &'t str,
    pub(crate) kind: &'t str,
    pub(crate) namespace: &'t str,
    pub(crate) name: &'t str,
    pub(crate) uid: &'t str,
    /// The reason, in one word.
    pub(crate) reason: &'t str,
    /// The message for people.
    pub(crate) message: &'t str,
    /// When it happened (RFC 3339).
    pub(crate) at: &'t str,
}

/// A warning event of this name.
pub(crate) fn warning(name: &str, told: &Told<'_>) -> Option<Event> {
    let event: Value = json!({
        "metadata": {"name": name, "namespace": told.namespace},
        "involvedObject": {
            "apiVersion": told.api_version,
            "kind": told.kind,
            "name": told.name,
            "namespace": told.namespace,
            "uid": told.uid,
        },
        "type": "Warning",
        "reason": told.reason,
        "message": &told.message[..told.message.floor_char_boundary(MAX_NOTE_BYTES)],
        "firstTimestamp": told.at,
        "lastTimestamp": told.at,
        "count": 1,
        "source": {"component": names::MANAGED_BY.1},
    });
    serde_json::from_value(event).ok()
}

#[cfg(test)]
mod tests {
    use engine::record::{OperationFailure, Reason};
    use engine::testing::store_contract::sample;
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn an_operation_that_failed_or_does_not_get_on_is_told_and_no_other() {
        let mut record = sample("i");
        assert_eq!(event(&record, "instance-x", "u", "n"), None);
        record.operation.progress = Some("halfway".to_owned());
        assert_eq!(event(&record, "instance-x", "u", "n"), None, "it has ended");
        record.operation.phase = Phase::Pending { not_before: None };
        let waits = event(&record, "instance-x", "u", "n").unwrap();
        assert_eq!(waits.reason.as_deref(), Some("ProvisionWaits"));
        assert_eq!(waits.message.as_deref(), Some("halfway"));
        record.operation.waits = Some("another reason".to_owned());
        let other = event(&record, "instance-x", "u", "n").unwrap();
        assert_ne!(waits.metadata.name, other.metadata.name, "both are told");
        let failure = OperationFailure::new(Reason::ExitStatus, "ü".repeat(2000));
        record.operation.phase = Phase::Failed(failure);
        let event = event(&record, "instance-x", "u", "n").unwrap();
        assert_eq!(event.reason.as_deref(), Some("ProvisionFailed"));
        assert_eq!(event.involved_object.kind.as_deref(), Some("ServiceInstance"));
        let message = event.message.unwrap();
        assert!(
            message.starts_with("ExitStatus (provision): ü") && message.len() <= MAX_NOTE_BYTES
        );
    }

    #[tokio::test]
    async fn however_slow_one_namespace_is_there_is_room_for_the_events_of_others() {
        let lines = Arc::<Lines>::default();
        let mut slow: Vec<_> = (0..OF_ONE).map(|_| Lines::enter(&lines, "slow")).collect();
        assert!(slow.iter().all(Option::is_some));
        assert!(Lines::enter(&lines, "slow").is_none(), "its line is full");
        let mut turns = Vec::new();
        for place in slow.iter().flatten().take(OF_ONE_AT_ONCE) {
            turns.push(place.turn().now_or_never().expect("it is its turn"));
        }
        let next = slow[OF_ONE_AT_ONCE].as_ref().unwrap();
        assert!(next.turn().now_or_never().is_none(), "as many are written as may be");
        let other = Lines::enter(&lines, "other").expect("that is a line of its own");
        assert!(other.turn().now_or_never().is_some());
        turns.pop();
        assert!(next.turn().now_or_never().is_some(), "one was written");
        let said = |name: &str| lines.lock().by_namespace[name].said;
        assert!(said("slow") && !said("other"));
        drop(turns);
        slow.pop();
        assert!(Lines::enter(&lines, "slow").is_some());
        let names: Vec<String> = (0..OF_ALL).map(|number| number.to_string()).collect();
        let all: Vec<_> = names.iter().map(|name| Lines::enter(&lines, name)).collect();
        let room = OF_ALL - OF_ONE;
        assert!(all[..room].iter().all(Option::is_some) && all[room..].iter().all(Option::is_none));
        assert!(lines.lock().said);
        drop((slow, other, all));
        let waiting = lines.lock();
        assert!(waiting.by_namespace.is_empty() && !waiting.said, "nothing is left of them");
        drop(waiting);
        assert!(Lines::enter(&lines, "slow").is_some());
    }

    #[test]
    fn a_missing_right_is_told_from_a_place_that_takes_nothing() {
        for (why, lacks) in [
            (
                "events is forbidden: User \"system:serviceaccount:n:a\" cannot create resource \"events\"",
                true,
            ),
            (
                "events \"e\" is forbidden: exceeded quota: q, requested: count/events=1, used: 9",
                false,
            ),
            (
                "events \"e\" is forbidden: unable to create new content in namespace n because it is being terminated",
                false,
            ),
        ] {
            assert_eq!(lacks_right(why), lacks, "{why}");
        }
    }
}
