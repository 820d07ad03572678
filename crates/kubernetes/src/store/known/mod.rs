//! The known records: what the watches bring, and what this process writes and reads, kept in memory.

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

/// A kind of watched objects; the saved catalog comes with the tombstones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watched {
    Instances,
    Bindings,
    Tombstones,
}

/// All records that are known without asking the API server.
pub(super) struct KnownRecords {
    table: Mutex<Table>,
    listed: Sender<u8>,
    /// The channel for news, if somebody listens.
    tell: OnceLock<mpsc::UnboundedSender<RecordChange>>,
    /// The newest known version of the saved catalog.
    catalog: Sender<u64>,
    /// The newest version of the catalog that this process has read, saved or reported.
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

/// The known entries by watched kind: a resource and its tombstone may both exist for a while. Beside them the uids of
/// resources that were removed recently.
#[derive(Default)]
struct Table {
    kinds: [Kinds; 3],
    removed: VecDeque<Removed>,
}

struct Removed {
    uid: String,
    /// The number of the last list before the removal.
    list: u64,
    /// A resource of a later version than this still exists: it was only without its labels.
    until: u64,
}

impl Table {
    /// Forgets the known state of an entry, if `is_it` holds for it, and remembers that the resource is gone, up to a
    /// version.
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

/// Where an entry comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A list of everything, by which a watch begins or begins anew.
    List,
    /// A single event, a read, or a write of ours.
    Event,
}

/// How many removed resources are remembered.
const REMOVED: usize = 100;

#[derive(Default)]
struct Kinds {
    entries: BTreeMap<Key, Held>,
    /// How many lists of this kind have begun.
    lists: u64,
}

struct Held {
    entry: Arc<Entry>,
    /// The number of the list in which, or after which, the entry was last seen.
    list: u64,
}

impl KnownRecords {
    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all kinds have been listed once.
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

    /// Takes in an entry that the watch brought, or that was read before; reports it if it is new.
    pub(super) fn hear(&self, entry: impl Into<Arc<Entry>>, source: Source) {
        let entry = entry.into();
        let change = RecordChange::of(&entry);
        if self.take(entry, source) {
            self.tell(change);
        }
    }

    /// Takes in an entry that this process wrote; one that is gone is reported, because somebody has to bury it.
    pub(super) fn wrote(&self, entry: Entry) {
        let change = RecordChange::of(&entry);
        self.learn(Arc::new(entry));
        if change.gone {
            self.tell(change);
        }
    }

    /// Reports a change. Nobody listens in a process that carries no operations out.
    fn tell(&self, change: RecordChange) {
        if let Some(tell) = self.tell.get() {
            let _ = tell.send(change);
        }
    }

    /// Begins to report changes, and all entries that are known by now; `None` if somebody listens already.
    pub(super) fn listen(&self) -> Option<mpsc::UnboundedReceiver<RecordChange>> {
        let (tell, heard) = mpsc::unbounded_channel();
        self.tell.set(tell).ok()?;
        self.changes().into_iter().for_each(|change| self.tell(change));
        Some(heard)
    }

    /// All known entries as changes, as the watch would bring them.
    pub(super) fn changes(&self) -> Vec<RecordChange> {
        let table = self.lock();
        let all = table.kinds.iter().flat_map(|kind| kind.entries.values());
        all.map(|held| RecordChange::of(&held.entry)).collect()
    }

    /// Takes in an entry without reporting it. One that is not newer than the known one changes nothing.
    pub(super) fn learn(&self, entry: Arc<Entry>) {
        self.take(entry, Source::Event);
    }

    fn take(&self, entry: Arc<Entry>, source: Source) -> bool {
        let mut table = self.lock();
        let Table { kinds, removed } = &mut *table;
        let kind = &mut kinds[Watched::of(&entry) as usize];
        let list = kind.lists;
        // An entry of a list counts even if a later version was known, or its removal, before the list began: etcd was
        // restored to an earlier state.
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

    /// Notes that this process removed the resource: later events of the watch about it are outdated.
    pub(super) fn removed(&self, entry: &Entry) {
        self.lock().remove(entry, u64::MAX, |held| held.uid == entry.uid);
    }

    /// Notes that the resource is gone, in the version of the entry or an earlier one; a read that began before may
    /// bring it once more.
    pub(super) fn forget(&self, entry: &Entry) {
        self.lock().remove(entry, u64::MAX, |held| held.version <= entry.version);
    }

    /// Notes that the resource with this uid is gone; its record cannot be read.
    pub(super) fn forget_uid(&self, watched: Watched, uid: &str) {
        let mut table = self.lock();
        let mut all = table.kinds[watched as usize].entries.values().map(|held| &held.entry);
        if let Some(entry) = all.find(|entry| entry.uid == uid).cloned() {
            table.remove(&entry, u64::MAX, |_| true);
        }
    }

    /// Notes that the resource of a key is gone, in this version or an earlier one.
    pub(super) fn forget_version(&self, watched: Watched, key: &Key, version: u64) {
        let mut table = self.lock();
        let held =
            table.kinds[watched as usize].entries.get(key).map(|held| Arc::clone(&held.entry));
        if let Some(entry) = held.filter(|entry| entry.version <= version) {
            table.remove(&entry, u64::MAX, |_| true);
        }
    }

    /// Takes in all records of an instance in a version: known ones that are not among them, and not newer, are gone,
    /// though the watch has not said so yet.
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
        // Later events of the watch about them are outdated.
        gone.iter().for_each(|entry| table.remove(entry, version, |_| true));
    }

    /// Notes that the saved catalog exists in this version.
    pub(super) fn hear_of_catalog(&self, version: u64) {
        self.catalog
            .send_if_modified(|heard| std::mem::replace(heard, version.max(*heard)) < version);
    }

    /// Notes that this process has read or saved the catalog in this version.
    pub(super) fn note_catalog(&self, version: u64) {
        self.catalog_told.fetch_max(version, Ordering::Relaxed);
    }

    /// Resolves when there is a newer catalog than this process has read or saved.
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

    /// Ends a list: entries that it did not have are gone.
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

    /// The plans of all live records, each once.
    pub(super) fn plans(&self) -> Vec<(ServiceId, PlanId)> {
        let table = self.lock();
        let all = table.kinds.iter().flat_map(|kind| kind.entries.values()).map(|held| &held.entry);
        let live = all.filter(|entry| entry.is_live());
        let plans: BTreeSet<_> = live.filter_map(|entry| entry.plan.clone()).collect();
        plans.into_iter().collect()
    }
}

/// The entries after a key; of one instance, if it is given, without looking at others, of which there may be many
/// thousands.
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

/// A key that is not after any key of this kind and instance.
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
