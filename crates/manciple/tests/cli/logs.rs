//! `manciple job logs` against an API server of canned answers.

use serde_json::{Value, json};

use super::jobs::{CLEAR, Cluster, OBJECT, object, with};
use crate::stub::{answer, raw};

/// A pod whose containers have all ended.
fn pod(name: &str, made: &str, containers: &[&str]) -> Value {
    let spec = containers.iter().map(|name| json!({"name": name})).collect::<Vec<_>>();
    let ended = containers.iter().map(|name| {
        json!({
            "name": name, "image": "i", "imageID": "i", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 0}},
        })
    });
    json!({
        "metadata": {"name": name, "namespace": "shop", "uid": name, "creationTimestamp": made},
        "spec": {"containers": spec, "restartPolicy": "Never"},
        "status": {"phase": "Succeeded", "containerStatuses": ended.collect::<Vec<_>>()},
    })
}

/// A cluster with these pods for `job-3`, whose containers have all printed this.
fn logged(pods: Vec<Value>, log: &'static [u8]) -> Cluster {
    Cluster::new(move |request| {
        let path = request.path.strip_prefix("/api/v1/namespaces/shop/pods");
        match path {
            None => {
                let runs = [(2, "TemplateInvalid"), (3, "Completed")];
                return (request.path == OBJECT)
                    .then(|| answer(200, &object("manual", &[], &runs)));
            }
            Some("") if request.query.contains("job-name%3Djob-3") => {
                let list =
                    json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": pods});
                return Some(answer(200, &list));
            }
            Some("") => {
                let list =
                    json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": []});
                return Some(answer(200, &list));
            }
            Some(path) if path.ends_with("/log") => return Some(raw(200, log)),
            Some(_) => {}
        }
        let name = request.path.rsplit('/').next()?;
        let found = pods.iter().find(|pod| pod["metadata"]["name"] == name)?;
        Some(answer(200, found))
    })
}

#[test]
fn logs_come_pod_by_pod_without_what_is_sealed() {
    let pods = vec![
        pod("second", "2026-05-04T12:00:09Z", &["work", "output-persist"]),
        pod("first", "2026-05-04T12:00:01Z", &["work", "side"]),
    ];
    let cluster =
        logged(pods, b"one\n\n\n#MANCIPLE1 report 0011223344556677 0 AAAA\n\xff#two\nunfinished");
    for follow in [&[][..], &["--follow"]] {
        let run = cluster.run(&[&["logs", "backup"], follow].concat());
        assert_eq!(run.code, 0, "{run:?}");
        let of = |name: &str| {
            let prefixed = |line: &str| line.starts_with(&format!("[{name}] "));
            run.stdout.lines().filter(|line| prefixed(line)).collect::<Vec<_>>()
        };
        assert_eq!(
            of("work"),
            ["[work] one", "[work] ", "[work] \u{fffd}#two", "[work] unfinished"]
        );
        assert_eq!(of("side").len(), 4);
        assert!(run.stdout.ends_with("\none\n\n\u{fffd}#two\nunfinished\n"), "{run:?}");
        assert_eq!(run.stdout.lines().count(), 12, "{run:?}");
        assert_eq!(run.stderr.matches("sealed").count(), 1, "{run:?}");
        let (first, second) = (run.stderr.find("--- first"), run.stderr.find("--- second"));
        assert!(first < second && first.is_some(), "{run:?}");
    }
    let run = cluster.run(&["logs", "backup", "--container", "side", "--run", "3"]);
    assert_eq!(run.code, 2, "the second has none: {run:?}");
    assert!(run.stderr.contains("it has work"), "{run:?}");
    let run = cluster.run(&["logs", "backup", "--container", "work", "-o", "json"]);
    let first: Value = serde_json::from_str(run.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(first, json!({"run": 3, "pod": "first", "container": "work", "line": "one"}));
    assert_eq!(run.stderr, "");
}

#[test]
fn a_log_that_is_not_there_is_missed_in_clear_words() {
    let cluster = logged(vec![], b"");
    let of = |run: &'static str| vec!["logs", "backup", "--run", run];
    let no_job = "run 2 of QuarksJob backup had no Job, and no log: TemplateInvalid: said [2J of 2";
    for (arguments, words, is_hinted) in [
        (vec!["logs", "backup"], "the pods of run 3 of QuarksJob backup are gone", true),
        (of("1"), "the pods of run 1 of QuarksJob backup are gone", true),
        (of("2"), no_job, false),
        (vec!["logs", "backup", "--run", "2", "--follow"], no_job, false),
        (of("9"), "has no run 9 yet; the newest is 3", true),
    ] {
        let run = cluster.run(&arguments);
        assert_eq!((run.code, run.stdout.as_str()), (6, ""), "{run:?}");
        assert!(run.stderr.contains(words), "{words}: {run:?}");
        assert_eq!(run.stderr.contains("hint: "), is_hinted, "{run:?}");
    }
    let waits = json!([{"type": "Waiting", "status": "True", "message": format!("for{CLEAR} a")}]);
    for (object, hint) in [
        (object("manual", &[], &[]), "hint: begin one: manciple job run backup"),
        (object("now", &[], &[]), "hint: its trigger is not taken yet"),
        (with(object("once", &[], &[]), "/status/conditions", waits), "hint: it waits: for [2J a"),
    ] {
        let none = Cluster::read_as(&[object]).run(&["logs", "backup"]);
        assert!(none.code == 6 && none.stderr.contains("has had no run yet"), "{none:?}");
        assert!(none.stderr.contains(hint), "{hint}: {none:?}");
    }
}
