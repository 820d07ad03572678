use serde_json::{Value, json};

use super::market::Market;
use super::support::{http, within};

const INSTANCE: &str = "11111111-2222-4333-8444-555555555555";
const WITHDRAWN: &str = "33333333-2222-4333-8444-555555555555";
const BINDING: &str = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee";

fn parameters() -> Value {
    json!({"NAME": "page", "IMAGE": testkit::cluster::SHELL_IMAGE})
}

/// Whether a user may do this in the market's namespace, as the API server says; `None` if it does not say.
fn may(market: &Market, user: &str, verb: &str, resource: &str) -> Option<bool> {
    let resource = format!("{resource}.template.openshift.io");
    let asked = ["-n", &market.town.namespace, "auth", "can-i", verb, &resource, "--as", user];
    let said = testkit::cluster::kubectl().args(asked).output().unwrap();
    match String::from_utf8_lossy(&said.stdout).trim() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

/// By the roles that every cluster has, and what `deploy/templates/users.yaml` adds to them.
#[test]
fn admins_and_editors_write_templates_and_instances_and_viewers_read_them() {
    let market = Market::new();
    market.town.make(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "admin"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "admin"}],
    }));
    for (user, reads, writes) in [
        ("admin", true, true),
        ("editor", true, true),
        ("viewer", true, false),
        ("stranger", false, false),
    ] {
        for resource in ["templates", "templateinstances"] {
            for (verb, expected) in [
                ("get", reads),
                ("list", reads),
                ("create", writes),
                ("update", writes),
                ("delete", writes),
            ] {
                // What is added to a role is in force a moment later.
                let is_so = || may(&market, user, verb, resource).filter(|it| *it == expected);
                let case = format!("{user} may {verb} {resource}");
                assert!(within(30, is_so).is_some(), "{case}: it is never {expected}");
            }
        }
    }
}

#[test]
fn an_editor_orders_binds_unbinds_and_removes_what_a_viewer_may_not() {
    let market = Market::new();
    let server = market.serve();
    let service = market.service("web");
    let catalog = market.send(&server, "", "GET", "/catalog", None).body;
    let offered = catalog["services"].as_array().unwrap();
    let web = offered.iter().find(|it| it["name"] == "web").unwrap();
    assert_eq!((&web["id"], &web["plans"][0]["id"]), (&json!(service), &json!(service)));
    assert_eq!(web["metadata"]["displayName"], "Web page");

    let instance = format!("/service_instances/{INSTANCE}");
    let put = format!("{instance}?accepts_incomplete=true");
    let order = market.order(&service, parameters());
    let within = |context: Value| {
        let mut order = order.clone();
        order["context"] = context;
        order
    };
    let foundry = within(json!({"platform": "cloudfoundry", "namespace": "a"}));
    let nowhere = within(json!({}));
    let misnamed = within(json!({"platform": "kubernetes", "namespace": "a.b"}));
    for (user, path, body, status, words) in [
        ("editor", &put, &foundry, 400, "context.platform: has to be kubernetes"),
        ("editor", &put, &nowhere, 400, "context.platform: has to be kubernetes"),
        ("editor", &put, &misnamed, 400, "context.namespace: has to be the name of a namespace"),
        ("", &put, &order, 400, "couldn't parse X-Broker-API-Originating-Identity header"),
        ("viewer", &put, &order, 403, "\"viewer\" may not create templateinstances"),
        ("editor", &instance, &order, 422, "AsyncRequired"),
        ("editor", &put, &market.order(&service, json!({"UNKNOWN": "x"})), 400, "UNKNOWN"),
        ("editor", &put, &market.order(&service, json!({"NAME": 7})), 400, "NAME"),
    ] {
        let answer = market.send(&server, user, "PUT", path, Some(body));
        assert_eq!(answer.status, status, "{answer:?}\n{}", server.log());
        assert!(answer.body.to_string().replace('\\', "").contains(words), "{answer:?}");
    }
    assert_eq!(market.town.count("templateinstances"), 0, "nothing was begun");

    let answer = market.send(&server, "editor", "PUT", &put, Some(&order));
    assert_eq!(answer.status, 202, "{answer:?}\n{}", server.log());
    assert_eq!(market.settled(&server, INSTANCE)["state"], "succeeded", "{}", server.log());
    assert_eq!(market.send(&server, "editor", "PUT", &put, Some(&order)).status, 200);
    let other = market.order(&service, json!({"NAME": "other"}));
    assert_eq!(market.send(&server, "editor", "PUT", &put, Some(&other)).status, 409);
    let made = market.town.get(&format!("templateinstance/{INSTANCE}"));
    assert_eq!(made["spec"]["requester"]["username"], "editor");
    assert_eq!(made["status"]["conditions"][0]["type"], "Ready");
    let metrics = http::get(&server.address, "/metrics").unwrap();
    for line in [
        "manciple_template_instances 1\n",
        "openshift_template_instance_completed_total{condition=\"Ready\"} 1\n",
        "manciple_operations_total{action=\"provision\",outcome=\"succeeded\",broker=\"template.openshift.io\"} 1\n",
    ] {
        assert!(metrics.body.as_str().unwrap().contains(line), "{line}: {metrics:?}");
    }

    let binding = format!("{instance}/service_bindings/{BINDING}");
    let bind = json!({"service_id": service, "plan_id": service});
    assert_eq!(market.send(&server, "", "PUT", &binding, Some(&bind)).status, 400);
    let mut with_parameters = bind.clone();
    with_parameters["parameters"] = json!({"NAME": "x"});
    let refused = market.send(&server, "editor", "PUT", &binding, Some(&with_parameters));
    assert_eq!(refused.status, 400, "a binding has no parameters: {refused:?}");
    assert_eq!(market.send(&server, "stranger", "PUT", &binding, Some(&bind)).status, 403);
    let bound = market.send(&server, "editor", "PUT", &binding, Some(&bind));
    assert_eq!(bound.status, 201, "{bound:?}\n{}", server.log());
    let credentials = &bound.body["credentials"];
    assert_eq!(credentials["password"].as_str().map(str::len), Some(24), "{bound:?}");
    assert_eq!(credentials["user"], "reader");
    let again = market.send(&server, "editor", "PUT", &binding, Some(&bind));
    assert_eq!((again.status, &again.body["credentials"]), (200, credentials));
    let read = market.send(&server, "editor", "GET", &binding, None);
    assert_eq!((read.status, &read.body["credentials"]), (200, credentials));
    // What was told one is not told another.
    let read_all = [
        ("GET", binding.clone(), None),
        ("PUT", binding.clone(), Some(&bind)),
        ("GET", instance.clone(), None),
    ];
    for (method, path, body) in &read_all {
        let answer = market.send(&server, "viewer", method, path, *body);
        assert_eq!(answer.status, 403, "{method} {path}: {answer:?}");
    }
    let last = format!("{instance}/last_operation");
    assert_eq!(market.send(&server, "stranger", "GET", &last, None).status, 403);
    assert_eq!(market.send(&server, "viewer", "GET", &last, None).status, 200);
    let mut elsewhere = order.clone();
    elsewhere["context"]["namespace"] = json!("default");
    assert_eq!(market.send(&server, "editor", "PUT", &put, Some(&elsewhere)).status, 400);
    let capitals = put.replace("aaaaaaaa", "AAAAAAAA").replace("/1111", "/ABCD");
    assert_eq!(market.send(&server, "editor", "PUT", &capitals, Some(&order)).status, 400);
    let claim = || market.town.get(&format!("brokertemplateinstance/{INSTANCE}"));
    assert_eq!(claim()["spec"]["bindingIDs"], json!([BINDING]));

    let of = format!("?service_id={service}&plan_id={service}");
    let unbind = format!("{binding}{of}");
    assert_eq!(market.send(&server, "viewer", "DELETE", &unbind, None).status, 403);
    assert_eq!(market.send(&server, "editor", "DELETE", &unbind, None).status, 200);
    assert_eq!(market.send(&server, "editor", "DELETE", &unbind, None).status, 410);
    assert_eq!(claim()["spec"]["bindingIDs"], json!([]));
    // A binding that nobody has removed is in nobody's way.
    assert_eq!(market.send(&server, "editor", "PUT", &binding, Some(&bind)).status, 201);
    let remove = format!("{instance}{of}&accepts_incomplete=true");
    assert_eq!(market.send(&server, "viewer", "DELETE", &remove, None).status, 403);
    assert_eq!(market.send(&server, "editor", "DELETE", &remove, None).status, 202);
    assert_eq!(market.settled(&server, INSTANCE)["state"], "succeeded", "{}", server.log());
    assert_eq!(market.send(&server, "editor", "DELETE", &remove, None).status, 410);
    assert_eq!(market.send(&server, "editor", "GET", &instance, None).status, 404);
    let gone = market.send(&server, "editor", "DELETE", &unbind, None);
    assert_eq!(gone.status, 410, "unbind from what is not there: {gone:?}");
    for kind in ["templateinstances", "deployments", "services"] {
        assert_eq!(market.town.count(kind), 0, "{kind}");
    }
    let claims = market.town.get("brokertemplateinstances")["items"].to_string();
    assert!(!claims.contains(INSTANCE), "{claims}");
    let password = credentials["password"].as_str().unwrap();
    assert!(!server.log().contains(password), "a password is in the log");
}

#[test]
fn what_is_ordered_survives_kill_9_with_one_password() {
    let market = Market::new();
    let service = market.service("web");
    let id = |count: u64| format!("22222222-2222-4333-8444-{count:012}");
    for round in 0..2 {
        let mut server = market.serve();
        let path = format!("/service_instances/{}?accepts_incomplete=true", id(round));
        let mut parameters = parameters();
        parameters["NAME"] = json!(format!("page{round}"));
        let order = market.order(&service, parameters);
        assert_eq!(market.send(&server, "editor", "PUT", &path, Some(&order)).status, 202);
        std::thread::sleep(std::time::Duration::from_millis(100 + round * 300));
        server.kill();
        let server = market.serve();
        let settled = market.settled(&server, &id(round));
        assert_eq!(settled["state"], "succeeded", "{settled}\n{}", server.log());
        let of = format!("?service_id={service}&plan_id={service}");
        let bind = json!({"service_id": service, "plan_id": service});
        let mut seen = Vec::new();
        for binding in ["0", "1"] {
            let binding = format!("aaaaaaaa-bbbb-4ccc-8ddd-{round}{binding:0>11}");
            let path = format!("/service_instances/{}/service_bindings/{binding}", id(round));
            let bound = market.send(&server, "editor", "PUT", &path, Some(&bind));
            assert_eq!(bound.status, 201, "{bound:?}");
            seen.push(bound.body["credentials"]["password"].clone());
            let unbound = market.send(&server, "editor", "DELETE", &format!("{path}{of}"), None);
            assert_eq!(unbound.status, 200);
        }
        assert!(seen[0].is_string() && seen[0] == seen[1], "one password");
        let path = format!("{}{of}&accepts_incomplete=true", path.split('?').next().unwrap());
        assert_eq!(market.send(&server, "editor", "DELETE", &path, None).status, 202);
        drop(server);
        let server = market.serve();
        assert_eq!(market.settled(&server, &id(round))["state"], "succeeded", "{}", server.log());
    }
    for kind in ["templateinstances", "deployments", "services"] {
        assert_eq!(market.town.count(kind), 0, "{kind}");
    }
}

#[test]
fn what_is_not_ready_yet_is_in_progress_and_may_be_removed() {
    let market = Market::new();
    let server = market.serve();
    let service = market.service("database");
    let instance = format!("/service_instances/{WITHDRAWN}");
    // It never runs: nobody makes its volume.
    let order =
        market.order(&service, json!({"NAME": "db", "IMAGE": testkit::cluster::SHELL_IMAGE}));
    let put = format!("{instance}?accepts_incomplete=true");
    assert_eq!(market.send(&server, "editor", "PUT", &put, Some(&order)).status, 202);
    let waits = || {
        let last =
            market.send(&server, "editor", "GET", &format!("{instance}/last_operation"), None);
        let words = last.body["description"].as_str().unwrap_or_default().to_owned();
        words.contains("Waiting for instantiated objects").then_some(())
    };
    assert!(within(30, waits).is_some(), "{}", server.log());
    // A platform may change its mind.
    let remove =
        format!("{instance}?service_id={service}&plan_id={service}&accepts_incomplete=true");
    assert_eq!(market.send(&server, "editor", "DELETE", &remove, None).status, 202);
    let settled = market.settled(&server, WITHDRAWN);
    assert_eq!(settled["state"], "succeeded", "{settled}\n{}", server.log());
    for kind in ["templateinstances", "statefulsets", "services"] {
        assert_eq!(market.town.count(kind), 0, "{kind}");
    }
    let answer = http::get(&server.address, "/v2/catalog").unwrap();
    assert_eq!(answer.status, 200, "where nothing else is served, templates are at the root, too");
}
