//! One look at a QuarksJob, and what is to be done: thin, for what is decided is decided elsewhere.

use std::sync::Arc;
use std::time::Duration;

use engine::trigger::{Action, Decision, Outcome, Record, Run, Strategy, Wait, decide};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{
    Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions,
    PropagationPolicy,
};
use serde_json::{Value, json};

use super::capture::{ENDED, Means};
use super::dialect::Dialect;
use super::reference::Kind;
use super::resource::{RUNS, Resource, word};
use super::seen::SeenJob;
use super::table::Key;
use super::{Controller, manifest, naming, status};
use crate::calls::{CallError, call, find};
use crate::resources::time;
use crate::runner::agents;

/// How many looks follow one another at once; what is left then waits for the next turn.
const LOOKS: usize = 12;

impl Controller {
    /// Looks, does what is to be done, and looks again, until there is nothing. When to look again though
    /// nothing happens; `Err`: when it may go better.
    pub(super) async fn step(&self, key: &Key) -> Result<Option<Duration>, ()> {
        for _ in 0..LOOKS {
            let cleared = self.clear_doubt(key).await;
            let Some((resource, decision)) = self.look(key) else { return Ok(None) };
            if let Err(error) = cleared {
                return self.failed(key, &resource, error).await;
            }
            if decision.actions.is_empty() {
                return self.idle(key, &resource, decision.wait).await;
            }
            for action in decision.actions {
                // Another may lead by now.
                if !self.leads() {
                    return Ok(None);
                }
                let writes_it =
                    matches!(action, Action::Reopen | Action::Record { .. } | Action::Settle(..));
                match self.execute(key, &resource, action).await {
                    // What follows is decided by what it is now.
                    Ok(()) if writes_it => break,
                    Ok(()) => {}
                    // Somebody else wrote: what is known of it is old.
                    Err(CallError::Conflict) => {
                        if self.refresh(key).await.is_err() {
                            return Err(());
                        }
                        break;
                    }
                    Err(error) => return self.failed(key, &resource, error).await,
                }
            }
        }
        Ok(Some(Duration::ZERO))
    }

    fn look(&self, key: &Key) -> Option<(Arc<Resource>, Decision)> {
        let mut table = self.table();
        if !table.is_complete(&key.namespace) {
            return None;
        }
        let resource = table.get(key)?.resource.clone().filter(|resource| !resource.deleting)?;
        let state = table.state(key, self.settings.settle)?;
        Some((resource, decide(&state, &time(self.now()))))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.time.now()).unwrap_or_default()
    }

    /// Nothing to do: says what a trigger waits for, if that is new.
    async fn idle(
        &self,
        key: &Key,
        resource: &Resource,
        wait: Option<Wait>,
    ) -> Result<Option<Duration>, ()> {
        if let Err(error) = self.look_after(key, resource).await {
            return self.failed(key, resource, error).await;
        }
        let again = match &wait {
            Some(Wait::Changes) => Some(self.settings.settle),
            _ => None,
        };
        let waits = match wait {
            Some(Wait::References(missing)) => {
                Some(format!("it refers to what is not there: {}", missing.join(", ")))
            }
            _ => self.table().trouble_of(key),
        };
        self.tell(key, resource, waits.as_deref()).await;
        Ok(again)
    }

    /// Says why it cannot go on, once.
    async fn failed(
        &self,
        key: &Key,
        resource: &Resource,
        error: CallError,
    ) -> Result<Option<Duration>, ()> {
        let (namespace, name) = (&*key.namespace, &*key.name);
        self.counters.calls_failed.add();
        tracing::warn!(namespace, name, %error, "it cannot go on now");
        if let CallError::Refused(why) = &error {
            self.tell(key, resource, Some(&format!("the API server refuses: {why}"))).await;
        }
        Err(())
    }

    async fn tell(&self, key: &Key, resource: &Resource, waits: Option<&str>) {
        if resource.status.waits.as_deref() == waits {
            return;
        }
        let status = status::waits(resource, waits, self.now());
        if let Err(error) = self.patch_status(key, resource, status).await {
            tracing::debug!(name = &*key.name, %error, "what it waits for was not written");
        }
    }

    async fn execute(
        &self,
        key: &Key,
        resource: &Resource,
        action: Action,
    ) -> Result<(), CallError> {
        match action {
            Action::Reopen => self.patch_status(key, resource, status::reopened()).await,
            Action::Record { record, strategy } => {
                self.record(key, resource, &record, strategy).await
            }
            Action::Start(run) => self.start(key, resource, &run).await,
            Action::Keep(run) => {
                let job = self.table().get(key).and_then(|entry| entry.jobs.get(&run.id).cloned());
                let Some(job) = job else { return Ok(()) };
                let outcome = self.keep(resource, &job).await?;
                self.table().kept(key, run.id, outcome);
                Ok(())
            }
            Action::Settle(run, outcome) => self.settle(key, resource, &run, &outcome).await,
            Action::Remove(run) => self.remove(key, resource, run).await,
        }
    }

    fn resources(&self, key: &Key) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &key.namespace, &key.dialect.resource())
    }

    fn learn(&self, key: &Key, object: &DynamicObject) {
        if let Some(resource) = Resource::of(key.dialect, object) {
            self.table().learn(resource);
        }
    }

    /// Reads it as it is now.
    async fn refresh(&self, key: &Key) -> Result<(), CallError> {
        match find(self.resources(key).get(&key.name)).await? {
            Some(object) => self.learn(key, &object),
            None => self.table().forget(key),
        }
        Ok(())
    }

    async fn patch_status(
        &self,
        key: &Key,
        resource: &Resource,
        status: Value,
    ) -> Result<(), CallError> {
        let version = resource.version.to_string();
        let patch = json!({"metadata": {"resourceVersion": version}, "status": status});
        let params = PatchParams::default();
        let patched =
            call(self.resources(key).patch_status(&key.name, &params, &Patch::Merge(patch))).await;
        self.patched(key, patched)
    }

    fn patched(
        &self,
        key: &Key,
        patched: Result<DynamicObject, CallError>,
    ) -> Result<(), CallError> {
        match patched {
            Ok(object) => self.learn(key, &object),
            // It is gone, and so is all that was to be done.
            Err(CallError::NotFound) => self.table().forget(key),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// One write: what it takes from the spec, and what it makes of it.
    async fn record(
        &self,
        key: &Key,
        resource: &Resource,
        record: &Record,
        strategy: Strategy,
    ) -> Result<(), CallError> {
        let written =
            serde_json::to_string(record).map_err(|error| CallError::Invalid(error.to_string()))?;
        let mut patch = json!({"metadata": {
            "resourceVersion": resource.version.to_string(),
            "annotations": {RUNS: written},
        }});
        if strategy != resource.strategy {
            patch["spec"] = json!({"trigger": {"strategy": word(strategy)}});
        }
        let params = PatchParams::default();
        let patched =
            call(self.resources(key).patch(&key.name, &params, &Patch::Merge(patch))).await;
        self.patched(key, patched)?;
        let new = record.open.iter().filter(|run| run.id > resource.record.last);
        new.for_each(|run| self.table().recorded(key, run.id));
        Ok(())
    }

    async fn start(&self, key: &Key, resource: &Resource, run: &Run) -> Result<(), CallError> {
        // Whoever has recorded it may have carried it out, and what is known of that may be old.
        if !self.table().was_recorded_here(key, run.id) {
            self.refresh(key).await?;
            let known = self.table().get(key).and_then(|entry| entry.resource.clone());
            if !known.is_some_and(|it| it.uid == resource.uid && it.is_open(run.id)) {
                return Ok(());
            }
        }
        let job = {
            let means = Means {
                delivery: &self.settings.delivery,
                key: self.keys.newest(),
                native_sidecars: self.native_sidecars,
                wraps: self.settings.wraps,
            };
            let table = self.table();
            let newest = |base: &str| Some(table.objects.newest(&key.namespace, base)?.0);
            manifest::of_run(resource, run, &means, newest)
        };
        let job = job.and_then(|job| {
            let read: Result<Job, _> = serde_json::from_value(job.clone());
            read.map(|_| job).map_err(|error| {
                Outcome::failed("TemplateInvalid", format!("spec.template: {error}"))
            })
        });
        let job = match job {
            Ok(job) => job,
            Err(outcome) => {
                self.table().kept(key, run.id, outcome);
                return Ok(());
            }
        };
        if key.dialect == Dialect::QuarksJob && resource.has_output {
            self.bring_agent(&key.namespace).await?;
        }
        let made = self.make(key, &job).await;
        match made {
            Ok(job) => {
                self.counters.started.add();
                SeenJob::of(&job).map(|job| self.table().learn_job(job));
            }
            Err(CallError::Exists) => self.adopt(key, resource, run).await?,
            Err(CallError::Invalid(why)) => {
                self.table().kept(key, run.id, Outcome::failed("JobRefused", why));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// As it is: members that we do not know are the API server's to judge.
    async fn make(&self, key: &Key, job: &Value) -> Result<Job, CallError> {
        let path = format!("/apis/batch/v1/namespaces/{}/jobs", key.namespace);
        let invalid = |error: &dyn std::fmt::Display| CallError::Invalid(error.to_string());
        let body = serde_json::to_vec(job).map_err(|error| invalid(&error))?;
        let request = kube::core::Request::new(path).create(&PostParams::default(), body);
        let request = request.map_err(|error| invalid(&error))?;
        call(self.client.request(request)).await
    }

    /// A Job of this name is there: this run's, whoever made it.
    async fn adopt(&self, key: &Key, resource: &Resource, run: &Run) -> Result<(), CallError> {
        let name = naming::job(&resource.name, &resource.uid, run.id);
        let found = find(self.api::<Job>(&key.namespace).get(&name)).await?;
        let Some(found) = found else { return Err(CallError::Conflict) };
        match SeenJob::of(&found) {
            Some(job) if job.owner == resource.uid => {
                self.table().learn_job(job);
            }
            _ => {
                let why = format!(
                    "a Job {name} is there that is not ours: delete it, then trigger again"
                );
                self.table().kept(key, run.id, Outcome::failed("JobRefused", why));
            }
        }
        Ok(())
    }

    /// Makes the agent's ConfigMap, if it is not there: somebody may have removed it.
    async fn bring_agent(&self, namespace: &Arc<str>) -> Result<(), CallError> {
        let Some(agent) = self.settings.delivery.config_map() else { return Ok(()) };
        let is_there = || {
            let table = self.table();
            table.agents.contains(namespace)
                || table.objects.get(namespace, Kind::ConfigMap, agent.name()).is_some()
        };
        if is_there() {
            return Ok(());
        }
        // Whoever comes meanwhile waits for this one.
        let _making = self.agents.lock().await;
        if !is_there() {
            agents::make(&self.api::<ConfigMap>(namespace), agent).await?;
            self.table().agents.insert(Arc::clone(namespace));
        }
        Ok(())
    }

    async fn settle(
        &self,
        key: &Key,
        resource: &Resource,
        run: &Run,
        outcome: &Outcome,
    ) -> Result<(), CallError> {
        let job = naming::job(&resource.name, &resource.uid, run.id);
        let status = status::settled(resource, run, &job, outcome, self.now());
        self.patch_status(key, resource, status).await?;
        self.was_kept(key, run)?;
        if let Some(ttl) = manifest::ttl(resource).filter(|_| !outcome.succeeded) {
            let (jobs, params) = (self.api::<Job>(&key.namespace), PatchParams::default());
            find(jobs.patch(&job, &params, &Patch::Merge(ttl))).await?;
        }
        match outcome.succeeded {
            true => self.counters.succeeded.add(),
            false => self.counters.failed.add(),
        }
        let (namespace, name) = (&*key.namespace, &*key.name);
        let (reason, message) = (&outcome.reason, &outcome.message);
        tracing::info!(namespace, name, run = run.id, reason, message, "a run has ended");
        Ok(())
    }

    /// Under somebody else's definition an API server drops what it does not know: the run would never be over.
    fn was_kept(&self, key: &Key, run: &Run) -> Result<(), CallError> {
        let known = self.table().get(key).and_then(|entry| entry.resource.clone());
        match known.is_none_or(|it| it.ended(run.id).is_some()) {
            true => Ok(()),
            false => Err(CallError::Refused(format!(
                "the definition of {} in this cluster is not Manciple's: what a status says of runs is not \
                 kept; apply it, `manciple crds`, or start with --apply-crd",
                key.dialect.kind()
            ))),
        }
    }

    /// Its pods stay, as they did, unless the template says otherwise or another run takes its place.
    async fn remove(&self, key: &Key, resource: &Resource, run: u64) -> Result<(), CallError> {
        let job = self.table().get(key).and_then(|entry| entry.jobs.get(&run).cloned());
        let Some(job) = job else { return Ok(()) };
        let succeeded = resource.ended(run).is_some_and(|run| run.outcome.succeeded);
        // Something that was put into a pod goes on: nobody else would end it.
        let lingers = self.table().pods(&job).any(|pod| pod.lingers);
        let policy = match succeeded && !job.takes_pods && !lingers {
            true => PropagationPolicy::Orphan,
            false => PropagationPolicy::Background,
        };
        let this = Preconditions { uid: Some(job.uid.to_string()), resource_version: None };
        let params = DeleteParams {
            preconditions: Some(this),
            propagation_policy: Some(policy),
            ..DeleteParams::default()
        };
        match call(self.api::<Job>(&key.namespace).delete(&job.name, &params)).await {
            Ok(_) | Err(CallError::NotFound | CallError::Conflict) => self.table().goes(key, run),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Asks after Jobs that a list was without: only their absence now says that they are gone.
    async fn clear_doubt(&self, key: &Key) -> Result<(), CallError> {
        let doubtful: Vec<SeenJob> = {
            let table = self.table();
            let jobs = table.get(key).into_iter().flat_map(|entry| entry.jobs.values());
            jobs.filter(|job| job.unsure).cloned().collect()
        };
        for job in doubtful {
            let found = find(self.api::<Job>(&key.namespace).get(&job.name)).await?;
            let found = found.as_ref().and_then(SeenJob::of);
            match found.filter(|found| found.uid == job.uid) {
                Some(found) => drop(self.table().learn_job(found)),
                None => drop(self.table().forget_job(&job)),
            }
        }
        Ok(())
    }

    /// While runs go on: what their pods mount is there, and sidecars end.
    async fn look_after(&self, key: &Key, resource: &Resource) -> Result<(), CallError> {
        let goes_on = {
            let table = self.table();
            table.get(key).is_some_and(|it| it.jobs.keys().any(|run| resource.is_open(*run)))
        };
        if !goes_on {
            return Ok(());
        }
        if key.dialect == Dialect::QuarksJob && resource.has_output {
            self.bring_agent(&key.namespace).await?;
        }
        self.end_sidecars(key, resource).await
    }

    /// Tells classic sidecars whose pods have nothing else that goes on.
    async fn end_sidecars(&self, key: &Key, resource: &Resource) -> Result<(), CallError> {
        let waiting: Vec<_> = {
            let table = self.table();
            let Some(entry) = table.get(key) else { return Ok(()) };
            let open = entry.jobs.values().filter(|job| resource.is_open(job.run));
            open.flat_map(|job| table.pods(job))
                .filter(|pod| pod.waits_for_us)
                .map(|pod| (pod.name.clone(), pod.uid.clone()))
                .collect()
        };
        for (name, uid) in waiting {
            let patch = json!({"metadata": {"uid": &*uid, "annotations": {ENDED: "true"}}});
            let pods = self.api::<Pod>(&key.namespace);
            let params = PatchParams::default();
            match call(pods.patch_metadata(&name, &params, &Patch::Merge(patch))).await {
                Ok(_) => self.table().told(&uid),
                Err(CallError::NotFound | CallError::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
