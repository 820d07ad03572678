//! A service's whole life as a script lives it: the real command line, `-o json`, against a real server
//! with a broker that fails until it is repaired. Exit codes and members are what scripts depend on.

mod support;

use serde_json::{Value, json};
use support::{Served, Site, order};

const SECRET: &str = "planted-broker-secret";

/// Cannot provision without the file `repaired`, nor deprovision with the file `jammed`; has new
/// credentials for each binding, and tells its secret on stderr.
const BROKER: &str = r#"#!/bin/sh
here=${0%/*}
case $1 in
catalog)
    echo '{"jobs":{"version":2,"capabilities":["request-file","update","structured-errors"]},
        "services":[{"id":"s","name":"db","description":"A database","bindable":true,
        "plan_updateable":true,"plans":[
        {"id":"p","name":"small","description":"d","binding_rotatable":true},
        {"id":"q","name":"large","description":"d","binding_rotatable":true}]}]}' ;;
provision)
    echo "connecting as admin with $DB_PASSWORD" >&2
    [ -e "$here/repaired" ] || { echo '{"description":"no disk left"}'; exit 1; }
    echo '{"dashboard_url":"https://dashboard.example/"}' ;;
bind) echo "{\"credentials\":{\"password\":\"$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')\"}}" ;;
deprovision) [ ! -e "$here/jammed" ] || { echo '{"description":"it is in use"}'; exit 1; }
    echo '{}' ;;
*) echo '{}' ;;
esac
"#;

/// A server as it is when nothing is configured but its broker, and the script of its operator.
struct Desk {
    site: Site,
    server: Served,
    password: String,
}

impl Desk {
    fn new() -> Self {
        Self::of(BROKER)
    }

    fn of(broker: &str) -> Self {
        let mut site = Site::new(broker);
        site.settings = "broker: {secret_dir: secret}\n".to_owned();
        site.write("secret/db.password", SECRET);
        let server = site.serve();
        order::ready(&server);
        let password = site.read("data/admin.password").trim_end().to_owned();
        Self { site, server, password }
    }

    /// A server whose broker works, with an instance.
    fn with_an_instance(id: &str) -> Self {
        let desk = Self::new();
        desk.site.write("repaired", "");
        desk.done(&["provision", "db", "small", id]);
        desk
    }

    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = self.site.client(&self.server.url(), arguments);
        command.args(["-o", "json"]).env("MANCIPLE_USER", "admin");
        let run = command.env("MANCIPLE_PASSWORD", &self.password).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (run.status.code(), text(run.stdout), text(run.stderr))
    }

    /// What a command prints that does what it is told.
    #[track_caller]
    fn done(&self, arguments: &[&str]) -> Value {
        let (code, stdout, stderr) = self.run(arguments);
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{arguments:?}: {stdout}");
        serde_json::from_str(&stdout)
            .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {stdout}"))
    }

    /// Why a command does not do what it is told: its `error`.
    #[track_caller]
    fn fails(&self, arguments: &[&str], code: i32, kind: &str) -> Value {
        let (ended, stdout, stderr) = self.run(arguments);
        assert_eq!((ended, stdout.as_str()), (Some(code), ""), "{arguments:?}: {stderr}");
        let said: Value = serde_json::from_str(&stderr)
            .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {stderr}"));
        let error = &said["error"];
        assert_eq!((&error["kind"], &error["exit_code"]), (&kind.into(), &code.into()), "{said}");
        error.clone()
    }
}

/// Compares the members that are named, and no others.
#[track_caller]
fn has(found: &Value, expected: &Value) {
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&found[name], value, "{name} of {found}");
    }
}

/// One member of each item of a list.
#[track_caller]
fn each<'v>(list: &'v Value, member: &str) -> Vec<&'v str> {
    let items = list["items"].as_array().unwrap_or_else(|| panic!("no items: {list}"));
    items.iter().map(|item| item[member].as_str().unwrap()).collect()
}

#[test]
fn a_broker_is_held_to_the_specification_and_nothing_of_that_stays() {
    // The specification wants a dashboard's address at once, which a run cannot know.
    let desk = Desk::of(&BROKER.replace(r#"{"dashboard_url":"https://dashboard.example/"}"#, "{}"));
    desk.site.write("repaired", "");
    let tried = ["conformance", "db", "small", "--allow-mutation", "--level", "recommended"];
    let report = desk.done(&tried);
    assert_eq!((&report["conforms"], &report["blocked"]), (&json!(true), &json!(null)));
    assert_eq!(report["leftovers"], json!([]));
    let checks = report["checks"].as_array().unwrap();
    let passed = checks.iter().filter(|check| check["verdict"] == "pass").count();
    assert!(passed > checks.len() / 2, "{passed} of {}", checks.len());
    assert_eq!(desk.done(&["instances"])["items"], json!([]));
}

#[test]
fn an_order_that_failed_says_why_and_is_retried_once_the_broker_is_repaired() {
    let desk = Desk::new();
    let catalog = desk.done(&["catalog"]);
    has(&catalog["services"][0], &json!({"id": "s", "name": "db", "description": "A database"}));
    has(&catalog["services"][0]["plans"][1], &json!({"id": "q", "name": "large"}));

    let error = desk.fails(&["provision", "db", "small", "i"], 1, "operation-failed");
    assert_eq!(error["description"], "no disk left", "{error}");
    assert!(error["hint"].as_str().unwrap().contains("manciple retry i"), "{error}");

    let status = desk.done(&["status", "i"]);
    has(
        &status,
        &json!({"instance_id": "i", "state": "broken", "service_id": "s", "plan_id": "p"}),
    );
    let failed = json!({"action": "provision", "state": "failed", "description": "no disk left"});
    has(&status["operation"], &failed);
    let next: Vec<_> = status["next"].as_array().unwrap().iter().map(|it| &it["command"]).collect();
    assert_eq!(next, ["manciple logs --instance i", "manciple retry i", "manciple deprovision i"]);

    let operations = desk.done(&["operations", "--failed"]);
    assert_eq!(each(&operations, "instance_id"), ["i"]);
    has(&operations["items"][0], &failed);
    let run = status["operation"]["run"].as_str().unwrap();
    assert_eq!(each(&operations, "run"), [run]);
    let log = json!({"run": run, "log": "connecting as admin with [redacted]\n"});
    assert_eq!(desk.done(&["logs", run]), log);
    assert_eq!(desk.done(&["logs", "--instance", "i"]), log);

    desk.fails(&["retry", "i"], 1, "operation-failed");
    desk.site.write("repaired", "");
    let retried = desk.done(&["retry", "i"]);
    has(&retried, &json!({"instance_id": "i", "state": "ready"}));
    has(&retried["operation"], &json!({"action": "provision", "state": "succeeded"}));
    assert_eq!(retried["next"][0]["command"], "manciple bind i", "{retried}");
    assert_eq!(each(&desk.done(&["operations", "i"]), "state"), ["succeeded", "failed", "failed"]);
}

#[test]
fn an_instance_is_changed_bound_rotated_and_removed() {
    let desk = Desk::with_an_instance("i");
    let order = |action: &str, plan: &str| {
        json!({"action": action, "instance_id": "i", "service_id": "s", "plan_id": plan,
            "state": "succeeded"})
    };
    has(&desk.done(&["update", "i", "--plan", "large"]), &order("update", "q"));
    assert_eq!(desk.done(&["status", "i"])["plan_id"], "q");

    let bound = desk.done(&["bind", "i", "b"]);
    has(&bound, &order("bind", "q"));
    assert_eq!(bound["binding_id"], "b", "{bound}");
    let rotated = desk.done(&["rotate", "i", "b", "c"]);
    has(&rotated, &json!({"action": "bind", "binding_id": "c", "state": "succeeded"}));
    let password = |order: &Value| order["credentials"]["password"].as_str().unwrap().to_owned();
    assert_ne!(password(&rotated), password(&bound), "new credentials");
    let bindings = desk.done(&["bindings", "i"]);
    assert_eq!(each(&bindings, "binding_id"), ["b", "c"]);
    assert_eq!(each(&bindings, "state"), ["ready", "ready"]);
    has(&desk.done(&["status", "i", "c"]), &json!({"binding_id": "c", "state": "ready"}));

    desk.fails(&["deprovision", "i"], 4, "refused");
    for binding in ["b", "c"] {
        let removed = desk.done(&["unbind", "i", binding]);
        has(&removed, &order("unbind", "q"));
        assert_eq!(removed["binding_id"], binding, "{removed}");
    }
    assert_eq!(desk.done(&["bindings", "i"]), json!({"items": []}));
    assert_eq!(each(&desk.done(&["instances"]), "instance_id"), ["i"]);
    has(&desk.done(&["deprovision", "i"]), &order("deprovision", "q"));
    assert_eq!(desk.done(&["instances"]), json!({"items": []}));
    let gone = desk.done(&["instances", "--state", "deleted"]);
    assert_eq!((each(&gone, "instance_id"), each(&gone, "state")), (vec!["i"], vec!["deleted"]));
    desk.fails(&["bind", "i"], 6, "not-found");
}

#[test]
fn what_cannot_be_removed_is_purged_when_that_is_confirmed() {
    let desk = Desk::with_an_instance("stuck");
    desk.site.write("jammed", "");
    let error = desk.fails(&["deprovision", "stuck"], 1, "operation-failed");
    assert_eq!(error["description"], "it is in use", "{error}");
    let status = desk.done(&["status", "stuck"]);
    let failed = json!({"action": "deprovision", "state": "failed", "description": "it is in use"});
    has(&status["operation"], &failed);
    assert_eq!(status["next"][2]["command"], "manciple purge stuck", "{status}");

    let unconfirmed = desk.fails(&["purge", "stuck"], 2, "usage");
    assert_eq!(unconfirmed["hint"], "add --yes", "{unconfirmed}");
    assert_eq!(each(&desk.done(&["instances"]), "instance_id"), ["stuck"]);
    let purged = json!({"instance_id": "stuck", "binding_id": null, "purged": true});
    assert_eq!(desk.done(&["purge", "stuck", "--yes"]), purged);
    assert_eq!(desk.done(&["instances"]), json!({"items": []}));
    let left = desk.done(&["status", "stuck"]);
    assert_eq!((&left["state"], &left["next"]), (&"deleted".into(), &json!([])), "{left}");
    let how = left["operation"]["progress"].as_str().unwrap();
    assert!(how.contains("the broker was not asked"), "{left}");
}

#[test]
fn a_backup_is_saved_and_restored() {
    let desk = Desk::with_an_instance("i");
    desk.done(&["bind", "i", "b"]);
    let saved = desk.done(&["backup", "--to", "copy"]);
    let bytes = std::fs::metadata(desk.site.path().join("copy")).unwrap().len();
    assert_eq!(saved, json!({"file": "copy", "bytes": bytes, "records": 2}));
    desk.fails(&["backup", "--to", "copy"], 2, "usage");
    let restore = ["restore", "--from", "copy", "--data-dir", "elsewhere"];
    let with_key = ["--encryption-key-file", "data/encryption.key"];
    let restored = desk.done(&[restore.as_slice(), &with_key].concat());
    assert_eq!(restored, json!({"records": 2, "aside": null}));
}

#[test]
fn who_is_not_known_or_not_there_has_an_exit_code_of_its_own() {
    let mut desk = Desk::new();
    desk.fails(&["status", "nobody"], 6, "not-found");
    desk.fails(&["provision", "db", "none"], 6, "not-found");
    desk.password = "another".to_owned();
    desk.fails(&["catalog"], 7, "unauthorized");
    desk.server.kill();
    desk.fails(&["catalog"], 3, "unreachable");
}
