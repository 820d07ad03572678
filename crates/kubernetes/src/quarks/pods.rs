//! The pods of Jobs, as far as they are known: plain state.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::seen::{SeenJob, SeenPod};
use super::table::{Key, Table};

impl Table {
    /// Takes a pod; the QuarksJob that it is for, if that is known yet.
    pub(super) fn learn_pod(&mut self, pod: SeenPod) -> Option<Key> {
        let key = self.owners.get(&pod.job).cloned();
        // A Job has its pods in its namespace: elsewhere somebody says that it is one of another's.
        if key.as_ref().is_some_and(|key| key.namespace != pod.namespace) {
            return None;
        }
        self.note_stray(&pod);
        if pod.orphan && !pod.gone {
            return None;
        }
        // Pods of runs that are over may stay for as long as their logs are wanted.
        if let Some(over) = key.as_ref().filter(|key| self.is_over(key, &pod.job)) {
            let mut jobs =
                self.entries.get_mut(over).into_iter().flat_map(|it| it.jobs.values_mut());
            let job = jobs.find(|job| job.uid == pod.job)?;
            return job.note_after([&pod]).then(|| over.clone());
        }
        // Its Job went before it, and nobody would ever forget it.
        if key.is_none() && pod.gone && self.is_complete(&pod.namespace) {
            let left = self.pods.get_mut(&pod.job)?;
            left.remove(&pod.uid);
            if left.is_empty() {
                self.pods.remove(&pod.job);
            }
            return None;
        }
        let pods = self.pods.entry(Arc::clone(&pod.job)).or_default();
        let known = pods.get(&pod.uid);
        if known.is_none_or(|known| known.version <= pod.version) {
            // What had done its work before it was told to go has done it.
            let was_done = known.is_some_and(SeenPod::did_its_work);
            let going = pod.going.filter(|_| !was_done);
            pods.insert(Arc::clone(&pod.uid), SeenPod { going, ..pod });
        }
        key
    }

    pub(super) fn is_over(&self, key: &Key, job: &str) -> bool {
        let Some(entry) = self.entries.get(key) else { return false };
        let job = entry.jobs.values().find(|known| &*known.uid == job);
        let resource = entry.resource.as_ref();
        job.is_some_and(|job| resource.is_some_and(|it| it.is_over(job.run)))
    }

    /// How many Jobs have pods that are known.
    #[cfg(test)]
    pub(super) fn with_pods(&self) -> usize {
        self.pods.len()
    }

    /// The pods of a Job.
    pub(super) fn pods(&self, job: &SeenJob) -> impl Iterator<Item = &SeenPod> + Clone {
        let pods = self.pods.get(&job.uid).into_iter().flat_map(BTreeMap::values);
        let namespace = Arc::clone(&job.namespace);
        pods.filter(move |pod| pod.namespace == namespace)
    }
}
