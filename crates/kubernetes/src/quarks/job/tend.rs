//! While runs go on: what their pods mount is there, sidecars end, and what lingers keeps no place.

use k8s_openapi::api::batch::v1::Job;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::calls::{CallError, call};
use crate::quarks::Controller;
use crate::quarks::api::key::Key;
use crate::quarks::api::resource::Resource;
use crate::quarks::state::job::SeenJob;
use crate::text::Text;

impl Controller {
    /// While runs go on: what their pods mount is there, and sidecars end.
    pub(crate) async fn look_after(&self, key: &Key, resource: &Resource) -> Result<(), CallError> {
        let goes_on = {
            let table = self.table();
            table.get(key).is_some_and(|it| it.jobs.keys().any(|run| resource.is_open(*run)))
        };
        if !goes_on {
            return Ok(());
        }
        let brought = match resource.has_output {
            true => self.bring_agent(&key.namespace).await,
            false => Ok(()),
        };
        // Pods that have theirs wait for no other.
        self.end_sidecars(key, resource).await?;
        self.replace_lingering(key, resource).await?;
        brought
    }

    /// Has Kubernetes begin another pod for each that is done and does not end.
    async fn replace_lingering(&self, key: &Key, resource: &Resource) -> Result<(), CallError> {
        let wanted: Vec<(SeenJob, u32)> = {
            let table = self.table();
            let Some(entry) = table.get(key) else { return Ok(()) };
            let open = entry.jobs.values().filter(|job| resource.is_open(job.run) && !job.deleting);
            open.filter_map(|job| Some((job.clone(), job.wants.more(table.pods(job))?))).collect()
        };
        for (job, parallelism) in wanted {
            // Of the version that was seen: what is old must not have fewer go on.
            let patch = json!({
                "metadata": {"uid": &*job.uid, "resourceVersion": job.version.to_string()},
                "spec": {"parallelism": parallelism},
            });
            let jobs = self.api::<Text<Job>>(&key.namespace);
            match call(jobs.patch(&job.name, &PatchParams::default(), &Patch::Merge(patch))).await {
                Ok(job) => job.gist().iter().for_each(|job| self.table().learn_answer(job)),
                // It changed: then there is news of it.
                Err(CallError::NotFound | CallError::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
