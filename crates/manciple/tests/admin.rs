//! The routes beside the Open Service Broker API's: what they refuse, and how they say so.

mod support;

use serde_json::Value;
use support::{Served, Site, http, order, within};

const BROKER: &str = r#"#!/bin/sh
[ "$1" = catalog ] || { echo '{}'; exit; }
echo '{"services":[{"id":"s","name":"db","description":"d","bindable":true,
    "plans":[{"id":"p","name":"small","description":"d"}]}]}'
"#;

fn serve() -> (Site, Served) {
    let site = Site::new(BROKER);
    let server = site.serve();
    order::ready(&server);
    (site, server)
}

fn send(server: &Served, method: &str, path: &str, body: &str) -> http::Answer {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    http::raw(&server.address, request.as_bytes()).expect("an answer")
}

#[track_caller]
fn refused(name: &str, answer: &http::Answer, status: u16, word: &str, words: &str) {
    assert_eq!(answer.status, status, "{name}: {answer:?}");
    assert_eq!(answer.body["error"], word, "{name}: {answer:?}");
    let description = answer.body["description"].as_str().unwrap_or_default();
    assert!(description.contains(words), "{name}: {answer:?}");
    for rust in ["struct", "Failed to", "the target type", "elements"] {
        assert!(!description.contains(rust), "{name}: {description}");
    }
}

#[test]
fn a_method_that_a_route_does_not_have_is_405_naming_those_it_has() {
    let (_site, server) = serve();
    for (method, path, allowed) in [
        ("POST", "/healthz", "GET"),
        ("DELETE", "/readyz", "GET"),
        ("PUT", "/metrics", "GET"),
        ("DELETE", "/admin/v1/instances", "GET"),
        ("POST", "/admin/v1/record", "GET"),
        ("PATCH", "/admin/v1/backup", "GET"),
        ("GET", "/admin/v1/retry", "POST"),
        ("GET", "/admin/v1/purge", "POST"),
        ("GET", "/admin/v1/catalog/refresh", "POST"),
    ] {
        let name = format!("{method} {path}");
        let answer = send(&server, method, path, "");
        refused(&name, &answer, 405, "MethodNotAllowed", "no such method");
        let allow: Vec<_> =
            answer.head.lines().filter_map(|line| line.strip_prefix("allow: ")).collect();
        assert!(matches!(allow[..], [allow] if allow.contains(allowed)), "{name}: {answer:?}");
    }
}

#[test]
fn who_is_not_known_is_401_with_a_body_and_a_challenge() {
    let mut site = Site::new(BROKER);
    site.write("password", "hunter2");
    site.settings = "auth: {users: [{name: u, password_file: password}]}\n".to_owned();
    let server = site.serve();
    order::ready(&server);
    for path in ["/metrics", "/admin/v1/instances", "/v2/catalog"] {
        let answer = http::get(&server.address, path).unwrap();
        refused(path, &answer, 401, "Unauthorized", "Authorization");
        let head = answer.head.to_lowercase();
        assert!(head.contains("www-authenticate: basic"), "{path}: {answer:?}");
        assert!(head.contains("content-type: application/json"), "{path}: {answer:?}");
    }
}

#[test]
fn a_query_that_cannot_be_read_is_400_naming_the_parameter() {
    let (_site, server) = serve();
    for (path, words) in [
        ("record?instance_id=%ff", "instance_id: must be UTF-8"),
        ("record?instance_id=i&binding_id=%ff", "binding_id: must be UTF-8"),
        ("record", "instance_id: must be in the query"),
        ("record?instance_id=", "instance_id: "),
        ("record?instance_id=a&instance_id=b", "instance_id: must not be in the query more"),
        ("instances?instance=%zz", "instance: must have two hexadecimal digits"),
        ("bindings?instance=%zz", "instance: must have two hexadecimal digits"),
        ("operations?instance=%ff", "instance: must be UTF-8"),
        ("instances?limit=many", "limit: must be a whole number"),
        ("instances?limit=-1", "limit: must be a whole number"),
        ("instances?state=%zz", "state: must have two hexadecimal digits"),
        ("instances?state=odd", "state: must be live, all, busy or deleted"),
        ("instances?after=%zz", "after: must have two hexadecimal digits"),
        ("logs", "run: must be in the query"),
        ("logs?run=%ff", "run: must be UTF-8"),
    ] {
        let answer = send(&server, "GET", &format!("/admin/v1/{path}"), "");
        refused(path, &answer, 400, "BadRequest", words);
    }
}

#[test]
fn a_body_that_cannot_be_meant_is_refused_naming_the_member() {
    let (_site, server) = serve();
    for (body, words) in [
        ("", "body: must be JSON"),
        ("{", "body: must be JSON"),
        ("[]", "expected a JSON object"),
        (r#"["i", "b"]"#, "expected a JSON object"),
        ("1", "expected a JSON object"),
        ("{}", "instance_id: must be in the body"),
        (r#"{"instance_id": 1}"#, "instance_id: must be a string"),
        (r#"{"instance_id": ""}"#, "instance_id: "),
        (r#"{"instance_id": "i", "binding_id": ["b"]}"#, "binding_id: must be a string"),
        (r#"{"instance_id": "i", "instance_id": "j"}"#, "instance_id must not be there more"),
    ] {
        for route in ["retry", "purge"] {
            let answer = send(&server, "POST", &format!("/admin/v1/{route}"), body);
            refused(&format!("{route} {body}"), &answer, 400, "BadRequest", words);
        }
    }
    let body = format!(r#"{{"instance_id": "i", "x": "{}"}}"#, "x".repeat(64 * 1024));
    for route in ["retry", "purge"] {
        // Forms of other sites can be sent by a browser, but not as JSON.
        let form = format!(
            "POST /admin/v1/{route} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             Content-Type: text/plain\r\nContent-Length: 19\r\n\r\n{{\"instance_id\":\"i\"}}"
        );
        let answer = http::raw(&server.address, form.as_bytes()).unwrap();
        refused(route, &answer, 400, "BadRequest", "Content-Type: must be application/json");
        let answer = send(&server, "POST", &format!("/admin/v1/{route}"), &body);
        refused(route, &answer, 413, "PayloadTooLarge", "at most 65536 bytes");
    }
}

#[test]
fn a_catalog_that_the_broker_cannot_give_is_the_brokers_failure_and_the_one_before_stays() {
    let (site, server) = serve();
    for (broker, why) in [
        ("#!/bin/sh\necho 'no catalog today' >&2; exit 1\n", "could not be read"),
        ("#!/bin/sh\necho '{\"services\": [{}]}'\n", "fault"),
    ] {
        site.script(broker);
        let refresh = ["catalog", "--refresh"];
        let run = site.client(&server.url(), &refresh).output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(5), "{said}");
        assert!(said.contains(why) && said.contains("from before stays in force"), "{said}");
        let run = site.client(&server.url(), &["catalog", "--quiet"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&run.stdout), "db\n", "{run:?}");
    }
}

#[test]
fn whatever_was_asked_is_logged_with_the_identity_that_the_platform_gave_it() {
    let mut site = Site::new(BROKER);
    site.settings = "auth: {disabled: true}\nlog: {format: json, level: debug}\n".to_owned();
    let server = site.serve();
    order::ready(&server);
    let line = |identity: &str| {
        let log = server.log();
        let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find(|line| line["request_identity"] == identity)
    };
    for (identity, path, status, message) in [
        ("r-17", "/v2/catalog", 200, "answered"),
        ("r-18", "/v2/service_instances/nobody/last_operation", 404, "refused"),
    ] {
        let header = format!("X-Broker-API-Request-Identity: {identity}\r\n");
        let answer = http::send_with(&server.address, "GET", path, None, &header).unwrap();
        assert_eq!(answer.status, status, "{answer:?}");
        let line = within(10, || line(identity));
        let line = line.unwrap_or_else(|| panic!("{identity} is not logged:\n{}", server.log()));
        assert_eq!(
            (&line["message"], &line["status"]),
            (&message.into(), &status.into()),
            "{line}"
        );
        assert_eq!(line["method"], "GET", "{line}");
    }
}
