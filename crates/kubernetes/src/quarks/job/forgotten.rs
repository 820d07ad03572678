//! Asks Kubernetes to look at Jobs again that it has forgotten.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::calls::{CallError, call};
use crate::quarks::Controller;
use crate::quarks::api::key::Key;
use crate::quarks::state::forgotten::{AGAIN, REMINDED, due};
use crate::quarks::state::job::SeenJob;
use crate::text::Text;

impl Controller {
    /// Has Kubernetes look at the Jobs of a QuarksJob again that it has forgotten. Returns when to look again, if any
    /// Job has a time.
    pub(crate) async fn remind(&self, key: &Key) -> Option<Duration> {
        let now = i64::try_from(self.now_millis() / 1000).unwrap_or(i64::MAX);
        let timed: Vec<(SeenJob, i64)> = {
            let table = self.table();
            let jobs = table.get(key).into_iter().flat_map(|entry| entry.jobs.values());
            jobs.filter_map(|job| due(job, now).map(|due| (job.clone(), due))).collect()
        };
        let mut next: Option<i64> = None;
        for (job, due) in timed {
            let mut at = due;
            if due <= now {
                at = now.saturating_add(AGAIN);
                if let Err(error) = self.remind_of(&job, now).await {
                    let (namespace, name) = (&*key.namespace, &*job.name);
                    tracing::warn!(namespace, name, %error, "Kubernetes could not be asked to look at a Job that it seems to have forgotten");
                }
            }
            next = next.into_iter().chain([at]).min();
        }
        let wait = u64::try_from(next?.saturating_sub(now)).unwrap_or_default();
        Some(Duration::from_secs(wait.max(1)))
    }

    async fn remind_of(&self, job: &SeenJob, now: i64) -> Result<(), CallError> {
        let patch = json!({"metadata": {
            "uid": &*job.uid, "annotations": {REMINDED: now.to_string()},
        }});
        self.patch_job(job, patch).await
    }

    /// Patches a Job, and learns from the answer. If the Job has changed, or is gone, nothing is done: a watch tells of it.
    pub(super) async fn patch_job(&self, job: &SeenJob, patch: Value) -> Result<(), CallError> {
        let jobs = self.api::<Text<Job>>(&job.namespace);
        match call(jobs.patch(&job.name, &PatchParams::default(), &Patch::Merge(patch))).await {
            Ok(job) => {
                job.gist().iter().for_each(|job| self.table().learn_answer(job));
                Ok(())
            }
            Err(CallError::NotFound | CallError::Conflict) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
