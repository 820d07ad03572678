//! Records which Jobs there were in a namespace: an attempt has one, whichever process died and whatever was lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::batch::v1::Job;
use kube::api::Api;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt};
use tokio::task::JoinSet;

type Seen = Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>;

/// A watch of the Jobs of a namespace, until it is dropped.
pub struct Attempts {
    /// The uids of the Jobs that were seen, by their names.
    seen: Seen,
    /// The names of the Jobs, by the uids of their owners.
    owned: Seen,
    _tasks: JoinSet<()>,
}

impl Attempts {
    /// Begins to watch a namespace.
    pub fn watch(client: &Client, namespace: &str) -> Self {
        let (seen, owned) = (Seen::default(), Seen::default());
        let api = Api::namespaced(client.clone(), namespace);
        let mut tasks = JoinSet::new();
        tasks.spawn(follow(api, Arc::clone(&seen), Arc::clone(&owned)));
        Self { seen, owned, _tasks: tasks }
    }

    /// # Panics
    /// If one of these had a Job after its Job, or if no Job was seen.
    pub fn assert_one_job_each(&self, of: impl Fn(&str) -> bool) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(!seen.is_empty(), "no Job was seen");
        let again: Vec<_> = seen.iter().filter(|(name, uids)| of(name) && uids.len() > 1).collect();
        assert!(again.is_empty(), "made again: {again:?}");
    }

    /// The most Jobs that there were of one name.
    pub fn most(&self) -> usize {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .map(BTreeSet::len)
            .max()
            .unwrap_or_default()
    }

    /// The names of the Jobs whose owner has this uid.
    pub fn owned_by(&self, uid: &str) -> BTreeSet<String> {
        self.owned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(uid)
            .cloned()
            .unwrap_or_default()
    }

    /// The names of all Jobs.
    pub fn names(&self) -> BTreeSet<String> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }
}

async fn follow(api: Api<Job>, seen: Seen, owned: Seen) {
    let events = watcher(api, watcher::Config::default());
    pin_mut!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(job) | Event::InitApply(job)) => {
                for owner in job.owner_references() {
                    let mut owned = owned.lock().unwrap_or_else(PoisonError::into_inner);
                    owned.entry(owner.uid.clone()).or_default().insert(job.name_any());
                }
                let uid = job.metadata.uid.clone().unwrap_or_default();
                seen.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .entry(job.name_any())
                    .or_default()
                    .insert(uid);
            }
            Ok(_) => {}
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}
