//! One into which somebody has written more than is kept of one.

use std::time::Duration;

use engine::trigger::{Decision, JobRecord, MAX_OPEN, Run, Step, Strategy, Trigger};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};

use crate::quarks::api::dialect::Dialect;
use crate::quarks::api::document::Document;
use crate::quarks::api::record::RUNS;
use crate::quarks::api::resource::Resource;
use crate::quarks::api::unread::unwritable;
use crate::quarks::state::job::SeenJob;
use crate::quarks::state::table::Table;

const AT: &str = "2026-01-01T00:00:00Z";

/// One of this name, as a watch tells of it.
fn read(name: &str, spec: &Value, record: Option<&str>, status: &Value) -> Resource {
    let annotations = record.map(|record| json!({RUNS: record}));
    let metadata = json!({
        "namespace": "n", "name": name, "uid": "u", "resourceVersion": "1", "annotations": annotations,
    });
    let text = json!({"metadata": metadata, "spec": spec, "status": status}).to_string();
    let document: Document = serde_json::from_str(&text).unwrap();
    document.read(Dialect::QuarksJob).unwrap()
}

/// A record in which so many runs go on.
fn runs(count: u64) -> String {
    let run = |id: u64| json!({"id": id, "trigger": "now", "at": ""});
    json!({"last": count, "open": (1..=count).map(run).collect::<Vec<_>>()}).to_string()
}

/// A record in which one run is told so many things.
fn told(count: usize) -> String {
    let run = json!({"id": 1, "trigger": "now", "at": "", "inputs": vec![json!({}); count]});
    json!({"last": 1, "open": [run]}).to_string()
}

#[test]
fn of_a_record_that_is_more_than_is_kept_nothing_is_read_and_it_is_said_what_to_do() {
    let now = json!({"trigger": {"strategy": "now"}});
    let most = MAX_OPEN as u64;
    let anothers = runs(most + 1).replacen('{', r#"{"uid":"other","#, 1);
    let (as_many, more, light, heavy) = (runs(most), runs(most + 1), told(4000), told(6000));
    let in_annotation = "the annotation manciple.dev/runs";
    for (name, record, status, open, why) in [
        ("as many runs as may go on", Some(&as_many), json!({}), MAX_OPEN, None),
        (
            "one more",
            Some(&more),
            json!({}),
            0,
            Some(format!(
                "{in_annotation} has 1001 runs that have not ended, of 1000: remove it; "
            )),
        ),
        (
            "one more, recalled",
            None,
            json!({"record": more}),
            0,
            Some(
                "status.record has 1001 runs that have not ended, of 1000: remove it; ".to_owned(),
            ),
        ),
        ("as the annotation says", Some(&as_many), json!({"record": more}), MAX_OPEN, None),
        ("copied from another", Some(&anothers), json!({}), 0, None),
        ("told much", Some(&light), json!({}), 1, None),
        (
            "told too much",
            Some(&heavy),
            json!({}),
            0,
            Some(format!("{in_annotation} would take more than 4 MiB of memory: remove it; ")),
        ),
        ("none", None, json!({}), 0, None),
    ] {
        let resource = read("a", &now, record.map(String::as_str), &status);
        assert_eq!(resource.record.open.len(), open, "{name}");
        let said = resource.unread.map(|why| why.to_string());
        let begins = said.as_deref().zip(why.as_deref()).map(|(said, why)| said.starts_with(why));
        assert_eq!(begins, why.as_ref().map(|_| true), "{name}: {said:?}");
        assert_eq!(said.is_some(), why.is_some(), "{name}: {said:?}");
        let is_run = resource.strategy == Strategy::Now;
        assert_eq!(is_run, why.is_none(), "{name}: it is as if it had no spec");
    }
}

/// A spec whose pod refers to these Secrets, whose next run is told of these, and which waits for these others.
fn refers(pod: &[String], told: &[String], others: &[String]) -> Value {
    let secret = |name: &String| json!({"secretRef": {"name": name}});
    let variable = |name: &String| json!({"name": "A", "valueFrom": {"secretKeyRef": {"name": name, "key": "k"}}});
    let from: Vec<Value> = pod.iter().map(secret).collect();
    let inputs: Vec<Value> = told.iter().map(variable).collect();
    json!({
        "trigger": {"strategy": "now", "inputs": inputs}, "dependsOn": others,
        "template": {"spec": {"template": {"spec": {"containers": [{"name": "c", "envFrom": from}]}}}},
    })
}

#[test]
fn one_that_refers_to_more_than_is_kept_is_not_run_and_nothing_leads_to_it() {
    let names = |count: usize| -> Vec<String> { (0..count).map(|at| format!("a-{at}")).collect() };
    let same = |count: usize| vec!["a".to_owned(); count];
    let none = || names(0);
    let objects = "spec: its pod and its inputs refer to 1001 ConfigMaps and Secrets, of 1000: ";
    let others = "spec.dependsOn: has 101 names, of 100: ";
    for (name, spec, waits_for, why) in [
        ("as many as may be", refers(&names(1000), &none(), &names(100)), 1100, None),
        ("one more", refers(&names(1001), &none(), &none()), 0, Some(objects)),
        ("one more in its inputs", refers(&names(900), &names(101), &none()), 0, Some(objects)),
        ("one more to wait for", refers(&none(), &none(), &names(101)), 0, Some(others)),
        ("the same, again and again", refers(&same(1001), &same(1), &same(101)), 3, None),
    ] {
        let resource = read("a", &spec, None, &json!({}));
        let said = resource.unread.map(|it| it.to_string()).unwrap_or_default();
        assert!(said.starts_with(why.unwrap_or_default()), "{name}: {said}");
        assert_eq!(said.is_empty(), why.is_none(), "{name}: {said}");
        assert_eq!(resource.waits_for().count(), waits_for, "{name}");
        assert_eq!(resource.strategy == Strategy::Now, why.is_none(), "{name}");
    }
}

#[test]
fn nothing_is_done_for_one_whose_record_is_not_read_and_none_of_its_runs_is_over() {
    let job: Job = serde_json::from_value(super::job("u", "j")).unwrap();
    // Without a record its first run would be one that the history has forgotten.
    let status = json!({"history": [{"id": 9, "trigger": "now"}]});
    let most = MAX_OPEN as u64;
    for (name, record, is_halted) in
        [("as many runs as may go on", runs(most), false), ("one more", runs(most + 1), true)]
    {
        let mut table = Table::new(2, b"key");
        let resource = read("a", &json!({}), Some(&record), &status);
        let key = resource.key();
        table.learn(resource);
        table.learn_job(SeenJob::of(&job).unwrap());
        let look = table.look(&key, Duration::ZERO, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(look.decision(AT) == Decision::default(), is_halted, "{name}");
        assert_eq!(look.fault.is_some(), is_halted, "{name}: {:?}", look.fault);
        assert!(!table.is_over(&key, "j"), "{name}");
    }
}

#[test]
fn runs_that_have_not_ended_are_counted_without_those_that_the_history_has() {
    let mut table = Table::new(2, b"key");
    let ended = json!({"history": [{"id": 3, "trigger": "now"}, {"id": 1, "trigger": "now"}]});
    table.learn(read("a", &json!({}), Some(&runs(3)), &ended));
    table.learn(read("b", &json!({}), Some(&runs(2)), &json!({})));
    table.learn(read("c", &json!({}), None, &ended));
    assert_eq!(table.count(), (3, 3));
}

#[test]
fn what_would_not_be_read_again_is_not_recorded() {
    // As much as one run may be told, in the smallest variables that there are.
    let variables = vec![json!({"name": "A"}); 64 * 1024 / r#"{"name":"A"},"#.len()];
    let run = |id, inputs: &[Value]| Run {
        id,
        trigger: Trigger::Now,
        at: AT.to_owned(),
        inputs: inputs.to_vec(),
        pod: None,
    };
    let of = read("a", &json!({}), None, &json!({}));
    for (name, open, is_written) in [
        ("told nothing", vec![run(1, &[])], true),
        ("told as much as one may be", vec![run(1, &variables)], true),
        ("two of these", vec![run(1, &variables), run(2, &variables)], false),
    ] {
        let record = JobRecord { last: 2, open, ..JobRecord::default() };
        let step = Step::Record { record, strategy: Strategy::Manual, passed_over: None };
        let fault = unwritable(&of, &[Step::Reopen, step]);
        assert_eq!(fault.is_none(), is_written, "{name}: {fault:?}");
    }
}

/// Whoever may make one makes as many as he likes, and a controller that has not the memory for all would end at each start.
#[test]
fn of_those_that_are_large_no_more_are_held_than_there_is_room_for_together() {
    let mut table = Table::new(2, b"key");
    let large = |name: &str| {
        let spec = json!({"trigger": {"strategy": "now"}, "x": "y".repeat(10 << 20)});
        read(name, &spec, None, &json!({}))
    };
    let small = || read("small", &json!({"trigger": {"strategy": "now"}}), None, &json!({}));
    let names: Vec<_> = (0..8).map(|number| format!("large-{number}")).collect();
    for name in &names {
        table.learn(large(name));
    }
    table.learn(small());
    let is_held = |table: &mut Table, name: &str| {
        let key = read(name, &json!({}), None, &json!({})).key();
        let look = table.look(&key, Duration::ZERO, Timestamp::UNIX_EPOCH).unwrap();
        let fault = look.fault.clone().unwrap_or_default();
        assert!(
            fault.is_empty() || fault.contains("more than 80 MiB of memory together"),
            "{fault}"
        );
        assert_eq!(fault.is_empty(), look.decision(AT) != Decision::default(), "{name}: {fault}");
        fault.is_empty()
    };
    let held = |table: &mut Table| names.iter().filter(|name| is_held(table, name)).count();
    assert_eq!((held(&mut table), is_held(&mut table, "small")), (7, true));
    // It takes its own place.
    table.learn(large(&names[0]));
    assert_eq!(held(&mut table), 7);
    assert!(!is_held(&mut table, &names[7]));
    table.forget(&large(&names[3]).key());
    table.learn(large(&names[7]));
    assert!(is_held(&mut table, &names[7]));
}

#[test]
fn of_one_that_is_left_out_as_much_is_held_as_of_one_without_spec_and_record() {
    let spec = json!({
        "trigger": {"strategy": "once", "schedule": "0 * * * *", "inputs": [{"name": "A"}]},
        "updateOnConfigChange": true, "concurrencyPolicy": "Queue", "successfulJobsHistoryLimit": 1,
        "dependsOn": ["b"], "output": {"writeOnFailure": true, "outputMap": {"c": {"o": {"name": "s"}}}},
        "template": {"spec": {"ttlSecondsAfterFinished": 5, "template": {"spec": {"containers": [
            {"name": "c", "envFrom": [{"configMapRef": {"name": "m"}}]}]}}}},
    });
    let status = json!({"completed": true, "history": [{"id": 3, "trigger": "now"}]});
    let mut left_out = read("a", &spec, Some(&runs(5)), &status);
    left_out.digest();
    left_out.leave_out();
    // As of a record that is too heavy, for which nothing is recalled.
    let mut bare = read("a", &Value::Null, Some(&told(6000)), &status);
    bare.unread = left_out.unread;
    assert_eq!(format!("{left_out:?}"), format!("{bare:?}"));
}

/// Somebody may write it, and take its annotation away again.
#[test]
fn a_large_record_that_is_remembered_counts_too() {
    let bare = json!({"trigger": {"strategy": "manual"}});
    let heavy = read("a", &bare, Some(&told(4000)), &json!({}));
    let mut stripped = read("a", &bare, None, &json!({}));
    stripped.remember(&heavy);
    assert_eq!((stripped.record.last, stripped.large()), (1, heavy.large()));
    assert!(heavy.large().is_some());
}

#[test]
fn a_large_record_counts_as_its_spec_does() {
    let bare = json!({"trigger": {"strategy": "manual"}});
    let of = |record: Option<&str>| read("a", &bare, record, &json!({})).large();
    let heavy = told(4000);
    assert_eq!((of(None), of(Some(&runs(1)))), (None, None));
    assert!(of(Some(&heavy)).unwrap() > 1 << 20, "as it is held, and not as it is written");
}
