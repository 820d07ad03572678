//! Makes the Job of a run, and what its pods mount.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use engine::trigger::{Outcome, Run, Trigger};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use serde_json::Value;

use super::manifest;
use crate::calls::{CallError, call, find, valueless};
use crate::quarks::Controller;
use crate::quarks::api::history::{INVALID, REFUSED};
use crate::quarks::api::key::Key;
use crate::quarks::api::output_map::without_nulls;
use crate::quarks::api::reference::base;
use crate::quarks::api::resource::Resource;
use crate::quarks::api::{inputs, naming};
use crate::quarks::output::capture::CaptureContext;
use crate::quarks::state::agents::Brought;
use crate::runner::agents;

impl Controller {
    /// Makes the Job of a run, unless it is there or the run is over.
    pub(crate) async fn start(
        &self,
        key: &Key,
        resource: &Resource,
        run: &Run,
    ) -> Result<(), CallError> {
        // Done first, for it may take long, and the lead may be lost meanwhile.
        if resource.has_output {
            self.bring_agent(&key.namespace).await?;
        }
        // If another leader has recorded the run it may have carried it out, and what is known of that may be old.
        if !self.table().was_recorded_here(resource, run.id) {
            self.refresh(key).await?;
            let known = self.table().get(key).and_then(|entry| entry.resource.clone());
            if !known.is_some_and(|it| it.uid == resource.uid && it.is_open(run.id)) {
                return Ok(());
            }
        }
        match self.job_of(resource, run) {
            Ok(job) => self.send(key, resource, run, &job).await,
            Err(outcome) => {
                self.table().kept(resource, run.id, outcome);
                Ok(())
            }
        }
    }

    /// The manifest of the Job of a run, with the proof that it is ours.
    ///
    /// # Errors
    /// The outcome of the run, if its template makes no Job.
    fn job_of(&self, resource: &Resource, run: &Run) -> Result<Value, Outcome> {
        let means = CaptureContext {
            delivery: &self.settings.delivery,
            key: self.keys.newest(),
            native_sidecars: self.native_sidecars,
            wraps: self.settings.wraps,
            resources: self.settings.agent_resources.as_ref(),
        };
        let newest = self.newest(resource, run);
        let mut job = manifest::of_run(resource, run, &means, |base| newest.get(base).copied())?;
        let name = naming::of_run(&resource.name, &resource.uid, run);
        let annotations = &mut job["metadata"]["annotations"];
        self.table().prove(&resource.namespace, &name, &resource.uid, annotations);
        assert_is_job(&job)?;
        Ok(job)
    }

    /// The newest version of each versioned Secret that the pod of a run may name, by what the names of its versions
    /// have in common. All are of one moment, and known before the manifest is made: that takes longer than others
    /// should wait for the table.
    fn newest(&self, resource: &Resource, run: &Run) -> BTreeMap<String, u64> {
        let told = inputs::references_of(&Value::Array(run.inputs.clone()));
        let table = self.table();
        let referred = resource.references.iter().chain(&told);
        let bases = referred.filter_map(|it| base(&it.name));
        let newest = |base: &str| Some(table.objects.newest(&resource.namespace, base)?.0);
        bases.filter_map(|base| Some((base.to_owned(), newest(base)?))).collect()
    }

    /// Creates the Job of a run, and takes what the API server answers.
    async fn send(
        &self,
        key: &Key,
        resource: &Resource,
        run: &Run,
        job: &Value,
    ) -> Result<(), CallError> {
        // A Job that is made after another leader has carried the run out, and removed its own Job, would be a second
        // one. So it is made while nobody else may act, or not at all.
        match self.while_it_leads(self.make(key, job)).await {
            Ok(job) => {
                self.counters.started.add();
                self.table().learn_answer(&job);
            }
            Err(CallError::Exists) => self.adopt(key, resource, run).await?,
            Err(CallError::Invalid(why)) => {
                let why = format!("{why}; {}", manifest::remedy(run.trigger));
                self.table().kept(resource, run.id, Outcome::failed(REFUSED, why));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Creates a Job from its manifest as it is: members that we do not know are the API server's to judge.
    async fn make(&self, key: &Key, job: &Value) -> Result<Job, CallError> {
        let path = format!("/apis/batch/v1/namespaces/{}/jobs", key.namespace);
        let invalid = |error: &dyn std::fmt::Display| CallError::Invalid(error.to_string());
        let body = serde_json::to_vec(job).map_err(|error| invalid(&error))?;
        let request = kube::core::Request::new(path).create(&PostParams::default(), body);
        let request = request.map_err(|error| invalid(&error))?;
        call(self.client.request(request)).await
    }

    /// Takes the Job that already has the name of this run's: it is this run's if it is proved to be ours, whoever led
    /// then; if not, the run fails.
    async fn adopt(&self, key: &Key, resource: &Resource, run: &Run) -> Result<(), CallError> {
        let name = naming::of_run(&resource.name, &resource.uid, run);
        let found = find(self.api::<Job>(&key.namespace).get(&name)).await?;
        let Some(found) = found else { return Err(CallError::Conflict) };
        let mut table = self.table();
        match table.seen_job(&found).filter(|job| job.owner == resource.uid) {
            Some(job) => {
                table.learn_job(job);
            }
            None => {
                let why = taken(&name, run.trigger);
                table.kept(resource, run.id, Outcome::failed("JobTaken", why));
            }
        }
        Ok(())
    }

    /// Makes the agent's ConfigMap in a namespace, if it is not there: somebody may have removed it. If one of its name
    /// holds something else this fails: that is somebody's own, and would be run.
    pub(crate) async fn bring_agent(&self, namespace: &Arc<str>) -> Result<(), CallError> {
        let Some(agent) = self.settings.delivery.config_map() else { return Ok(()) };
        if self.table().agent(namespace) == Brought::There {
            return Ok(());
        }
        // Others that need it meanwhile wait for this one.
        let making = {
            let mut all = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.entry(Arc::clone(namespace)).or_default())
        };
        let _making = making.lock().await;
        let known = self.table().agent(namespace);
        let made = match known {
            Brought::There => Ok(()),
            // To send a megabyte would tell no more.
            Brought::Taken => Err(agents::taken(agent)),
            Brought::Unknown => {
                let made = agents::make(&self.api::<ConfigMap>(namespace), agent).await;
                made.map(|()| self.table().agents.made(namespace))
            }
        };
        // Namespaces come and go. Whoever waits holds a reference to the lock.
        self.agents.lock().unwrap_or_else(PoisonError::into_inner).remove(namespace);
        made
    }
}

/// What is said of a run whose Job's name somebody else's Job has. It may be of before the key was lost: then a run for
/// `once` may have been carried out, and is not begun again by itself.
fn taken(job: &str, trigger: Trigger) -> String {
    let then = match trigger {
        Trigger::Now | Trigger::Once => "then say now in spec.trigger.strategy",
        Trigger::ConfigChange | Trigger::Schedule | Trigger::PodState => {
            "the run of the next trigger has a name of its own"
        }
    };
    format!("a Job {job} is there that is not ours: delete it; {then}")
}

/// Checks that a manifest can be read as a Job. To an API server `null` is as good as nothing, wherever it is.
///
/// # Errors
/// The outcome of its run, which names the member that is wrong, without its value.
fn assert_is_job(job: &Value) -> Result<(), Outcome> {
    let read: Result<Job, _> = serde_path_to_error::deserialize(&without_nulls(job));
    read.map(drop).map_err(|error| {
        let (path, expected) = (error.path(), valueless(error.inner()));
        let why = format!("spec.template: of its Job, {path}: {expected}");
        Outcome::failed(INVALID, why)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_to_do_about_a_job_of_somebody_else_depends_on_what_the_run_was_for() {
        for (trigger, expected) in [
            (Trigger::Now, "delete it; then say now in spec.trigger.strategy"),
            (Trigger::Once, "delete it; then say now in spec.trigger.strategy"),
            (Trigger::Schedule, "delete it; the run of the next trigger has a name of its own"),
        ] {
            let said = taken("a-1", trigger);
            assert_eq!(said, format!("a Job a-1 is there that is not ours: {expected}"));
        }
    }

    #[test]
    fn a_template_that_makes_no_job_is_told_of_by_the_member_that_is_wrong() {
        let with = |spec: Value| json!({"metadata": {"name": "a"}, "spec": spec});
        let pod = |pod: Value| with(json!({"template": {"spec": pod}}));
        let of_env = |value: Value| {
            let env = json!([{"name": "e", "value": value}]);
            pod(json!({"containers": [{"name": "c", "env": env}]}))
        };
        for (name, job, path) in [
            ("a Job", pod(json!({"containers": [{"name": "c"}]})), None),
            (
                "nothing, where Helm renders what has no value",
                with(json!({"template": {
                    "metadata": {"annotations": {"checksum": null}, "labels": null},
                    "spec": {
                        "nodeSelector": {"pool": null},
                        "containers": [{
                            "name": "c", "args": ["-c", null], "resources": {"limits": {"cpu": null}},
                            "env": [null, {"name": "A", "value": null}],
                        }],
                    },
                }})),
                None,
            ),
            ("a member that we do not know", with(json!({"template": {}, "later": 1})), None),
            (
                "a count in words",
                with(json!({"template": {}, "backoffLimit": "2"})),
                Some("spec.backoffLimit"),
            ),
            (
                "a value that is no text",
                of_env(json!(5)),
                Some("spec.template.spec.containers[0].env[0].value"),
            ),
        ] {
            let outcome = assert_is_job(&job).err();
            let reason = outcome.as_ref().map(|it| it.reason.as_str());
            assert_eq!(reason, path.map(|_| "TemplateInvalid"), "{name}");
            let said = outcome.map(|it| it.message).unwrap_or_default();
            let before = path.map(|path| format!("spec.template: of its Job, {path}: "));
            assert!(said.starts_with(&before.unwrap_or_default()), "{name}: {said}");
        }
    }
}
