//! Reads and writes a QuarksJob itself: its record together with its strategy, and its status.

use engine::trigger::{JobRecord, Outcome, Run, Step, Strategy};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::Controller;
use super::api::document::Document;
use super::api::key::Key;
use super::api::record::{RUNS, Written};
use super::api::resource::{Resource, word};
use super::api::room::with_remedy;
use super::api::{naming, status};
use super::step::trouble;
use crate::calls::{CallError, call, find};

/// What the API server says of a dry run where a webhook has side effects that it would have then, too.
const NO_DRY_RUN: &str = "does not support dry run";

impl Controller {
    fn resources(&self, key: &Key) -> Api<Document> {
        Api::namespaced_with(self.client.clone(), &key.namespace, &key.dialect.resource())
    }

    fn learn(&self, key: &Key, document: &Document) {
        if let Some(resource) = document.read(key.dialect) {
            let keys = self.table().answered(resource);
            self.queue.push(keys.into_iter().filter(|other| other != key));
        }
    }

    /// Reads the QuarksJob anew from the API server.
    pub(super) async fn refresh(&self, key: &Key) -> Result<(), CallError> {
        let known = self.table().get(key).and_then(|entry| entry.resource.clone());
        match find(self.resources(key).get(&key.name)).await? {
            Some(document) => self.learn(key, &document),
            None => known.into_iter().for_each(|known| self.table().forget_one(key, &known.uid)),
        }
        Ok(())
    }

    pub(super) async fn patch_status(
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
        self.patched(key, resource, patched)
    }

    fn patched(
        &self,
        key: &Key,
        resource: &Resource,
        patched: Result<Document, CallError>,
    ) -> Result<(), CallError> {
        match patched {
            Ok(document) => self.learn(key, &document),
            // The QuarksJob is gone, and with it all that was to be done.
            Err(CallError::NotFound) => self.table().forget_one(key, &resource.uid),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Says in the status that a run comes, before it is recorded as these `steps` say. If its record was refused when it
    /// was written last, whether it would be now is asked before: else the status would say so again and again, and no
    /// run would come.
    pub(super) async fn reopen(
        &self,
        key: &Key,
        resource: &Resource,
        steps: &[Step],
    ) -> Result<(), CallError> {
        let was_refused = self.table().get(key).is_some_and(|entry| entry.refused);
        let comes = steps.iter().find_map(|step| match step {
            Step::Record { record, strategy, .. } => Some((record, *strategy)),
            _ => None,
        });
        if let Some(record) = comes.filter(|_| was_refused) {
            let asks = PatchParams { dry_run: true, ..PatchParams::default() };
            match self.patch_record(key, resource, record, &asks).await {
                Err(CallError::Invalid(why)) if why.contains(NO_DRY_RUN) => {}
                asked => drop(asked?),
            }
            // Else the status would be closed again before it is written.
            self.table().note_let_in(resource);
        }
        self.patch_status(key, resource, status::reopened(resource, self.now_millis())).await
    }

    /// Writes the record of runs, and in the same write takes the trigger from the spec. Notes whether that is refused.
    pub(super) async fn record(
        &self,
        key: &Key,
        resource: &Resource,
        record: &JobRecord,
        strategy: Strategy,
    ) -> Result<(), CallError> {
        let writes = PatchParams::default();
        let patched = self.patch_record(key, resource, (record, strategy), &writes).await;
        if let Some(refused) = is_refused(&patched) {
            let why = patched.as_ref().err().and_then(|error| trouble(error, None));
            self.table().note_record(resource, why.as_deref().filter(|_| refused));
        }
        self.patched(key, resource, patched)?;
        let new = record.open.iter().filter(|run| run.id > resource.record.last);
        new.for_each(|run| self.table().recorded(resource, run.id));
        Ok(())
    }

    async fn patch_record(
        &self,
        key: &Key,
        resource: &Resource,
        (record, strategy): (&JobRecord, Strategy),
        params: &PatchParams,
    ) -> Result<Document, CallError> {
        let written = Written::text(resource, record.clone())
            .map_err(|error| CallError::Unsent(error.to_string()))?;
        let mut patch = json!({"metadata": {
            "resourceVersion": resource.version.to_string(),
            "annotations": {RUNS: written},
        }});
        // For a run that `once` still owes, the strategy stays as it is.
        let mut new = record.open.iter().filter(|run| run.id > resource.record.last);
        if strategy != resource.strategy || new.any(|run| !run.inputs.is_empty()) {
            // The inputs in the spec were for this run.
            patch["spec"] = json!({"trigger": {"strategy": word(strategy), "inputs": null}});
        }
        let patched =
            call(self.resources(key).patch(&key.name, params, &Patch::Merge(patch))).await;
        patched.map_err(|error| with_remedy(error, record))
    }

    /// Writes the outcome of a run to the status, and tells of it.
    pub(super) async fn settle(
        &self,
        key: &Key,
        resource: &Resource,
        run: &Run,
        outcome: &Outcome,
    ) -> Result<(), CallError> {
        let (job, tried) = {
            let table = self.table();
            let entry = table.get(key);
            let job = entry.and_then(|it| Some(it.jobs.get(&run.id)?.name.to_string()));
            (job, entry.and_then(|it| it.tried.get(&run.id).cloned()))
        };
        let job = job.unwrap_or_else(|| naming::of_run(&resource.name, &resource.uid, run));
        let status =
            status::settled(resource, run, (&job, tried.as_deref()), outcome, self.now_millis());
        self.patch_status(key, resource, status).await?;
        self.reinstall_unless_kept(key, run).await?;
        self.tell_of_end(resource, run, outcome);
        match outcome.succeeded {
            true => self.counters.succeeded.add(),
            false => self.counters.failed.add(),
        }
        let (namespace, name) = (&*key.namespace, &*key.name);
        let (reason, why) = (&outcome.reason, &outcome.message);
        tracing::info!(namespace, name, run = run.id, reason, why, "a run has ended");
        Ok(())
    }
}

/// Whether a write was refused, by what came of it; `None`: that says nothing of what comes of the next.
fn is_refused<T>(written: &Result<T, CallError>) -> Option<bool> {
    match written {
        Ok(_) => Some(false),
        Err(
            CallError::Forbidden(_)
            | CallError::Denied(_)
            | CallError::Invalid(_)
            | CallError::Failed(_)
            | CallError::Unsent(_),
        ) => Some(true),
        Err(_) => None,
    }
}
