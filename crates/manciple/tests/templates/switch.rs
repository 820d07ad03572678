//! What the broker of OpenShift ordered is known here: it kept a BrokerTemplateInstance, and what that names.

use serde_json::{Value, json};

use super::market::Market;
use super::support::Served;

/// Of the whole cluster: one for each test.
const INSTANCE: &str = "44444444-2222-4333-8444-555555555555";
const FAILED: &str = "44444444-2222-4333-8444-777777777777";
const REMOVED: &str = "44444444-2222-4333-8444-666666666666";
const BOUND: &str = "44444444-bbbb-4ccc-8ddd-000000000001";
const OTHER: &str = "44444444-bbbb-4ccc-8ddd-000000000002";
const PASSWORD: &str = "planted-of-the-original";

fn uid(market: &Market, what: &str) -> String {
    market.town.get(what)["metadata"]["uid"].as_str().unwrap().to_owned()
}

fn reference(kind: &str, name: &str, uid: &str) -> Value {
    let version = if kind == "Secret" { "v1" } else { "template.openshift.io/v1" };
    json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid})
}

/// What there is of an instance that was ordered before, and bound once.
fn ordered_before(market: &Market, id: &str, failure: Option<&str>) {
    let namespace = &market.town.namespace;
    let of = |kind: &str| json!({"kind": kind, "name": id, "namespace": namespace});
    market.make_global(&json!({
        "apiVersion": "template.openshift.io/v1", "kind": "BrokerTemplateInstance",
        "metadata": {"name": id},
        "spec": {
            "templateInstance": of("TemplateInstance"), "secret": of("Secret"), "bindingIDs": [BOUND],
        },
    }));
    let claim = uid(market, &format!("brokertemplateinstance/{id}"));
    let owners = json!([reference("BrokerTemplateInstance", id, &claim)]);
    market.town.make(&json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": id, "ownerReferences": owners},
        "stringData": {"NAME": "page"},
    }));
    let mut template = market.town.get("templates.template.openshift.io/web");
    template["metadata"].as_object_mut().unwrap().remove("managedFields");
    market.town.make(&json!({
        "apiVersion": "template.openshift.io/v1", "kind": "TemplateInstance",
        "metadata": {
            "name": id, "ownerReferences": owners,
            "finalizers": ["template.openshift.io/finalizer"],
            "annotations": {"openservicebroker.openshift.io/instance-external-id": id},
        },
        "spec": {
            "template": template, "secret": {"name": id}, "requester": {"username": "editor"},
        },
    }));
    let instance = uid(market, &format!("templateinstance/{id}"));
    market.town.make(&json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": "page", "labels": {"template.openshift.io/template-instance-owner": instance},
            "annotations": {"template.openshift.io/expose-password": "{.data['password']}"},
            "ownerReferences": [reference("TemplateInstance", id, &instance)],
        },
        "stringData": {"password": PASSWORD},
    }));
    let mut object = reference("Secret", "page", &uid(market, "secret/page"));
    object["namespace"] = json!(namespace);
    let conditions = match failure {
        None => {
            json!([{"type": "Ready", "status": "True", "reason": "Created", "message": "made"}])
        }
        Some(why) => json!([
            {"type": "InstantiateFailure", "status": "True", "reason": "Failed", "message": why},
        ]),
    };
    market.status(id, &json!({"conditions": conditions, "objects": [{"ref": object}]}));
}

fn send(
    market: &Market,
    server: &Served,
    (method, path): (&str, &str),
    body: Option<&Value>,
) -> (u16, Value) {
    let answer = market.send(server, "editor", method, path, body);
    (answer.status, answer.body)
}

#[test]
fn what_the_broker_of_openshift_ordered_is_fetched_bound_unbound_and_removed() {
    let market = Market::new();
    ordered_before(&market, INSTANCE, None);
    let service = market.service("web");
    let server = market.serve();
    let instance = format!("/service_instances/{INSTANCE}");
    let put = format!("{instance}?accepts_incomplete=true");
    for (name, expected) in [("page", 200), ("other", 409)] {
        let order = market.order(&service, json!({"NAME": name}));
        let (status, again) = send(&market, &server, ("PUT", &put), Some(&order));
        assert_eq!(status, expected, "{name}: {again}\n{}", server.log());
    }
    let refused = market.send(&server, "viewer", "GET", &instance, None);
    assert_eq!(refused.status, 403, "{refused:?}");
    let (status, view) = send(&market, &server, ("GET", &instance), None);
    assert_eq!(status, 200, "{view}\n{}", server.log());
    assert_eq!((&view["service_id"], &view["plan_id"]), (&json!(service), &json!(service)));
    assert_eq!(view["parameters"], json!({"NAME": "page"}));

    let bind = json!({"service_id": service, "plan_id": service});
    let binding = |id: &str| format!("{instance}/service_bindings/{id}");
    for (method, id, body, expected) in [
        ("GET", BOUND, None, 200),
        ("PUT", BOUND, Some(&bind), 200),
        ("PUT", OTHER, Some(&bind), 201),
    ] {
        let (status, bound) = send(&market, &server, (method, &binding(id)), body);
        assert_eq!(status, expected, "{method} {id}: {bound}\n{}", server.log());
        assert_eq!(bound["credentials"], json!({"password": PASSWORD}), "{method} {id}");
    }
    let unknown = "44444444-bbbb-4ccc-8ddd-00000000000f";
    assert_eq!(send(&market, &server, ("GET", &binding(unknown)), None).0, 404);
    let of = format!("?service_id={service}&plan_id={service}");
    for (id, expected) in [(BOUND, 200), (BOUND, 410), (OTHER, 200), (unknown, 410)] {
        let (status, unbound) = send(&market, &server, ("DELETE", &(binding(id) + &of)), None);
        assert_eq!(status, expected, "{id}: {unbound}");
    }
    let claim = market.town.get(&format!("brokertemplateinstance/{INSTANCE}"));
    assert_eq!(claim["spec"]["bindingIDs"], json!([]));

    let remove = format!("{instance}{of}&accepts_incomplete=true");
    assert_eq!(send(&market, &server, ("DELETE", &remove), None).0, 202);
    let settled = market.settled(&server, INSTANCE);
    assert_eq!(settled["state"], "succeeded", "{settled}\n{}", server.log());
    assert_eq!(send(&market, &server, ("DELETE", &remove), None).0, 410);
    assert_eq!(market.town.count("templateinstances"), 0);
    let claims = market.town.get("brokertemplateinstances")["items"].to_string();
    assert!(!claims.contains(INSTANCE), "{claims}");
    assert!(!server.log().contains(PASSWORD), "a password is in the log");
}

#[test]
fn what_was_ordered_elsewhere_is_unbound_and_removed_by_who_names_it_first() {
    let market = Market::new();
    ordered_before(&market, REMOVED, None);
    let service = market.service("web");
    // The template is gone, and is nobody's service any more; so is the instance's object.
    market.town.kubectl(&["delete", "templates.template.openshift.io", "web"]);
    market.town.kubectl(&["delete", "secret", "page"]);
    let server = market.serve_offering(1);
    let instance = format!("/service_instances/{REMOVED}");
    let of = format!("?service_id={service}&plan_id={service}");
    let wrong = format!("{instance}?service_id=other&plan_id=other&accepts_incomplete=true");
    assert_eq!(send(&market, &server, ("DELETE", &wrong), None).0, 400);
    let unbind = format!("{instance}/service_bindings/{BOUND}{of}");
    let (status, unbound) = send(&market, &server, ("DELETE", &unbind), None);
    assert_eq!(status, 200, "{unbound}\n{}", server.log());
    let remove = format!("{instance}{of}&accepts_incomplete=true");
    assert_eq!(send(&market, &server, ("DELETE", &remove), None).0, 202, "{}", server.log());
    assert_eq!(market.settled(&server, REMOVED)["state"], "succeeded", "{}", server.log());
    assert_eq!(market.town.count("templateinstances"), 0);
}

#[test]
fn what_failed_elsewhere_has_failed_here() {
    let market = Market::new();
    ordered_before(&market, FAILED, Some("no room"));
    let service = market.service("web");
    let server = market.serve();
    let settled = market.settled(&server, FAILED);
    assert_eq!((&settled["state"], &settled["description"]), (&json!("failed"), &json!("no room")));
    let instance = format!("/service_instances/{FAILED}");
    let binding = format!("{instance}/service_bindings/{OTHER}");
    let bind = json!({"service_id": service, "plan_id": service});
    let (status, bound) = send(&market, &server, ("PUT", &binding), Some(&bind));
    assert!((400..500).contains(&status), "{status} {bound}");
    let of = format!("?service_id={service}&plan_id={service}&accepts_incomplete=true");
    assert_eq!(send(&market, &server, ("DELETE", &(instance + &of)), None).0, 202);
    assert_eq!(market.settled(&server, FAILED)["state"], "succeeded", "{}", server.log());
    assert_eq!(market.town.count("templateinstances"), 0);
}
