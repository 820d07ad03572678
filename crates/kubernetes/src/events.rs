//! Events, for those who have nothing but `kubectl describe`: an operation that failed, or does not get on, and why.
//!
//! What goes on as it should is in the conditions, which are written anyway; an event for each step would cost a
//! call for each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use engine::Observer;
use engine::record::{Key, Phase, Record};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::calls::{CallError, call, is_of_a_namespace_that_goes};
use crate::names;
use crate::resources::{self, Kind, pascal, time};
use crate::store::KubernetesStore;

/// So many are written at a time; the others wait.
const AT_ONCE: usize = 64;
/// How many may wait: what is told of more than that is not, where an API server answers none of them.
const WAITING: usize = 4096;

/// The longest note that the API server takes, in bytes.
const MAX_NOTE_BYTES: usize = 1024;

/// Tells the resources of failed operations, and whoever else listens.
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

/// Tells a resource that somebody has deleted why it stays. As long as it is there for the same reason and the event
/// is kept, an hour by default, that is one event; after that it is told again.
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

/// Writes an event. Nothing depends on it, and nobody waits for it; that the right to is missing is said once.
pub(crate) fn write(events: Api<Event>, event: Event) {
    static SAID: AtomicBool = AtomicBool::new(false);
    static ROOM: Semaphore = Semaphore::const_new(WAITING);
    static TURNS: Semaphore = Semaphore::const_new(AT_ONCE);
    let Ok(room) = ROOM.try_acquire() else {
        tracing::warn!(why = event.message, "an event was not written: too many wait to be");
        return;
    };
    tokio::spawn(async move {
        let _held = (room, TURNS.acquire().await);
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

/// Whether that is why an event was forbidden: into a namespace that goes nothing is let, nor into a full one.
fn lacks_right(why: &str) -> bool {
    !is_of_a_namespace_that_goes(why) && !why.contains("exceeded quota")
}

/// `None` if there is nothing to explain. One name for one end of one operation, and for each reason that it does not
/// get on: two leaders tell it once.
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

/// What somebody is to know of a resource.
pub(crate) struct Told<'t> {
    pub(crate) api_version: &'t str,
    pub(crate) kind: &'t str,
    pub(crate) namespace: &'t str,
    pub(crate) name: &'t str,
    pub(crate) uid: &'t str,
    /// In one word.
    pub(crate) reason: &'t str,
    /// For people.
    pub(crate) message: &'t str,
    /// RFC 3339.
    pub(crate) at: &'t str,
}

/// As an event of this name.
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
