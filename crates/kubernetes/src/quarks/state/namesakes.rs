//! Jobs and output of a deleted QuarksJob while another of the same name exists: plain state.
//!
//! It is for Kubernetes' garbage collector to remove what a deleted QuarksJob has left. But if the API server was away
//! while one was deleted and another made under its name, the collector takes that for an update of the first, without
//! a look at the uid: what belonged to the first then stays for as long as the collector runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::job::SeenJob;
use super::object::Object;
use super::table::Table;
use crate::quarks::api::key::Key;
use crate::quarks::api::resource::Resource;

/// How long Kubernetes has to remove what is left. Before we remove anything we ask whose it is: this time only saves
/// calls.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// Jobs, by their uid.
pub(crate) type Jobs = BTreeMap<Arc<str>, SeenJob>;

/// What is left of a deleted QuarksJob, and is to be removed.
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
    /// Notes Jobs whose owner has this key but another uid than the QuarksJob that is known.
    pub(crate) fn leave_behind(&mut self, key: &Key, jobs: impl IntoIterator<Item = SeenJob>) {
        let mut jobs = jobs.into_iter().peekable();
        if jobs.peek().is_some() {
            let left = self.left.entry(key.clone()).or_default();
            left.extend(jobs.map(|job| (Arc::clone(&job.uid), job)));
        }
    }

    /// Takes back the Jobs of a QuarksJob that is known by now.
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

    /// Forgets a Job that is gone, or is not as it was seen.
    pub(crate) fn forget_left(&mut self, job: &str) {
        // Pods whose sidecar waits are noted as strays.
        self.pods.remove(job);
        self.left.retain(|_, jobs| {
            jobs.remove(job);
            !jobs.is_empty()
        });
    }

    /// What is to be removed now, and when to look again.
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
                // What cannot be removed now is tried again after as long.
                entry.left_since = Some(now);
                (left, Some(GRACE))
            }
            false => (Left::default(), Some(rest)),
        }
    }
}
