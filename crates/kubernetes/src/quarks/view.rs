//! What a QuarksJob says of its runs, for people: read from the object alone, by anybody who may read it. The
//! controller need not be running.
//!
//! ```text
//! spec.trigger ── is it taken? ──▶ the record: runs that go on ──▶ status.history: runs that have ended
//! ```

use engine::trigger::{Concurrency, Outcome, Strategy, Trigger};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::DynamicObject;
use serde_json::Value;

use super::api::dialect::{Dialect, TRIGGERED};
use super::api::history::{Ended, had_no_job};
use super::api::naming;
use super::api::noted::RUN_ID;
use super::api::pod::SIDECAR;
use super::api::resource::{Resource, word};
use crate::runner::delivery::DIRECTORY;

/// The label that the Jobs of runs and their pods have.
pub const OF_RUNS: &str = TRIGGERED;

/// A QuarksJob or an ExtendedJob, as it was read.
#[derive(Debug, Clone)]
pub struct View {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid: one that is made anew under this name has another.
    pub uid: String,
    /// Its resource version, for writes that depend on what was read.
    pub version: String,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// The strategy in its spec.
    pub strategy: Strategy,
    /// The `concurrencyPolicy` in its spec: what happens to a trigger while a run goes on.
    pub concurrency: Concurrency,
    /// `spec.trigger.inputs`, as they stand.
    pub inputs: Value,
    /// Whether the newest run has succeeded, and none goes on.
    pub completed: bool,
    /// What is waited for, in words.
    pub waits: Option<String>,
    /// The number of the newest run; 0: there was none.
    pub last: u64,
    /// The runs that are known, the newest first.
    pub runs: Vec<RunView>,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunView {
    /// Its number, from 1.
    pub id: u64,
    /// The trigger that started it, as it is spelled in the status.
    pub trigger: String,
    /// The name of its Job.
    pub job: String,
    /// When it was recorded, RFC 3339; empty: nobody knows.
    pub started_at: String,
    /// How it ended; `None`: it goes on.
    pub end: Option<RunEnd>,
}

/// How a run ended, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEnd {
    /// How it ended.
    pub outcome: Outcome,
    /// When it ended, RFC 3339.
    pub ended_at: String,
    /// How long it took.
    pub seconds: Option<u64>,
}

/// What has become of a trigger `now` in the spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken<'v> {
    /// Nothing yet: it is still in the spec.
    NotYet,
    /// It started this run.
    By(&'v RunView),
    /// It is no longer in the spec, and no run was made for it.
    PassedOver,
}

impl View {
    /// Reads a QuarksJob; `None` if it has no name or identity, which no server sends.
    pub fn of(dialect: Dialect, object: &DynamicObject) -> Option<Self> {
        let resource = Resource::of(dialect, object)?;
        let mut runs: Vec<RunView> = resource.status.history.iter().map(RunView::ended).collect();
        let open = resource.record.open.iter().filter(|run| resource.is_open(run.id));
        runs.extend(open.map(|run| RunView {
            id: run.id,
            trigger: run.trigger.word().to_owned(),
            job: naming::of_run(&resource.name, &resource.uid, run),
            started_at: run.at.clone(),
            end: None,
        }));
        runs.sort_by_key(|run| std::cmp::Reverse(run.id));
        let newest = runs.first().map_or(0, |run| run.id);
        Some(Self {
            namespace: resource.namespace.to_string(),
            name: resource.name.to_string(),
            uid: resource.uid.to_string(),
            version: resource.version.to_string(),
            deleting: resource.deleting,
            strategy: resource.strategy,
            concurrency: resource.concurrency,
            inputs: resource.spec().pointer("/trigger/inputs").cloned().unwrap_or_default(),
            completed: resource.status.completed,
            // The record may have been removed by somebody; the history then has the numbers.
            last: resource.record.last.max(newest),
            waits: resource.status.waits,
            runs,
        })
    }

    /// The strategy, as it is spelled in the spec.
    pub fn strategy(&self) -> &'static str {
        word(self.strategy)
    }

    /// The run of this number, if the record or the history has it.
    pub fn run(&self, id: u64) -> Option<&RunView> {
        self.runs.iter().find(|run| run.id == id)
    }

    /// The name of the Job of a run, whether or not the run is still known.
    pub fn job(&self, id: u64) -> String {
        let derived = || naming::job(&self.name, &self.uid, id);
        self.run(id).map_or_else(derived, |run| run.job.clone())
    }

    /// Whether a Job is that of run `id`, by its owners and its annotation.
    pub fn is_of_run(&self, job: &Job, id: u64) -> bool {
        let mut owners = job.metadata.owner_references.iter().flatten();
        let said = job.metadata.annotations.as_ref().and_then(|all| all.get(RUN_ID));
        owners.any(|owner| owner.uid == self.uid)
            && said.is_some_and(|said| *said == id.to_string())
    }

    /// What has become of a `now` that was written when `last` was the newest run: the first later run that `now`
    /// triggered is its run.
    pub fn taken(&self, last: u64) -> Taken<'_> {
        let mut later = self.runs.iter().rev().filter(|run| run.id > last);
        match later.find(|run| run.trigger == Trigger::Now.word()) {
            Some(run) => Taken::By(run),
            None if self.strategy == Strategy::Now => Taken::NotYet,
            None => Taken::PassedOver,
        }
    }
}

impl RunView {
    /// How the run ended, if it had no Job: then it had no pods, and has no logs.
    pub fn ended_without_job(&self) -> Option<&Outcome> {
        let outcome = self.end.as_ref().map(|end| &end.outcome);
        outcome.filter(|outcome| had_no_job(outcome))
    }

    fn ended(run: &Ended) -> Self {
        Self {
            id: run.id,
            trigger: run.trigger.clone(),
            job: run.job.clone(),
            started_at: run.started_at.clone(),
            end: Some(RunEnd {
                outcome: run.outcome.clone(),
                ended_at: run.ended_at.clone(),
                seconds: run.seconds,
            }),
        }
    }
}

/// The labels that a monitored namespace has, unless the controller was configured otherwise.
pub fn monitored_labels() -> [String; 2] {
    ["monitored", "qjob-service-account"].map(|name| Dialect::QuarksJob.label(name))
}

/// The names of a pod's containers, in the order in which they begin, without our own.
pub fn containers(pod: &Pod) -> Vec<&str> {
    let spec = pod.spec.as_ref();
    // No init container of a template mounts that directory: one that does brings the agent.
    let brings = |container: &Container| {
        container.volume_mounts.iter().flatten().any(|mount| mount.mount_path == DIRECTORY)
    };
    let first = spec.and_then(|spec| spec.init_containers.as_ref()).into_iter().flatten();
    let main = spec.into_iter().flat_map(|spec| &spec.containers);
    let names = first.filter(|container| !brings(container)).chain(main).map(|it| it.name.as_str());
    names.filter(|name| *name != SIDECAR).collect()
}

/// Whether a line of a container's log is the agent's sealed output, which people cannot read.
pub fn is_sealed(line: &str) -> bool {
    agent::Line::parse(line).is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// With this strategy, these runs in the record and these in the history.
    fn view(strategy: &str, last: u64, open: &[(u64, &str)], ended: &[(u64, &str)]) -> View {
        let open = open.iter().map(
            |(id, trigger)| json!({"id": id, "trigger": trigger, "at": "2026-01-01T00:00:00Z"}),
        );
        let record = json!({"last": last, "open": open.collect::<Vec<_>>()});
        let ended = ended.iter().map(|(id, trigger)| {
            json!({
                "id": id, "trigger": trigger, "job": format!("job-{id}"), "succeeded": true,
                "reason": "Completed", "startedAt": "s", "endedAt": "e", "seconds": 3,
            })
        });
        of(json!({
            "metadata": {
                "name": "n", "namespace": "ns", "uid": "u", "resourceVersion": "7",
                "annotations": {"manciple.dev/runs": record.to_string()},
            },
            "spec": {"trigger": {"strategy": strategy, "inputs": [{"name": "A", "value": "1"}]}},
            "status": {"history": ended.collect::<Vec<_>>(), "completed": true},
        }))
        .unwrap()
    }

    fn of(mut object: Value) -> Option<View> {
        object["apiVersion"] = json!("quarks.cloudfoundry.org/v1alpha1");
        object["kind"] = json!("QuarksJob");
        View::of(Dialect::QuarksJob, &serde_json::from_value(object).unwrap())
    }

    #[test]
    fn what_has_become_of_a_trigger() {
        let not_yet = None;
        let passed_over = Some(0);
        for (case, view, last, expected) in [
            ("it stands", view("now", 1, &[], &[(1, "once")]), 1, not_yet),
            ("it stands while another goes on", view("now", 1, &[(1, "now")], &[]), 1, not_yet),
            ("it is recorded", view("manual", 2, &[(2, "now")], &[(1, "once")]), 1, Some(2)),
            ("it has ended", view("manual", 2, &[], &[(2, "now"), (1, "now")]), 1, Some(2)),
            ("the first", view("manual", 1, &[(1, "now")], &[]), 0, Some(1)),
            ("somebody's next stands", view("now", 2, &[(2, "now")], &[(1, "now")]), 1, Some(2)),
            (
                "others came after it",
                view("manual", 4, &[(4, "now")], &[(3, "now"), (2, "now")]),
                1,
                Some(2),
            ),
            (
                "a change of the configuration was quicker",
                view("manual", 3, &[(3, "now")], &[(2, "config-change")]),
                1,
                Some(3),
            ),
            (
                "only the configuration made one",
                view("done", 2, &[(2, "config-change")], &[]),
                1,
                passed_over,
            ),
            ("passed over", view("manual", 1, &[(1, "now")], &[]), 1, passed_over),
            ("nothing ever ran", view("manual", 0, &[], &[]), 0, passed_over),
        ] {
            let found = match view.taken(last) {
                Taken::NotYet => None,
                Taken::By(run) => Some(run.id),
                Taken::PassedOver => Some(0),
            };
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn runs_are_there_once_the_newest_first() {
        // 2 has ended since the record was written.
        let view = view("manual", 3, &[(2, "now"), (3, "once")], &[(2, "now"), (1, "now")]);
        let ids: Vec<_> = view.runs.iter().map(|run| (run.id, run.end.is_some())).collect();
        assert_eq!(ids, [(3, false), (2, true), (1, true)]);
        assert_eq!(view.last, 3);
        assert_eq!((view.version.as_str(), view.strategy(), view.completed), ("7", "manual", true));
        assert_eq!(view.inputs, json!([{"name": "A", "value": "1"}]));
        let end = view.run(2).and_then(|run| run.end.clone()).unwrap();
        assert_eq!((end.outcome.reason.as_str(), end.seconds), ("Completed", Some(3)));
    }

    #[test]
    fn a_run_that_had_no_job_says_how_it_ended() {
        let run = |end: Option<Outcome>| RunView {
            id: 1,
            trigger: "now".to_owned(),
            job: "job-1".to_owned(),
            started_at: String::new(),
            end: end.map(|outcome| RunEnd { outcome, ended_at: String::new(), seconds: None }),
        };
        let failed = |reason: &str| Some(Outcome::failed(reason, "why"));
        for (name, end, had_none) in [
            ("it goes on", None, false),
            ("it did its work", Some(Outcome::completed()), false),
            ("its Job failed", failed("BackoffLimitExceeded"), false),
            ("somebody deleted its Job", failed("Lost"), false),
            ("the API server refused its Job", failed("JobRefused"), true),
            ("its template makes none", failed("TemplateInvalid"), true),
        ] {
            let run = run(end.clone());
            let expected = end.as_ref().filter(|_| had_none);
            assert_eq!(run.ended_without_job(), expected, "{name}");
        }
    }

    #[test]
    fn a_job_has_its_name_though_its_run_is_not_known_any_more() {
        let view = view("manual", 20, &[(20, "now")], &[(19, "now")]);
        assert_eq!(view.job(19), "job-19", "as the history has it");
        assert_eq!(view.job(20), naming::job("n", "u", 20));
        assert_eq!(view.job(1), naming::job("n", "u", 1));
    }

    #[test]
    fn a_record_that_somebody_removed_or_broke_leaves_the_history() {
        for annotations in [json!({}), json!({"manciple.dev/runs": "{"})] {
            let object = json!({
                "metadata": {
                    "name": "n", "namespace": "ns", "uid": "u", "resourceVersion": "7",
                    "annotations": annotations,
                },
                "status": {"history": [{
                    "id": 5, "trigger": "now", "job": "j", "succeeded": false, "reason": "Lost",
                }]},
            });
            let view = of(object).unwrap();
            assert_eq!((view.last, view.runs.len(), view.inputs), (5, 1, Value::Null));
        }
    }

    #[test]
    fn what_anybody_wrote_is_read_without_a_panic() {
        for (spec, status) in [
            (json!(null), json!(null)),
            (json!([1]), json!("text")),
            (json!({"trigger": 7}), json!({"history": {"id": -1}})),
            (json!({"trigger": {"strategy": ["now"]}}), json!({"conditions": [null, 3]})),
        ] {
            let metadata =
                json!({"name": "n", "namespace": "ns", "uid": "u", "resourceVersion": "7"});
            let view = of(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap();
            assert_eq!((view.strategy(), view.last, view.runs.len()), ("manual", 0, 0));
        }
        assert!(of(json!({"metadata": {"name": "n"}})).is_none());
    }

    #[test]
    fn containers_of_ours_are_no_ones_log() {
        let ours = json!([{"name": "manciple", "mountPath": "/manciple"}]);
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "initContainers": [
                {"name": "agent", "volumeMounts": ours}, {"name": "prepare"}, {"name": "output-persist"},
            ],
            "containers": [{"name": "agent", "volumeMounts": ours}, {"name": "work"}],
        }}))
        .unwrap();
        assert_eq!(containers(&pod), ["prepare", "agent", "work"]);
        assert!(containers(&Pod::default()).is_empty());
    }

    #[test]
    fn lines_of_the_agent_are_told_from_others() {
        for (line, sealed) in [
            ("#MANCIPLE1 report 0011223344556677 0 AAAA", true),
            ("#MANCIPLE1 something else\r", true),
            (" #MANCIPLE1 report 0011223344556677 0 AAAA", false),
            ("# a comment", false),
            ("", false),
        ] {
            assert_eq!(is_sealed(line), sealed, "{line}");
        }
    }
}
