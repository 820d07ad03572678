//! Reports about instances beside their status: events about failures, and counts.

use std::sync::atomic::{AtomicU64, Ordering};

use data_encoding::HEXLOWER;
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use ring::digest::{SHA256, digest};

use super::Controller;
use super::names::{GROUP, Kind, VERSION};
use super::resource::Instance;
use super::status::Stand;
use crate::events::{Told, warning, write};

/// How many characters of the instance's name an event's name has: a dot and 16 digits follow.
const NAME: usize = 236;

/// Counts of instances that ended since the start.
#[derive(Debug, Default)]
pub(super) struct Counters {
    ready: AtomicU64,
    failed: AtomicU64,
}

/// Counts of instances: the present ones, and those that ended since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    /// How many instances exist.
    pub known: usize,
    /// For each instance that is neither ready nor failed, for how many seconds it has been processed.
    pub ages: Vec<u64>,
    /// How many instances became ready since the start.
    pub ready: u64,
    /// How many instances failed since the start.
    pub failed: u64,
}

impl Controller {
    /// The present counts.
    pub fn counts(&self) -> Counts {
        let now = self.now();
        let (known, begun) = self.table().begun();
        let age = |at: jiff::Timestamp| u64::try_from(now.duration_since(at).as_secs());
        Counts {
            known,
            ages: begun.into_iter().map(|at| age(at).unwrap_or_default()).collect(),
            ready: self.counters.ready.load(Ordering::Relaxed),
            failed: self.counters.failed.load(Ordering::Relaxed),
        }
    }

    /// Counts a state that was written to the status, and tells a failure in an event.
    pub(super) fn tell(&self, instance: &Instance, stand: &Stand) {
        match stand {
            Stand::Ready => drop(self.counters.ready.fetch_add(1, Ordering::Relaxed)),
            Stand::Failed { why, .. } => {
                self.counters.failed.fetch_add(1, Ordering::Relaxed);
                self.tell_event(instance, "Failed", why);
            }
            // OpenShift's event reason.
            Stand::Retrying(why) if instance.deleting => {
                self.tell_event(instance, "DeletionFailure", why);
            }
            Stand::Retrying(_) | Stand::Waiting(_) | Stand::Changing => {}
        }
    }

    /// Writes an event about a failure; the same one is not written twice.
    pub(super) fn tell_event(&self, instance: &Instance, reason: &str, message: &str) {
        let key = &instance.key;
        let told = Told {
            api_version: &format!("{GROUP}/{VERSION}"),
            kind: Kind::TemplateInstance.name(),
            namespace: &key.namespace,
            name: &key.name,
            uid: &key.uid,
            reason,
            message,
            at: &self.now().to_string(),
        };
        let of = digest(&SHA256, [&*key.uid, reason, message].join("\0").as_bytes());
        let of = HEXLOWER.encode(of.as_ref().get(..8).unwrap_or_default());
        let name: String = key.name.chars().take(NAME).collect();
        let Some(event) = warning(&format!("{name}.{of}"), &told) else { return };
        let events: Api<Event> = Api::namespaced(self.client.clone(), &key.namespace);
        write(events, event);
    }
}
