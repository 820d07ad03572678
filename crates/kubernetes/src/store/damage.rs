//! Damaged records, which cannot be read: a newer release has written them, or somebody by hand.
//!
//! Such a record still exists: it is listed, blocks what it would block if it were readable, and can be discarded. Its
//! key and its plan are taken from the spec of its resource.

use engine::ports::StoreError;
use engine::record::{Key, Lifecycle, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DynamicObject, ObjectMeta};
use osb::{Action, BindingId, InstanceId, PlanId, ServiceId};
use serde_json::{Error, Value};

use super::RecordApi;
use super::entry::{Damage, Entry, StandsIn};
use crate::resources::Kind;
use crate::split::Places;

impl Entry {
    /// The entry of a record that cannot be read, by the rest of its resource. It counts as existing, and no operation
    /// of it is carried on. If its finalizer was removed it is not ours any more.
    pub(super) fn damaged(key: Key, from: StandsIn, why: &Error, object: &DynamicObject) -> Self {
        let said = |at: &str| object.data.pointer(at).and_then(Value::as_str);
        let may_be_busy =
            !matches!(said("/status/lastOperation/state"), Some("Succeeded" | "Failed"));
        let service = said("/spec/serviceID").and_then(|id| ServiceId::new(id).ok());
        let plan = said("/spec/planID").and_then(|id| PlanId::new(id).ok());
        let entry = Self { plan: service.zip(plan), ..Self::unread(key, from, why, may_be_busy) };
        let entry = entry.of(&object.metadata);
        let is_let_go = entry.deleting && !entry.held;
        Self { lifecycle: if is_let_go { Lifecycle::Deleted } else { Lifecycle::Broken }, ..entry }
    }

    pub(super) fn damaged_tombstone(key: &Key, why: &Error, object: &ConfigMap) -> Self {
        Self::unread(key.clone(), StandsIn::Tombstone, why, false).of(&object.metadata)
    }

    fn unread(key: Key, from: StandsIn, why: &Error, may_be_busy: bool) -> Self {
        Self {
            key,
            version: 0,
            uid: String::new(),
            made: 0,
            from,
            text: Box::default(),
            places: Places::default(),
            plan: None,
            busy: false,
            lifecycle: Lifecycle::Broken,
            updated_at: Timestamp(0),
            action: Action::Provision,
            deleting: false,
            held: false,
            others: Box::default(),
            damage: Some(Box::new(Damage { why: why.to_string(), may_be_busy })),
        }
    }
}

impl RecordApi {
    /// The entry in a resource; `None` if it holds no record of ours.
    ///
    /// # Errors
    /// If the record cannot be read, and the spec does not say whose it is.
    pub(super) fn entry(&self, object: &DynamicObject) -> Option<Result<Entry, Error>> {
        self.own(Entry::of_resource(object, || self.key_of(object)), &object.metadata)
    }

    /// The key of a resource's record, by its spec, if the name agrees: anybody may have written to it.
    fn key_of(&self, object: &DynamicObject) -> Option<Key> {
        let id = |name: &str| object.data["spec"][name].as_str();
        let instance = InstanceId::new(id("instanceID")?).ok()?;
        let key = Key::of(instance, id("bindingID").map(BindingId::new).transpose().ok()?);
        (object.metadata.name.as_deref() == Some(&*self.name(&key))).then_some(key)
    }
}

/// The error for the records of an instance where one of the resources does not say whose record it has.
pub(super) fn nameless(kind: Kind, metadata: &ObjectMeta, why: &str) -> StoreError {
    let name = metadata.name.as_deref().unwrap_or_default();
    StoreError::Unreadable {
        key: format!("the record of {} {name}", kind.name()),
        why: format!(
            "{why}; nor does its spec say which record it is: put its status.record right, or its spec, and then \
             it can be purged"
        ),
    }
}
