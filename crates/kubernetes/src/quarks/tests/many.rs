//! What is known costs no more for what there once was: Jobs that are kept, pods that came and went, answers that come late.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::pods::pod;
use crate::quarks::api::dialect::Dialect;
use crate::quarks::api::key::Key;
use crate::quarks::api::resource::Resource;
use crate::quarks::state::job::SeenJob;
use crate::quarks::state::pod::SeenPod;
use crate::quarks::state::table::Table;
use crate::warnings::Warned;

/// One of this version, with so many runs, all of which failed, and the newest of them in its history.
fn resource(version: u64, runs: u64) -> Resource {
    let run = |id: u64| json!({"id": id, "trigger": "now", "job": "a-1", "succeeded": false, "reason": "Failed"});
    let history: Vec<Value> = (1..=runs).rev().take(10).map(run).collect();
    let record = json!({"last": runs, "open": []});
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "quarks.cloudfoundry.org/v1alpha1", "kind": "QuarksJob",
        "metadata": {
            "name": "a", "namespace": "n", "uid": "owner", "resourceVersion": version.to_string(),
            "annotations": {"manciple.dev/runs": record.to_string()},
        },
        "spec": {"trigger": {"strategy": "manual"}}, "status": {"history": history},
    }))
    .unwrap();
    Resource::of(Dialect::QuarksJob, &object).unwrap()
}

/// The Job of a run, which failed, and says what it found.
fn job(run: u64) -> SeenJob {
    let mut job = super::job("owner", &format!("job-{run}"));
    job["metadata"]["name"] = json!(format!("a-{run}"));
    job["metadata"]["annotations"] = json!({
        "manciple.dev/run-id": run.to_string(),
        "manciple.dev/found": json!({"references": {}}).to_string(),
    });
    job["status"] = json!({"conditions": [{"type": "Failed", "status": "True"}]});
    SeenJob::of(&serde_json::from_value::<Job>(job).unwrap()).unwrap()
}

fn warned(uid: &str) -> Warned {
    Warned {
        of_pod: true,
        namespace: "n".to_owned(),
        name: "p".to_owned(),
        uid: uid.to_owned(),
        why: "why".to_owned(),
        vague: false,
    }
}

#[test]
fn jobs_that_are_kept_are_no_part_of_what_is_decided_and_say_no_more_than_they_have_to() {
    let orders: [fn(&mut Table); 2] = [
        |table| {
            drop(table.learn(resource(1, 40)));
            (1..=41).for_each(|run| drop(table.learn_job(job(run))));
        },
        |table| {
            (1..=41).for_each(|run| drop(table.learn_job(job(run))));
            drop(table.learn(resource(1, 40)));
        },
    ];
    for order in orders {
        let mut table = Table::new(2, b"key");
        order(&mut table);
        let key = resource(1, 40).key();
        let look = table.look(&key, Duration::ZERO, jiff::Timestamp::UNIX_EPOCH).unwrap();
        let decided: Vec<u64> = look.state.runs.keys().copied().collect();
        assert_eq!(decided, [41], "the only one whose end is not published");
        let found = table.get(&key).unwrap().jobs.values();
        let found: Vec<u64> =
            found.filter(|job| job.noted.found().is_some()).map(|job| job.run).collect();
        assert_eq!(found, [40, 41], "the next run is held to what the newest has found");
    }
}

#[test]
fn an_answer_that_comes_after_it_was_deleted_does_not_bring_it_back() {
    let mut table = Table::new(2, b"key");
    let key = resource(1, 0).key();
    assert!(table.answered(resource(1, 0)).is_empty(), "of what is not known a watch tells");
    table.learn(resource(1, 0));
    assert_eq!(table.answered(resource(2, 0)), std::slice::from_ref(&key));
    assert_eq!(table.get(&key).unwrap().resource.as_ref().unwrap().version, 2);
    table.forget_one(&key, "owner");
    assert!(table.answered(resource(3, 0)).is_empty());
    assert!(table.get(&key).is_none());
}

#[test]
fn a_pod_is_found_by_its_uid_as_long_as_it_is_known_and_of_the_job_that_it_is_of_now() {
    let key =
        |run: u64| -> (Key, Arc<str>) { (resource(1, 0).key(), Arc::from(format!("job-{run}"))) };
    let of = |run: u64, version: u64, uid: &str| SeenPod {
        version,
        uid: uid.into(),
        job: key(run).1,
        ..pod(&[("c", None)], None)
    };
    let mut table = Table::new(2, b"key");
    table.learn(resource(1, 0));
    let going = |run: u64| SeenJob { end: None, ..job(run) };
    table.learn_job(going(1));
    table.learn_job(going(2));
    table.learn_pod(of(1, 1, "p"));
    table.learn_pod(of(1, 1, "q"));
    assert_eq!(table.job_of_pod("p"), Some(&key(1).1));
    assert!(table.warn(warned("nobody's")).is_none());

    table.learn_pod(of(2, 2, "p"));
    assert_eq!(table.job_of_pod("p"), Some(&key(2).1), "it says that it is another's");
    assert_eq!(table.pods(&going(1)).count(), 1, "and is no more of the one before");
    assert_eq!(table.pods(&going(2)).count(), 1);

    table.forget_job(&going(2));
    assert_eq!(table.job_of_pod("p"), None, "it went with its Job");
    assert_eq!(table.job_of_pod("q"), Some(&key(1).1));
    table.leave(&Arc::from("n"));
    assert_eq!(table.job_of_pod("q"), None, "its namespace is not watched any more");
}
