//! A record that somebody has removed, as `kubectl replace` does: the status has what is needed of it.

use std::time::Duration;

use engine::trigger::{Concurrency, JobRecord, Outcome, State, Step, Trigger, decide};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::quarks::api::dialect::Dialect;
use crate::quarks::api::record::RUNS;
use crate::quarks::api::reference::{Kind, To};
use crate::quarks::api::resource::Resource;
use crate::quarks::api::status;
use crate::quarks::look::{Look, owes_once, recalled};
use crate::quarks::state::job::SeenJob;
use crate::quarks::state::object::Object;
use crate::quarks::state::table::Table;

const AT: &str = "2026-01-01T00:00:00Z";
const HOURLY: &str = "0 * * * *";

/// One of this uid that follows a ConfigMap, with this record and this status, and `once` in its spec again.
fn object(uid: &str, record: Option<&Value>, status: &Value) -> DynamicObject {
    let pod = json!({"containers": [{"name": "c", "envFrom": [{"configMapRef": {"name": "m"}}]}]});
    let annotations = record.map(|record| json!({RUNS: record.to_string()}));
    serde_json::from_value(json!({
        "apiVersion": "quarks.cloudfoundry.org/v1alpha1", "kind": "QuarksJob",
        "metadata": {
            "name": "a", "namespace": "n", "uid": uid, "resourceVersion": "9",
            "generation": 1, "creationTimestamp": AT,
            "annotations": annotations,
        },
        "spec": {
            "trigger": {"strategy": "once", "schedule": HOURLY}, "updateOnConfigChange": true,
            "template": {"spec": {"template": {"spec": pod}}},
        },
        "status": status,
    }))
    .unwrap()
}

fn resource(object: &DynamicObject) -> Resource {
    Resource::of(Dialect::QuarksJob, object).unwrap()
}

/// The digest of a ConfigMap that holds this, as records have it.
fn digest(table: &mut Table, value: &str, version: u64) -> Value {
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "m", "namespace": "n", "resourceVersion": version.to_string()},
        "data": {"k": value},
    }))
    .unwrap();
    table.objects.learn(Object::of_config_map(&map).unwrap());
    let held = table.objects.held("n", To::Object(Kind::ConfigMap), "m", None);
    serde_json::to_value(held.1).unwrap()
}

/// A look at this hour at one whose twelfth run has found `before`, where there is `now`; with what was settled then as its
/// status, or this one, and the Job of this run, which may say whether it has found the one or the other.
fn look(
    (before, now): (&str, &str),
    hour: &str,
    status: Option<Value>,
    job: Option<(u64, Option<bool>)>,
    settle: Duration,
) -> Look {
    let mut table = Table::new(2, b"key");
    let before = digest(&mut table, before, 1);
    let now = digest(&mut table, now, 2);
    let found =
        |new: bool| json!({"references": {"configmap/m": if new { &now } else { &before }}});
    let run = json!({"id": 12, "trigger": "config-change", "at": AT});
    let since = json!({"of": HOURLY, "since": AT});
    let job = job.map(|(run, new)| (run, new.map(found)));
    let record = json!({"last": 12, "once": true, "open": [run], "references": {"configmap/m": before}, "schedule": since});
    let ended = resource(&object("u", Some(&record), &json!({})));
    let run = ended.record.open[0].clone();
    let settled = status::settled(&ended, &run, ("a-12", None), &Outcome::completed(), 0);
    let replaced = resource(&object("u", None, &status.unwrap_or(settled)));
    let key = replaced.key();
    table.learn(replaced);
    if let Some((run, found)) = job {
        let mut job = super::job("u", "j");
        job["metadata"]["annotations"]["manciple.dev/run-id"] = json!(run.to_string());
        if let Some(found) = found {
            job["metadata"]["annotations"]["manciple.dev/found"] = json!(found.to_string());
        }
        let job: Job = serde_json::from_value(job).unwrap();
        table.learn_job(SeenJob::of(&job).unwrap());
    }
    table.look(&key, settle, hour.parse().unwrap()).unwrap()
}

/// What is recorded of this, if anything is.
fn recorded(state: &State) -> Option<JobRecord> {
    decide(state, AT).steps.into_iter().find_map(|step| match step {
        Step::Record { record, .. } => Some(record),
        _ => None,
    })
}

/// What is triggered.
fn next(state: &State) -> Option<Trigger> {
    let record = recorded(state)?;
    let mut new = record.open.iter().filter(|run| !state.runs.contains_key(&run.id));
    new.next().map(|run| run.trigger)
}

#[test]
fn what_was_run_once_and_what_has_changed_since_is_known_without_the_record() {
    // As it was settled by an earlier release, which did not say.
    let without = json!({"completed": false, "history": [{
        "id": 12, "trigger": "config-change", "job": "a-12", "succeeded": true, "reason": "Completed",
    }]});
    let anothers = json!({
        "record": json!({"uid": "other", "last": 12, "once": true}).to_string(),
    });
    let soon = "2026-01-01T00:30:00Z";
    let later = "2026-01-01T01:30:00Z";
    for (name, held, at, status, job, expected) in [
        ("nothing has changed", ("1", "1"), soon, None, None, None),
        ("a change", ("1", "2"), soon, None, None, Some(Trigger::ConfigChange)),
        ("times count from now", ("1", "1"), later, None, None, None),
        ("a run has begun since", ("1", "2"), later, None, Some((13, None)), None),
        ("it has seen both", ("1", "2"), later, None, Some((13, Some(true))), None),
        (
            "it has seen the first",
            ("1", "2"),
            later,
            None,
            Some((13, Some(false))),
            Some(Trigger::ConfigChange),
        ),
        ("nobody said", ("1", "1"), soon, Some(without), None, Some(Trigger::Once)),
        ("it is of another", ("1", "1"), soon, Some(anothers), None, Some(Trigger::Once)),
    ] {
        let look = look(held, at, status, job, Duration::ZERO);
        assert_eq!(next(&look.state), expected, "{name}");
    }
}

#[test]
fn a_schedule_that_a_clock_counted_that_was_ahead_counts_from_now() {
    for (name, since, is_due, is_kept) in [
        ("a time is behind", "2026-01-01T00:30:00Z", true, true),
        ("none is", "2026-01-01T01:10:00Z", false, true),
        ("clocks differ", "2026-01-01T01:30:30Z", false, true),
        ("it was ahead by hours", "2026-01-01T09:00:00Z", false, false),
        ("it was ahead by years", "2031-01-01T00:00:00Z", false, false),
        ("nobody can read it", "soon", false, false),
    ] {
        let mut table = Table::new(2, b"key");
        let record = json!({"last": 0, "once": true, "schedule": {"of": HOURLY, "since": since}});
        let resource = resource(&object("u", Some(&record), &json!({})));
        let key = resource.key();
        table.learn(resource);
        digest(&mut table, "1", 1);
        let now = "2026-01-01T01:30:00Z".parse().unwrap();
        let state = table.look(&key, Duration::ZERO, now).unwrap().state;
        assert_eq!(state.schedule.as_ref().map(|it| it.is_due), Some(is_due), "{name}");
        assert_eq!(state.record.schedule.is_some(), is_kept, "{name}");
        if !is_kept {
            let since = recorded(&state).unwrap().schedule.unwrap().since;
            assert_eq!(since, AT, "{name}: from the time that is decided at");
        }
    }
}

/// From here its schedule counts, but not its configuration: a run goes on that has seen another.
#[test]
fn a_change_that_waits_for_a_run_whose_record_was_removed_is_not_taken_for_seen() {
    let moment = Duration::from_secs(60);
    for (name, concurrency, settle) in [
        ("it settles", Concurrency::Allow, moment),
        ("it is the next", Concurrency::Queue, Duration::ZERO),
        ("it is passed over, but not for a change", Concurrency::Forbid, Duration::ZERO),
    ] {
        let found = Some((13, Some(false)));
        let mut look = look(("1", "2"), "2026-01-01T00:30:00Z", None, found, settle);
        look.state.concurrency = concurrency;
        assert!(decide(&look.state, AT).wait.is_some(), "{name}");
        look.state.record = recorded(&look.state).unwrap();
        assert!(look.state.record.schedule.is_some(), "{name}");
        look.state.runs.clear();
        look.state.settled.insert(13);
        look.state.settle = Duration::ZERO;
        assert_eq!(next(&look.state), Some(Trigger::ConfigChange), "{name}");
    }
}

/// A definition of another, as a chart of an original applies it, leaves nothing of the history to be seen.
#[test]
fn what_has_ended_well_is_not_begun_again_where_no_history_is_shown() {
    let run = json!({"id": 12, "trigger": "once", "at": AT});
    let record = json!({"last": 12, "once": true, "open": [run]});
    for (name, status, begins) in [
        ("it has ended", json!({"completed": true, "lastReconcile": AT}), false),
        ("it was recorded", json!({"completed": false}), true),
        ("it was recorded, and there is no status", Value::Null, true),
    ] {
        let mut table = Table::new(2, b"key");
        let learned = resource(&object("u", Some(&record), &status));
        let key = learned.key();
        digest(&mut table, "1", 1);
        table.learn(learned);
        let look = table.look(&key, Duration::ZERO, "2026-01-01T00:30:00Z".parse().unwrap());
        let steps = decide(&look.unwrap().state, AT).steps;
        let starts = steps.iter().any(|step| matches!(step, Step::Start(_)));
        assert_eq!(starts, begins, "{name}: {steps:?}");
    }
}

/// As quarks-operator does, at each of its looks.
#[test]
fn a_run_that_has_no_job_yet_is_begun_though_its_record_is_removed() {
    let run = json!({"id": 12, "trigger": "once", "at": AT});
    let record = json!({"last": 12, "once": true, "open": [run]});
    let bare = |uid: &str, version: &str| {
        let mut bare = object(uid, None, &Value::Null);
        bare.metadata.resource_version = Some(version.to_owned());
        bare.data["spec"]["trigger"]["strategy"] = json!("done");
        resource(&bare)
    };
    for (name, uid, begins) in [("the same", "u", Some(12)), ("another", "v", None)] {
        let mut table = Table::new(2, b"key");
        let first = resource(&object("u", Some(&record), &Value::Null));
        let key = first.key();
        digest(&mut table, "1", 1);
        table.learn(first);
        for version in ["10", "11"] {
            table.learn(bare(uid, version));
            let look = table.look(&key, Duration::ZERO, "2026-01-01T00:30:00Z".parse().unwrap());
            let begun = decide(&look.unwrap().state, AT)
                .steps
                .into_iter()
                .find_map(|step| if let Step::Start(run) = step { Some(run.id) } else { None });
            assert_eq!(begun, begins, "{name}, {version}");
        }
    }
}

/// What is recalled of one with this record or this status, and with this Job: its run, its trigger, what it has found.
fn recall(
    record: Option<&Value>,
    status: &Value,
    job: Option<(u64, &str, Option<&str>)>,
) -> JobRecord {
    let jobs = job.map(|(run, trigger, found)| {
        let found = found.map(|held| json!({"references": {"configmap/m": held}}).to_string());
        let mut job = super::job("u", "j");
        job["metadata"]["annotations"] = json!({
            "manciple.dev/run-id": run.to_string(), "manciple.dev/trigger": trigger,
        });
        if let Some(found) = found {
            job["metadata"]["annotations"]["manciple.dev/found"] = json!(found);
        }
        (run, SeenJob::of(&serde_json::from_value::<Job>(job).unwrap()).unwrap())
    });
    recalled(&resource(&object("u", record, status)), &jobs.into_iter().collect())
}

#[test]
fn a_record_that_is_not_there_is_recalled_from_the_status_and_the_jobs() {
    let record = json!({
        "last": 12, "references": {"configmap/m": "old"}, "schedule": {"of": HOURLY, "since": AT},
    });
    let mut written = record.clone();
    written["uid"] = json!("u");
    let ended = |run: u64, trigger: &str| json!([{"id": run, "trigger": trigger}]);
    let with_record =
        |run| json!({"record": written.to_string(), "history": ended(run, "config-change")});
    // What it has found, and whether its schedule has times behind it.
    for (name, record, status, job, once, found, has_times) in [
        ("nothing has run", None, json!({}), None, false, None, true),
        ("the original has run it", None, json!({"completed": true}), None, true, None, true),
        (
            "its history has `once`",
            None,
            json!({"history": ended(1, "once")}),
            None,
            true,
            None,
            false,
        ),
        (
            "its Job was for `once`",
            None,
            json!({}),
            Some((1, "once", Some("new"))),
            true,
            Some("new"),
            false,
        ),
        (
            "its Job was for something else",
            None,
            json!({}),
            Some((1, "now", None)),
            false,
            None,
            false,
        ),
        (
            "the record is there",
            Some(&record),
            json!({"history": ended(12, "config-change")}),
            Some((13, "config-change", Some("new"))),
            false,
            Some("old"),
            true,
        ),
        ("it is in the status", None, with_record(12), None, false, Some("old"), true),
        (
            "a run has begun since, and says what it found",
            None,
            with_record(12),
            Some((13, "config-change", Some("new"))),
            false,
            Some("new"),
            false,
        ),
        (
            "a run has begun since, and does not say",
            None,
            with_record(12),
            Some((13, "config-change", None)),
            false,
            None,
            false,
        ),
        (
            "a run has ended since, and its Job is gone",
            None,
            with_record(13),
            Some((12, "config-change", Some("old"))),
            false,
            None,
            false,
        ),
    ] {
        let recalled = recall(record, &status, job);
        let references = recalled.references.map(|it| json!(it)["configmap/m"].clone());
        assert_eq!(references, found.map(|found| json!(found)), "{name}");
        assert_eq!((recalled.once, recalled.schedule.is_some()), (once, has_times), "{name}");
    }
}

#[test]
fn a_template_that_made_no_job_leaves_once_to_the_next_that_is_applied() {
    let ended = |run: u64, trigger: &str, reason: &str| json!({"id": run, "trigger": trigger, "reason": reason, "template": "another"});
    let refused = |run| ended(run, "once", "JobRefused");
    let as_it_is = |template: Value| {
        let mut run = refused(1);
        run["template"] = template;
        run
    };
    let known = resource(&object("u", None, &json!({})));
    let digest = crate::quarks::api::noted::digest(&known.spec());
    let open = json!([{"id": 2, "trigger": "once", "at": AT}]);
    for (name, history, open, once) in [
        ("its Job was refused", vec![refused(1)], json!([]), false),
        ("there was none to make", vec![ended(1, "once", "TemplateInvalid")], json!([]), false),
        ("it was refused as it is", vec![as_it_is(json!(digest))], json!([]), true),
        ("nobody knows as what", vec![as_it_is(json!(null))], json!([]), true),
        ("another Job had its name", vec![ended(1, "once", "JobTaken")], json!([]), true),
        ("it failed", vec![ended(1, "once", "BackoffLimitExceeded")], json!([]), true),
        ("the next goes on", vec![refused(1)], open, true),
        ("the next has run", vec![ended(2, "once", "Completed"), refused(1)], json!([]), true),
        ("it was long ago", vec![ended(1, "now", "Completed")], json!([]), true),
        ("another was refused", vec![ended(1, "now", "JobRefused")], json!([]), true),
    ] {
        let record = json!({"last": 2, "once": true, "open": open});
        let found = recall(Some(&record), &json!({"history": history}), None);
        assert_eq!(found.once, once, "{name}");
    }
}

/// Nobody has to say `once` again where its run had no Job.
#[test]
fn a_template_that_made_no_job_runs_for_once_as_soon_as_it_is_another() {
    let ended = |run: u64, trigger: &str, reason: &str| json!({"id": run, "trigger": trigger, "reason": reason, "template": "another"});
    let refused = |run| ended(run, "once", "JobRefused");
    let mut as_it_is = refused(1);
    let known = resource(&object("u", None, &json!({})));
    as_it_is["template"] = json!(crate::quarks::api::noted::digest(&known.spec()));
    for (name, strategy, last, history, owes) in [
        ("its Job was refused", "done", 1, vec![refused(1)], true),
        ("there was none to make", "done", 1, vec![ended(1, "once", "TemplateInvalid")], true),
        ("for the second time", "done", 2, vec![refused(2), refused(1)], true),
        (
            "another had no Job either",
            "done",
            2,
            vec![ended(2, "config-change", "JobRefused"), refused(1)],
            true,
        ),
        ("it is as it was", "done", 1, vec![as_it_is], false),
        ("it was done from the beginning", "done", 0, vec![], false),
        ("somebody has taken it back", "manual", 1, vec![refused(1)], false),
        ("one runs, or ran and is forgotten", "done", 2, vec![refused(1)], false),
        ("another ran", "done", 2, vec![ended(2, "now", "Completed"), refused(1)], false),
        ("it was another that was refused", "done", 1, vec![ended(1, "now", "JobRefused")], false),
        ("it failed", "done", 1, vec![ended(1, "once", "BackoffLimitExceeded")], false),
    ] {
        let record = json!({"last": last, "once": true});
        let mut object = object("u", Some(&record), &json!({"history": history}));
        object.data["spec"]["trigger"]["strategy"] = json!(strategy);
        let resource = resource(&object);
        let record = recalled(&resource, &Default::default());
        assert_eq!(owes_once(&resource, &record), owes, "{name}");
    }
}

#[test]
fn what_is_newer_than_the_record_that_names_it_was_counted_elsewhere() {
    let versions = json!({"configmap/m": 9, "secret/s": 10});
    let record = json!({"last": 1, "references": {}, "versions": versions});
    let recalled = recall(Some(&record), &json!({}), None);
    assert_eq!(json!(recalled.versions), json!({"configmap/m": 9}));
}
