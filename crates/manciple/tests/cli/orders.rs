use serde_json::{Value, json};

use crate::stub::{Stub, answer};

const DONE: &str = r#"{"state": "succeeded"}"#;

fn steps(states: &[&str]) -> Stub {
    let states: Vec<Value> = states.iter().map(|s| serde_json::from_str(s).unwrap()).collect();
    Stub::polled(&states)
}

#[test]
fn provision_takes_names_and_sends_ids() {
    let stub = Stub::at_once();
    let result = stub.json(&["provision", "db", "small", "i", "--parameters", r#"{"size": 2}"#]);
    assert_eq!(
        result,
        json!({
            "action": "provision", "instance_id": "i", "service_id": "service-id",
            "plan_id": "small-id", "state": "succeeded", "dashboard_url": "https://dash",
        })
    );
    let sent = stub.request("PUT /v2/service_instances/i");
    assert_eq!(sent.query, "accepts_incomplete=true");
    assert_eq!(
        sent.body,
        json!({
            "service_id": "service-id", "plan_id": "small-id", "organization_guid": "default",
            "space_guid": "default", "parameters": {"size": 2},
            "maintenance_info": {"version": "1.2.3"},
        })
    );
}

#[test]
fn provision_makes_an_id_up() {
    let run = Stub::at_once().run(&["provision", "db", "small", "--quiet"]);
    assert_eq!((run.code, run.stdout.trim().len()), (0, 36), "{run:?}");
    assert_eq!(run.stderr, "");
}

#[test]
fn provision_waits_and_shows_how_far_it_is() {
    let progress = r#"{"state": "in progress", "description": "making disks"}"#;
    let stub = steps(&[progress, progress, DONE]);
    let run = stub.run(&["provision", "db", "small", "i"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("provision succeeded"), "{run:?}");
    assert_eq!(run.stderr.matches("making disks").count(), 1, "once: {run:?}");
    let poll = stub.request("GET /v2/service_instances/i/last_operation");
    assert_eq!(poll.query, "service_id=service-id&plan_id=small-id&operation=op-1");
}

/// `script` is a terminal, as a person has one.
#[test]
fn a_person_watches_how_far_it_is() {
    let progress = r#"{"state": "in progress", "description": "making disks"}"#;
    let stub = steps(&[progress, progress, DONE]);
    let command = stub.command(&["provision", "db", "small", "i"]);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line = words.map(|word| format!("'{}'", word.to_string_lossy())).collect::<Vec<_>>();
    let mut terminal = std::process::Command::new("script");
    terminal.args(["-qec", &line.join(" "), "/dev/null"]).env("TERM", "xterm");
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => terminal.env(name, value),
            None => terminal.env_remove(name),
        };
    }
    let output = terminal.stdin(std::process::Stdio::null()).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}");
    assert!(shown.contains("making disks"), "{shown}");
    let drawn = ["| ", "/ ", "- ", "\\ "].iter().any(|tick| shown.contains(tick));
    let redrawn = shown.contains("\u{1b}[2K") || shown.contains('\r');
    assert!(drawn && redrawn, "no progress is drawn: {shown:?}");
    assert!(shown.contains("provision succeeded"), "{shown}");
}

#[test]
fn nobody_has_to_wait() {
    let stub = steps(&[DONE]);
    let result = stub.json(&["provision", "db", "small", "i", "--no-wait"]);
    assert_eq!(result["state"], "in progress");
    assert_eq!(result["operation"], "op-1");
    assert!(stub.requests().iter().all(|request| !request.path.ends_with("last_operation")));
}

#[test]
fn parameters_come_from_standard_input() {
    use std::io::Write as _;
    let stub = Stub::at_once();
    let mut command = stub.command(&["provision", "db", "small", "i", "--parameters", "-"]);
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(br#"{"size": 3}"#).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(stub.request("PUT /v2/service_instances/i").body["parameters"]["size"], 3);
}

#[test]
fn update_names_the_old_plan_and_the_new() {
    let stub = Stub::at_once();
    let result = stub.json(&["update", "i", "--plan", "large", "--maintenance-version", "2.0.0"]);
    assert_eq!(result["plan_id"], "large-id");
    assert_eq!(
        stub.request("PATCH /v2/service_instances/i").body,
        json!({
            "service_id": "service-id", "plan_id": "large-id",
            "previous_values": {"plan_id": "small-id"}, "maintenance_info": {"version": "2.0.0"},
        })
    );
}

#[test]
fn bind_prints_credentials() {
    let stub = Stub::at_once();
    let result = stub.json(&["bind", "i", "b", "--app", "a"]);
    assert_eq!(result["credentials"]["password"], "made-secret");
    assert_eq!(result["binding_id"], "b");
    let sent = stub.request("PUT /v2/service_instances/i/service_bindings/b");
    assert_eq!(sent.body["bind_resource"], json!({"app_guid": "a"}));
    let run = stub.run(&["bind", "i", "b"]);
    assert!(run.stdout.contains("password    made-secret"), "{run:?}");
}

#[test]
fn a_binding_that_is_made_later_is_fetched() {
    let stub = steps(&[DONE]);
    let result = stub.json(&["bind", "i", "b"]);
    assert_eq!(result["credentials"]["user"], "u");
    stub.request("GET /v2/service_instances/i/service_bindings/b");
}

#[test]
fn rotate_names_the_predecessor_only() {
    let stub = Stub::at_once();
    let run = stub.run(&["rotate", "i", "old", "new"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stderr.contains("manciple unbind i old"), "{run:?}");
    let sent = stub.request("PUT /v2/service_instances/i/service_bindings/new");
    assert_eq!(sent.body, json!({"predecessor_binding_id": "old"}));
}

#[test]
fn removals_find_the_service_and_plan() {
    let stub = Stub::at_once();
    assert_eq!(stub.json(&["unbind", "i", "b"])["action"], "unbind");
    assert_eq!(stub.json(&["deprovision", "i"])["state"], "succeeded");
    for line in
        ["DELETE /v2/service_instances/i/service_bindings/b", "DELETE /v2/service_instances/i"]
    {
        let query = "service_id=service-id&plan_id=small-id&accepts_incomplete=true";
        assert_eq!(stub.request(line).query, query);
    }
}

/// A broker without the operator's API.
fn foreign(retrievable: bool) -> Stub {
    Stub::new(move |request| {
        let absent = answer(404, &json!({}));
        if request.path.starts_with("/admin") {
            return Some(absent);
        }
        let view = json!({"service_id": "service-id", "plan_id": "large-id"});
        (request.line() == "GET /v2/service_instances/i")
            .then(|| if retrievable { answer(200, &view) } else { absent })
    })
}

#[test]
fn another_broker_tells_of_an_instance_by_get() {
    let stub = foreign(true);
    stub.json(&["deprovision", "i"]);
    assert!(stub.request("DELETE /v2/service_instances/i").query.contains("plan_id=large-id"));
}

#[test]
fn another_broker_that_cannot_tell_is_told() {
    let stub = foreign(false);
    let run = stub.run(&["deprovision", "i"]);
    assert_eq!(run.code, 6, "{run:?}");
    assert!(run.stderr.contains("--of-service"), "{run:?}");
    stub.json(&["deprovision", "i", "--of-service", "db", "--of-plan", "small"]);
    assert!(stub.request("DELETE /v2/service_instances/i").query.contains("plan_id=small-id"));
}

#[test]
fn what_is_removed_stays_removed() {
    let gone = answer(410, &json!({}));
    let removed = Stub::new(move |request| {
        let poll = request.path.ends_with("/last_operation");
        let delete = request.method == "DELETE";
        (poll.then(|| gone.clone())).or_else(|| delete.then(|| answer(202, &json!({}))))
    });
    assert_eq!(removed.json(&["deprovision", "i"])["state"], "succeeded");
}
