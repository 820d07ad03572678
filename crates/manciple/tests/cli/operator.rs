use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::stub::{Answer, Request, Run, Stub, answer, cut_short, operation, record};

fn failing() -> Stub {
    Stub::new(|request| {
        let failed = record("i", None, "broken", &operation("provision", "failed"));
        (request.path == "/admin/v1/record").then(|| answer(200, &failed))
    })
}

#[test]
fn catalog_shows_services_plans_and_parameters() {
    let stub = Stub::at_once();
    let run = stub.run(&["catalog"]);
    assert!(run.stdout.contains("db       small  yes"), "{run:?}");
    let run = stub.run(&["catalog", "db"]);
    assert!(run.stdout.contains("size          integer"), "{run:?}");
    let json = stub.json(&["catalog"]);
    assert_eq!(json["services"][0]["plans"][1]["id"], "large-id");
    assert!(!json.to_string().contains("dashboard-secret"));
    assert_eq!(stub.json(&["catalog", "--refresh"]), json);
    stub.request("POST /admin/v1/catalog/refresh");
}

#[test]
fn status_says_why_it_failed_and_what_to_do() {
    let stub = failing();
    let run = stub.run(&["status", "i"]);
    assert_eq!(run.code, 0, "{run:?}");
    for part in ["broken", "exit-status", "no disk left", "provision-op-1"] {
        assert!(run.stdout.contains(part), "{part}: {run:?}");
    }
    for command in ["manciple logs --instance i", "manciple retry i", "manciple deprovision i"] {
        assert!(run.stderr.contains(command), "{command}: {run:?}");
    }
    let json = stub.json(&["status", "i"]);
    assert_eq!(json["operation"]["created_at"], "2026-05-04T12:00:00Z");
    assert_eq!(json["next"][1]["command"], "manciple retry i");
}

#[test]
fn status_watches_an_operation_to_its_end() {
    let looked = AtomicUsize::new(0);
    let stub = Stub::new(move |request| {
        let poll = request.path.ends_with("/last_operation");
        if poll {
            return Some(answer(200, &json!({"state": "failed", "description": "no disk left"})));
        }
        let state = if looked.load(Ordering::SeqCst) == 0 { "running" } else { "failed" };
        (request.path == "/admin/v1/record").then(|| {
            looked.fetch_add(1, Ordering::SeqCst);
            answer(200, &record("i", None, "creating", &operation("provision", state)))
        })
    });
    let run = stub.run(&["status", "i", "--watch"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("provision failed"), "{run:?}");
    let poll = stub.request("GET /v2/service_instances/i/last_operation");
    assert_eq!(poll.query, "operation=provision-op");
}

#[test]
fn lists_are_tables_pages_and_ids() {
    let stub = Stub::at_once();
    let run = stub.run(&["instances"]);
    assert!(run.stdout.starts_with("INSTANCE  SERVICE  PLAN   STATE"), "{run:?}");
    assert!(run.stdout.contains("i         db       small  ready"), "{run:?}");
    assert_eq!(stub.json(&["instances", "--state", "busy"])["items"][0]["instance_id"], "i");
    assert!(stub.requests().iter().any(|request| request.query == "state=busy&limit=500"));
    assert_eq!(stub.run(&["bindings", "i", "-q"]).stdout, "b\n");
    assert_eq!(stub.request("GET /admin/v1/bindings").query, "instance=i&state=live&limit=500");
    assert_eq!(stub.json(&["bindings"])["items"][0]["binding_id"], "b");
}

/// Three instances, two on a page.
fn paged(request: &Request) -> Option<Answer> {
    let item = |id: &str| record(id, None, "ready", &operation("provision", "succeeded"));
    (request.path == "/admin/v1/instances").then(|| {
        let page = if request.query.contains("after=x%2F2") {
            json!({"items": [item("3")]})
        } else {
            json!({"items": [item("1"), item("2")], "next": "x/2"})
        };
        answer(200, &page)
    })
}

#[test]
fn lists_go_on_to_the_last_page_or_the_limit() {
    let stub = Stub::new(paged);
    assert_eq!(stub.run(&["instances", "-q"]).stdout, "1\n2\n3\n");
    let cut = stub.json(&["instances", "--limit", "2"]);
    assert_eq!(cut["next"], "x/2");
    assert_eq!(stub.run(&["instances", "-q", "--after", "x/2"]).stdout, "3\n");
}

#[test]
fn operations_are_those_of_instances_and_bindings() {
    let stub = Stub::at_once();
    let all = stub.json(&["operations"]);
    assert_eq!(all["items"].as_array().unwrap().len(), 2);
    let failed = stub.json(&["operations", "--failed"]);
    assert_eq!(failed["items"][0]["binding_id"], "b");
    assert_eq!(failed["items"][0]["reason"], "exit-status");
    assert_eq!(stub.json(&["operations", "--busy"]), json!({"items": []}));
    assert!(stub.run(&["operations"]).stdout.contains("no disk left"));
    assert_eq!(stub.json(&["operations", "i"])["items"].as_array().unwrap().len(), 2);
    let queries: Vec<_> = stub.requests().into_iter().map(|request| request.query).collect();
    let expected = [
        "state=all&limit=500",
        "state=failed&limit=500",
        "state=busy&limit=500",
        "state=all&limit=500",
        "instance=i&state=all&limit=500",
    ];
    assert_eq!(queries, expected, "the server filters");
}

#[test]
fn operations_go_on_over_an_empty_page_and_are_cut_at_the_newest() {
    let stub = Stub::new(|request| {
        let item = |at: &str| {
            let mut item = operation("provision", "failed");
            for (name, value) in [("instance_id", at), ("service_id", "s"), ("plan_id", "p")] {
                item[name] = value.into();
            }
            item["created_at"] = format!("2026-05-04T12:00:0{at}Z").into();
            item
        };
        let page = match request.query.as_str() {
            "state=failed&limit=500" => json!({"items": [item("1")], "next": "n1"}),
            "state=failed&after=n1&limit=500" => json!({"items": [], "next": "n2"}),
            "state=failed&after=n2&limit=500" => json!({"items": [item("3"), item("2")]}),
            _ => return None,
        };
        (request.path == "/admin/v1/operations").then(|| answer(200, &page))
    });
    let newest = stub.json(&["operations", "--failed", "--limit", "2"]);
    let ids: Vec<_> =
        newest["items"].as_array().unwrap().iter().map(|item| &item["instance_id"]).collect();
    assert_eq!(ids, ["3", "2"]);
}

#[test]
fn operations_of_an_unknown_instance_are_not_found() {
    let stub = Stub::new(|request| {
        let unknown = json!({"error": "NotFound", "description": "no instance i"});
        (request.path == "/admin/v1/operations").then(|| answer(404, &unknown))
    });
    let run = stub.run(&["operations", "i"]);
    assert_eq!(run.code, 6, "{run:?}");
    assert!(run.stderr.contains("list the operations of"), "{run:?}");
}

#[test]
fn logs_are_of_a_run_or_of_the_last_one() {
    let stub = Stub::at_once();
    assert_eq!(stub.run(&["logs", "r-1"]).stdout, "one\ntwo\n");
    assert_eq!(stub.json(&["logs", "r-1"]), json!({"run": "r-1", "log": "one\ntwo\n"}));
    assert_eq!(stub.run(&["logs", "--instance", "i"]).stdout, "one\ntwo\n");
    assert!(stub.requests().iter().any(|request| request.query == "run=provision-op-1"));
}

#[test]
fn logs_follow_until_the_operation_ends() {
    let read = AtomicUsize::new(0);
    let stub = Stub::new(move |request| match request.path.as_str() {
        "/admin/v1/record" => {
            let state = if read.load(Ordering::SeqCst) < 2 { "running" } else { "succeeded" };
            Some(answer(200, &record("i", None, "creating", &operation("provision", state))))
        }
        "/admin/v1/logs" => match read.fetch_add(1, Ordering::SeqCst) {
            0 => Some(answer(404, &json!({}))),
            1 => Some(answer(200, &json!({"run": "r", "log": "one\n"}))),
            _ => Some(answer(200, &json!({"run": "r", "log": "one\ntwo\n"}))),
        },
        _ => None,
    });
    let run = stub.run(&["logs", "--instance", "i", "--follow"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "one\ntwo\n"), "{run:?}");
}

#[test]
fn logs_are_followed_through_a_restart_and_not_waited_for_at_first() {
    let asked = AtomicUsize::new(0);
    let stub = Stub::new(move |request| {
        let asked = asked.fetch_add(1, Ordering::SeqCst);
        let state = if asked < 5 { "running" } else { "succeeded" };
        match request.path.as_str() {
            _ if [2, 4].contains(&asked) => Some(cut_short(b"{")),
            _ if asked == 5 => Some(answer(503, &json!({}))),
            "/admin/v1/record" => {
                Some(answer(200, &record("i", None, "creating", &operation("provision", state))))
            }
            "/admin/v1/logs" => Some(answer(200, &json!({"run": "r", "log": "one\n"}))),
            _ => None,
        }
    });
    let run = stub.run(&["logs", "--instance", "i", "--follow"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "one\n"), "{run:?}");
    let broken = Stub::new(|_| Some(cut_short(b"{")));
    let run = broken.run(&["logs", "--instance", "i", "--follow"]);
    assert_eq!((run.code, broken.requests().len()), (3, 1), "{run:?}");
}

#[test]
fn retry_waits_and_shows_what_became_of_it() {
    let stub = Stub::new(|request| {
        if request.path.ends_with("/last_operation") {
            return Some(answer(200, &json!({"state": "succeeded"})));
        }
        let busy = record("i", None, "creating", &operation("provision", "pending"));
        (request.path == "/admin/v1/retry").then(|| answer(200, &busy))
    });
    let result = stub.json(&["retry", "i"]);
    assert_eq!(result["state"], "ready");
    assert_eq!(stub.request("POST /admin/v1/retry").body, json!({"instance_id": "i"}));
    assert_eq!(stub.json(&["retry", "i", "--no-wait"])["operation"]["state"], "pending");
}

#[test]
fn purge_wants_to_be_confirmed() {
    let stub = Stub::at_once();
    let run = stub.run(&["purge", "i", "b"]);
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("--yes"), "{run:?}");
    assert!(stub.requests().is_empty());
    let expected = json!({"instance_id": "i", "binding_id": "b", "purged": true});
    assert_eq!(stub.json(&["purge", "i", "b", "--yes"]), expected);
    let target = json!({"instance_id": "i", "binding_id": "b"});
    assert_eq!(stub.request("POST /admin/v1/purge").body, target);
}

#[test]
fn a_backup_is_private_and_overwrites_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("backup");
    let to = path.to_str().unwrap();
    let stub = Stub::at_once();
    let sent = crate::stub::backup();
    let expected = json!({"file": to, "bytes": sent.len(), "records": 0});
    assert_eq!(stub.json(&["backup", "--to", to]), expected);
    assert!(std::fs::read(&path).unwrap() == sent);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(stub.run(&["backup", "--to", to]).code, 2);
}

#[test]
fn a_backup_may_have_a_name_that_is_no_text() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join(OsStr::from_bytes(b"back\xffup"));
    let stub = Stub::at_once();
    let mut command = stub.command(&["backup", "-o", "json", "--to"]);
    let run = Run::from(command.arg(&to).output().unwrap());
    assert_eq!(run.code, 0, "{run:?}");
    let said: Value = serde_json::from_str(&run.stdout).unwrap();
    assert!(said["file"].as_str().unwrap().ends_with("back\u{fffd}up"), "{said}");
    assert!(to.exists());
}

#[test]
fn a_server_that_takes_long_to_copy_may_be_given_more_time() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("backup");
    let stub = Stub::new(|_| {
        std::thread::sleep(std::time::Duration::from_secs(3));
        None
    });
    let run = stub.run(&["backup", "--to", to.to_str().unwrap(), "--timeout", "1s"]);
    assert_eq!(run.code, 3, "{run:?}");
    assert!(run.stderr.contains("hint: a large store takes longer: --timeout"), "{run:?}");
}

#[test]
fn half_a_backup_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("backup");
    let stub = Stub::new(|_| Some(cut_short(b"sea")));
    assert_eq!(stub.run(&["backup", "--to", to.to_str().unwrap()]).code, 3);
    let refused = Stub::new(|_| Some(answer(401, &json!({}))));
    assert_eq!(refused.run(&["backup", "--to", to.to_str().unwrap()]).code, 7);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn what_could_not_be_restored_is_not_saved() {
    let whole = crate::stub::backup();
    let cut = whole[..whole.len() / 2].to_vec();
    let mut damaged = whole.clone();
    damaged[4096..].fill(0xff);
    for (sent, why) in [
        (b"<html>".to_vec(), "it is not a database"),
        (Vec::new(), "it is empty"),
        (cut, "it was cut short"),
        (damaged, "it is damaged"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("backup");
        let stub = Stub::new(move |_| Some(crate::stub::raw(200, &sent)));
        let run = stub.run(&["backup", "--to", to.to_str().unwrap()]);
        assert_eq!(run.code, 5, "{run:?}");
        assert!(run.stderr.contains(why), "{run:?}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{why}");
    }
}

#[test]
fn a_backup_may_be_larger_than_other_answers() {
    let size = osb::client::MAX_RESPONSE_BYTES + 1;
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("backup");
    // What follows the last page is none of the database's business.
    let mut sent = crate::stub::backup();
    sent.resize(size, 0);
    let stub = Stub::new(move |_| Some(crate::stub::raw(200, &sent)));
    let result: Value = stub.json(&["backup", "--to", to.to_str().unwrap()]);
    assert_eq!(result["bytes"], size);
}
