//! Removes the Job of a run that is over, tells Kubernetes how long it may stay, or ends what goes on in it.

use std::time::Instant;

use engine::trigger::{Concurrency, Step};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{DeleteParams, Patch, PatchParams, PropagationPolicy};
use serde_json::{Value, json};

use super::retention::Disposal;
use crate::calls::{self, CallError, call, only};
use crate::quarks::Controller;
use crate::quarks::api::key::Key;
use crate::quarks::api::resource::TTL;
use crate::quarks::state::job::SeenJob;
use crate::quarks::state::table::Table;
use crate::text::Text;

impl Controller {
    /// The place of a step among those of a decision. First the Jobs of runs that are over are removed, or what goes on
    /// in them ended: they may be what keeps the next run from beginning, as under a quota. Last come removals that
    /// were not answered before, for each takes long.
    pub(crate) fn turn(&self, key: &Key, step: &Step) -> (u8, Option<Instant>) {
        let Step::Remove(run) = *step else { return (1, None) };
        let unanswered = self.table().unanswered(key, run);
        (if unanswered.is_some() { 2 } else { 0 }, unanswered)
    }

    /// Carries out the [`Disposal`] of the Job of a run: removes it, or ends what goes on in it.
    pub(crate) async fn remove(&self, key: &Key, run: u64) -> Result<(), CallError> {
        let job = self.table().get(key).and_then(|entry| entry.jobs.get(&run).cloned());
        let Some(job) = job else { return Ok(()) };
        // Another leader may have heard that the run is over before it heard of its pods.
        if job.outlasted && job.end.is_none() {
            let pods = self.pods_of(&job).await?;
            self.table().outlasted_by(key, &job, &pods);
        }
        let Some(disposal) = self.table().disposal(key, run) else { return Ok(()) };
        let (done, note): (_, fn(&mut Table, &Key, &SeenJob)) = match disposal {
            Disposal::Expires(ttl) => {
                (self.tell_job(&job, &json!({TTL: ttl})).await, Table::expires)
            }
            // Kubernetes ends its pods then.
            Disposal::Ends => {
                (self.tell_job(&job, &json!({"activeDeadlineSeconds": 1})).await, Table::ends)
            }
            Disposal::LeavesPods => {
                (self.delete_job(&job, PropagationPolicy::Orphan).await, Table::goes)
            }
            Disposal::TakesPods => {
                let policy = match job.has_ended() || self.waits_for_pods(key) {
                    // Its pods first: whoever sees that the Job is gone finds none of them.
                    true => PropagationPolicy::Foreground,
                    // The pods may take long, on a dead node for ever, and the Job may be what keeps another from
                    // beginning.
                    false => PropagationPolicy::Background,
                };
                (self.delete_job(&job, policy).await, Table::goes)
            }
        };
        match done {
            Ok(()) | Err(CallError::NotFound | CallError::Conflict) => {
                note(&mut self.table(), key, &job);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the next run waits for the pods of those before it in any case.
    fn waits_for_pods(&self, key: &Key) -> bool {
        let table = self.table();
        let resource = table.get(key).and_then(|entry| entry.resource.as_ref());
        resource.is_some_and(|resource| resource.concurrency != Concurrency::Allow)
    }

    /// Patches the spec of this Job, and of no other of its name.
    async fn tell_job(&self, job: &SeenJob, spec: &Value) -> Result<(), CallError> {
        let patch = json!({"metadata": {"uid": &*job.uid}, "spec": spec});
        let jobs = self.api::<Text<Job>>(&job.namespace);
        call(jobs.patch(&job.name, &PatchParams::default(), &Patch::Merge(patch))).await.map(drop)
    }

    /// Deletes this Job, and no other of its name.
    async fn delete_job(&self, job: &SeenJob, policy: PropagationPolicy) -> Result<(), CallError> {
        let this = only(Some(job.uid.to_string()), None);
        let params = DeleteParams { propagation_policy: Some(policy), ..this };
        calls::delete(&self.api::<Job>(&job.namespace), &job.name, &params).await
    }
}
