//! Who waits for the success of whom.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::quarks::api::dialect::Dialect;
use crate::quarks::api::key::Key;
use crate::quarks::api::record::RUNS;
use crate::quarks::api::resource::Resource;
use crate::quarks::state::table::Table;

/// One of this name, in this namespace, that waits for these.
fn resource(namespace: &str, name: &str, others: &[&str]) -> Resource {
    let object: DynamicObject = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "1"},
        "spec": {"dependsOn": others},
    }))
    .unwrap();
    Resource::of(Dialect::QuarksJob, &object).unwrap()
}

fn names(found: Vec<Key>) -> BTreeSet<String> {
    found.into_iter().map(|key| key.name.to_string()).collect()
}

#[test]
fn those_that_wait_for_one_are_found_by_way_of_others_too() {
    for (name, waiting, expected) in [
        ("nobody", &[("b", "x")][..], &[][..]),
        ("one", &[("b", "a")], &["b"]),
        ("by way of another", &[("b", "a"), ("c", "b")], &["b", "c"]),
        ("in two ways", &[("b", "a"), ("c", "a"), ("d", "b"), ("d", "c")], &["b", "c", "d"]),
        ("itself", &[("a", "a")], &["a"]),
        ("each other", &[("a", "b"), ("b", "a")], &["a", "b"]),
    ] {
        let mut table = Table::new(2, b"key");
        for who in ["a", "b", "c", "d"] {
            let its = waiting.iter().filter(|(it, _)| *it == who);
            let others: Vec<&str> = its.map(|(_, other)| *other).collect();
            table.learn(resource("n", who, &others));
        }
        table.learn(resource("elsewhere", "e", &["a"]));
        let found = names(table.dependents(&resource("n", "a", &[]).key()));
        let expected: BTreeSet<String> = expected.iter().map(|it| (*it).to_owned()).collect();
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn all_that_wait_for_one_by_themselves_are_found_and_of_the_others_the_nearest() {
    // Each of a row waits for the one before it.
    let row = |count: usize| -> Table {
        let mut table = Table::new(2, b"key");
        for at in 0..count {
            let others = at.checked_sub(1).map(|before| format!("a-{before}"));
            let others: Vec<&str> = others.iter().map(String::as_str).collect();
            table.learn(resource("n", &format!("a-{at}"), &others));
        }
        table
    };
    // All others wait for the first, and one more for one of those.
    let wide = |count: usize| -> Table {
        let mut table = Table::new(2, b"key");
        table.learn(resource("n", "last", &["a-1"]));
        for at in 1..=count {
            table.learn(resource("n", &format!("a-{at}"), &["a-0"]));
        }
        table
    };
    for (name, table, found, is_last_found) in [
        ("a row", row(200), 199, false),
        ("a long row", row(10_100), 10_000, false),
        ("many for one", wide(9_000), 9_001, true),
        ("more for one", wide(10_500), 10_500, false),
    ] {
        let all = names(table.dependents(&resource("n", "a-0", &[]).key()));
        assert_eq!((all.len(), all.contains("last")), (found, is_last_found), "{name}");
    }
}

#[test]
fn whoever_waits_for_a_success_is_told_why_it_does_not_come_and_looks_again_when_that_is_another() {
    let other = |status: Value| {
        let record = json!({
            "last": 1, "open": [{"id": 1, "trigger": "now", "at": "2026-01-01T00:00:00Z"}],
        });
        let object: DynamicObject = serde_json::from_value(json!({
            "metadata": {
                "name": "b", "namespace": "n", "uid": "b", "resourceVersion": "1",
                "annotations": {RUNS: record.to_string()},
            },
            "spec": {}, "status": status,
        }))
        .unwrap();
        Resource::of(Dialect::QuarksJob, &object).unwrap()
    };
    let run = |succeeded: bool, reason: &str| {
        json!({"completed": succeeded, "history": [{
            "id": 1, "trigger": "now", "job": "j", "succeeded": succeeded, "reason": reason,
        }]})
    };
    let mut table = Table::new(2, b"key");
    let waits = resource("n", "a", &["b"]);
    let key = waits.key();
    table.learn(waits);
    let missing = |table: &mut Table| {
        table.look(&key, Duration::ZERO, Timestamp::UNIX_EPOCH).unwrap().state.missing
    };
    assert_eq!(missing(&mut table), ["quarksjob/b to succeed, and there is none of this name"]);
    for (name, status, words) in [
        ("a run goes on", json!({}), "quarksjob/b to succeed"),
        (
            "it has failed",
            run(false, "OutputMissing"),
            "quarksjob/b to succeed, whose last run failed (OutputMissing): mend it, then trigger it",
        ),
    ] {
        assert!(table.learn(other(status)).contains(&key), "{name}");
        assert_eq!(missing(&mut table), [words], "{name}");
    }
    assert!(table.learn(other(run(true, "Completed"))).contains(&key), "it has succeeded");
    assert_eq!(missing(&mut table), [""; 0]);
}

#[test]
fn those_that_wait_for_each_other_are_told_so() {
    for (name, others, words) in [
        ("one waits", &[][..], "quarksjob/b to succeed"),
        ("each", &["a"], "quarksjob/b to succeed, which waits for this one"),
    ] {
        let mut table = Table::new(2, b"key");
        table.learn(resource("n", "b", others));
        let waits = resource("n", "a", &["b"]);
        let key = waits.key();
        table.learn(waits);
        let look = table.look(&key, Duration::ZERO, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(look.state.missing, [words], "{name}");
    }
}
