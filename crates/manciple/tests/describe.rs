//! Operations before somebody who has nothing but `kubectl`, on a real cluster: what is told is told as long as it holds,
//! and a list says how each stands. What causes are told as is in `causes.rs`.

mod support;

use serde_json::{Value, json};
use support::described::squeezed;
use support::town::Town;
use support::{Served, http, order, within};

/// Plan `fails` does, and everything does where the configuration says so; `slow` goes on for a minute.
const BROKER: &str = r#"#!/bin/sh
[ ! -e /config/fails ] || { echo 'no disk left' >&2; exit 3; }
[ "$1" != bind ] || { echo '{"credentials":{}}'; exit; }
[ "$5" != slow ] || sleep 60
[ "$5" != fails ] || { echo 'no disk left' >&2; exit 3; }
echo '{}'
"#;

/// A broker whose catalog is in a file, so that nothing has to run before an order; `set` is its settings.
fn town(set: &Value) -> Town {
    let mut town = Town::empty();
    town.config_map("script", &json!({"broker": BROKER}));
    let version = |plan| json!({"version": if plan == "fails" { "2.0.0" } else { "1.0.0" }});
    let plans = ["small", "large", "slow", "fails"].map(|plan| {
        json!({"id": plan, "name": plan, "description": "d", "maintenance_info": version(plan)})
    });
    let catalog = json!({"services": [{
        "id": "s", "name": "db", "description": "d", "bindable": true, "plan_updateable": true,
        "plans": plans,
    }]});
    let file = town.site.write("catalog.json", &catalog.to_string());
    let mut settings = json!({
        "namespace": town.namespace,
        "image": testkit::cluster::SHELL_IMAGE,
        "agent_file": testkit::cluster::packed_agent().unwrap_or_else(|why| panic!("{why}")),
        "pod": town.pod("script"),
    });
    for (name, value) in set.as_object().into_iter().flatten() {
        settings[name] = value.clone();
    }
    town.site.settings = json!({
        "auth": {"disabled": true}, "catalog": {"file": file}, "kubernetes": settings,
    })
    .to_string();
    town
}

/// The same, of a broker that updates.
fn updateable(set: &Value) -> Town {
    let mut town = town(set);
    let mut settings: Value = serde_json::from_str(&town.site.settings).unwrap();
    settings["broker"] = json!({"capabilities": ["update"]});
    town.site.settings = settings.to_string();
    town
}

/// Orders, and waits until `kubectl describe` has all these words; nobody asks the server meanwhile.
fn ordered(town: &Town, server: &Served, plan: &str, words: &[&str]) -> String {
    assert_eq!(order::provision(server, "i", &order::body(plan)).status, 202);
    described(town, server, words)
}

fn described(town: &Town, server: &Served, words: &[&str]) -> String {
    described_of(town, server, "serviceinstance", words)
}

fn described_of(town: &Town, server: &Served, kind: &str, words: &[&str]) -> String {
    let describe = || squeezed(&town.kubectl(&["describe", kind]));
    let has = |words: &[&str]| {
        let described = describe();
        words.iter().all(|word| described.contains(word)).then_some(described)
    };
    within(15, || has(words))
        .unwrap_or_else(|| panic!("not all of {words:?} in {}\n{}", describe(), server.log()))
}

/// The condition of the only instance.
fn condition(town: &Town, type_: &str) -> Value {
    let all = town.get("serviceinstances");
    let mut conditions = all["items"][0]["status"]["conditions"].as_array().unwrap().iter();
    conditions.find(|condition| condition["type"] == type_).unwrap().clone()
}

/// Asserts what an operation that goes on, and does not get on, says in its conditions.
fn assert_stuck(town: &Town, words: &str) {
    let progressing = condition(town, "Progressing");
    assert_eq!(progressing["status"], "True", "{progressing}");
    assert_eq!(progressing["reason"], "Running", "{progressing}");
    assert!(progressing["message"].as_str().unwrap().contains(words), "{progressing}");
    let ready = condition(town, "Ready");
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("Creating")));
    let failed = condition(town, "Failed");
    assert_eq!((&failed["status"], &failed["reason"]), (&json!("False"), &json!("None")));
}

/// It says so no longer when it is there: neither while the broker works nor when it has ended.
#[test]
fn describe_explains_a_config_map_that_is_missing_until_it_is_there() {
    for (plan, phase, reason) in [("slow", "Creating", "Running"), ("small", "Ready", "Ended")] {
        let town = town(&json!({"config_map": "later"}));
        let server = town.serve();
        let why = r#"configmap "later" not found"#;
        ordered(&town, &server, plan, &[why]);
        assert_stuck(&town, why);
        // What has passed is kept as an Event, for as long as the cluster keeps these.
        described(&town, &server, &["Warning ProvisionWaits"]);
        town.config_map("later", &json!({"region": "eu"}));
        let over = || {
            let described = squeezed(&town.kubectl(&["describe", "serviceinstance"]));
            let (status, _) = described.split_once("Events:").unwrap();
            let over = status.contains(&format!("Phase: {phase}")) && !status.contains(why);
            over.then_some(())
        };
        let described = || town.kubectl(&["describe", "serviceinstance"]);
        assert!(within(20, over).is_some(), "{plan}: {}", described());
        let progressing = condition(&town, "Progressing");
        assert_eq!(progressing["reason"], reason, "{progressing}");
        assert_eq!(progressing["message"], Value::Null, "{progressing}");
    }
}

/// Orders this while a ConfigMap is missing, and has it fail once that is there.
fn waits_and_fails(
    town: &Town,
    server: &Served,
    action: &str,
    kind: &str,
    order: impl Fn() -> http::Answer,
) {
    let answer = order();
    assert_eq!(answer.status, 202, "{action}: {answer:?}");
    let why = r#"configmap "later" not found"#;
    described_of(town, server, kind, &[why, &format!("Warning {action}Waits")]);
    town.config_map("later", &json!({"fails": "1"}));
    described_of(town, server, kind, &["no disk left", &format!("Warning {action}Failed")]);
    town.kubectl(&["delete", "configmap", "later"]);
}

#[test]
fn describe_explains_why_any_operation_waits_and_why_it_failed() {
    let town = updateable(&json!({"config_map": "later"}));
    town.config_map("later", &json!({}));
    let server = town.serve();
    assert_eq!(order::provisioned(&server, "i", &order::body("small"))["state"], "succeeded");
    let instance = order::path("i");
    let binding = |id: &str| format!("{instance}/service_bindings/{id}");
    let send = |method: &str, path: &str, query: &str, body: Option<&Value>| {
        let path = format!("{path}?accepts_incomplete=true{query}");
        http::send(&server.address, method, &path, body).expect("an answer")
    };
    let (ids, planned) =
        (json!({"service_id": "s", "plan_id": "small"}), "&service_id=s&plan_id=small");
    let bound = || {
        let path = format!("{}/last_operation", binding("made"));
        (http::get(&server.address, &path)?.body["state"] == "succeeded").then_some(())
    };
    assert_eq!(send("PUT", &binding("made"), "", Some(&ids)).status, 202);
    assert!(within(30, bound).is_some(), "{}", server.log());
    town.kubectl(&["delete", "configmap", "later"]);
    waits_and_fails(&town, &server, "Bind", "servicebinding", || {
        send("PUT", &binding("other"), "", Some(&ids))
    });
    waits_and_fails(&town, &server, "Unbind", "servicebinding", || {
        send("DELETE", &binding("made"), planned, None)
    });
    waits_and_fails(&town, &server, "Update", "serviceinstance", || {
        send("PATCH", &instance, "", Some(&json!({"service_id": "s", "plan_id": "large"})))
    });
    // Both bindings have to go first.
    town.config_map("later", &json!({}));
    let unbound = |id: &'static str| {
        let path = binding(id);
        move || (send("DELETE", &path, planned, None).status == 410).then_some(())
    };
    for id in ["other", "made"] {
        assert!(within(30, unbound(id)).is_some(), "{id}: {}", server.log());
    }
    town.kubectl(&["delete", "configmap", "later"]);
    waits_and_fails(&town, &server, "Deprovision", "serviceinstance", || {
        send("DELETE", &instance, planned, None)
    });
}

#[test]
fn a_printed_table_says_how_each_stands() {
    let town = town(&json!({}));
    let server = town.serve();
    let rows = |arguments: &[&str]| {
        let table = town.kubectl(arguments);
        table.lines().map(squeezed).collect::<Vec<_>>()
    };
    assert_eq!(order::provisioned(&server, "i", &order::body("small"))["state"], "succeeded");
    let made = order::bind(&server, "i", "b", &json!({"service_id": "s", "plan_id": "small"}));
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(order::provisioned(&server, "j", &order::body("fails"))["state"], "failed");
    assert_eq!(order::provision(&server, "k", &order::body("slow")).status, 202);
    assert_eq!(rows(&["get", "si"])[0], "NAME INSTANCE PHASE READY OPERATION STATE AGE");
    for words in [
        " i Ready True provision Succeeded ",
        " j Broken False provision Failed ",
        " k Creating False provision InProgress ",
    ] {
        let row = || rows(&["get", "si"]).iter().any(|row| row.contains(words)).then_some(());
        assert!(within(10, row).is_some(), "{words}: {:?}", rows(&["get", "si"]));
    }
    let wide = rows(&["get", "serviceinstances", "-o", "wide"]);
    assert_eq!(wide[0], "NAME INSTANCE PLAN PHASE READY OPERATION STATE DESCRIPTION AGE");
    let failed = wide.iter().find(|row| row.contains(" j fails Broken ")).unwrap();
    assert!(failed.contains("no disk left"), "{failed}");
    let bindings = rows(&["get", "sb"]);
    assert_eq!(bindings[0], "NAME BINDING INSTANCE PHASE READY OPERATION STATE AGE");
    assert!(bindings[1].contains(" b i Ready True bind Succeeded "), "{bindings:?}");
    let all = town.kubectl(&["get", "manciple", "-o", "name"]);
    assert_eq!(all.lines().count(), 4, "instances and bindings in one: {all}");
}

#[test]
fn describe_says_of_what_waits_for_its_turn_what_it_waits_for() {
    let mut town = town(&json!({}));
    let mut settings: Value = serde_json::from_str(&town.site.settings).unwrap();
    settings["operations"] = json!({"max_runs": 1});
    town.site.settings = settings.to_string();
    let server = town.serve();
    // Which of the two has the turn is left to them.
    for instance in ["first", "second"] {
        assert_eq!(order::provision(&server, instance, &order::body("slow")).status, 202);
    }
    described(&town, &server, &["as many go on as may at once (1, operations.max_runs)"]);
}

/// What was ordered at first stays in the spec; the plan that an update has put in force is in the status, and in the
/// table. A condition that holds all the time says since when, whatever has happened since.
#[test]
fn a_resource_says_which_plan_is_in_force_and_since_when_its_conditions_hold() {
    let town = updateable(&json!({}));
    let server = town.serve();
    let instance = || town.get("serviceinstances")["items"][0].clone();
    let since = |type_| condition(&town, type_)["lastTransitionTime"].clone();
    let with_version = |plan: &str, version: &str| {
        let mut body = order::body(plan);
        body["maintenance_info"] = json!({"version": version});
        body
    };
    let made = order::provisioned(&server, "i", &with_version("large", "1.0.0"));
    assert_eq!(made["state"], "succeeded", "{made}");
    assert_eq!(instance()["status"]["planID"], "large");
    let before = ["Ready", "Failed", "Progressing"].map(since);
    std::thread::sleep(std::time::Duration::from_secs(2));
    let path = "/v2/service_instances/i?accepts_incomplete=true";
    let update = |body: &Value| {
        let asked = http::send(&server.address, "PATCH", path, Some(body)).unwrap();
        assert_eq!(asked.status, 202, "{asked:?}");
        order::settled(&server, "i")
    };
    assert_eq!(update(&json!({"service_id": "s", "plan_id": "small"}))["state"], "succeeded");
    let after = instance();
    assert_eq!(after["spec"]["planID"], "large", "what was ordered at first");
    assert_eq!(after["status"]["planID"], "small", "what is in force");
    assert!(town.kubectl(&["get", "si", "-o", "wide"]).contains(" small "));
    assert_eq!(since("Ready"), before[0], "it was ready all the time");
    assert_eq!(since("Failed"), before[1], "nothing has failed");
    assert_ne!(since("Progressing"), before[2], "it was progressing in between");
    // One that fails puts nothing in force.
    assert_eq!(update(&json!({"service_id": "s", "plan_id": "fails"}))["state"], "failed");
    assert_eq!(instance()["status"]["planID"], "small");
    assert_ne!(since("Failed"), before[1], "it has failed now");
}
