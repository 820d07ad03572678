//! Pods whose sidecar waits to be told that all other containers have ended, though no run goes on that would tell it:
//! plain state.

use std::collections::HashSet;
use std::sync::Arc;

use super::job::SeenJob;
use super::pod::SeenPod;
use super::pods::OfJob;
use super::table::Table;

/// A pod whose sidecar waits to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) uid: Arc<str>,
    /// The uid of its Job.
    pub(crate) job: Arc<str>,
}

impl Waiting {
    /// The pod as one that waits; `None`: its sidecar does not.
    pub(crate) fn of(pod: &SeenPod) -> Option<Self> {
        let [namespace, name, uid, job] =
            [&pod.namespace, &pod.name, &pod.uid, &pod.job].map(Arc::clone);
        (pod.waits_for_us && !pod.gone).then_some(Self { namespace, name, uid, job })
    }
}

impl Table {
    /// Forgets the pods of a Job that is gone, except those whose sidecar waits.
    pub(crate) fn release(&mut self, job: &SeenJob) {
        self.disown([job]);
        self.pods.remove(&job.uid);
    }

    /// Notes that the QuarksJob of these Jobs is not known: it may be heard of only later, and needs their pods then.
    pub(crate) fn disown<'j>(&mut self, jobs: impl IntoIterator<Item = &'j SeenJob>) {
        for job in jobs {
            self.owners.remove(&job.uid);
            self.strays.extend(self.pods.of(&job.uid).into_iter().flat_map(waiting));
        }
    }

    /// Takes the end of a list of pods: those that it lacks are gone. Pods of a known Job stay known, marked as gone,
    /// until its run is settled; the others would never be forgotten otherwise.
    pub(crate) fn keep_pods(&mut self, scope: Option<&str>, listed: &HashSet<Arc<str>>) {
        let is_gone = |namespace: &str, uid: &Arc<str>| {
            scope.is_none_or(|scope| scope == namespace) && !listed.contains(uid)
        };
        self.strays.retain(|uid, stray| !is_gone(&stray.namespace, uid));
        let owners = &self.owners;
        self.pods.retain(|pod| {
            let goes = is_gone(&pod.namespace, &pod.uid);
            pod.gone |= goes;
            !goes || owners.contains_key(&pod.job)
        });
    }

    pub(crate) fn note_stray(&mut self, pod: &SeenPod) {
        // No watch may tell more of an orphan later.
        match Waiting::of(pod).filter(|it| pod.orphan || !self.goes_on(&it.job)) {
            Some(waiting) => drop(self.strays.insert(Arc::clone(&pod.uid), waiting)),
            None => drop(self.strays.remove(&pod.uid)),
        }
    }

    /// The pods whose sidecar waits though their Job is gone or their run is over. The watch of pods may be ahead of
    /// that of Jobs, so those whose run goes on are left out.
    pub(crate) fn strays(&self) -> Vec<Waiting> {
        self.strays.values().filter(|stray| !self.goes_on(&stray.job)).cloned().collect()
    }

    /// Whether the run of a Job is known, and not over.
    fn goes_on(&self, job: &str) -> bool {
        self.owners.get(job).is_some_and(|key| !self.is_over(key, job))
    }

    /// Notes that the sidecar of a pod was told that the other containers have ended.
    pub(crate) fn told(&mut self, uid: &str) {
        self.strays.remove(uid);
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.waits_for_us = false;
        }
    }
}

/// The pods among these whose sidecar waits, by uid.
pub(crate) fn waiting(pods: &OfJob) -> impl Iterator<Item = (Arc<str>, Waiting)> + use<'_> {
    pods.values().filter_map(Waiting::of).map(|it| (Arc::clone(&it.uid), it))
}
