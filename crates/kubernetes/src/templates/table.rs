//! What is known of all instances: whole of those with something to do, of others hardly more than their names.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use kube::ResourceExt as _;
use kube::api::DynamicObject;

use super::await_ready::Follower;
use super::record::Values;
use super::resource::{Instance, Key};
use super::status::Made;

/// Where instances are watched: a namespace, or everywhere.
pub(super) type Scope = Option<Arc<str>>;

/// All that is known.
#[derive(Default)]
pub(super) struct Table {
    entries: HashMap<Key, Entry>,
    /// Where all there are were heard of.
    pub(super) listed: HashSet<Scope>,
}

#[derive(Default)]
pub(super) struct Entry {
    /// `None` where nothing is left to do.
    instance: Option<Arc<Instance>>,
    uid: String,
    pub(super) work: Work,
}

/// What this process knows of what it does. Whoever comes after finds it out anew.
#[derive(Default)]
pub(super) struct Work {
    /// The recorded values.
    pub(super) values: Option<Values>,
    /// Objects that were made and are not in the status yet, by their place in the template.
    pub(super) made: BTreeMap<usize, Made>,
    /// How often it seemed not to go.
    pub(super) doubts: u32,
    pub(super) follower: Option<Follower>,
    /// Objects whose removal was asked for, by their uids.
    pub(super) removing: HashSet<String>,
    /// Its objects are to stay without it (`kubectl delete --cascade=orphan`).
    pub(super) orphans: bool,
}

impl Table {
    /// Takes one as it was read; whether there may be something to do.
    pub(super) fn learn(&mut self, object: DynamicObject) -> Option<Key> {
        let instance = Instance::of(object)?;
        let key = instance.key.clone();
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.uid != *instance.uid {
            *entry = Entry { uid: instance.uid.to_string(), ..Entry::default() };
        }
        let orphans = |finalizer: &String| finalizer == "orphan";
        entry.work.orphans |= instance.deleting && instance.finalizers.iter().any(orphans);
        if instance.has_ended() && !instance.deleting {
            entry.instance = None;
            entry.work = Work::default();
            return None;
        }
        entry.instance = Some(Arc::new(instance));
        Some(key)
    }

    pub(super) fn forget(&mut self, object: &DynamicObject) {
        let Some(key) = Key::of(object) else { return };
        let uid = object.uid().unwrap_or_default();
        if self.entries.get(&key).is_some_and(|entry| entry.uid == uid) {
            self.entries.remove(&key);
        }
    }

    /// A scope has no others than these.
    pub(super) fn keep(&mut self, scope: &Scope, listed: &HashSet<Key>) {
        let is_of = |key: &Key| scope.as_ref().is_none_or(|scope| *scope == key.namespace);
        self.entries.retain(|key, _| !is_of(key) || listed.contains(key));
        self.listed.insert(scope.clone());
    }

    pub(super) fn remove(&mut self, key: &Key) {
        self.entries.remove(key);
    }

    /// One with something to do.
    pub(super) fn instance(&self, key: &Key) -> Option<Arc<Instance>> {
        self.entries.get(key)?.instance.clone()
    }

    pub(super) fn work(&mut self, key: &Key) -> Option<&mut Work> {
        self.entries.get_mut(key).map(|entry| &mut entry.work)
    }

    /// Those with something to do.
    pub(super) fn open(&self) -> Vec<Key> {
        let open = self.entries.iter().filter(|(_, entry)| entry.instance.is_some());
        open.map(|(key, _)| key.clone()).collect()
    }

    /// How many there are, and how many of them have something to do.
    pub(super) fn count(&self) -> (usize, usize) {
        let open = self.entries.values().filter(|entry| entry.instance.is_some());
        (self.entries.len(), open.count())
    }
}
