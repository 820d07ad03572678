//! The table of all instances: whole instances where something is to do, hardly more than the names of the others.
//!
//! An instance may be as large as anything that etcd takes, and anybody may order many. So the memory for all of them
//! together is limited; of the instances beyond the limit only the names are kept, and each is read again for its turn.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::await_ready::Follower;
use super::record::StoredRecord;
use super::resource::{Instance, Key};
use super::seen::SeenInstance;
use super::status::Made;

/// Where instances are watched: one namespace, or all (`None`).
pub(super) type Scope = Option<Arc<str>>;

/// How many times the length of its record the redactor of an instance takes, while its objects are followed.
const HIDES: usize = 16;

/// How many bytes of texts and records the table keeps of all instances with something to do.
const MOST_KEPT: usize = 64 << 20;

/// All instances that the controller knows of.
pub(super) struct Table {
    entries: HashMap<Key, Entry>,
    /// The scopes whose instances have been listed completely.
    pub(super) listed: HashSet<Scope>,
    /// How many bytes the kept instances take together; `most` is the limit for keeping those that no worker processes.
    kept: usize,
    pub(super) most: usize,
}

impl Default for Table {
    fn default() -> Self {
        let (entries, listed) = (HashMap::new(), HashSet::new());
        Self { entries, listed, kept: 0, most: MOST_KEPT }
    }
}

#[derive(Default)]
struct Entry {
    /// `None` where the instance has nothing left to do.
    open: Option<Open>,
    /// The newest `resourceVersion` that was seen of the instance.
    version: String,
    /// When the instance is next checked for drift.
    due: Option<Instant>,
    work: Work,
    /// Whether a worker processes the instance: until it ends everything of the instance is kept.
    attended: bool,
    /// How many bytes this entry takes, as counted in [`Table::kept`].
    kept: usize,
}

impl Entry {
    fn takes(&self) -> usize {
        let seen = self.open.as_ref().and_then(|open| open.seen.as_ref().ok());
        let record = self.work.record.as_ref().map_or(0, |kept| kept.length());
        let hides = if self.work.follower.is_some() { HIDES } else { 0 };
        seen.map_or(0, |seen| seen.length()) + record * (1 + hides)
    }

    fn is_unread(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.seen.is_err())
    }

    fn let_go(&mut self) {
        if let Some(open) = &mut self.open {
            open.seen =
                open.seen.as_ref().map_or_else(|weight| Err(*weight), |seen| Err(seen.weight()));
            (self.work.record, self.work.follower) = (None, None);
        }
    }
}

/// An instance with something to do.
struct Open {
    /// The instance as it was read; where that is not kept, how many bytes its spec takes once it is parsed.
    seen: Result<Arc<SeenInstance>, usize>,
    begun_at: jiff::Timestamp,
    /// The parsed instance, as long as somebody uses it: parsed, it takes many times the memory of its text.
    read: Weak<Instance>,
}

/// What this process knows of its own work on an instance. Whoever leads next finds it out anew.
#[derive(Default)]
pub(super) struct Work {
    pub(super) record: Option<Arc<StoredRecord>>,
    /// The revision that all of this belongs to; `record` may not be kept.
    pub(super) revision: Option<u64>,
    /// Objects that were made and are not in the status yet, by their index in the template.
    pub(super) made: BTreeMap<usize, Made>,
    /// The `resourceVersion` to which objects were changed, by their uids: an older state precedes the change.
    pub(super) changed: HashMap<String, String>,
    /// The name of the binding Secret, which workloads are given.
    pub(super) binding: Option<String>,
    /// How often processing met a doubtful trouble, and since when.
    pub(super) doubts: Option<(u32, Instant)>,
    /// When the last call that may have made something remained unanswered.
    pub(super) unanswered: Option<Instant>,
    pub(super) follower: Option<Follower>,
    /// Objects that are already gone, by their uids.
    pub(super) gone: HashSet<String>,
    /// Objects whose kind the API server does not serve, by their uids, and since when.
    pub(super) unknown: HashMap<String, Instant>,
    /// How often the removal of the objects was checked.
    pub(super) looks: u32,
    /// Whether the instance was seen being deleted with its objects orphaned, which it may not say any more.
    pub(super) is_orphaned: bool,
    /// Since when another controller has to remove the instance, and whether that was logged.
    pub(super) stranger: Option<(Instant, bool)>,
}

impl Work {
    /// Sets the record by which work goes on; what belongs to another revision is dropped.
    pub(super) fn take_up(&mut self, kept: &Arc<StoredRecord>) {
        let revision = kept.record.revision;
        let before = self.revision.replace(revision);
        self.record = Some(Arc::clone(kept));
        if before.is_some_and(|before| before != revision) {
            (self.made, self.follower) = (BTreeMap::new(), None);
        }
    }
}

impl Table {
    /// Takes an instance as it was read; its key, if it is news and has something to do or to be looked after.
    pub(super) fn learn(&mut self, seen: SeenInstance) -> Option<Key> {
        let seen = Arc::new(seen);
        let instance = Instance::of(Arc::clone(&seen))?;
        let key = instance.key.clone();
        let is_new = !self.entries.contains_key(&key);
        let entry = self.entries.entry(key.clone()).or_default();
        let is_wanted = entry.attended && entry.version == instance.version && entry.is_unread();
        if !is_wanted && !is_newer(&instance.version, &entry.version) {
            return None;
        }
        entry.version.clone_from(&instance.version);
        if instance.has_ended() && !instance.is_changed() && !instance.deleting {
            let unanswered = entry.work.unanswered;
            (entry.open, entry.work) = (None, Work { unanswered, ..Work::default() });
            self.weigh(&key);
            return is_new.then_some(key);
        }
        let begun_at = instance.begun_at();
        entry.open = Some(Open { seen: Ok(seen), begun_at, read: Weak::new() });
        self.weigh(&key);
        Some(key)
    }

    /// Counts what is kept of an instance. Where all instances then take more than the limit and no worker processes
    /// this one, its contents are dropped.
    fn weigh(&mut self, key: &Key) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        self.kept -= entry.kept;
        entry.kept = entry.takes();
        if !entry.attended && self.kept + entry.kept > self.most {
            entry.let_go();
            entry.kept = entry.takes();
        }
        self.kept += entry.kept;
    }

    /// Marks an instance as being processed. Returns it as it was read, or how many bytes its spec takes once it is
    /// parsed; `None` if it has nothing to do.
    pub(super) fn attend(&mut self, key: &Key) -> Option<Result<Arc<SeenInstance>, usize>> {
        let entry = self.entries.get_mut(key)?;
        entry.attended = true;
        entry.open.as_ref().map(|open| open.seen.clone())
    }

    /// Marks an instance as not being processed any more.
    pub(super) fn leave(&mut self, key: &Key) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.attended = false;
            self.weigh(key);
        }
    }

    /// Whether there is room to keep further instances.
    pub(super) fn has_room(&self) -> bool {
        self.kept < self.most
    }

    /// Whether an instance has something to do and has to be read again for it.
    pub(super) fn is_unread(&self, key: &Key) -> bool {
        self.entries.get(key).is_some_and(Entry::is_unread)
    }

    /// Drops the instances of a scope that are not among those `listed`, and notes that the scope has been listed.
    pub(super) fn keep(&mut self, scope: &Scope, listed: &HashSet<Key>) {
        let is_of = |key: &Key| scope.as_ref().is_none_or(|scope| *scope == key.namespace);
        self.entries.retain(|key, _| !is_of(key) || listed.contains(key));
        self.kept = self.entries.values().map(|entry| entry.kept).sum();
        self.listed.insert(scope.clone());
    }

    pub(super) fn remove(&mut self, key: &Key) {
        let removed = self.entries.remove(key);
        self.kept -= removed.map_or(0, |entry| entry.kept);
    }

    /// The parsed instance, if it has something to do and has been read; all callers share one copy.
    pub(super) fn instance(&mut self, key: &Key) -> Option<Arc<Instance>> {
        let open = self.entries.get_mut(key)?.open.as_mut()?;
        if let Some(instance) = open.read.upgrade() {
            return Some(instance);
        }
        let seen = open.seen.as_ref().ok()?;
        let instance = Arc::new(Instance::of(Arc::clone(seen))?);
        open.read = Arc::downgrade(&instance);
        Some(instance)
    }

    pub(super) fn work(&mut self, key: &Key) -> Option<&mut Work> {
        self.entries.get_mut(key).map(|entry| &mut entry.work)
    }

    /// Drops what is known of this process's own work: another controller leads, so it becomes outdated.
    pub(super) fn give_up(&mut self) {
        for entry in self.entries.values_mut() {
            (entry.work, entry.due) = (Work::default(), None);
            entry.kept = entry.takes();
        }
        self.kept = self.entries.values().map(|entry| entry.kept).sum();
    }

    /// When an instance is checked for drift: at `first`, if nothing was set. `None` for one that is not in the table.
    pub(super) fn due(&mut self, key: &Key, first: Instant) -> Option<Instant> {
        Some(*self.entries.get_mut(key)?.due.get_or_insert(first))
    }

    /// Sets when an instance is next checked for drift.
    pub(super) fn look_again_at(&mut self, key: &Key, at: Instant) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.due = Some(at);
        }
    }

    /// The keys of all instances.
    pub(super) fn all(&self) -> Vec<Key> {
        self.entries.keys().cloned().collect()
    }

    /// How many instances there are, and since when each of those with something to do is being processed.
    pub(super) fn begun(&self) -> (usize, Vec<jiff::Timestamp>) {
        let open = self.entries.values().filter_map(|entry| entry.open.as_ref());
        (self.entries.len(), open.map(|open| open.begun_at).collect())
    }
}

/// Whether `version` is newer than the `known` one. Versions are growing numbers; where they are not, any other is
/// newer.
pub(super) fn is_newer(version: &str, known: &str) -> bool {
    match (version.parse::<u64>(), known.parse::<u64>()) {
        (Ok(version), Ok(known)) => version > known,
        _ => version != known,
    }
}
