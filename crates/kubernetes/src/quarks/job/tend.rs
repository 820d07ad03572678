//! Looks after runs that go on: what their pods mount is there, sidecars end, and pods that linger are replaced.

use serde_json::json;

use crate::calls::CallError;
use crate::quarks::Controller;
use crate::quarks::api::key::Key;
use crate::quarks::api::resource::Resource;
use crate::quarks::state::job::SeenJob;

impl Controller {
    /// Looks after the runs of a QuarksJob that go on: makes the agent's ConfigMap, tells sidecars to end, and has pods
    /// that linger replaced.
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
        // Pods that have it do not wait for others that do not.
        self.end_sidecars(key, resource).await?;
        self.replace_lingering(key, resource).await?;
        brought
    }

    /// Has Kubernetes begin another pod for each that is done and lingers.
    async fn replace_lingering(&self, key: &Key, resource: &Resource) -> Result<(), CallError> {
        let wanted: Vec<(SeenJob, u32)> = {
            let table = self.table();
            let Some(entry) = table.get(key) else { return Ok(()) };
            let open = entry.jobs.values().filter(|job| resource.is_open(job.run) && !job.deleting);
            open.filter_map(|job| Some((job.clone(), job.wants.more(table.pods(job))?))).collect()
        };
        for (job, parallelism) in wanted {
            // Only of the version that was seen: with old knowledge fewer pods could be set.
            let patch = json!({
                "metadata": {"uid": &*job.uid, "resourceVersion": job.version.to_string()},
                "spec": {"parallelism": parallelism},
            });
            self.patch_job(&job, patch).await?;
        }
        Ok(())
    }
}
