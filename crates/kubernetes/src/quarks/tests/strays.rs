//! Pods whose sidecar waits, and whose Job is gone or whose run is over.

use std::collections::HashSet;

use k8s_openapi::api::batch::v1::Job;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::pods::pod;
use crate::quarks::api::dialect::Dialect;
use crate::quarks::api::key::Key;
use crate::quarks::api::resource::Resource;
use crate::quarks::state::job::SeenJob;
use crate::quarks::state::pod::{PodWork, SeenPod};
use crate::quarks::state::table::{Table, Watched};

/// A QuarksJob that runs, and of which these runs have ended.
fn resource(version: u64, ended: &[u64]) -> Resource {
    of("owner", version, 1, ended)
}

/// The same of this uid, whose last run is this one.
fn of(uid: &str, version: u64, last: u64, ended: &[u64]) -> Resource {
    let history: Vec<Value> = ended
        .iter()
        .map(|id| {
            json!({
                "id": id, "trigger": "now", "job": "a-1", "succeeded": false, "reason": "Lost",
                "startedAt": "", "endedAt": "",
            })
        })
        .collect();
    let record = json!({"last": last, "open": [{"id": last, "trigger": "now", "at": "2026-01-01T00:00:00Z"}]});
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "quarks.cloudfoundry.org/v1alpha1", "kind": "QuarksJob",
        "metadata": {
            "name": "a", "namespace": "n", "uid": uid, "resourceVersion": version.to_string(),
            "annotations": {"manciple.dev/runs": record.to_string()},
        },
        "spec": {}, "status": {"history": history},
    }))
    .unwrap();
    Resource::of(Dialect::QuarksJob, &object).unwrap()
}

fn job() -> SeenJob {
    let job: Job = serde_json::from_value(super::job("owner", "j")).unwrap();
    SeenJob::of(&job).unwrap()
}

/// As it is while its work goes on, while it waits, and when its sidecar has ended.
fn stages() -> [SeenPod; 3] {
    let of =
        |version, work, sidecar| SeenPod { version, ..pod(&[("c", work)], Some((false, sidecar))) };
    [of(1, None, None), of(2, Some(0), None), of(3, Some(0), Some(0))]
}

fn strays(table: &Table) -> usize {
    table.strays().len()
}

/// With the Job and the resource.
fn table() -> Table {
    let mut table = Table::new(2, b"key");
    table.learn(resource(1, &[]));
    table.learn_job(job());
    table
}

#[test]
fn of_a_run_that_goes_on_it_is_none() {
    let mut table = table();
    for pod in stages() {
        table.learn_pod(pod);
        assert_eq!(strays(&table), 0);
    }
}

#[test]
fn whose_job_somebody_took_away_is_one_as_soon_as_it_waits_until_it_is_told() {
    let [works, waits, ended] = stages();
    // The Job goes before all else in the pod has ended, or after.
    for first in [true, false] {
        let mut table = table();
        table.learn_pod(works.clone());
        if first {
            table.forget_job(&job());
            assert_eq!(strays(&table), 0, "its work goes on");
            table.learn_pod(waits.clone());
        } else {
            table.learn_pod(waits.clone());
            table.forget_job(&job());
        }
        assert_eq!(strays(&table), 1, "first: {first}");
        table.told("u");
        assert_eq!(strays(&table), 0);
        // A watch that is behind.
        table.learn_pod(waits.clone());
        assert_eq!(strays(&table), 1);
        table.learn_pod(ended.clone());
        assert_eq!(strays(&table), 0);
        table.learn_pod(waits.clone());
        table.learn_pod(SeenPod { gone: true, ..waits.clone() });
        assert_eq!(strays(&table), 0, "it is gone");
    }
}

#[test]
fn of_a_job_that_went_before_it_was_known_whose_it_is_nothing_stays() {
    let [works, waits, _] = stages();
    for (pod, left) in [(works, 0), (waits, 1)] {
        let mut table = Table::new(2, b"key");
        table.learn_pod(pod);
        table.forget_left("j");
        assert_eq!((table.with_pods(), strays(&table)), (0, left));
    }
}

#[test]
fn whose_run_is_over_is_one_though_its_job_stays() {
    let [works, waits, _] = stages();
    for first in [true, false] {
        let mut table = table();
        table.learn_pod(if first { works.clone() } else { waits.clone() });
        table.learn(resource(2, &[1]));
        if first {
            table.learn_pod(waits.clone());
        }
        assert_eq!(strays(&table), 1, "first: {first}");
    }
    // The resource is seen, then its pod, and its Job last.
    let mut table = Table::new(2, b"key");
    table.learn(resource(2, &[1]));
    table.learn_pod(waits);
    table.learn_job(job());
    assert_eq!(strays(&table), 1);
}

#[test]
fn whose_job_is_only_not_seen_yet_is_none() {
    let [_, waits, _] = stages();
    let mut table = Table::new(2, b"key");
    table.learn(resource(1, &[]));
    table.learn_pod(waits);
    assert_eq!(strays(&table), 1, "nobody knows of its run");
    table.learn_job(job());
    assert_eq!(strays(&table), 0);
}

#[test]
fn of_a_namespace_that_is_left_none_is_told() {
    let [_, waits, _] = stages();
    let mut table = Table::new(2, b"key");
    table.learn_pod(waits);
    table.leave(&"n".into());
    assert_eq!(strays(&table), 0);
}

#[test]
fn a_pod_that_outlives_its_job_is_forgotten_when_it_goes() {
    let [works, waits, _] = stages();
    let all = [
        Watched::Resources(Dialect::QuarksJob),
        Watched::Resources(Dialect::ExtendedJob),
        Watched::Jobs,
        Watched::Pods,
        Watched::ConfigMaps,
        Watched::Secrets,
    ];
    for listed in [true, false] {
        let mut table = table();
        table.watches(&None);
        for it in all.iter().filter(|_| listed) {
            table.listed(None, *it);
        }
        table.learn_pod(works.clone());
        table.forget_job(&job());
        table.learn_pod(waits.clone());
        table.learn_pod(SeenPod { gone: true, version: 4, ..waits.clone() });
        // Before all is listed its Job may be there, and want to know.
        assert_eq!(table.with_pods(), usize::from(!listed), "listed: {listed}");
    }
}

#[test]
fn whose_job_belongs_to_nobody_any_more_is_one() {
    let [_, waits, _] = stages();
    let mut replaced = table();
    replaced.learn_pod(waits.clone());
    replaced.learn(of("another", 2, 1, &[]));
    let mut removed = table();
    removed.learn_pod(waits.clone());
    removed.forget(&resource(1, &[]).key());
    let mut late = table();
    late.learn_pod(waits.clone());
    late.forget(&resource(1, &[]).key());
    late.learn_job(job());
    late.learn(of("another", 2, 1, &[]));
    for (name, mut table) in [
        ("another is there in its place", replaced),
        ("it is gone", removed),
        ("its Job was heard of after it was gone, and then of another", late),
    ] {
        let jobs = table.get(&resource(1, &[]).key()).map_or(0, |entry| entry.jobs.len());
        assert_eq!(jobs, 0, "{name}: it would be carried on as a run of that");
        assert_eq!(strays(&table), 1, "{name}");
        // What a watch says of it later.
        table.learn_pod(waits.clone());
        assert_eq!(strays(&table), 1, "{name}");
        table.keep_pods(None, &Default::default());
        assert_eq!((strays(&table), table.with_pods()), (0, 0), "{name}");
    }
}

#[test]
fn whose_job_was_nobodys_for_a_moment_is_known_to_its_run() {
    let [_, waits, _] = stages();
    let key = resource(1, &[]).key();
    let nobody = HashSet::new();
    // A watch of QuarksJobs may be behind those of Jobs and pods.
    for (name, happens) in [
        (
            "a list was without it",
            (|table, key, nobody| {
                table.keep(key.dialect, None, nobody);
            }) as fn(&mut Table, &Key, &HashSet<Key>),
        ),
        ("one of its name was seen to go", |table, key, _| table.forget_one(key, "before")),
        ("one of its name was seen", |table, _, _| drop(table.learn(of("before", 0, 1, &[])))),
    ] {
        let mut table = Table::new(2, b"key");
        table.learn_job(job());
        table.learn_pod(waits.clone());
        happens(&mut table, &key, &nobody);
        table.learn(resource(1, &[]));
        let job = table.known_job("j").unwrap();
        let waiting = table.pods(job).filter(|pod| pod.waits_for_us).count();
        assert_eq!((waiting, strays(&table)), (1, 0), "{name}");
    }
}

#[test]
fn what_was_left_behind_when_its_job_went_is_one_as_soon_as_it_waits() {
    let [works, waits, ended] = stages().map(|pod| SeenPod { orphan: true, ..pod });
    // A watch of Jobs may be behind that of pods.
    for before in [true, false] {
        let mut table = table();
        table.learn_pod(SeenPod { orphan: false, version: 0, ..works.clone() });
        if before {
            table.forget_job(&job());
        }
        table.learn_pod(works.clone());
        assert_eq!(strays(&table), 0, "its work goes on");
        table.learn_pod(waits.clone());
        if !before {
            assert_eq!(strays(&table), 0, "its run goes on, as far as is known");
            table.forget_job(&job());
        }
        assert_eq!((strays(&table), table.with_pods()), (1, 0), "before: {before}");
        table.learn_pod(ended.clone());
        assert_eq!(strays(&table), 0);
    }
}

#[test]
fn an_orphan_says_by_a_label_whose_it_was() {
    let owner = json!([{
        "apiVersion": "batch/v1", "kind": "Job", "name": "a-1", "uid": "j", "controller": true,
    }]);
    for (name, owners, labels, expected) in [
        ("of a Job", owner, json!({"controller-uid": "j"}), Some(("j", false))),
        ("left behind", json!([]), json!({"controller-uid": "j"}), Some(("j", true))),
        ("of no Job", json!([]), json!({}), None),
    ] {
        let pod = serde_json::from_value(json!({"metadata": {
            "name": "p", "namespace": "n", "uid": "u", "resourceVersion": "1",
            "ownerReferences": owners, "labels": labels,
        }}));
        let seen = SeenPod::of(&pod.unwrap());
        assert_eq!(seen.as_ref().map(|it| (&*it.job, it.orphan)), expected, "{name}");
    }
}

#[test]
fn whose_run_the_history_has_forgotten_is_one() {
    let [_, waits, _] = stages();
    let mut table = Table::new(2, b"key");
    let ended: Vec<u64> = (5..15).rev().collect();
    table.learn(of("owner", 1, 14, &ended));
    table.learn_job(job());
    table.learn_pod(waits);
    assert_eq!((strays(&table), table.with_pods()), (1, 0));
}

#[test]
fn a_pod_whose_end_no_watch_has_told_is_forgotten_with_the_next_list() {
    let [_, waits, _] = stages();
    for (scope, listed, left) in
        [(None, &[][..], 0), (Some("n"), &[], 0), (Some("other"), &[], 1), (None, &["u"], 1)]
    {
        let listed = listed.iter().map(|uid| std::sync::Arc::from(*uid)).collect();
        let mut table = Table::new(2, b"key");
        table.learn_pod(waits.clone());
        table.keep_pods(scope, &listed);
        assert_eq!((strays(&table), table.with_pods()), (left, left), "{scope:?} {listed:?}");
    }
    let mut table = table();
    table.learn_pod(waits);
    table.keep_pods(None, &Default::default());
    let left: Vec<bool> = table.pods(&job()).map(|pod| pod.gone).collect();
    assert_eq!(left, [true], "what it has left is wanted by its run");
}

#[test]
fn what_goes_on_in_a_pod_after_its_run_is_known_whichever_is_seen_first() {
    let [works, ..] = stages();
    let over = |lingers| SeenPod { work: PodWork::Over { well: false, lingers }, ..works.clone() };
    for (name, pod, expected) in [
        ("it goes on", works.clone(), (false, true)),
        ("deleted", SeenPod { deletion: Some(1), ..works.clone() }, (false, false)),
        ("over", over(false), (false, false)),
        ("a mesh goes on", over(true), (true, false)),
    ] {
        let mut settled = table();
        settled.learn_pod(pod.clone());
        settled.learn(resource(2, &[1]));
        let mut late = table();
        late.learn(resource(2, &[1]));
        late.learn_pod(pod.clone());
        let mut restarted = Table::new(2, b"key");
        restarted.learn_pod(pod);
        restarted.learn(resource(2, &[1]));
        restarted.learn_job(job());
        for (order, table) in [("settled", settled), ("late", late), ("restarted", restarted)] {
            let job = table.known_job("j").unwrap();
            assert_eq!((job.lingers, job.outlasted), expected, "{name}, {order}");
        }
    }
}

#[test]
fn what_had_done_its_work_before_it_was_told_to_go_has_done_it() {
    let [works, done, _] = stages();
    let told = |pod: &SeenPod| SeenPod { deletion: Some(1), version: 9, ..pod.clone() };
    let done = SeenPod { work: PodWork::Over { well: true, lingers: false }, ..done };
    for (name, before, expected) in [("it had", &done, true), ("it had not", &works, false)] {
        let mut table = table();
        table.learn_pod(before.clone());
        table.learn_pod(told(&done));
        let ended = job().wants.end(table.pods(&job()));
        assert_eq!(ended == Some(true), expected, "{name}");
    }
}

/// Whoever may make pods in a namespace could else say what came of a run in another.
#[test]
fn a_pod_in_another_namespace_is_none_of_a_job_whatever_it_says() {
    let elsewhere = || SeenPod {
        namespace: "elsewhere".into(),
        uid: "another".into(),
        ..pod(&[("c", Some(0))], None)
    };
    let here = || pod(&[("c", None)], None);
    for is_first in [true, false] {
        let mut table = Table::new(2, b"key");
        if is_first {
            table.learn_pod(elsewhere());
        }
        table.learn(resource(1, &[]));
        table.learn_job(job());
        assert!(table.learn_pod(here()).is_some());
        if !is_first {
            assert_eq!(table.learn_pod(elsewhere()), None, "nobody is told of it");
        }
        let uids: Vec<_> = table.pods(&job()).map(|pod| pod.uid.to_string()).collect();
        assert_eq!(uids, ["u"], "the other is heard of first: {is_first}");
        table.leave(&"elsewhere".into());
        assert_eq!(table.pods(&job()).count(), 1, "it goes with no other namespace");
    }
}
