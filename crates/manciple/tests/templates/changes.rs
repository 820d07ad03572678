use serde_json::{Value, json};

use super::market::Market;
use super::support::within;

/// The longest that anything here takes on a busy machine, in seconds.
const PATIENCE: u64 = 60;
const INSTANCE: &str = "44444444-2222-4333-8444-555555555555";
const TEMPLATES: &str = "templates.template.openshift.io";
const ANNOTATION: &str = "template.manciple.dev/version";

#[test]
fn an_instance_is_changed_to_other_parameters_and_to_a_newer_template() {
    let market = Market::new();
    let server = market.serve();
    let patch = |patch: Value| {
        let patch = json!([patch]).to_string();
        market.town.kubectl(&["patch", TEMPLATES, "web", "--type=json", "-p", &patch]);
    };
    patch(json!({"op": "add", "path": "/parameters/0", "value": {"name": "OLDER"}}));
    let service = market.service("web");
    let instance = format!("/service_instances/{INSTANCE}");
    let path = format!("{instance}?accepts_incomplete=true");
    let parameters = json!({"NAME": "page", "IMAGE": testkit::cluster::SHELL_IMAGE});
    let order = market.order(&service, parameters);
    assert_eq!(market.send(&server, "editor", "PUT", &path, Some(&order)).status, 202);
    assert_eq!(market.settled(&server, INSTANCE)["state"], "succeeded", "{}", server.log());
    let made = || market.town.get(&format!("templateinstance/{INSTANCE}"));
    let before = made();

    let change = |more: Value| {
        let mut change = json!({"service_id": service});
        change.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        change
    };
    let namespace = &market.town.namespace;
    for (case, user, path, more, status, words) in [
        ("nobody", "", &path, json!({}), 400, "Originating-Identity"),
        ("a viewer", "viewer", &path, json!({"parameters": {"NAME": "b"}}), 403, "may not update"),
        (
            "at once",
            "editor",
            &instance,
            json!({"parameters": {"NAME": "b"}}),
            422,
            "AsyncRequired",
        ),
        ("no parameter", "editor", &path, json!({"parameters": {"X": "b"}}), 400, "parameters/X"),
        ("no text", "editor", &path, json!({"parameters": {"NAME": 7}}), 400, "parameters/NAME"),
        (
            "no text, of its plan",
            "editor",
            &path,
            json!({"plan_id": service, "parameters": {"NAME": 7}}),
            400,
            "parameters/NAME",
        ),
        (
            "another service",
            "editor",
            &path,
            json!({"service_id": market.service("database")}),
            400,
            "service_id",
        ),
        ("another plan", "editor", &path, json!({"plan_id": "x"}), 400, "plan_id"),
        (
            "an older template",
            "editor",
            &path,
            json!({"maintenance_info": {"version": "0.0.1"}}),
            422,
            "MaintenanceInfoConflict",
        ),
        (
            "another namespace",
            "editor",
            &path,
            json!({"parameters": {}, "context": {"platform": "kubernetes", "namespace": "default"}}),
            422,
            "context.namespace",
        ),
    ] {
        let answer = market.send(&server, user, "PATCH", path, Some(&change(more)));
        assert_eq!(answer.status, status, "{case}: {answer:?}");
        assert!(answer.body.to_string().contains(words), "{case}: {answer:?}");
    }
    assert_eq!(
        made()["metadata"]["generation"],
        before["metadata"]["generation"],
        "nothing was begun"
    );

    // What is not said stays, whose the instance is too.
    let nothing = change(json!({"context": {"platform": "kubernetes"}, "parameters": {}}));
    let answer = market.send(&server, "editor", "PATCH", &path, Some(&nothing));
    assert!(matches!(answer.status, 200 | 202), "{answer:?}");
    assert_eq!(market.settled(&server, INSTANCE)["state"], "succeeded", "{}", server.log());
    assert_eq!(market.send(&server, "stranger", "GET", &instance, None).status, 403, "{namespace}");

    let value = json!({"parameters": {"NAME": "other"}});
    let answer = market.send(&server, "editor", "PATCH", &path, Some(&change(value.clone())));
    assert_eq!(answer.status, 202, "{answer:?}");
    let settled = market.settled(&server, INSTANCE);
    assert_eq!(settled["state"], "succeeded", "{settled}\n{}", server.log());
    let again = market.send(&server, "editor", "PATCH", &path, Some(&change(value)));
    assert_eq!(again.status, 200, "it is so already: {again:?}");
    let read = market.send(&server, "editor", "GET", &instance, None);
    assert_eq!(read.body["parameters"]["NAME"], "other", "{read:?}");
    assert_eq!(read.body["parameters"]["IMAGE"], testkit::cluster::SHELL_IMAGE, "it stays");

    patch(json!({"op": "replace", "path": "/parameters/0/name", "value": "NEWER"}));
    market.town.kubectl(&["annotate", TEMPLATES, "web", &format!("{ANNOTATION}=7.0.0")]);
    let offered = || {
        let catalog = market.send(&server, "", "GET", "/catalog", None).body;
        let plans = catalog["services"].as_array()?.iter().map(|it| &it["plans"][0]);
        let mut versions = plans.map(|it| it["maintenance_info"]["version"].clone());
        versions.any(|version| version == "7.0.0").then_some(())
    };
    assert!(within(20, offered).is_some(), "{}", server.log());
    // The newer revision has another parameter in the place of one: what has the older keeps its own.
    for (case, user_plan) in
        [("by its service", json!({})), ("by its plan", json!({"plan_id": service}))]
    {
        let with = |mut more: Value| {
            more.as_object_mut().unwrap().extend(user_plan.as_object().unwrap().clone());
            market.send(&server, "editor", "PATCH", &path, Some(&change(more)))
        };
        let answer = with(json!({"parameters": {"NEWER": "b"}}));
        assert_eq!(answer.status, 400, "{case}: {answer:?}");
        assert!(answer.body.to_string().contains("parameters/NEWER"), "{case}: {answer:?}");
        let answer = with(json!({"parameters": {"OLDER": case}}));
        assert_eq!(answer.status, 202, "{case}: {answer:?}");
        assert_eq!(market.settled(&server, INSTANCE)["state"], "succeeded", "{}", server.log());
        assert_eq!(made()["spec"]["template"]["metadata"]["annotations"][ANNOTATION], Value::Null);
        let both = json!({"parameters": {"OLDER": "c"}, "maintenance_info": {"version": "7.0.0"}});
        let answer = with(both);
        assert_eq!(answer.status, 400, "{case}: the newer one has it no more: {answer:?}");
        assert!(answer.body.to_string().contains("parameters/OLDER"), "{case}: {answer:?}");
    }
    let newer =
        change(json!({"parameters": {"NEWER": "d"}, "maintenance_info": {"version": "7.0.0"}}));
    let answer = market.send(&server, "editor", "PATCH", &path, Some(&newer));
    assert_eq!(answer.status, 202, "{answer:?}");
    let settled = market.settled(&server, INSTANCE);
    assert_eq!(settled["state"], "succeeded", "{settled}\n{}", server.log());
    let annotations = &made()["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations[ANNOTATION], "7.0.0");
    let read = market.send(&server, "editor", "GET", &instance, None);
    assert_eq!(read.body["maintenance_info"]["version"], "7.0.0", "{read:?}");

    let of = format!("?service_id={service}&plan_id={service}&accepts_incomplete=true");
    let removed = market.send(&server, "editor", "DELETE", &format!("{instance}{of}"), None);
    assert_eq!(removed.status, 202);
    assert_eq!(market.settled(&server, INSTANCE)["state"], "succeeded", "{}", server.log());
    // What the instance owned is collected after it.
    let secrets = || market.town.get("secrets")["items"].to_string();
    let gone = within(PATIENCE, || (!secrets().contains(INSTANCE)).then_some(()));
    assert!(gone.is_some(), "parameters are left");
}
