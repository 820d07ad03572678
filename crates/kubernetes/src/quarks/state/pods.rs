//! The pods of Jobs, as far as they are known: plain state.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::job::SeenJob;
use super::pod::SeenPod;
use super::table::Table;
use crate::quarks::api::key::Key;

/// The pods of a Job, by their uid.
pub(crate) type OfJob = BTreeMap<Arc<str>, SeenPod>;

/// The pods of all Jobs.
#[derive(Default)]
pub(crate) struct Pods {
    /// The pods, by the uid of their Job.
    of: HashMap<Arc<str>, OfJob>,
    /// The uid of the Job of each pod, by the uid of the pod.
    jobs: HashMap<Arc<str>, Arc<str>>,
}

impl Pods {
    /// The pods of a Job, by the uid of the Job.
    pub(crate) fn of(&self, job: &str) -> Option<&OfJob> {
        self.of.get(job)
    }

    /// The uid of the Job of a pod.
    fn job_of(&self, uid: &str) -> Option<&Arc<str>> {
        self.jobs.get(uid)
    }

    /// A pod, by its uid.
    pub(crate) fn get_mut(&mut self, uid: &str) -> Option<&mut SeenPod> {
        self.of.get_mut(self.jobs.get(uid)?)?.get_mut(uid)
    }

    /// Takes a pod as it was seen.
    fn insert(&mut self, pod: SeenPod) {
        let (uid, job) = (Arc::clone(&pod.uid), Arc::clone(&pod.job));
        let before = self.jobs.insert(Arc::clone(&uid), Arc::clone(&job));
        if let Some(before) = before.filter(|before| *before != job) {
            self.take(&before, &uid);
        }
        self.of.entry(job).or_default().insert(uid, pod);
    }

    /// Forgets a pod of a Job.
    fn remove_one(&mut self, job: &str, uid: &str) {
        if self.take(job, uid) {
            self.jobs.remove(uid);
        }
    }

    /// Removes a pod of a Job. Returns whether it was there.
    fn take(&mut self, job: &str, uid: &str) -> bool {
        let Some(pods) = self.of.get_mut(job) else { return false };
        let was_there = pods.remove(uid).is_some();
        if pods.is_empty() {
            self.of.remove(job);
        }
        was_there
    }

    /// Forgets the pods of a Job, and returns them.
    pub(crate) fn remove(&mut self, job: &str) -> OfJob {
        let pods = self.of.remove(job).unwrap_or_default();
        pods.keys().for_each(|uid| drop(self.jobs.remove(uid)));
        pods
    }

    /// Forgets the pods for which `stays` is false.
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(&mut SeenPod) -> bool) {
        let jobs = &mut self.jobs;
        self.of.retain(|_, pods| {
            pods.retain(|uid, pod| {
                let stays = stays(pod);
                if !stays {
                    jobs.remove(uid);
                }
                stays
            });
            !pods.is_empty()
        });
    }

    /// Forgets the pods of a Job that are not in this namespace.
    pub(crate) fn keep_in(&mut self, job: &str, namespace: &str) {
        let Some(pods) = self.of.get(job) else { return };
        let elsewhere = pods.values().filter(|pod| *pod.namespace != *namespace);
        let elsewhere: Vec<_> = elsewhere.map(|pod| Arc::clone(&pod.uid)).collect();
        elsewhere.iter().for_each(|uid| self.remove_one(job, uid));
    }
}

impl Table {
    /// Takes a pod as it was seen. Returns the key of the QuarksJob that may have something to do for that, if it is
    /// known.
    pub(crate) fn learn_pod(&mut self, pod: SeenPod) -> Option<Key> {
        let key = self.owners.get(&pod.job).cloned();
        // A Job has its pods in its own namespace: a pod elsewhere only claims to be one of them.
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
        // The Job went before the pod, which nobody would ever forget.
        if key.is_none() && pod.gone && self.is_complete(&pod.namespace) {
            self.pods.remove_one(&pod.job, &pod.uid);
            return None;
        }
        let known = self.pods.of(&pod.job).and_then(|pods| pods.get(&pod.uid));
        if known.is_none_or(|known| known.version <= pod.version) {
            // A pod that had done its work before it was told to go has done it.
            let was_done = known.is_some_and(SeenPod::did_its_work);
            let deletion = pod.deletion.filter(|_| !was_done);
            self.pods.insert(SeenPod { deletion, ..pod });
        }
        key
    }

    pub(crate) fn is_over(&self, key: &Key, job: &str) -> bool {
        let Some(entry) = self.entries.get(key) else { return false };
        let job = entry.jobs.values().find(|known| &*known.uid == job);
        let resource = entry.resource.as_ref();
        job.is_some_and(|job| resource.is_some_and(|it| it.is_over(job.run)))
    }

    /// The uid of the Job of a pod, by the uid of the pod.
    pub(crate) fn job_of_pod(&self, pod: &str) -> Option<&Arc<str>> {
        self.pods.job_of(pod)
    }

    /// How many Jobs have pods that are known.
    #[cfg(test)]
    pub(crate) fn with_pods(&self) -> usize {
        self.pods.of.len()
    }

    /// The pods of a Job.
    pub(crate) fn pods(&self, job: &SeenJob) -> impl Iterator<Item = &SeenPod> + Clone {
        let pods = self.pods.of(&job.uid).into_iter().flat_map(BTreeMap::values);
        let namespace = Arc::clone(&job.namespace);
        pods.filter(move |pod| pod.namespace == namespace)
    }
}
