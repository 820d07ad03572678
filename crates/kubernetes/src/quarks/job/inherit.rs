//! Jobs that the original operator has begun and whose end it has not seen: carried on as our runs.
//!
//! Whoever takes over from it finds Jobs that nobody follows any more. One that goes on would never be completed or
//! removed, and if its trigger is still in the spec another run would begin beside it. So before anything is decided of
//! a QuarksJob that the original has written to and we have not, its Jobs are listed, and get what ours have: a label,
//! a number, and a trigger. Their output is written by the sidecar that they have.

use std::collections::HashMap;
use std::sync::Arc;

use engine::trigger::{Strategy, Trigger};
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use kube::api::{ListParams, ObjectMeta, Patch, PatchParams};
use serde_json::{Value, json};

use crate::calls::{CallError, call};
use crate::conditions::JobEnd;
use crate::quarks::Controller;
use crate::quarks::api::dialect::TRIGGERED;
use crate::quarks::api::key::Key;
use crate::quarks::api::resource::Resource;
use crate::quarks::api::{naming, noted};
use crate::quarks::state::job::end;
use crate::quarks::state::table::Table;
use crate::text::{Text, each};

impl Controller {
    /// Takes over the Jobs that the original has left of a QuarksJob, if that was not done before. It can be done
    /// again.
    pub(crate) async fn inherit(&self, key: &Key) -> Result<(), CallError> {
        let Some(resource) = self.table().uninherited(key) else { return Ok(()) };
        let jobs = self.api::<Text<Job>>(&key.namespace);
        // For a name that cannot be the value of a label the original could make no Job; to ask for it is an error.
        let (label, name) = (key.dialect.label("qjob-name"), naming::label(&key.name));
        let of_it = format!("{label}={name}");
        let mut runs = HashMap::new();
        let read = |text: &Text<Job>| {
            let job = text.gist().filter(|job| is_of(&resource, job))?;
            let run = self.table().seen_job(&job).map(|seen| seen.run);
            runs.extend(job.metadata.uid.clone().zip(run));
            Some(outline(job))
        };
        let found = each(&jobs, ListParams::default().labels(&of_it), read).await?;
        let run_of = |job: &Job| runs.get(job.metadata.uid.as_ref()?).copied();
        let carried_on = inheritance(&resource, &found, run_of);
        for (job, mut notes) in carried_on {
            let params = PatchParams::default();
            let name = job.metadata.name.as_deref().unwrap_or_default();
            let annotations = &mut notes["metadata"]["annotations"];
            self.table().prove(&key.namespace, name, &resource.uid, annotations);
            match call(jobs.patch(name, &params, &Patch::Merge(notes))).await {
                Ok(job) => {
                    tracing::info!(
                        namespace = &*key.namespace,
                        name,
                        "a Job that was there before is taken over as a run"
                    );
                    job.gist().iter().for_each(|job| self.table().learn_answer(job));
                }
                // It has just been deleted: the original has seen its end.
                Err(CallError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        self.table().inherited(key);
        Ok(())
    }
}

impl Table {
    /// The QuarksJob if the original operator may have left Jobs of it, and nobody has looked.
    pub(crate) fn uninherited(&self, key: &Key) -> Option<Arc<Resource>> {
        let entry = self.get(key).filter(|entry| !entry.inherited)?;
        entry.resource.clone().filter(|it| it.was_anothers && !it.deleting)
    }

    /// Notes that the Jobs that the original operator left of a QuarksJob are known.
    pub(crate) fn inherited(&mut self, key: &Key) {
        self.change(key, |entry| entry.inherited = true);
    }
}

/// Whether a Job belongs to this QuarksJob.
fn is_of(resource: &Resource, job: &Job) -> bool {
    let mut owners = job.metadata.owner_references.iter().flatten();
    let is_owner = |uid: &str| uid == &*resource.uid;
    owners.any(|it| it.controller == Some(true) && is_owner(&it.uid))
}

/// The parts of a Job that are decided by: there may be many Jobs, and each may be large.
fn outline(job: Job) -> Job {
    let metadata = ObjectMeta { annotations: None, ..job.metadata };
    let conditions = job.status.and_then(|status| status.conditions);
    Job { metadata, spec: None, status: Some(JobStatus { conditions, ..JobStatus::default() }) }
}

/// The Jobs among these that are carried on, the oldest first, with the patch that makes each a run. Jobs that are runs
/// already keep their numbers, which `run_of` returns: a takeover may have been interrupted.
fn inheritance<'j>(
    resource: &Resource,
    jobs: &'j [Job],
    run_of: impl Fn(&Job) -> Option<u64>,
) -> Vec<(&'j Job, Value)> {
    let mut its: Vec<&Job> = jobs.iter().filter(|job| is_of(resource, job)).collect();
    let last = its.iter().filter_map(|job| run_of(job)).max().unwrap_or_default();
    let is_labelled = |job: &Job| {
        job.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(TRIGGERED))
    };
    its.retain(|job| !is_labelled(job) && job.metadata.deletion_timestamp.is_none());
    its.sort_by_key(|job| job.metadata.creation_timestamp.as_ref().map(|at| at.0));
    let (failed, mut taken): (Vec<&Job>, Vec<&Job>) =
        its.into_iter().partition(|job| matches!(end(job), Some(JobEnd::Failed { .. })));
    // The original has seen failures, and lets their Jobs stay. But the trigger that one ran for may still be in the
    // spec.
    let owes = resource.strategy == Strategy::Once && !resource.status.completed;
    if owes && last == 0 && taken.is_empty() {
        taken.extend(failed.last());
    }
    let trigger = match resource.strategy {
        Strategy::Once | Strategy::Done => Trigger::Once,
        Strategy::Manual | Strategy::Now | Strategy::PodState => Trigger::Now,
    };
    let kind = resource.dialect.kind();
    let numbered = taken.into_iter().zip(last + 1..);
    let patched = numbered.map(|(job, id)| {
        let metadata = json!({
            "uid": job.metadata.uid, "labels": {TRIGGERED: kind},
            "annotations": noted::inherited(id, trigger),
        });
        (job, json!({"metadata": metadata}))
    });
    patched.collect()
}

#[cfg(test)]
mod tests {
    use kube::api::DynamicObject;

    use super::*;
    use crate::quarks::api::dialect::Dialect;

    fn resource(strategy: &str, completed: bool) -> Resource {
        let object = json!({
            "apiVersion": "quarks.cloudfoundry.org/v1alpha1", "kind": "QuarksJob",
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1"},
            "spec": {"trigger": {"strategy": strategy}},
            "status": {"completed": completed, "lastReconcile": null},
        });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        Resource::of(Dialect::QuarksJob, &object).unwrap()
    }

    /// One that was made at this minute, and has this condition.
    fn job(name: &str, minute: u32, condition: Option<&str>) -> Job {
        let conditions = condition.map(|kind| json!([{"type": kind, "status": "True"}]));
        let owner = json!({
            "apiVersion": "quarks.cloudfoundry.org/v1alpha1", "kind": "QuarksJob", "name": "a",
            "uid": "u", "controller": true,
        });
        let metadata = json!({
            "name": name, "uid": name, "ownerReferences": [owner],
            "creationTimestamp": format!("2026-01-01T00:{minute:02}:00Z"),
        });
        serde_json::from_value(json!({"metadata": metadata, "status": {"conditions": conditions}}))
            .unwrap()
    }

    fn taken(resource: &Resource, jobs: &[Job]) -> Vec<(String, String, String)> {
        let note = |patch: &Value, name: &str| {
            patch["metadata"]["annotations"][name].as_str().unwrap().to_owned()
        };
        let run_of = |job: &Job| job.metadata.annotations.as_ref()?.get("run")?.parse().ok();
        let all = inheritance(resource, jobs, run_of).into_iter().map(|(job, patch)| {
            let name = job.metadata.name.clone().unwrap();
            (name, note(&patch, noted::RUN_ID), note(&patch, "manciple.dev/trigger"))
        });
        all.collect()
    }

    #[test]
    fn what_goes_on_or_was_not_seen_to_end_is_a_run_and_what_failed_is_not() {
        let jobs = [
            job("late", 9, None),
            job("done", 1, Some("Complete")),
            job("failed", 5, Some("Failed")),
        ];
        for (strategy, trigger) in
            [("once", "once"), ("done", "once"), ("manual", "now"), ("now", "now")]
        {
            let expected = [("done", "1", trigger), ("late", "2", trigger)];
            let expected = expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
            assert_eq!(taken(&resource(strategy, false), &jobs), expected, "{strategy}");
        }
    }

    #[test]
    fn a_failure_whose_word_is_still_there_is_the_run_of_it() {
        let jobs = [job("first", 1, Some("Failed")), job("last", 2, Some("Failed"))];
        let names = |resource: &Resource| -> Vec<String> {
            taken(resource, &jobs).into_iter().map(|(name, ..)| name).collect()
        };
        assert_eq!(names(&resource("once", false)), ["last"]);
        for (strategy, completed) in [("once", true), ("done", false), ("manual", false)] {
            assert_eq!(names(&resource(strategy, completed)), [""; 0], "{strategy}");
        }
    }

    #[test]
    fn what_was_begun_before_is_gone_on_with() {
        let jobs = |kinds: [Option<&str>; 3]| {
            let [a, b, c] = kinds;
            [job("a", 1, a), job("b", 2, b), job("c", 3, c)]
        };
        let run = |job: &mut Job, id: &str| {
            job.metadata.labels = Some([(TRIGGERED.to_owned(), String::new())].into());
            job.metadata.annotations = Some([("run".to_owned(), id.to_owned())].into());
        };
        for (name, kinds, before, expected) in [
            ("nothing was", [None; 3], [None; 3], &[("a", "1"), ("b", "2"), ("c", "3")][..]),
            ("the oldest was taken", [None; 3], [Some("1"), None, None], &[("b", "2"), ("c", "3")]),
            (
                "and has failed since then",
                [Some("Failed"), None, None],
                [Some("1"), None, None],
                &[("b", "2"), ("c", "3")],
            ),
            (
                "one between them has",
                [None, Some("Failed"), None],
                [Some("1"), Some("2"), None],
                &[("c", "3")],
            ),
            ("all were", [None; 3], [Some("1"), Some("2"), Some("3")], &[]),
            (
                "the failure that is the run of a word was",
                [Some("Failed"); 3],
                [None, None, Some("1")],
                &[],
            ),
        ] {
            let mut jobs = jobs(kinds);
            let all = jobs.iter_mut().zip(before);
            all.for_each(|(job, id)| id.into_iter().for_each(|id| run(job, id)));
            let taken = taken(&resource("once", false), &jobs);
            let found: Vec<(&str, &str)> =
                taken.iter().map(|(name, id, _)| (name.as_str(), id.as_str())).collect();
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn jobs_of_another_of_the_same_name_are_left_alone() {
        let mut others = job("other", 1, None);
        others.metadata.owner_references.as_mut().unwrap()[0].uid = "before".to_owned();
        assert_eq!(taken(&resource("once", false), &[others]), []);
    }
}
