//! `manciple job` against an API server of canned answers: what is sent, and what is made of each answer.

use std::sync::{Mutex, MutexGuard};

use serde_json::{Value, json};

use crate::stub::{Answer, Request, Run, Stub, answer, raw};

const OBJECTS: &str = "/apis/quarks.cloudfoundry.org/v1alpha1/namespaces/shop/quarksjobs";
pub(super) const OBJECT: &str =
    "/apis/quarks.cloudfoundry.org/v1alpha1/namespaces/shop/quarksjobs/backup";
/// What no terminal may be told.
pub(super) const CLEAR: &str = "\u{1b}[2J";

/// A QuarksJob with this strategy, these runs that go on and these that have ended, with their reasons.
pub(super) fn object(strategy: &str, going: &[u64], ended: &[(u64, &str)]) -> Value {
    let last = going.iter().chain(ended.iter().map(|(id, _)| id)).max().copied().unwrap_or(0);
    let open =
        going.iter().map(|id| json!({"id": id, "trigger": "now", "at": "2026-05-04T12:00:00Z"}));
    let record = json!({"last": last, "open": open.collect::<Vec<_>>()}).to_string();
    let history = ended.iter().rev().map(|(id, reason)| {
        json!({
            "id": id, "trigger": "now", "job": format!("job-{id}"), "reason": reason,
            "succeeded": *reason == "Completed", "message": format!("said{CLEAR}\nof {id}"),
            "startedAt": "2026-05-04T12:00:00Z", "endedAt": "2026-05-04T12:01:05Z", "seconds": 65,
            "made": ["page"],
        })
    });
    json!({
        "apiVersion": "quarks.cloudfoundry.org/v1alpha1", "kind": "QuarksJob",
        "metadata": {
            "name": "backup", "namespace": "shop", "uid": "u", "resourceVersion": "7",
            "annotations": {"manciple.dev/runs": record},
        },
        "spec": {"trigger": {"strategy": strategy}},
        "status": {"completed": true, "history": history.collect::<Vec<_>>()},
    })
}

pub(super) fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, member) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[member] = value;
    object
}

/// As an API server says that something is not to be had.
fn status(code: u16, message: &str, name: &str) -> Answer {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message,
        "reason": "Because", "details": {"name": name, "kind": "quarksjobs"},
    });
    answer(code, &body)
}

pub(super) struct Cluster {
    stub: Stub,
    folder: tempfile::TempDir,
}

impl Cluster {
    pub(super) fn new(
        handler: impl Fn(&Request) -> Option<Answer> + Send + Sync + 'static,
    ) -> Self {
        let stub = Stub::new(handler);
        let folder = tempfile::tempdir().unwrap();
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": stub.url}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
        });
        std::fs::write(folder.path().join("config"), config.to_string()).unwrap();
        Self { stub, folder }
    }

    /// One whose QuarksJob is read as each of these in turn; the last stays. Patches change nothing of that.
    pub(super) fn read_as(states: &[Value]) -> Self {
        let states = Mutex::new(states.to_vec());
        Self::new(move |request| {
            let mut states = lock(&states);
            let state = states[0].clone();
            match (request.method.as_str(), request.path.as_str()) {
                ("GET", OBJECT) if states.len() > 1 => drop(states.remove(0)),
                ("GET" | "PATCH", OBJECT) => {}
                _ => return None,
            }
            Some(answer(200, &state))
        })
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Run {
        let mut command = self.stub.command(&[&["job"], arguments].concat());
        Run::from(command.env("KUBECONFIG", self.folder.path().join("config")).output().unwrap())
    }

    fn patches(&self) -> Vec<Request> {
        let all = self.stub.requests().into_iter();
        all.filter(|request| request.method == "PATCH").collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

#[test]
fn a_trigger_is_one_patch_of_what_was_read() {
    let cluster = Cluster::read_as(&[object("manual", &[], &[(1, "Completed")])]);
    let run = cluster.run(&["run", "backup", "--no-wait"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "QuarksJob backup is triggered\n"), "{run:?}");
    assert!(run.stderr.contains("manciple job history backup"), "{run:?}");
    let patches = cluster.patches();
    let [patch] = patches.as_slice() else { panic!("{patches:?}") };
    let expected =
        json!({"metadata": {"resourceVersion": "7"}, "spec": {"trigger": {"strategy": "now"}}});
    assert_eq!((patch.path.as_str(), &patch.body), (OBJECT, &expected));
    assert!(!patch.query.contains("dryRun"), "{patch:?}");
}

#[test]
fn inputs_go_with_the_trigger_if_they_are_kept() {
    let inputs = json!([{"name": "DAY", "value": "1=2"}, {"name": "EMPTY", "value": ""}]);
    let arguments = ["run", "backup", "--no-wait", "--input", "DAY=1=2", "--input", "EMPTY="];
    let kept = with(object("manual", &[], &[]), "/spec/trigger/inputs", inputs.clone());
    for (state, code, expected) in
        [(kept, 0, vec![true, false]), (object("manual", &[], &[]), 4, vec![true])]
    {
        let cluster = Cluster::read_as(&[state]);
        let run = cluster.run(&arguments);
        assert_eq!(run.code, code, "{run:?}");
        let patches = cluster.patches();
        let trials: Vec<bool> =
            patches.iter().map(|patch| patch.query.contains("dryRun=All")).collect();
        assert_eq!(trials, expected, "{patches:?}");
        let sent = patches.iter().map(|patch| &patch.body["spec"]["trigger"]);
        assert!(sent.into_iter().all(|it| *it == json!({"strategy": "now", "inputs": inputs})));
        assert_eq!(run.stderr.contains("nothing was run"), code != 0, "{run:?}");
    }
}

#[test]
fn a_conflict_is_tried_again_with_what_is_read_then() {
    let versions = Mutex::new(6);
    let cluster = Cluster::new(move |request| {
        let mut version = lock(&versions);
        if request.method == "GET" {
            *version += 1;
        }
        let fresh = request.body["metadata"]["resourceVersion"] == "9";
        match request.method.as_str() {
            "PATCH" if !fresh => Some(status(409, "the object has been modified", "backup")),
            _ => {
                let object = object("manual", &[], &[]);
                let version = json!(version.to_string());
                Some(answer(200, &with(object, "/metadata/resourceVersion", version)))
            }
        }
    });
    let run = cluster.run(&["run", "backup", "--no-wait", "-q"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "backup\n"), "{run:?}");
    assert_eq!(cluster.patches().len(), 3);
}

#[test]
fn it_is_waited_for_the_run_that_the_trigger_made() {
    let before = object("manual", &[], &[(1, "Completed")]);
    let waits =
        json!([{"type": "Waiting", "status": "True", "message": format!("for{CLEAR} secret/a")}]);
    let untaken = with(object("now", &[], &[(1, "Completed")]), "/status/conditions", waits);
    let going = object("manual", &[2], &[(1, "Completed")]);
    // What had no Job has no log.
    for (reason, code, has_log) in
        [("Completed", 0, false), ("BackoffLimitExceeded", 1, true), ("JobRefused", 1, false)]
    {
        let ended = object("manual", &[], &[(1, "Completed"), (2, reason)]);
        let states = [before.clone(), untaken.clone(), going.clone(), ended];
        let run = Cluster::read_as(&states).run(&["run", "backup", "--wait"]);
        assert_eq!(run.code, code, "{run:?}");
        for words in ["run of QuarksJob backup: triggered", "waits: for [2J secret/a", "run 2"] {
            assert!(run.stderr.contains(words), "{words}: {run:?}");
        }
        for line in
            ["Run:      2", &format!("Outcome:  {reason}"), "Took:     1m 5s", "Made:     page"]
        {
            assert!(run.stdout.lines().any(|found| found == line), "{line}: {run:?}");
        }
        let failed = format!("error: run 2 of QuarksJob backup failed: {reason}: said");
        assert_eq!(run.stderr.contains(&failed), code == 1, "{run:?}");
        let hint = "hint: read its log: manciple job logs backup --run 2";
        assert_eq!(run.stderr.contains(hint), has_log, "{run:?}");
        assert!(!run.stderr.contains('\u{1b}') && !run.stdout.contains('\u{1b}'), "{run:?}");
        let run = Cluster::read_as(&states).run(&["run", "backup", "-o", "json"]);
        let said: Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!((run.code, &said["run"], &said["reason"]), (code, &json!(2), &json!(reason)));
        let run = Cluster::read_as(&states).run(&["run", "backup", "-q"]);
        assert_eq!((run.code, run.stdout.as_str()), (code, "2\n"), "{run:?}");
    }
}

#[test]
fn a_trigger_that_makes_no_run_says_why() {
    let forbids = |it| with(it, "/spec/concurrencyPolicy", json!("Forbid"));
    let before = object("manual", &[1], &[]);
    let another = with(before.clone(), "/metadata/uid", json!("another"));
    for (after, code, words) in [
        (forbids(before.clone()), 1, "passed over (concurrencyPolicy: Forbid)"),
        (before.clone(), 1, "somebody took the trigger back"),
        (another, 6, "was deleted while"),
    ] {
        let run = Cluster::read_as(&[before.clone(), after]).run(&["run", "backup"]);
        assert_eq!((run.code, run.stdout.as_str()), (code, ""), "{run:?}");
        assert!(run.stderr.contains(words), "{words}: {run:?}");
    }
}

#[test]
fn who_does_not_wait_for_ever_is_told_how_it_stands() {
    let before = object("manual", &[], &[]);
    let busy = object("manual", &[1], &[]);
    let queued = with(object("now", &[1], &[]), "/spec/concurrencyPolicy", json!("Queue"));
    for (before, after, words) in [
        (&before, object("now", &[], &[]), ["was not begun within 1s", "job history backup"]),
        (&before, busy.clone(), ["did not end within 1s", "logs backup --run 1 --follow"]),
        (&busy, queued, ["waits: for the end of run 1", "was not begun within 1s"]),
    ] {
        let cluster = Cluster::read_as(&[before.clone(), after]);
        let run = cluster.run(&["run", "backup", "--timeout", "1s"]);
        assert_eq!(run.code, 8, "{run:?}");
        assert!(words.iter().all(|words| run.stderr.contains(words)), "{words:?}: {run:?}");
    }
}

#[test]
fn the_history_of_one_that_nobody_looks_after_says_so() {
    for (strategy, runs, words) in [
        ("now", &[][..], "no controller has said anything of it"),
        ("now", &[1], "no controller has said anything of it"),
        ("once", &[], "no controller has said anything of it"),
        ("manual", &[], "there has been no run; begin one"),
    ] {
        let cluster = Cluster::read_as(&[object(strategy, runs, &[])]);
        let run = cluster.run(&["history", "backup"]);
        assert!(run.stderr.contains(words), "{strategy} {runs:?}: {run:?}");
    }
}

#[test]
fn somebodys_trigger_is_shared_if_it_means_the_same() {
    let stands = object("now", &[], &[]);
    let inputs = json!([{"name": "A", "value": "1"}]);
    let with_inputs = with(stands.clone(), "/spec/trigger/inputs", inputs);
    let with_none = with(stands.clone(), "/spec/trigger/inputs", json!([]));
    for (name, state, input, code) in [
        ("none at all", &stands, None, 0),
        ("theirs are an empty list", &with_none, None, 0),
        ("the same", &with_inputs, Some("A=1"), 0),
        ("other values", &with_inputs, Some("A=2"), 4),
        ("ours, and none of theirs", &stands, Some("A=1"), 4),
        ("theirs, and none of ours", &with_inputs, None, 4),
    ] {
        let cluster = Cluster::read_as(std::slice::from_ref(state));
        let mut arguments = vec!["run", "backup", "--no-wait"];
        arguments.extend(input.into_iter().flat_map(|input| ["--input", input]));
        let run = cluster.run(&arguments);
        assert_eq!((run.code, cluster.patches().len()), (code, 0), "{name}: {run:?}");
        let words = "has triggered QuarksJob backup already";
        assert!(run.stderr.contains(words), "{name}: {run:?}");
    }
}

#[test]
fn each_failure_has_its_number_and_says_what_to_do() {
    let not_found = "quarksjobs.quarks.cloudfoundry.org \"backup\" not found";
    for (case, given, code, words) in [
        ("its name", status(404, not_found, "backup"), 6, "manciple job list"),
        ("the kind", raw(404, b"404 page not found\n"), 6, "manciple crds"),
        ("who asks", status(401, "Unauthorized", ""), 7, "credentials of the kubeconfig"),
        (
            "a right",
            status(403, "forbidden", "backup"),
            7,
            "the right to get quarksjobs.quarks.cloudfoundry.org in namespace shop",
        ),
        ("too much", status(429, "slowly", ""), 4, "come again later"),
        ("its fault", status(500, "etcd", ""), 5, "etcd"),
        ("no object", answer(200, &json!({"kind": "Status"})), 5, "cannot be understood"),
        ("no JSON", raw(200, b"<html>"), 5, "cannot be understood"),
        ("no text", raw(502, b"\xff\xfe"), 5, "cannot be understood"),
        ("what terminals obey", status(403, CLEAR, "backup"), 7, "[2J"),
    ] {
        let cluster = Cluster::new(move |_| Some(given.clone()));
        let run = cluster.run(&["history", "backup"]);
        assert_eq!((run.code, run.stdout.as_str()), (code, ""), "{case}: {run:?}");
        assert!(run.stderr.contains(words), "{case}: {run:?}");
        assert!(
            !run.stderr.contains('\u{1b}') && !run.stderr.contains("panicked"),
            "{case}: {run:?}"
        );
    }
}

#[test]
fn without_a_cluster_nothing_is_done() {
    let nowhere = Cluster::new(|_| None);
    let file = nowhere.folder.path().join("config");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace(&nowhere.stub.url, "http://127.0.0.1:9")).unwrap();
    let run = nowhere.run(&["list"]);
    assert!(run.code == 3 && run.stderr.contains("KUBECONFIG"), "{run:?}");
    let run = Run::from(nowhere.stub.command(&["job", "list"]).output().unwrap());
    assert!(run.code == 3 && run.stderr.contains("no cluster is configured"), "{run:?}");
    let run = nowhere.run(&["list", "-c", "/nowhere"]);
    assert!(run.code == 2 && run.stderr.contains("kubeconfig"), "{run:?}");
    std::fs::write(&file, "{").unwrap();
    assert_eq!(nowhere.run(&["list", "-c", file.to_str().unwrap()]).code, 2);
}

#[test]
fn what_is_no_name_is_refused_before_anything_is_asked() {
    let cluster = Cluster::read_as(&[object("manual", &[], &[])]);
    for arguments in [
        vec!["run", "../secrets"],
        vec!["run", CLEAR],
        vec!["run", ""],
        vec!["run", "backup", "--input", "=1"],
        vec!["run", "backup", "--input", "A"],
        vec!["logs", "backup", "--run", "0"],
        vec!["logs", "backup", "-n", "a/b"],
        vec!["list", "-A", "-n", "shop"],
        vec!["list", "--kind", "pod"],
        vec!["history"],
        vec![],
    ] {
        let run = cluster.run(&arguments);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{arguments:?}: {run:?}");
    }
    assert!(cluster.stub.requests().is_empty());
}

#[test]
fn a_list_has_pages_and_no_terminal_obeys_it() {
    let never = with(object("once", &[], &[]), "/metadata/name", json!("never"));
    let waits = json!([{"type": "Waiting", "status": "True", "message": format!("a{CLEAR}\nb")}]);
    let never = with(never, "/status/conditions", waits);
    let never = with(never, "/status/completed", json!(false));
    // By the original operator, which keeps no history.
    let before = json!({
        "metadata": {"name": "before", "namespace": "shop", "uid": "b", "resourceVersion": "1"},
        "spec": {"trigger": {"strategy": "done"}}, "status": {"completed": true},
    });
    let ran = object("manual", &[3], &[(2, "Lost")]);
    let nameless = json!({"metadata": {}, "spec": 7});
    let cluster = Cluster::new(move |request| {
        let (items, next) = match request.query.contains("continue=more") {
            false => (vec![never.clone(), nameless.clone()], "more"),
            true => (vec![ran.clone(), before.clone()], ""),
        };
        let expected =
            request.path == OBJECTS || request.path == OBJECTS.replace("/namespaces/shop", "");
        let list = json!({
            "apiVersion": "v1", "kind": "List", "metadata": {"continue": next}, "items": items,
        });
        expected.then(|| answer(200, &list))
    });
    let run = cluster.run(&["list"]);
    let expected = [
        "NAME    STRATEGY  COMPLETED  RUN  LAST  ENDED",
        "backup  manual    true       3    Lost  ",
        "before  done      true",
        "never   once",
    ];
    for (line, expected) in run.stdout.lines().zip(expected) {
        assert!(line.starts_with(expected), "{run:?}");
    }
    assert!(run.stdout.contains("a [2J b") && run.code == 0, "{run:?}");
    let run = cluster.run(&["list", "-A"]);
    assert!(
        run.stdout.starts_with("NAMESPACE  NAME") && run.stdout.contains("shop       backup"),
        "{run:?}"
    );
    assert_eq!(cluster.run(&["list", "-A", "-q"]).stdout, "shop/backup\nshop/before\nshop/never\n");
    assert_eq!(cluster.run(&["list", "-q"]).stdout, "backup\nbefore\nnever\n");
    let said: Value = serde_json::from_str(&cluster.run(&["list", "-o", "json"]).stdout).unwrap();
    let items = said["items"].as_array().unwrap();
    assert_eq!(items.len(), 3);
    assert_eq!(items[0]["going"][0]["run"], 3);
    assert_eq!(items[0]["last_run"]["reason"], "Lost");
    assert_eq!((&items[1]["completed"], &items[1]["last_run"]), (&json!(true), &Value::Null));
    assert_eq!(items[2]["last_run"], Value::Null);
}

#[test]
fn a_history_has_the_runs_that_go_on_first() {
    let cluster = Cluster::read_as(&[object("manual", &[2], &[(1, "Completed"), (3, "Lost")])]);
    let run = cluster.run(&["history", "backup"]);
    let words: Vec<Vec<&str>> =
        run.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0], ["RUN", "TRIGGER", "STARTED", "TOOK", "OUTCOME", "MADE", "MESSAGE"]);
    let numbers: Vec<&str> = words[1..].iter().map(|words| words[0]).collect();
    assert_eq!(numbers, ["2", "3", "1"]);
    assert!(words[1].contains(&"Going") && words[2].contains(&"Lost"), "{run:?}");
    assert!(!run.stdout.contains('\u{1b}'), "{run:?}");
    let said: Value =
        serde_json::from_str(&cluster.run(&["history", "backup", "-o", "json"]).stdout).unwrap();
    let states: Vec<_> =
        said["items"].as_array().unwrap().iter().map(|run| &run["state"]).collect();
    assert_eq!(states, ["going", "failed", "succeeded"]);
    assert_eq!(cluster.run(&["history", "backup", "-q"]).stdout, "2\n3\n1\n");
    let none = Cluster::read_as(&[object("manual", &[], &[])]).run(&["history", "backup"]);
    assert!(none.code == 0 && none.stderr.contains("manciple job run backup"), "{none:?}");
}

#[test]
fn an_extended_job_is_asked_for_by_its_own_group() {
    let cluster = Cluster::new(|request| {
        let path = "/apis/fissile.cloudfoundry.org/v1alpha1/namespaces/other/extendedjobs/backup";
        (request.path == path).then(|| answer(200, &object("manual", &[], &[])))
    });
    let run = cluster.run(&["run", "backup", "--kind", "ejob", "-n", "other", "--no-wait"]);
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "ExtendedJob backup is triggered\n"),
        "{run:?}"
    );
    assert!(run.stderr.contains("manciple job history backup -n other --kind ejob"), "{run:?}");
}
