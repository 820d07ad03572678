//! What is known of all instances: whole of those with something to do, of others hardly more than their names.
//!
//! An instance may be as large as anything that etcd takes, and anybody may order many. So there is a limit to what is kept
//! of all; of those beyond it the names are known, and each is read again for its turn.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::await_ready::Follower;
use super::record::StoredRecord;
use super::resource::{Instance, Key};
use super::seen::SeenInstance;
use super::status::Made;

/// Where instances are watched: a namespace, or everywhere.
pub(super) type Scope = Option<Arc<str>>;

/// What hides the values of a record takes so many times their length, where objects are followed.
const HIDES: usize = 16;

/// So much is kept of instances with something to do, of all together, in bytes of their text and of their records.
const MOST_KEPT: usize = 64 << 20;

/// All that is known.
pub(super) struct Table {
    entries: HashMap<Key, Entry>,
    /// Where all there are were heard of.
    pub(super) listed: HashSet<Scope>,
    /// What is kept of all takes so much, in bytes, and may take so much where nobody is at work on it.
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
    /// `None` where nothing is left to do.
    open: Option<Open>,
    /// The newest that was seen of it.
    version: String,
    /// When it is looked whether it has drifted.
    due: Option<Instant>,
    work: Work,
    /// Somebody is at work on it: until that is over all is kept of it.
    attended: bool,
    /// What is kept of it takes so much, as it was counted in what is kept of all.
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

/// One with something to do.
struct Open {
    /// As it was read; of one of which that is not kept, what its spec takes once it is read, in bytes.
    seen: Result<Arc<SeenInstance>, usize>,
    begun_at: jiff::Timestamp,
    /// What is worked with, as long as somebody does: what is read takes many times what it is read from.
    read: Weak<Instance>,
}

/// What this process knows of what it does. Whoever comes after finds it out anew.
#[derive(Default)]
pub(super) struct Work {
    pub(super) record: Option<Arc<StoredRecord>>,
    /// The revision that all of this is of: its record may not be kept.
    pub(super) revision: Option<u64>,
    /// Objects that were made and are not in the status yet, by their place in the template.
    pub(super) made: BTreeMap<usize, Made>,
    /// Objects that were changed, by their uids, and to which version: what is older is not what was changed.
    pub(super) changed: HashMap<String, String>,
    /// The Secret that workloads are given.
    pub(super) binding: Option<String>,
    /// How often it seemed not to go, and since when.
    pub(super) doubts: Option<(u32, Instant)>,
    /// When a call was last not answered that may have made something.
    pub(super) unanswered: Option<Instant>,
    pub(super) follower: Option<Follower>,
    /// Objects that are gone, by their uids.
    pub(super) gone: HashSet<String>,
    /// Objects whose kind is not to be found, and since when.
    pub(super) unknown: HashMap<String, Instant>,
    /// How often it was looked whether they are gone.
    pub(super) looks: u32,
    /// Whoever deleted it lets its objects be: so it was seen, and may not be said any more.
    pub(super) is_orphaned: bool,
    /// Since when it is to be removed by another, and whether that was told.
    pub(super) stranger: Option<(Instant, bool)>,
}

impl Work {
    /// What is done from now on is done by this record.
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
    /// Takes one as it was read; whether there is news, and something to do, or to look after.
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

    /// Counts what is kept of one; where that is too much of all, and nobody is at work on it, it is let go of.
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

    /// Somebody is at work on one from now on. What there is of it, if it has something to do: how it was read, or what its
    /// spec takes once it is read, in bytes.
    pub(super) fn attend(&mut self, key: &Key) -> Option<Result<Arc<SeenInstance>, usize>> {
        let entry = self.entries.get_mut(key)?;
        entry.attended = true;
        entry.open.as_ref().map(|open| open.seen.clone())
    }

    /// Nobody is at work on it any more.
    pub(super) fn leave(&mut self, key: &Key) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.attended = false;
            self.weigh(key);
        }
    }

    /// Whether more may be kept.
    pub(super) fn has_room(&self) -> bool {
        self.kept < self.most
    }

    /// Whether one has something to do and has to be read for it.
    pub(super) fn is_unread(&self, key: &Key) -> bool {
        self.entries.get(key).is_some_and(Entry::is_unread)
    }

    /// A scope has no others than these.
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

    /// One with something to do that has been read; the same for everyone who works with it.
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

    /// Another leads: what is known here of what was begun will be old.
    pub(super) fn give_up(&mut self) {
        for entry in self.entries.values_mut() {
            (entry.work, entry.due) = (Work::default(), None);
            entry.kept = entry.takes();
        }
        self.kept = self.entries.values().map(|entry| entry.kept).sum();
    }

    /// When it is looked whether one has drifted: then, if nobody has said otherwise. `None` for one that is not there.
    pub(super) fn due(&mut self, key: &Key, first: Instant) -> Option<Instant> {
        Some(*self.entries.get_mut(key)?.due.get_or_insert(first))
    }

    /// It is looked at then.
    pub(super) fn look_again_at(&mut self, key: &Key, at: Instant) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.due = Some(at);
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<Key> {
        self.entries.keys().cloned().collect()
    }

    /// How many there are, and since when each is worked on that has something to do.
    pub(super) fn begun(&self) -> (usize, Vec<jiff::Timestamp>) {
        let open = self.entries.values().filter_map(|entry| entry.open.as_ref());
        (self.entries.len(), open.map(|open| open.begun_at).collect())
    }
}

/// Whether a version is news beside what is known. They are numbers that grow; where they are not, all is news but what
/// is known.
pub(super) fn is_newer(version: &str, known: &str) -> bool {
    match (version.parse::<u64>(), known.parse::<u64>()) {
        (Ok(version), Ok(known)) => version > known,
        _ => version != known,
    }
}
