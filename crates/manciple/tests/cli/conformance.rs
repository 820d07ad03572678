//! A broker that does all at once and refuses nothing, held to the specification.

use serde_json::Value;

use crate::stub::Stub;

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

#[test]
fn what_cannot_be_checked_is_no_success() {
    let nobody = Stub::at_once();
    for (arguments, code, words) in [
        (vec!["conformance", "nothing"], 5, "could not be checked to the end"),
        (vec!["conformance", "--parameters", "[]"], 2, "--parameters must be a JSON object"),
        (vec!["conformance", "--level", "much"], 2, "must, should, recommended"),
    ] {
        let run = nobody.run(&arguments);
        assert_eq!(run.code, code, "{arguments:?}: {run:?}");
        assert!(run.stderr.contains(words), "{words}: {run:?}");
    }
}
