//! What is known of all records without asking: what a watch brings, and what this process writes and reads.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use engine::ports::{Kind as Records, Query, StoreError};
use engine::record::Key;
use osb::{BindingId, InstanceId, PlanId, ServiceId};
use tokio::sync::mpsc;
use tokio::sync::watch::{Receiver, Sender};

use super::RecordChange;
use super::entry::Entry;

/// How long the first list may take.
const FIRST_LIST: Duration = Duration::from_secs(60);

/// What is watched; the saved catalog with the tombstones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watched {
    Instances,
    Bindings,
    Tombstones,
}

/// Everything that is known of records without asking.
pub(super) struct KnownRecords {
    table: Mutex<Table>,
    listed: Sender<u8>,
    /// Who is told of what is new, if anybody is.
    tell: OnceLock<mpsc::UnboundedSender<RecordChange>>,
    /// The newest version of the saved catalog that was heard of.
    catalog: Sender<u64>,
    /// The newest that was read, saved or told of here.
    catalog_told: AtomicU64,
}

impl Default for KnownRecords {
    fn default() -> Self {
        Self {
            table: Mutex::default(),
            listed: Sender::new(0),
            tell: OnceLock::new(),
            catalog: Sender::new(0),
            catalog_told: AtomicU64::new(0),
        }
    }
}

/// What is known, by what is watched: a resource and its tombstone may both be there for a while. Beside it the uids
/// of what was removed of late.
#[derive(Default)]
struct Table {
    kinds: [Kinds; 3],
    removed: VecDeque<Removed>,
}

struct Removed {
    uid: String,
    /// After which list.
    list: u64,
    /// What is of a later version is there all the same: it was out of sight.
    until: u64,
}

impl Table {
    /// Removes what is known of an entry, if it is that, and remembers that it is gone, until a version.
    fn remove(&mut self, entry: &Entry, until: u64, is_it: impl Fn(&Entry) -> bool) {
        let Self { kinds, removed } = self;
        let Kinds { entries, lists } = &mut kinds[Watched::of(entry) as usize];
        removed.push_back(Removed { uid: entry.uid.clone(), list: *lists, until });
        if removed.len() > REMOVED {
            removed.pop_front();
        }
        if entries.get(&entry.key).is_some_and(|held| is_it(&held.entry)) {
            entries.remove(&entry.key);
        }
    }
}

/// From where something is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A list of everything, by which a watch begins or begins anew.
    List,
    /// A single event, a read, or a write of ours.
    Event,
}

/// How many are remembered that were removed.
const REMOVED: usize = 100;

#[derive(Default)]
struct Kinds {
    entries: BTreeMap<Key, Held>,
    /// Counts the lists of it.
    lists: u64,
}

struct Held {
    entry: Arc<Entry>,
    /// The list that it was last seen in, or after.
    list: u64,
}

impl KnownRecords {
    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until everything was listed once.
    pub(super) async fn complete(&self) -> Result<(), StoreError> {
        let mut listed: Receiver<u8> = self.listed.subscribe();
        let all = listed.wait_for(|listed| *listed == 0b111);
        match tokio::time::timeout(FIRST_LIST, all).await {
            Ok(_) => Ok(()),
            Err(_) => Err(StoreError::Unavailable(format!(
                "the API server did not list our resources within {} s: are the definitions of \
                 manciple.dev installed, and may we list them?",
                FIRST_LIST.as_secs()
            ))),
        }
    }

    pub(super) fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        let table = self.lock();
        let of = |watched: Watched| table.kinds[watched as usize].entries.get(key);
        let held = of(Watched::resource(key)).or_else(|| of(Watched::Tombstones));
        held.map(|held| Arc::clone(&held.entry))
    }

    /// Takes in what the watch brings, or what was read before it did, and tells of it if it is new.
    pub(super) fn hear(&self, entry: impl Into<Arc<Entry>>, source: Source) {
        let entry = entry.into();
        let change = RecordChange::of(&entry);
        if self.take(entry, source) {
            self.tell(change);
        }
    }

    /// Takes in what this process wrote; what is gone is told of, for somebody has to bury it.
    pub(super) fn wrote(&self, entry: Entry) {
        let change = RecordChange::of(&entry);
        self.learn(Arc::new(entry));
        if change.gone {
            self.tell(change);
        }
    }

    /// Nobody listens in a process that carries nothing out.
    fn tell(&self, change: RecordChange) {
        if let Some(tell) = self.tell.get() {
            let _ = tell.send(change);
        }
    }

    /// Begins to tell, of what is known by now too; `None` if somebody listens already.
    pub(super) fn listen(&self) -> Option<mpsc::UnboundedReceiver<RecordChange>> {
        let (tell, heard) = mpsc::unbounded_channel();
        self.tell.set(tell).ok()?;
        self.changes().into_iter().for_each(|change| self.tell(change));
        Some(heard)
    }

    /// What is known, as the watch would bring it.
    pub(super) fn changes(&self) -> Vec<RecordChange> {
        let table = self.lock();
        let all = table.kinds.iter().flat_map(|kind| kind.entries.values());
        all.map(|held| RecordChange::of(&held.entry)).collect()
    }

    /// Takes in what was written. What is not newer than what is known changes nothing.
    pub(super) fn learn(&self, entry: Arc<Entry>) {
        self.take(entry, Source::Event);
    }

    fn take(&self, entry: Arc<Entry>, source: Source) -> bool {
        let mut table = self.lock();
        let Table { kinds, removed } = &mut *table;
        let kind = &mut kinds[Watched::of(&entry) as usize];
        let list = kind.lists;
        // What a list has that began after something later was known, or after it was removed, is so all the same:
        // etcd was put back to what it was before.
        let is_past = |seen: u64| source == Source::Event || seen >= list;
        let is_old = |gone: &Removed| entry.version <= gone.until && is_past(gone.list);
        if removed.iter().any(|gone| gone.uid == entry.uid && is_old(gone)) {
            return false;
        }
        match kind.entries.get_mut(&entry.key) {
            Some(held) if held.entry.version == entry.version => {
                held.list = list;
                false
            }
            Some(held) if held.entry.version > entry.version && is_past(held.list) => false,
            _ => {
                kind.entries.insert(entry.key.clone(), Held { entry, list });
                true
            }
        }
    }

    /// This process removed it: what the watch has yet to say of it is old.
    pub(super) fn removed(&self, entry: &Entry) {
        self.lock().remove(entry, u64::MAX, |held| held.uid == entry.uid);
    }

    /// It was removed, in this version or an earlier one; a read that began before may bring it once more.
    pub(super) fn forget(&self, entry: &Entry) {
        self.lock().remove(entry, u64::MAX, |held| held.version <= entry.version);
    }

    /// The resource of this uid was removed: which record it had cannot be read.
    pub(super) fn forget_uid(&self, watched: Watched, uid: &str) {
        let mut table = self.lock();
        let mut all = table.kinds[watched as usize].entries.values().map(|held| &held.entry);
        if let Some(entry) = all.find(|entry| entry.uid == uid).cloned() {
            table.remove(&entry, u64::MAX, |_| true);
        }
    }

    /// The same of one that is known by its key: it was removed, in this version or an earlier one.
    pub(super) fn forget_version(&self, watched: Watched, key: &Key, version: u64) {
        let mut table = self.lock();
        let held =
            table.kinds[watched as usize].entries.get(key).map(|held| Arc::clone(&held.entry));
        if let Some(entry) = held.filter(|entry| entry.version <= version) {
            table.remove(&entry, u64::MAX, |_| true);
        }
    }

    /// Takes in all that an instance has in a version: what is not among it, and not newer, is gone, though the
    /// watch has not said so yet.
    pub(super) fn take_list(
        &self,
        instance: &InstanceId,
        kind: Records,
        entries: Vec<Arc<Entry>>,
        version: u64,
    ) {
        let listed: BTreeSet<Key> = entries.iter().map(|entry| entry.key.clone()).collect();
        for entry in entries {
            self.hear(entry, Source::Event);
        }
        let watched = match kind {
            Records::Instances => Watched::Instances,
            Records::Bindings => Watched::Bindings,
        };
        let mut table = self.lock();
        let of_instance =
            within(&table.kinds[watched as usize].entries, kind, Some(instance), None);
        let is_gone =
            |entry: &&Arc<Entry>| !listed.contains(&entry.key) && entry.version <= version;
        let gone: Vec<_> =
            of_instance.map(|(_, held)| &held.entry).filter(is_gone).cloned().collect();
        // What the watch has yet to say of them is old.
        gone.iter().for_each(|entry| table.remove(entry, version, |_| true));
    }

    /// The catalog is there in this version.
    pub(super) fn hear_of_catalog(&self, version: u64) {
        self.catalog
            .send_if_modified(|heard| std::mem::replace(heard, version.max(*heard)) < version);
    }

    /// A catalog was read or saved here, in this version.
    pub(super) fn note_catalog(&self, version: u64) {
        self.catalog_told.fetch_max(version, Ordering::Relaxed);
    }

    /// Resolves when a catalog was heard of that is newer than what is known here.
    pub(super) async fn catalog_changed(&self) {
        let mut heard = self.catalog.subscribe();
        let newer = |version: &u64| *version > self.catalog_told.load(Ordering::Relaxed);
        match heard.wait_for(newer).await.map(|version| *version) {
            Ok(version) => self.note_catalog(version),
            Err(_) => std::future::pending().await,
        }
    }

    pub(super) fn begin(&self, watched: Watched) {
        self.lock().kinds[watched as usize].lists += 1;
    }

    /// What the list did not have is gone.
    pub(super) fn finish(&self, watched: Watched) {
        let mut table = self.lock();
        let Kinds { entries, lists } = &mut table.kinds[watched as usize];
        entries.retain(|_, held| held.list >= *lists);
        drop(table);
        self.listed.send_modify(|listed| *listed |= 1 << watched as u8);
    }

    pub(super) fn page(&self, query: &Query) -> Vec<Arc<Entry>> {
        let table = self.lock();
        let kind = match query.kind {
            Records::Instances => Watched::Instances,
            Records::Bindings => Watched::Bindings,
        };
        let resources = &table.kinds[kind as usize].entries;
        let tombstones = &table.kinds[Watched::Tombstones as usize].entries;
        let fits = |held: &Held| {
            Watched::resource(&held.entry.key) == kind && held.entry.passes(query.filter)
        };
        let entries = |(_, held): (&Key, &Held)| Arc::clone(&held.entry);
        let (instance, after) = (query.instance.as_ref(), query.after.as_ref());
        let live = within(resources, query.kind, instance, after);
        let live = live.filter(|(_, held)| fits(held)).map(entries);
        let buried = within(tombstones, query.kind, instance, after)
            .filter(|(key, held)| fits(held) && !resources.contains_key(*key))
            .map(entries);
        let mut page: Vec<_> = live.take(query.limit).chain(buried.take(query.limit)).collect();
        page.sort_by(|one, other| one.key.cmp(&other.key));
        page.truncate(query.limit);
        page
    }

    /// The keys of all resources with an operation in progress.
    pub(super) fn busy(&self) -> Vec<Key> {
        let table = self.lock();
        let all = table.kinds.iter().flat_map(|kind| kind.entries.values());
        all.filter(|held| held.entry.busy).map(|held| held.entry.key.clone()).collect()
    }

    /// Every plan that a live record has, once.
    pub(super) fn plans(&self) -> Vec<(ServiceId, PlanId)> {
        let table = self.lock();
        let all = table.kinds.iter().flat_map(|kind| kind.entries.values()).map(|held| &held.entry);
        let live = all.filter(|entry| entry.is_live());
        let plans: BTreeSet<_> = live.filter_map(|entry| entry.plan.clone()).collect();
        plans.into_iter().collect()
    }
}

/// What is known after a key; of an instance that alone, and nothing else is looked at: there may be many thousands.
fn within<'t>(
    entries: &'t BTreeMap<Key, Held>,
    kind: Records,
    instance: Option<&'t InstanceId>,
    after: Option<&Key>,
) -> impl Iterator<Item = (&'t Key, &'t Held)> + use<'t> {
    let first = instance.and_then(|instance| first_of(instance, kind));
    let after = after.filter(|after| first.as_ref().is_none_or(|first| first <= *after));
    let from = match (after, first) {
        (Some(after), _) => Bound::Excluded(after.clone()),
        (None, Some(first)) => Bound::Included(first),
        (None, None) => Bound::Unbounded,
    };
    let is_within = move |key: &Key| instance.is_none_or(|instance| key.instance() == instance);
    entries.range((from, Bound::Unbounded)).take_while(move |(key, _)| is_within(key))
}

/// No key of this kind that an instance has is before it.
fn first_of(instance: &InstanceId, kind: Records) -> Option<Key> {
    // An id is not empty, and no control characters are in it: nothing sorts before a space.
    const FIRST: &str = " ";
    match kind {
        Records::Instances => Some(Key::Instance(instance.clone())),
        Records::Bindings => Some(Key::Binding(instance.clone(), BindingId::new(FIRST).ok()?)),
    }
}

impl RecordChange {
    fn of(entry: &Entry) -> Self {
        Self {
            key: entry.key.clone(),
            busy: entry.busy,
            gone: entry.is_to_be_buried(),
            unwanted: entry.is_unwanted(),
        }
    }
}

impl Watched {
    fn of(entry: &Entry) -> Self {
        if entry.is_tombstone() { Self::Tombstones } else { Self::resource(&entry.key) }
    }

    fn resource(key: &Key) -> Self {
        match key {
            Key::Instance(_) => Self::Instances,
            Key::Binding(..) => Self::Bindings,
        }
    }
}

#[cfg(test)]
mod tests;
