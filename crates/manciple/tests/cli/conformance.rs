//! A broker that does all at once and refuses nothing, held to the specification.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::stub::{Stub, answer};

#[test]
fn what_a_broker_does_otherwise_is_named_and_only_reading_is_asked_unless_more_is_allowed() {
    let stub = Stub::at_once();
    let run = stub.run(&["conformance"]);
    assert_eq!(run.code, 5, "{run:?}");
    assert!(run.stdout.contains("FAIL") && run.stdout.contains(" passed, "), "{run:?}");
    for part in ["the broker does not conform: ", "--allow-mutation makes instances"] {
        assert!(run.stderr.contains(part), "{part}: {run:?}");
    }
    let writes = ["PUT", "PATCH", "DELETE"];
    let wrote = |stub: &Stub| {
        stub.requests().iter().any(|request| writes.contains(&request.method.as_str()))
    };
    assert!(!wrote(&stub), "{:#?}", stub.requests());

    let run = stub.run(&["conformance", "db", "small", "--allow-mutation", "-o", "json"]);
    assert_eq!(run.code, 5, "{run:?}");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["conforms"], false);
    let checks = report["checks"].as_array().unwrap();
    let failed: Vec<&str> = checks
        .iter()
        .filter(|check| check["verdict"] == "fail" && check["level"] == "must")
        .map(|check| check["id"].as_str().unwrap())
        .collect();
    assert!(!failed.is_empty() && checks.iter().any(|check| check["verdict"] == "pass"));
    assert!(wrote(&stub));

    let run = stub.run(&["conformance", "db", "small", "--allow-mutation", "--quiet"]);
    let named: Vec<&str> = run.stdout.lines().collect();
    assert!(failed.iter().all(|id| named.contains(id)), "{failed:?}: {run:?}");
}

/// The ids of the instances of requests with this method.
fn instances(stub: &Stub, method: &str) -> BTreeSet<String> {
    let requests = stub.requests();
    let of_method = requests.iter().filter(|request| request.method == method);
    let id = |path: &str| path.strip_prefix("/v2/service_instances/").map(str::to_owned);
    of_method.filter_map(|request| id(&request.path)).filter(|id| !id.contains('/')).collect()
}

#[test]
fn an_interrupt_has_it_remove_what_it_made() {
    let stub = Stub::new(|request| {
        let is_asked = request.path.ends_with("/last_operation");
        let is_order = request.method == "PUT" && request.path.starts_with("/v2/service_instances");
        match (is_asked, is_order) {
            (true, _) => Some(answer(200, &json!({"state": "in progress"}))),
            (false, true) => Some(answer(202, &json!({}))),
            (false, false) => None,
        }
    });
    let child = stub.command(&["conformance", "--allow-mutation"]).spawn().unwrap();
    while instances(&stub, "PUT").is_empty() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(8), "{output:?}");
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert!(stdout.contains(" skipped"), "how far it came: {stdout}");
    assert!(stderr.contains("could not be checked to the end: it was stopped"), "{stderr}");
    let (made, removed) = (instances(&stub, "PUT"), instances(&stub, "DELETE"));
    assert!(!made.is_empty() && made.is_subset(&removed), "{made:?}: {removed:?}");
}

/// The first operation is never over; or from then on nobody answers in time.
#[test]
fn it_waits_for_an_operation_as_long_as_any_command_does() {
    for (answers, code, words) in [
        (true, 5, "did not end within 2s"),
        (false, 3, "could not be checked to the end: no answer for "),
    ] {
        let stub = Stub::new(move |request| {
            if request.path.ends_with("/last_operation") {
                if !answers {
                    std::thread::sleep(Duration::from_secs(20));
                }
                return Some(answer(200, &json!({"state": "in progress"})));
            }
            let is_order =
                request.method == "PUT" && request.path.starts_with("/v2/service_instances");
            is_order.then(|| answer(202, &json!({})))
        });
        let command = ["conformance", "db", "small", "--allow-mutation", "--timeout", "2s"];
        let run = stub.run(&command);
        assert_eq!(run.code, code, "{run:?}");
        assert!(run.stderr.contains(words) || run.stdout.contains(words), "{words}: {run:?}");
    }
}

#[test]
fn what_cannot_be_removed_is_named() {
    let stub = Stub::new(|request| {
        let is_instance = request.path.matches('/').count() == 3;
        let refuses = request.method == "DELETE" && is_instance;
        refuses.then(|| answer(422, &json!({"description": "it is dear to me"})))
    });
    let run = stub.run(&["conformance", "db", "small", "--allow-mutation", "--quiet"]);
    assert_eq!(run.code, 5, "{run:?}");
    assert!(run.stderr.contains("; left at it: conformance-"), "{run:?}");
    assert!(run.stderr.contains("it is dear to me"), "{run:?}");
}

#[test]
fn a_broker_that_cannot_be_asked_ends_it_as_it_ends_any_command() {
    let locked = Stub::new(|_| Some(answer(401, &json!({}))));
    assert_eq!(locked.run(&["conformance"]).code, 7);
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{nobody}");
    assert_eq!(locked.run(&["conformance", "--url", &url]).code, 3);
    // That is the broker's fault.
    let other = Stub::new(|_| Some(answer(200, &json!({"services": 1}))));
    let run = other.run(&["conformance"]);
    assert!(run.stdout.contains("the suite could not go on"), "{run:?}");
    assert_eq!(run.code, 5, "{run:?}");
}

#[test]
fn a_report_that_cannot_be_printed_does_not_hide_what_failed() {
    let stub = Stub::at_once();
    let mut command = stub.command(&["conformance"]);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = command.stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{output:?}");
}

#[test]
fn what_cannot_be_checked_is_no_success() {
    let nobody = Stub::at_once();
    for (arguments, code, words) in [
        (vec!["conformance", "nothing"], 6, "the services are: db"),
        (vec!["conformance", "db", "nothing"], 6, "the plans are: large, small"),
        (vec!["conformance", "db", "--update-plan", "nothing"], 6, "the plans are: large, small"),
        (vec!["conformance", "--parameters", "[]"], 2, "--parameters must be a JSON object"),
        (vec!["conformance", "--level", "much"], 2, "must, should, recommended"),
    ] {
        let run = nobody.run(&arguments);
        assert_eq!(run.code, code, "{arguments:?}: {run:?}");
        assert!(run.stderr.contains(words), "{words}: {run:?}");
    }
}
