//! An entry: a record as its resource has it, kept by the watch in few bytes.

use engine::ports::{Filter, StoreError};
use engine::record::{Key, Lifecycle, Record, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DynamicObject, ObjectMeta};
use osb::{Action, PlanId, ServiceId};
use serde_json::Error as Why;

use crate::calls::{created, version_of};
use crate::names;
use crate::resources::Since;
use crate::split::{self, Places, Written};

/// The key of a ConfigMap's data that holds a tombstone.
pub(super) const TOMBSTONE_KEY: &str = "record";

/// A record without its confidential parts.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: Key,
    /// The `resourceVersion` of the resource, which is the record's version.
    pub(crate) version: u64,
    /// The uid of the resource, which owns the Secret.
    pub(crate) uid: String,
    /// When the resource was made, in seconds since 1970, by the API server's clock.
    pub(crate) made: i64,
    pub(crate) from: StandsIn,
    /// [`Written`], as JSON.
    pub(crate) text: Box<str>,
    pub(crate) places: Places,
    /// The service and the plan of the record.
    pub(crate) plan: Option<(ServiceId, PlanId)>,
    pub(crate) busy: bool,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) updated_at: Timestamp,
    /// The action of the operation in progress, or of the last one.
    pub(crate) action: Action,
    /// Whether the resource is being deleted.
    pub(crate) deleting: bool,
    /// Whether the resource has our finalizer.
    pub(crate) held: bool,
    /// The finalizers that others have put on the resource: most have none.
    pub(crate) others: Box<[String]>,
    /// What is wrong with the record, if it cannot be read.
    pub(crate) damage: Option<Box<Damage>>,
}

/// Where an entry was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StandsIn {
    /// The annotation of the first write: the Secret may not exist yet.
    First,
    Resource,
    Tombstone,
}

/// What is known of a record that cannot be read.
#[derive(Debug)]
pub(crate) struct Damage {
    pub(crate) why: String,
    /// Whether an operation may be in progress: the resource does not say that the last one has ended.
    pub(crate) may_be_busy: bool,
}

impl Entry {
    /// Reads the entry of a resource; `None` if it holds no record of ours. If the record cannot be read, the entry is
    /// a damaged one where `key` tells its key, otherwise an error.
    pub(super) fn of_resource(
        object: &DynamicObject,
        key: impl FnOnce() -> Option<Key>,
    ) -> Option<Result<Self, Why>> {
        let kept = object.data.pointer("/status/record").and_then(serde_json::Value::as_str);
        let first = || object.metadata.annotations.as_ref()?.get(names::RECORD).map(String::as_str);
        let text = kept.or_else(first)?;
        let from = if kept.is_some() { StandsIn::Resource } else { StandsIn::First };
        let entry = Self::read(text, from);
        Some(match entry {
            Ok(entry) => Ok(entry.of(&object.metadata)),
            Err(why) => match key() {
                Some(key) => Ok(Self::damaged(key, from, &why, object)),
                None => Err(why),
            },
        })
    }

    /// Completes the entry by the metadata of its resource.
    pub(super) fn of(self, metadata: &ObjectMeta) -> Self {
        let all = metadata.finalizers.iter().flatten();
        let ours = |finalizer: &&String| *finalizer == names::FINALIZER;
        Self {
            version: version_of(metadata.resource_version.as_deref()),
            uid: metadata.uid.clone().unwrap_or_default(),
            made: created(metadata),
            deleting: metadata.deletion_timestamp.is_some(),
            held: all.clone().any(|finalizer| ours(&finalizer)),
            others: all.filter(|finalizer| !ours(finalizer)).cloned().collect(),
            ..self
        }
    }

    /// Reads the entry of a tombstone; `None` if it is none. If the record cannot be read, the entry is a damaged one
    /// where its key is known, otherwise an error.
    pub(super) fn of_tombstone(object: &ConfigMap, key: Option<&Key>) -> Option<Result<Self, Why>> {
        let text = object.data.as_ref()?.get(TOMBSTONE_KEY)?;
        let entry = Self::read(text, StandsIn::Tombstone);
        Some(match (entry, key) {
            (Ok(entry), _) => Ok(entry.of(&object.metadata)),
            (Err(why), Some(key)) => Ok(Self::damaged_tombstone(key, &why, object)),
            (Err(why), None) => Err(why),
        })
    }

    /// The record without its confidential parts.
    pub(super) fn bare(&self) -> Result<Record, StoreError> {
        if let Some(damage) = &self.damage {
            return Err(unreadable(&self.key, &damage.why));
        }
        let record = serde_json::from_str(&self.text).and_then(bare);
        record.map_err(|error| unreadable(&self.key, &error.to_string()))
    }

    fn read(text: &str, from: StandsIn) -> Result<Self, Why> {
        let written: Written = serde_json::from_str(text)?;
        let (places, record) = (written.places.clone(), bare(written)?);
        Ok(Self::new(&record, places, text.into(), from))
    }

    /// The entry of a record, without the metadata of a resource: see [`Self::of`].
    pub(super) fn new(record: &Record, places: Places, text: Box<str>, from: StandsIn) -> Self {
        Self {
            key: record.key.clone(),
            version: 0,
            uid: String::new(),
            made: 0,
            from,
            text,
            places,
            plan: Some((record.ordered.service_id.clone(), record.ordered.plan_id.clone())),
            busy: record.is_busy(),
            lifecycle: record.lifecycle,
            updated_at: record.updated_at,
            action: record.operation.action,
            deleting: false,
            held: true,
            others: Box::default(),
            damage: None,
        }
    }

    /// Whether a list with this filter includes the entry.
    pub(super) fn passes(&self, filter: Filter) -> bool {
        match filter {
            Filter::All => true,
            Filter::Live => self.is_live(),
            Filter::Busy => self.busy || self.damage.as_ref().is_some_and(|it| it.may_be_busy),
            Filter::DeletedBefore(when) => !self.is_live() && self.updated_at < when,
        }
    }

    /// Whether somebody deleted the resource while its instance or binding still exists: it is to be removed, as by a
    /// platform's delete, which does not wait for it to be made.
    pub(super) fn is_unwanted(&self) -> bool {
        let waits = self.busy && !matches!(self.action, Action::Provision | Action::Bind);
        !self.is_tombstone() && self.is_live() && self.deleting && !waits
    }

    /// Whether a resource that a watch reported as gone has only lost its labels: our finalizer still holds it. This is
    /// not said of a resource that is being deleted: it goes with its finalizer, in one step.
    pub(super) fn is_out_of_sight(&self) -> bool {
        !self.is_tombstone() && self.held && !self.deleting
    }

    /// Since when the conditions are as they are, if that was written.
    pub(super) fn since(&self) -> Option<Since> {
        #[derive(serde::Deserialize)]
        struct Only {
            since: Option<Since>,
        }
        serde_json::from_str::<Only>(&self.text).ok()?.since
    }

    pub(super) fn is_live(&self) -> bool {
        self.lifecycle != Lifecycle::Deleted
    }
}

/// A record without its confidential parts.
fn bare(written: Written) -> Result<Record, Why> {
    split::join(split::Parts {
        public: written.record,
        order: serde_json::Map::new(),
        rest: serde_json::Map::new(),
    })
}

/// The error for a record that cannot be read.
pub(super) fn unreadable(key: &Key, why: &str) -> StoreError {
    StoreError::Unreadable { key: key.to_string(), why: why.to_owned() }
}
