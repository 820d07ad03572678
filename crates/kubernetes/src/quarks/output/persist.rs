//! Keeps the output of a run: reads its reports, and has the objects written that they become. All of it can be done
//! again.

use std::time::Instant;

use agent::KeySet;
use engine::trigger::Outcome;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams, PartialObjectMeta};
use serde_json::Value;

use super::bounds::{Beyond, Taken};
use super::logs::Reading;
use super::objects::{Kept, Wanted, kept, merged};
use super::report::{self, ContainerReport};
use super::undone::{self, Undone};
use crate::calls::{self, CallError, call, find};
use crate::conditions::{DEADLINE_EXCEEDED, JobEnd};
use crate::quarks::Controller;
use crate::quarks::api::noted;
use crate::quarks::api::output_map::OutputMap;
use crate::quarks::api::pod::SIDECAR;
use crate::quarks::api::resource::Resource;
use crate::quarks::state::job::SeenJob;
use crate::quarks::state::pod::SeenPod;
use crate::text::{Text, each};

impl Controller {
    /// Keeps the output of the run of a Job, and returns the outcome of the run.
    pub(crate) async fn keep(&self, resource: &Resource, job: &SeenJob) -> Result<Outcome, Undone> {
        if job.noted.inherited {
            // The original's sidecar has kept the output before.
            let by_pods = job.wants.end(self.table().pods(job));
            return Ok(ended(job.end.as_ref(), by_pods)?);
        }
        let spec = self.spec_of(resource, job).await?;
        let has_output = !OutputMap::of(resource.dialect, &spec).is_empty();
        let on_failure = spec["output"]["writeOnFailure"] == true;
        let is_needed = has_output || job.end != Some(JobEnd::Complete);
        if matches!(&job.end, Some(JobEnd::Failed { reason, .. }) if reason != DEADLINE_EXCEEDED) {
            self.see_pods(job).await?;
        }
        let by_pods = job.wants.end(self.table().pods(job));
        let mut outcome = ended(job.end.as_ref(), by_pods)?;
        let pod = self.pod(job, !outcome.succeeded, is_needed).await?;
        if !outcome.succeeded {
            outcome.message = joined([&self.ends(job, pod.as_ref()), &outcome.message]);
        }
        if !has_output || !(outcome.succeeded || on_failure) {
            return Ok(outcome);
        }
        // Held until all of it is written.
        let mut reading = None;
        let mut output = match &pod {
            Some(pod) => {
                let verbatim = self.settings.verbatim_prefixes;
                match self.reports(resource, &spec, job, pod, &mut reading).await? {
                    Ok(reports) => kept(resource.dialect, &spec, verbatim, &merged(reports)),
                    Err(beyond) => Kept::from(beyond),
                }
            }
            None => match self.kept_before(resource, &spec, job) {
                Some(made) => return Ok(Outcome { made, ..outcome }),
                None => lost(outcome.succeeded),
            },
        };
        outcome.made = self.write_all(resource, job, &mut output).await?;
        Ok(with_output(outcome, &output))
    }

    /// How the containers of a failed run ended, for people: those of this pod or, if it is gone, of the last pod that
    /// is known.
    fn ends(&self, job: &SeenJob, pod: Option<&SeenPod>) -> String {
        match pod {
            Some(pod) => report::ends(pod),
            None => self.table().pods(job).last().map(report::ends).unwrap_or_default(),
        }
    }

    /// Writes the objects of an output, and adds refusals to its faults. Returns the names of what is there now.
    async fn write_all(
        &self,
        resource: &Resource,
        job: &SeenJob,
        output: &mut Kept,
    ) -> Result<Vec<String>, Undone> {
        let mut made = Vec::new();
        for wanted in std::mem::take(&mut output.wanted) {
            match self.write(resource, job, &wanted).await? {
                Ok(name) => {
                    made.push(name);
                    output.notes.extend(self.shared(resource, &wanted));
                }
                Err(why) => output.faults.push(("SecretRefused", why)),
            }
            match self.prune(resource, &wanted).await {
                // Old versions that stay do no harm: the next run tries again to remove them.
                Err(CallError::Forbidden(why) | CallError::Denied(why)) => {
                    self.tell_of_what_stays(resource, &wanted, &why);
                }
                pruned => pruned?,
            }
        }
        Ok(made)
    }

    /// What somebody should know of a versioned Secret that another QuarksJob writes, too.
    fn shared(&self, resource: &Resource, wanted: &Wanted) -> Option<String> {
        let table = self.table();
        let other = wanted.versioned.then(|| table.shares_versions(resource, &wanted.name))??;
        Some(format!(
            "{other} writes versions of secret/{}, too: each is the newest in turn; name another in one of them",
            wanted.name
        ))
    }

    /// The names of the versions that another leader wrote for this run while its pod was there, if that is all of its
    /// output: only a version says which run it is of.
    fn kept_before(&self, resource: &Resource, spec: &Value, job: &SeenJob) -> Option<Vec<String>> {
        let map = OutputMap::named(resource.dialect, spec, self.settings.verbatim_prefixes);
        let table = self.table();
        let written = |base: &str| table.objects.written_by(&resource.namespace, base, &job.name);
        map.targets().map(|it| Some(written(&it.name)?.to_string())).collect()
    }

    /// The spec by which a run was begun: somebody may have changed it since. For a Job that is too heavy to be read it
    /// is the spec as it is now.
    async fn spec_of(&self, resource: &Resource, job: &SeenJob) -> Result<Value, CallError> {
        if job.noted.is_by(resource.digest()) {
            return Ok(resource.spec());
        }
        let found = find(self.api::<Text<Job>>(&job.namespace).get(&job.name)).await?;
        let by = found.and_then(|found| noted::spec_of(resource.dialect, &found.read()?));
        Ok(by.unwrap_or_else(|| resource.spec()))
    }

    /// Lists the pods of a failed Job unless all that are known have ended: the watch of pods may be behind that of
    /// Jobs.
    async fn see_pods(&self, job: &SeenJob) -> Result<(), CallError> {
        let have_ended = {
            let table = self.table();
            let mut pods = table.pods(job).peekable();
            pods.peek().is_some() && pods.all(|pod| pod.is_over() || pod.gone)
        };
        if have_ended {
            return Ok(());
        }
        let listed = self.pods_of(job).await?;
        let mut table = self.table();
        listed.into_iter().for_each(|pod| drop(table.learn_pod(pod)));
        Ok(())
    }

    /// Lists the pods of a Job, as they are now.
    pub(crate) async fn pods_of(&self, job: &SeenJob) -> Result<Vec<SeenPod>, CallError> {
        let selector = format!("controller-uid={}", job.uid);
        let pods = self.api::<Text<Pod>>(&job.namespace);
        let of = ListParams::default().labels(&selector);
        let listed = each(&pods, of, |pod| SeenPod::of(&pod.gist()?)).await?;
        Ok(listed.into_iter().filter(|pod| !pod.orphan).collect())
    }

    /// The pod whose output counts: one that `failed` if the run did, else one that did not. The watch of pods may be
    /// behind that of Jobs: if one is `needed`, the pods are listed.
    async fn pod(
        &self,
        job: &SeenJob,
        failed: bool,
        needed: bool,
    ) -> Result<Option<SeenPod>, CallError> {
        let seen = report::chosen(self.table().pods(job), failed).cloned();
        if seen.as_ref().is_some_and(|pod| pod.has_succeeded() || job.end.is_some()) || !needed {
            return Ok(seen);
        }
        let listed = self.pods_of(job).await?;
        if let Some(pod) = report::chosen(listed.iter(), failed) {
            return Ok(Some(pod.clone()));
        }
        if !failed {
            return Ok(None);
        }
        // Kubernetes deletes pods whose containers it has restarted too often.
        let table = self.table();
        let tried = |pod: &&SeenPod| !pod.did_its_work();
        let left = report::left(listed.iter().filter(tried));
        Ok(left.or_else(|| report::left(table.pods(job).filter(tried))).cloned())
    }

    /// The reports of a pod's agents, one for each container or with the reason why it is missing; or the limit of a
    /// run that they exceed, which is known before most of it is read. If a report is in a log, `reading` is held from
    /// then on: it takes several times its size, and many runs may have ended at once.
    async fn reports<'s>(
        &'s self,
        resource: &Resource,
        spec: &Value,
        job: &SeenJob,
        pod: &SeenPod,
        reading: &mut Option<Reading<'s>>,
    ) -> Result<Result<Vec<agent::Gathered>, Beyond>, Undone> {
        let dialect = resource.dialect;
        let all = report::find(dialect, pod, spec);
        let mut taken = Taken::default();
        if let Err(beyond) = taken.bytes(all.values().map(ContainerReport::brings).sum()) {
            return Ok(Err(beyond));
        }
        let size = report::size(&all);
        let mut reports = Vec::new();
        for (reporter, found) in all {
            if reading.is_none()
                && matches!(found, ContainerReport::InLog { .. } | ContainerReport::Printed(_))
            {
                let (key, node) = (resource.key(), pod.node.as_ref());
                let may_read = self.logs.read(&key, &job.uid, node, size, Instant::now());
                *reading = Some(may_read.map_err(Undone::Later)?);
            }
            let log = self.log_of(job, pod, &found).await?;
            if let (ContainerReport::Printed(_), Some(printed)) = (&found, &log)
                && let Err(beyond) = taken.bytes(printed.len())
            {
                return Ok(Err(beyond));
            }
            let open = |keys: &KeySet| report::open(&found, log.as_deref(), keys, &job.name);
            let opened = self.keys.opened(open).await;
            // That the keys may not be read is no refusal of the output.
            let opened = opened.map_err(|error| match CallError::from(error).of_a_secret() {
                CallError::Forbidden(why) => CallError::Hindered(why),
                error => error,
            })?;
            let why = match (&found, &opened) {
                (ContainerReport::Missing(why), _) => why.clone(),
                (_, Err(error)) => report::unreadable(pod, &reporter, error),
                (_, Ok(_)) => String::new(),
            };
            let mut report =
                opened.unwrap_or_else(|_| report::lost(dialect, spec, &reporter, &why));
            report::only_of(&reporter, &mut report);
            reports.push(report);
        }
        self.logs.were_read(&job.uid);
        Ok(Ok(reports))
    }

    /// As much of a log as a report needs; `None`: the report is in no log.
    async fn log_of(
        &self,
        job: &SeenJob,
        pod: &SeenPod,
        found: &ContainerReport,
    ) -> Result<Option<Vec<u8>>, CallError> {
        let (container, limits) = match found {
            ContainerReport::InLog { container, previous, logged } => {
                let (tail_lines, limit_bytes) = report::limits(logged);
                let previous = *previous || pod.anew && container == SIDECAR;
                let limits =
                    LogParams { tail_lines, limit_bytes, previous, ..LogParams::default() };
                (container, limits)
            }
            ContainerReport::Printed(container) => {
                let limit_bytes = i64::try_from(report::PRINTED_BYTES).ok();
                (container, LogParams { limit_bytes, ..LogParams::default() })
            }
            _ => return Ok(None),
        };
        self.log(job, pod, container, limits).await.map(Some)
    }

    async fn log(
        &self,
        job: &SeenJob,
        pod: &SeenPod,
        container: &str,
        limits: LogParams,
    ) -> Result<Vec<u8>, CallError> {
        let params = LogParams { container: Some(container.to_owned()), ..limits };
        let pods = self.api::<Pod>(&pod.namespace);
        let error = match calls::log(&pods, &pod.name, &params).await {
            // A kubelet that has just begun does not know of its pods yet.
            Err(CallError::NotFound) => {
                // By a list, which is the right that there is.
                let of = ListParams::default().fields(&format!("metadata.name={}", pod.name));
                let there = call(pods.list_metadata(&of)).await?;
                let is_it = |there: &PartialObjectMeta<Pod>| {
                    there.metadata.uid.as_deref() == Some(&*pod.uid)
                };
                if !there.iter().any(is_it) {
                    return Ok(Vec::new());
                }
                CallError::NoAnswer(undone::NOT_YET.to_owned())
            }
            Err(CallError::Invalid(why)) if undone::is_of_a_runtime_that_is_away(&why) => {
                CallError::NoAnswer(why)
            }
            // The container's log went with it.
            Err(CallError::Invalid(_)) => return Ok(Vec::new()),
            Err(error) => error,
            Ok(log) => {
                self.logs.came(pod.node.as_ref(), Instant::now());
                return Ok(log.unwrap_or_default());
            }
        };
        self.logs.failed(&job.uid, pod.node.as_ref(), Instant::now());
        Err(undone::of_log(&pod.name, container, error))
    }
}

/// The outcome of a run without its output, by how its Job ended and by whether its pods say that it succeeded.
///
/// # Errors
/// If neither says that the run has ended: the pods that said so have just gone.
fn ended(job: Option<&JobEnd>, by_pods: Option<bool>) -> Result<Outcome, CallError> {
    match (job, by_pods) {
        (Some(JobEnd::Complete), _) => Ok(Outcome::completed()),
        // A container was put into its pods. Kubernetes waits for that, and counts a pod as failed by it, too.
        (_, Some(true)) => Ok(Outcome::completed()),
        (Some(JobEnd::Failed { reason, message, .. }), _) => {
            let reason = if reason.is_empty() { "Failed" } else { reason };
            Ok(Outcome::failed(reason, message.clone()))
        }
        (None, Some(false)) => Ok(Outcome::failed("Failed", "")),
        (None, None) => Err(CallError::Conflict),
    }
}

/// What is kept of a run whose pods are gone.
fn lost(succeeded: bool) -> Kept {
    let how = if succeeded { " well" } else { "" };
    let why = format!("no pod that ended{how} is there any more: its output went with it");
    Kept { faults: vec![("OutputLost", why)], ..Kept::default() }
}

/// The outcome of a run together with what became of its output: if some of that is not kept, the run has failed.
fn with_output(outcome: Outcome, output: &Kept) -> Outcome {
    let faults: Vec<&str> = output.faults.iter().map(|(_, why)| why.as_str()).collect();
    let faults = faults.join("; ");
    match (output.faults.first(), outcome.succeeded) {
        (None, true) => Outcome { message: output.notes.join("; "), ..outcome },
        (None, false) => outcome,
        (Some((reason, _)), true) => {
            Outcome { made: outcome.made, ..Outcome::failed(reason, faults) }
        }
        // That the run failed anyhow comes first.
        (Some(_), false) => Outcome { message: joined([&outcome.message, &faults]), ..outcome },
    }
}

/// Joins those of the two messages that are not empty.
fn joined(words: [&str; 2]) -> String {
    words.into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_as_its_job_says_and_before_that_as_its_pods_do() {
        let failed = |reason: &str, message: &str| {
            let (reason, message) = (reason.to_owned(), message.to_owned());
            Some(JobEnd::Failed { reason, message, at: 0 })
        };
        let limit = || failed("BackoffLimitExceeded", "it has reached the limit");
        let (well, badly) = (Some(true), Some(false));
        for (name, job, by_pods, expected) in [
            ("its Job is complete", Some(JobEnd::Complete), None, Some(("Completed", ""))),
            ("whatever its pods say", Some(JobEnd::Complete), badly, Some(("Completed", ""))),
            (
                "its Job failed",
                limit(),
                None,
                Some(("BackoffLimitExceeded", "it has reached the limit")),
            ),
            (
                "its pods did, too",
                limit(),
                badly,
                Some(("BackoffLimitExceeded", "it has reached the limit")),
            ),
            ("it failed by what was put into them", limit(), well, Some(("Completed", ""))),
            ("its Job does not say why", failed("", ""), None, Some(("Failed", ""))),
            ("what was put into its pods goes on", None, well, Some(("Completed", ""))),
            ("the same in one that failed", None, badly, Some(("Failed", ""))),
            ("its pods went just now", None, None, None),
        ] {
            let outcome = ended(job.as_ref(), by_pods).ok();
            let succeeded = outcome.as_ref().map(|it| it.succeeded);
            assert_eq!(succeeded, expected.map(|(reason, _)| reason == "Completed"), "{name}");
            let said = outcome.as_ref().map(|it| (it.reason.as_str(), it.message.as_str()));
            assert_eq!(said, expected, "{name}");
        }
    }

    #[test]
    fn a_run_of_whose_output_something_is_not_kept_has_failed() {
        let failed = || Outcome::failed("Failed", "container c exited with 1");
        let fault = |reason, why: &str| (reason, why.to_owned());
        let missing = || fault("OutputMissing", "a");
        let refused = || fault("SecretRefused", "b");
        for (name, outcome, faults, notes, expected) in [
            ("all is kept", Outcome::completed(), vec![], vec![], ("Completed", "")),
            (
                "all is kept, and there is something to know",
                Outcome::completed(),
                vec![],
                vec!["n", "m"],
                ("Completed", "n; m"),
            ),
            (
                "one is not",
                Outcome::completed(),
                vec![missing()],
                vec!["n"],
                ("OutputMissing", "a"),
            ),
            (
                "two are not",
                Outcome::completed(),
                vec![missing(), refused()],
                vec![],
                ("OutputMissing", "a; b"),
            ),
            (
                "it failed, and all is kept",
                failed(),
                vec![],
                vec!["n"],
                ("Failed", "container c exited with 1"),
            ),
            (
                "it failed, and one is not",
                failed(),
                vec![refused()],
                vec![],
                ("Failed", "container c exited with 1; b"),
            ),
        ] {
            let notes = notes.into_iter().map(str::to_owned).collect();
            let output = Kept { faults, notes, ..Kept::default() };
            let made = vec!["made".to_owned()];
            let outcome = with_output(Outcome { made: made.clone(), ..outcome }, &output);
            let is_completed = expected.0 == "Completed";
            assert_eq!((outcome.succeeded, outcome.made), (is_completed, made), "{name}");
            assert_eq!((&*outcome.reason, &*outcome.message), expected, "{name}");
        }
    }

    #[test]
    fn of_a_run_that_failed_both_its_containers_and_its_job_are_told() {
        for (words, expected) in [
            (["", ""], ""),
            (["container c exited with 1", ""], "container c exited with 1"),
            (["", "it has reached the limit"], "it has reached the limit"),
            (["a", "b"], "a; b"),
        ] {
            assert_eq!(joined(words), expected);
        }
    }
}
