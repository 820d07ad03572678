//! What Prometheus reads from a server on one machine: what was ordered is counted, by how it ended.

mod support;

use serde_json::Value;
use support::{Served, Site, http, order, within};

/// `wait` waits for the file `go`, `bad` fails.
const BROKER: &str = r#"#!/bin/sh
here=${0%/*}
case $1:$5 in
catalog:*)
    echo '{"services":[{"id":"s","name":"db","description":"d","bindable":true,"plans":[
        {"id":"p","name":"small","description":"d"},{"id":"bad","name":"broken","description":"d"},
        {"id":"wait","name":"slow","description":"d"}]}]}' ;;
*:wait)
    until [ -e "$here/go" ] || [ ! -d "$here" ]; do sleep 0.05; done
    echo '{}' ;;
*:bad) exit 1 ;;
*) echo '{}' ;;
esac
"#;

/// The metrics, as they are exposed.
fn metrics(server: &Served) -> String {
    let answer = http::get(&server.address, "/metrics").unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    let kind = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert!(answer.head.to_lowercase().lines().any(|line| line == kind), "{answer:?}");
    let Value::String(text) = answer.body else { panic!("no text: {answer:?}") };
    assert!(text.ends_with("# EOF\n"), "{text}");
    text
}

/// An operation is counted when its end is recorded, which may be after it was told.
#[track_caller]
fn has(server: &Served, expected: &str) {
    let has = || metrics(server).lines().any(|line| line == expected).then_some(());
    assert!(within(10, has).is_some(), "{expected} is not in\n{}", metrics(server));
}

#[test]
fn operations_are_counted_by_how_they_ended_and_requests_by_how_they_were_answered() {
    let site = Site::new(BROKER);
    let server = site.serve();
    order::ready(&server);
    let before = metrics(&server);
    for counted in ["manciple_operations_total{", "method=\"PUT\""] {
        assert!(!before.contains(counted), "nothing was ordered yet:\n{before}");
    }

    assert_eq!(order::provision(&server, "i", &order::body("wait")).status, 202);
    has(&server, "manciple_operations_in_progress 1");
    has(&server, "manciple_leading 1");
    site.write("go", "");
    assert_eq!(order::settled(&server, "i")["state"], "succeeded");
    has(
        &server,
        r#"manciple_operations_total{action="provision",outcome="succeeded",broker=""} 1"#,
    );
    has(&server, r#"manciple_operation_seconds_count{action="provision"} 1"#);
    has(&server, "manciple_operations_in_progress 0");

    assert_eq!(order::provisioned(&server, "j", &order::body("bad"))["state"], "failed");
    assert_eq!(order::provision(&server, "k", &order::body("none")).status, 400);
    for expected in [
        r#"manciple_operations_total{action="provision",outcome="exit-status",broker=""} 1"#,
        r#"manciple_operations_total{action="provision",outcome="succeeded",broker=""} 1"#,
        r#"manciple_operation_seconds_count{action="provision"} 2"#,
        r#"manciple_http_requests_total{method="PUT",route="/v2/service_instances/{instance_id}",status="202"} 2"#,
        r#"manciple_http_requests_total{method="PUT",route="/v2/service_instances/{instance_id}",status="400"} 1"#,
        r#"manciple_http_request_seconds_count{route="/v2/service_instances/{instance_id}"} 3"#,
    ] {
        has(&server, expected);
    }
}
