//! Puts labels back on resources that have lost those by which lists and watches find them, in a task for each.
//!
//! Users who may edit resources can remove the labels as often as they like: so there is one task for each record,
//! however many events come, which keeps only the uid and the version of the resource, and gives up after a while.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::policy::doubled;
use engine::record::Key;

use super::RecordApi;
use super::entry::Entry;
use super::known::{KnownRecords, Watched};

/// How often labelling is tried, until the next event of the resource.
const TRIES: u32 = 10;
/// The first pause, which is doubled with each try, and the longest one.
const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(30);

/// The resources that are being labelled, as they were last seen.
#[derive(Default)]
pub(super) struct Relabelling(Mutex<BTreeMap<Key, Seen>>);

/// A resource without labels.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    uid: String,
    version: u64,
}

impl Relabelling {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a resource without labels. Returns whether a task is to be started for it: there is none yet.
    fn note(&self, key: &Key, seen: Seen) -> bool {
        match self.lock().entry(key.clone()) {
            Slot::Occupied(mut under_way) => {
                under_way.insert(seen);
                false
            }
            Slot::Vacant(free) => {
                free.insert(seen);
                true
            }
        }
    }

    /// Ends the work on a resource as it was seen. Returns the next sight of the same record, if there was one
    /// meanwhile.
    fn done(&self, key: &Key, was: &Seen) -> Option<Seen> {
        let mut all = self.lock();
        let next = all.get(key).filter(|seen| *seen != was).cloned();
        if next.is_none() {
            all.remove(key);
        }
        next
    }

    /// Labels a resource again until it has the labels, is gone, or was tried often enough.
    pub(super) fn keep(
        self: &Arc<Self>,
        api: &Arc<RecordApi>,
        known: &Arc<KnownRecords>,
        watched: Watched,
        entry: &Entry,
    ) {
        let seen = Seen { uid: entry.uid.clone(), version: entry.version };
        if !self.note(&entry.key, seen.clone()) {
            return;
        }
        let (sight, api, known) = (Arc::clone(self), Arc::clone(api), Arc::clone(known));
        let key = entry.key.clone();
        tokio::spawn(async move {
            let mut next = Some(seen);
            while let Some(seen) = next {
                label(&api, &known, watched, &key, &seen).await;
                next = sight.done(&key, &seen);
            }
        });
    }
}

async fn label(api: &RecordApi, known: &KnownRecords, watched: Watched, key: &Key, seen: &Seen) {
    for pause in pauses() {
        match api.put_labels_back(key, &seen.uid).await {
            Ok(Some(_)) => return,
            Ok(None) => return known.forget_version(watched, key, seen.version),
            Err(_) => tokio::time::sleep(pause).await,
        }
    }
    tracing::warn!(
        record = %key,
        tries = TRIES,
        "its resource has lost its labels, and they cannot be put back: it is left so until something is heard of it"
    );
}

/// The pauses, one after each try.
fn pauses() -> impl Iterator<Item = Duration> {
    (1..=TRIES).map(|count| doubled(FIRST, count, LONGEST))
}

#[cfg(test)]
mod tests {
    use engine::testing::store_contract::sample;

    use super::*;

    #[test]
    fn there_is_one_task_for_each_record_however_often_it_is_seen() {
        let [one, other] = ["i", "j"].map(|id| sample(id).key);
        let seen = |uid: &str, version| Seen { uid: uid.to_owned(), version };
        let sight = Relabelling::default();
        assert!(sight.note(&one, seen("a", 1)));
        assert!(!sight.note(&one, seen("a", 1)), "its task is under way");
        assert!(sight.note(&other, seen("b", 1)), "another has its own");
        assert_eq!(sight.done(&one, &seen("a", 1)), None);
        assert!(sight.note(&one, seen("a", 2)), "they were lost again");
        for next in [seen("a", 3), seen("c", 4)] {
            assert!(!sight.note(&one, next), "again, and it was made anew, meanwhile");
        }
        assert_eq!(sight.done(&one, &seen("a", 2)), Some(seen("c", 4)), "its task goes on");
        assert_eq!(sight.done(&one, &seen("c", 4)), None);
        assert!(sight.lock().keys().eq([&other]), "it is done");
    }

    #[test]
    fn pauses_grow_and_come_to_an_end() {
        let pauses: Vec<u128> = pauses().map(|pause| pause.as_millis()).collect();
        let expected = [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000];
        assert_eq!(pauses, expected);
    }
}
