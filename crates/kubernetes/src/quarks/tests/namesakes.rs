//! What one has left that is gone, while another of its name is there.

use std::collections::HashSet;
use std::time::Instant;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::quarks::api::dialect::Dialect;
use crate::quarks::api::resource::Resource;
use crate::quarks::state::job::SeenJob;
use crate::quarks::state::namesakes::GRACE;
use crate::quarks::state::object::Object;
use crate::quarks::state::table::Table;

/// The one of this uid.
fn resource(uid: &str, version: u32) -> Resource {
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "quarks.cloudfoundry.org/v1alpha1", "kind": "QuarksJob",
        "metadata": {"name": "a", "namespace": "n", "uid": uid, "resourceVersion": version.to_string()},
        "spec": {},
    }))
    .unwrap();
    Resource::of(Dialect::QuarksJob, &object).unwrap()
}

fn metadata(owner: &str, name: &str, version: u32, deleted: bool) -> Value {
    json!({
        "name": name, "namespace": "n", "uid": format!("{name}-of-{owner}"),
        "resourceVersion": version.to_string(),
        "deletionTimestamp": deleted.then_some("2026-01-01T00:00:00Z"),
        "annotations": {"manciple.dev/run-id": "1"},
        "ownerReferences": [{
            "apiVersion": "quarks.cloudfoundry.org/v1alpha1", "kind": "QuarksJob", "name": "a",
            "uid": owner, "controller": true,
        }],
    })
}

/// A Job of a run of it.
fn job(owner: &str, version: u32, deleted: bool) -> SeenJob {
    let metadata = metadata(owner, &format!("a-{owner}"), version, deleted);
    SeenJob::of(&job_of(metadata)).unwrap()
}

fn job_of(metadata: Value) -> Job {
    let spec = json!({"completions": 1, "template": {"spec": {"containers": []}}});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

/// What that has put out.
fn output(owner: &str, version: u32, deleted: bool) -> Object {
    Object::of_secret(&secret_of(metadata(owner, "s", version, deleted))).unwrap()
}

fn secret_of(metadata: Value) -> Secret {
    serde_json::from_value(json!({"metadata": metadata})).unwrap()
}

/// What is taken away for the second at last, by name; and whether it waits before.
fn taken(table: &mut Table) -> (Vec<String>, bool) {
    let second = resource("second", 9);
    let (key, now) = (second.key(), Instant::now());
    let (before, waits) = table.due(&key, &second, now);
    assert!(before.is_empty(), "Kubernetes has some time for it: {before:?}");
    let (left, again) = table.due(&key, &second, now + GRACE);
    assert_eq!(left.is_empty(), again.is_none());
    let names = left.jobs.iter().map(|job| &job.name).chain(left.objects.iter().map(|it| &it.name));
    (names.map(ToString::to_string).collect(), waits.is_some())
}

/// Something happens to a table.
type Event = fn(&mut Table);

fn learn(uid: &str, version: u32) -> impl Fn(&mut Table) {
    move |table| drop(table.learn(resource(uid, version)))
}

#[test]
fn what_stays_of_one_that_is_gone_is_taken_away_and_nothing_else() {
    let first: Event = |table| learn("first", 1)(table);
    let second: Event = |table| learn("second", 5)(table);
    let gone: Event = |table| table.forget(&resource("first", 1).key());
    let of_first: Event = |table| drop(table.learn_job(job("first", 2, false)));
    let of_second: Event = |table| drop(table.learn_job(job("second", 6, false)));
    let put_out: Event = |table| {
        table.objects.learn(output("first", 3, false));
    };
    let taken_over: Event = |table| {
        table.objects.learn(output("second", 7, false));
    };
    let shared: Event = |table| {
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "m", "uid": "m"});
        let [job, secret] = ["a-first", "s"].map(|name| {
            let mut metadata = metadata("first", name, 2, false);
            metadata["ownerReferences"].as_array_mut().unwrap().push(other.clone());
            metadata
        });
        table.learn_job(SeenJob::of(&job_of(job)).unwrap());
        table.objects.learn(Object::of_secret(&secret_of(secret)).unwrap());
    };
    let went: Event = |table| table.forget_left("a-first-of-first");
    let goes: Event = |table| {
        table.learn_job(job("first", 8, true));
        table.objects.learn(output("first", 8, true));
    };
    let unlisted: Event = |table| drop(table.doubt(Some("n"), &HashSet::new()));
    let left: Event = |table| table.leave(&"n".into());
    for (name, events, expected) in [
        ("an update, as it seems", &[first, of_first, second][..], &["a-first"][..]),
        ("it was seen to go", &[first, of_first, gone, second], &["a-first"]),
        ("its Job is heard of late", &[second, of_first], &["a-first"]),
        ("it belongs to something else too", &[first, shared, second], &[]),
        ("it is heard of after its Job", &[of_first, second], &["a-first"]),
        ("what it put out", &[first, put_out, second], &["s"]),
        ("all of it", &[first, of_first, put_out, gone, second], &["a-first", "s"]),
        ("its Job went", &[first, of_first, gone, went, second], &[]),
        ("a list is without its Job", &[first, of_first, gone, unlisted, second], &[]),
        ("it goes, and something holds it", &[second, of_first, put_out, goes], &[]),
        ("what is its own", &[of_second, second, taken_over], &[]),
        ("its own, seen before it", &[first, of_second, second], &[]),
        ("its output is this one's now", &[second, put_out, taken_over], &[]),
        ("nobody looks there any more", &[first, of_first, gone, left, second], &[]),
    ] {
        let mut table = Table::new(2, b"key");
        events.iter().for_each(|event| event(&mut table));
        let (names, waits) = taken(&mut table);
        assert_eq!(names, expected, "{name}");
        assert_eq!(waits, !expected.is_empty(), "{name}");
    }
}

#[test]
fn what_could_not_be_taken_away_is_tried_again_after_as_long() {
    let (mut table, second) = (Table::new(2, b"key"), resource("second", 5));
    table.learn(second.clone());
    table.learn_job(job("first", 2, false));
    let (key, start) = (second.key(), Instant::now());
    let times = (0..6).filter(|halves| {
        let (left, again) = table.due(&key, &second, start + GRACE * *halves / 2);
        assert!(again.is_some());
        !left.is_empty()
    });
    assert_eq!(times.collect::<Vec<u32>>(), [2, 4]);
}

#[test]
fn a_job_that_was_heard_of_before_its_owner_is_a_run_of_it() {
    let mut table = Table::new(2, b"key");
    table.learn(resource("first", 1));
    table.learn_job(job("second", 6, false));
    let key = table.learn(resource("second", 5)).remove(0);
    assert!(table.get(&key).unwrap().jobs.contains_key(&1));
}
