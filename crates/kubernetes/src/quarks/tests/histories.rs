//! A status as others may have written it: a later release, or somebody by hand.

use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::quarks::api::dialect::Dialect;
use crate::quarks::api::record::RUNS;
use crate::quarks::api::resource::Resource;
use crate::quarks::api::status;
use crate::quarks::view::View;

/// One of whose three runs the second is recorded as going on, with this status.
fn object(status: &Value) -> DynamicObject {
    let run = json!({"id": 2, "trigger": "now", "at": ""});
    let record = json!({"last": 3, "open": [run]}).to_string();
    serde_json::from_value(json!({
        "apiVersion": "quarks.cloudfoundry.org/v1alpha1", "kind": "QuarksJob",
        "metadata": {
            "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "9",
            "annotations": {RUNS: record},
        },
        "spec": {"trigger": {"strategy": "manual"}},
        "status": status,
    }))
    .unwrap()
}

fn resource(status: &Value) -> Resource {
    Resource::of(Dialect::QuarksJob, &object(status)).unwrap()
}

fn run(id: u64) -> Value {
    json!({
        "id": id, "trigger": "now", "job": format!("a-{id}"), "succeeded": true, "reason": "Completed",
        "startedAt": "2026-01-01T00:00:00Z", "endedAt": "2026-01-01T00:00:01Z", "seconds": 1,
    })
}

/// The second run of the history, changed so.
fn second(more: &Value) -> Value {
    let mut second = run(2);
    let changes = more.as_object().unwrap().clone();
    second.as_object_mut().unwrap().extend(changes);
    second
}

#[test]
fn a_run_that_the_history_has_is_over_whatever_else_is_said_of_it_and_of_others() {
    let waiting = json!([{"type": "Waiting", "status": "True", "message": "it waits"}]);
    for (name, second, settled) in [
        ("as we write it", second(&json!({})), vec![1, 2, 3]),
        ("a trigger of later", second(&json!({"trigger": "webhook"})), vec![1, 2, 3]),
        ("a trigger that is no word", second(&json!({"trigger": 7})), vec![1, 2, 3]),
        ("no job", second(&json!({"job": null})), vec![1, 2, 3]),
        ("an outcome that is no truth", second(&json!({"succeeded": "yes"})), vec![1, 2, 3]),
        ("no reason", second(&json!({"reason": null})), vec![1, 2, 3]),
        ("time below nothing", second(&json!({"seconds": -1})), vec![1, 2, 3]),
        ("objects that are no list", second(&json!({"made": "secret"})), vec![1, 2, 3]),
        ("a number alone", json!({"id": 2}), vec![1, 2, 3]),
        ("no number", second(&json!({"id": null})), vec![1, 3]),
        ("a number below nothing", second(&json!({"id": -2})), vec![1, 3]),
        ("a number that there is not", second(&json!({"id": 1u64 << 53})), vec![1, 3]),
        ("no run at all", json!("done"), vec![1, 3]),
    ] {
        let history = json!([run(3), second, run(1)]);
        let said = json!({"completed": true, "history": history, "conditions": waiting});
        let resource = resource(&said);
        assert_eq!(Vec::from_iter(resource.settled()), settled, "{name}");
        assert_eq!(resource.is_open(2), !settled.contains(&2), "{name}: it is run again");
        assert!(resource.status.completed, "{name}");
        assert_eq!(resource.status.waits.as_deref(), Some("it waits"), "{name}");
        assert_eq!(View::of(Dialect::QuarksJob, &object(&said)).unwrap().last, 3, "{name}");
    }
}

#[test]
fn of_a_history_as_much_is_read_as_is_ever_written_the_newest_first() {
    let ids = |ids: &[u64]| ids.iter().map(|id| json!({"id": id})).collect::<Vec<_>>();
    let down = |from: u64, to: u64| (to..=from).rev().collect::<Vec<u64>>();
    let up: Vec<u64> = (1..=1200).collect();
    for (name, said, expected) in [
        ("as we write it", ids(&[3, 2, 1]), vec![3, 2, 1]),
        ("ten, and as many as were open", ids(&down(1010, 1)), down(1010, 1)),
        ("more", ids(&down(1200, 1)), down(1200, 191)),
        ("more, the oldest first", ids(&up), down(1200, 191)),
        ("the same, again and again", ids(&[2; 1200]), vec![2]),
        ("none", ids(&[]), vec![]),
    ] {
        let resource = resource(&json!({"history": said}));
        let read: Vec<u64> = resource.status.history.iter().map(|run| run.id).collect();
        assert_eq!(read, expected, "{name}");
        let found = expected.iter().all(|id| resource.ended(*id).is_some_and(|it| it.id == *id));
        assert!(found && resource.ended(0).is_none() && resource.ended(9999).is_none(), "{name}");
    }
    let made = json!({"history": [second(&json!({"made": vec!["m"; 200]}))]});
    assert_eq!(resource(&made).status.history[0].outcome.made.len(), 100);
}

#[test]
fn words_of_a_status_that_cannot_be_read_take_nothing_from_the_others() {
    for (name, said, completed, settled) in [
        ("no truth", json!({"completed": "yes", "history": [run(3)]}), false, vec![3]),
        ("no list", json!({"completed": true, "history": "none"}), true, vec![]),
        ("no status", json!("none"), false, vec![]),
    ] {
        let resource = resource(&said);
        assert_eq!(resource.status.completed, completed, "{name}");
        assert_eq!(Vec::from_iter(resource.settled()), settled, "{name}");
    }
}

/// Each is named by the record until the next is written.
#[test]
fn of_a_thousand_runs_that_went_on_at_once_the_status_has_room_for_how_each_ended() {
    let said = json!({"succeeded": false, "reason": "Failed", "message": "ü".repeat(1000)});
    let failed = |id: u64| {
        let mut failed = run(id);
        failed.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
        failed["made"] = json!((0..100).map(|at| format!("output-{at}")).collect::<Vec<_>>());
        failed
    };
    let mut object = object(&json!({"history": (1..1000).rev().map(failed).collect::<Vec<_>>()}));
    let open: Vec<_> = (1..=1000).map(|id| json!({"id": id, "trigger": "now", "at": ""})).collect();
    let record = json!({"last": 1000, "open": open}).to_string();
    object.metadata.annotations.as_mut().unwrap().insert(RUNS.to_owned(), record);
    let resource = Resource::of(Dialect::QuarksJob, &object).unwrap();
    let last = resource.record.open.iter().find(|run| run.id == 1000).unwrap();
    let outcome = engine::trigger::Outcome::failed("Failed", "no room");
    let settled = status::settled(&resource, last, ("a-1000", None), &outcome, 0);
    let history = settled["history"].as_array().unwrap();
    assert_eq!(history.len(), 1000);
    assert_eq!(history[9]["message"], said["message"], "the newest are whole");
    let (old, nothing) = (&history[500], json!(null));
    assert_eq!((&old["message"], &old["made"]), (&nothing, &nothing));
    assert_eq!((&old["id"], &old["reason"]), (&json!(500), &json!("Failed")));
    let bytes = settled.to_string().len();
    assert!(bytes < 400_000, "{bytes}");
}

#[test]
fn what_a_later_release_said_of_a_run_is_written_again_as_it_was() {
    let later = second(&json!({"trigger": "webhook"}));
    let resource = resource(&json!({"history": [later, run(1)]}));
    let third = engine::trigger::Run { id: 3, ..resource.record.open[0].clone() };
    let outcome = engine::trigger::Outcome::completed();
    let settled = status::settled(&resource, &third, ("a-3", None), &outcome, 0);
    assert_eq!((&settled["history"][1], &settled["history"][2]), (&later, &run(1)));
}
