//! Which Jobs there were in a namespace: an attempt has one, whoever died and whatever was lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::batch::v1::Job;
use kube::api::Api;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt};
use tokio::task::JoinSet;

/// The uids of the Jobs that were seen, by their names.
type Seen = Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>;

/// Watches until it is dropped.
pub(crate) struct Attempts {
    seen: Seen,
    _tasks: JoinSet<()>,
}

impl Attempts {
    pub(crate) fn watch(client: &Client, namespace: &str) -> Self {
        let seen = Seen::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(follow(Api::namespaced(client.clone(), namespace), Arc::clone(&seen)));
        Self { seen, _tasks: tasks }
    }

    /// Fails if one of these had a Job after its Job.
    pub(crate) fn assert_one_job_each(&self, of: impl Fn(&str) -> bool) {
        let seen = self.seen.lock().unwrap();
        assert!(!seen.is_empty(), "no Job was seen");
        let again: Vec<_> = seen.iter().filter(|(name, uids)| of(name) && uids.len() > 1).collect();
        assert!(again.is_empty(), "made again: {again:?}");
    }

    /// How many of one name there were at most.
    pub(crate) fn most(&self) -> usize {
        self.seen.lock().unwrap().values().map(BTreeSet::len).max().unwrap_or_default()
    }

    /// The names of all.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.seen.lock().unwrap().keys().cloned().collect()
    }
}

async fn follow(api: Api<Job>, seen: Seen) {
    let events = watcher(api, watcher::Config::default());
    pin_mut!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(job) | Event::InitApply(job)) => {
                let uid = job.metadata.uid.clone().unwrap_or_default();
                seen.lock().unwrap().entry(job.name_any()).or_default().insert(uid);
            }
            Ok(_) => {}
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}
