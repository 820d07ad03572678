//! Removes Jobs and output of a deleted QuarksJob while another of the same name exists.

use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;

use crate::calls::{self, CallError, in_background};
use crate::quarks::Controller;
use crate::quarks::api::key::Key;
use crate::quarks::api::resource::Resource;
use crate::quarks::state::job::SeenJob;
use crate::quarks::state::namesakes::Left;

impl Controller {
    /// Removes what a deleted QuarksJob of this name has left, if Kubernetes does not. Returns when to look again, if
    /// there is any.
    pub(crate) async fn remove_left(&self, key: &Key, resource: &Resource) -> Option<Duration> {
        let (left, again) = self.table().due(key, resource, Instant::now());
        if left.is_empty() {
            return again;
        }
        if let Err(error) = self.take_away(key, resource, left).await {
            let (namespace, name) = (&*key.namespace, &*key.name);
            let words =
                "what a deleted one of this name has left, Jobs or output, could not be removed";
            tracing::warn!(namespace, name, %error, "{words}");
        }
        again
    }

    async fn take_away(&self, key: &Key, resource: &Resource, left: Left) -> Result<(), CallError> {
        // Our QuarksJob may itself be the deleted one. Then all of this is its successor's.
        self.refresh(key).await?;
        let known = self.table().get(key).and_then(|entry| entry.resource.clone());
        if known.is_none_or(|known| known.uid != resource.uid) {
            return Ok(());
        }
        let namespace = &*key.namespace;
        for job in left.jobs {
            self.take_job_away(key, &job).await?;
            tracing::info!(
                namespace,
                name = &*job.name,
                "a Job was taken away whose owner is gone"
            );
        }
        for object in left.objects {
            self.delete(&object).await?;
            let (kind, name) = (object.kind.word(), &*object.name);
            tracing::info!(namespace, kind, name, "output was taken away whose owner is gone");
        }
        Ok(())
    }

    async fn take_job_away(&self, key: &Key, job: &SeenJob) -> Result<(), CallError> {
        // Only as it was seen: its owner may have been removed since then.
        let params = in_background(Some(job.uid.to_string()), Some(job.version.to_string()));
        match calls::delete(&self.api::<Job>(&key.namespace), &job.name, &params).await {
            // If it has changed, a watch tells of it.
            Ok(()) | Err(CallError::NotFound | CallError::Conflict) => {
                self.table().forget_left(&job.uid);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
