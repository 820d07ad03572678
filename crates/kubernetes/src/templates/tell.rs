//! What others are told of instances, beside what they say themselves: events of what went wrong, and counts.

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

/// How much of an instance's name the name of an event has: 16 digits and a dot come after it.
const NAME: usize = 236;

/// What has happened since the start.
#[derive(Debug, Default)]
pub(super) struct Counters {
    ready: AtomicU64,
    failed: AtomicU64,
}

/// How it stands, and what has happened since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    /// How many instances there are.
    pub known: usize,
    /// How long those that are neither ready nor have failed are at it, in seconds.
    pub ages: Vec<u64>,
    /// How many became ready.
    pub ready: u64,
    /// How many failed.
    pub failed: u64,
}

impl Controller {
    /// How it stands, and what has happened since the start.
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

    /// It was said how it stands.
    pub(super) fn tell(&self, instance: &Instance, stand: &Stand) {
        match stand {
            Stand::Ready => drop(self.counters.ready.fetch_add(1, Ordering::Relaxed)),
            Stand::Failed { why, .. } => {
                self.counters.failed.fetch_add(1, Ordering::Relaxed);
                self.tell_event(instance, "Failed", why);
            }
            // The original's word.
            Stand::Retrying(why) if instance.deleting => {
                self.tell_event(instance, "DeletionFailure", why);
            }
            Stand::Retrying(_) | Stand::Waiting(_) | Stand::Changing => {}
        }
    }

    /// An event of what went wrong. What was told once is not told again.
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
