//! What one has left that is gone while another of its name is there: plain state.
//!
//! To take away what a resource has left that was deleted is the part of Kubernetes' garbage collector. But where the
//! API server was away while one was deleted and another made under its name, the collector takes that for an update of
//! the first, of which it does not look at the uid: what belonged to the first then stays for as long as the collector
//! runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::job::SeenJob;
use super::object::Object;
use super::table::Table;
use crate::quarks::api::key::Key;
use crate::quarks::api::resource::Resource;

/// How long Kubernetes has for it. Whose it is is asked before anything is taken away: this only saves calls.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// By the uid of the Job.
pub(crate) type Jobs = BTreeMap<Arc<str>, SeenJob>;

/// What is to be taken away.
#[derive(Debug, Default)]
pub(crate) struct Left {
    pub(crate) jobs: Vec<SeenJob>,
    pub(crate) objects: Vec<Object>,
}

impl Left {
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.objects.is_empty()
    }
}

impl Table {
    /// These Jobs are of another than is known by this name.
    pub(crate) fn leave_behind(&mut self, key: &Key, jobs: impl IntoIterator<Item = SeenJob>) {
        let mut jobs = jobs.into_iter().peekable();
        if jobs.peek().is_some() {
            let left = self.left.entry(key.clone()).or_default();
            left.extend(jobs.map(|job| (Arc::clone(&job.uid), job)));
        }
    }

    /// Those that are of one that is known by now.
    pub(crate) fn claim(&mut self, key: &Key, owner: &str) -> Vec<SeenJob> {
        let Some(left) = self.left.get_mut(key) else { return Vec::new() };
        let (ours, others): (Jobs, Jobs) =
            std::mem::take(left).into_iter().partition(|(_, it)| *it.owner == *owner);
        *left = others;
        if left.is_empty() {
            self.left.remove(key);
        }
        ours.into_values().collect()
    }

    /// A Job is there no more, or is not as it was seen.
    pub(crate) fn forget_left(&mut self, job: &str) {
        // Those that wait for us are noted as strays.
        self.pods.remove(job);
        self.left.retain(|_, jobs| {
            jobs.remove(job);
            !jobs.is_empty()
        });
    }

    /// What is to be taken away now, and when to look again.
    pub(crate) fn due(
        &mut self,
        key: &Key,
        resource: &Resource,
        now: Instant,
    ) -> (Left, Option<Duration>) {
        let jobs = self.left.get(key).into_iter().flat_map(BTreeMap::values);
        let jobs = jobs.filter(|job| job.owner != resource.uid && !job.deleting && !job.shared);
        let maker = resource.maker();
        let objects = self.objects.made_by(&key.namespace, &maker);
        let objects = objects.filter(|it| !it.deleting && !it.is_owned_by(&resource.uid));
        let left = Left { jobs: jobs.cloned().collect(), objects: objects.cloned().collect() };
        let Some(entry) = self.entries.get_mut(key) else { return Default::default() };
        if left.is_empty() {
            entry.left_since = None;
            return Default::default();
        }
        let rest = GRACE.saturating_sub(now.duration_since(*entry.left_since.get_or_insert(now)));
        match rest.is_zero() {
            true => {
                // What cannot be taken away now is tried again after as long.
                entry.left_since = Some(now);
                (left, Some(GRACE))
            }
            false => (Left::default(), Some(rest)),
        }
    }
}
