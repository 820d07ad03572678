//! What the broker of OpenShift ordered is known here: it kept a BrokerTemplateInstance, and what that names.

use serde_json::{Value, json};

use super::market::Market;
use super::support::{Served, within};

/// Of the whole cluster: one for each test.
const INSTANCE: &str = "44444444-2222-4333-8444-555555555555";
const CLAIMED: &str = "44444444-2222-4333-8444-888888888888";
const STRICT: &str = "44444444-2222-4333-8444-999999999999";
const FAILED: &str = "44444444-2222-4333-8444-777777777777";
const REMOVED: &str = "44444444-2222-4333-8444-666666666666";
const GOING: &str = "44444444-2222-4333-8444-aaaaaaaaaaaa";
const GOING_STRICT: &str = "44444444-2222-4333-8444-bbbbbbbbbbbb";
const NAMED: &str = "44444444-2222-4333-8444-cccccccccccc";
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

/// A market where somebody else makes instances, and one that was ordered before and bound once. The test plays their
/// controller, which owns nothing that it makes.
fn ordered_before(id: &str) -> Market {
    let mut market = Market::new();
    market.makes_nothing();
    claimed(&market, id);
    let claim = uid(&market, &format!("brokertemplateinstance/{id}"));
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
        "spec": {"template": template, "secret": {"name": id}, "requester": {"username": "editor"}},
    }));
    let instance = uid(&market, &format!("templateinstance/{id}"));
    market.town.make(&json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": "page", "labels": {"template.openshift.io/template-instance-owner": instance},
            "annotations": {"template.openshift.io/expose-password": "{.data['password']}"},
        },
        "stringData": {"password": PASSWORD},
    }));
    market
}

/// What the broker makes first.
fn claimed(market: &Market, id: &str) {
    let namespace = &market.town.namespace;
    let of = |kind: &str| json!({"kind": kind, "name": id, "namespace": namespace});
    market.make_global(&json!({
        "apiVersion": "template.openshift.io/v1", "kind": "BrokerTemplateInstance",
        "metadata": {"name": id},
        "spec": {
            "templateInstance": of("TemplateInstance"), "secret": of("Secret"), "bindingIDs": [BOUND],
        },
    }));
}

/// What their controller says.
fn ended(market: &Market, id: &str, failure: Option<&str>) {
    let namespace = &market.town.namespace;
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

/// What their controller does when an instance is to go.
fn removed(market: &Market, server: &Served, id: &str) {
    let instance = format!("templateinstance/{id}");
    let is_going = || {
        let there = market.town.get(&instance);
        there["metadata"]["deletionTimestamp"].is_string().then_some(())
    };
    assert!(within(30, is_going).is_some(), "nobody removes it\n{}", server.log());
    market.town.kubectl(&["delete", "--ignore-not-found", "secret", "page"]);
    let patch = r#"{"metadata":{"finalizers":null}}"#;
    market.town.kubectl(&["patch", &instance, "--type=merge", "-p", patch]);
    assert_eq!(market.settled(server, id)["state"], "succeeded", "{}", server.log());
    assert_eq!(market.town.count("templateinstances"), 0);
    let claims = market.town.get("brokertemplateinstances")["items"].to_string();
    assert!(!claims.contains(id), "{claims}");
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
    let market = ordered_before(INSTANCE);
    let service = market.service("web");
    let server = market.serve();
    let instance = format!("/service_instances/{INSTANCE}");
    let of = format!("?service_id={service}&plan_id={service}");
    let remove = format!("{instance}{of}&accepts_incomplete=true");
    // Nothing is recorded for those who may not.
    for (user, method, path, expected) in [
        ("", "GET", instance.clone(), 400),
        ("stranger", "GET", instance.clone(), 403),
        ("stranger", "GET", format!("{instance}/last_operation"), 403),
        ("viewer", "DELETE", remove.clone(), 403),
        ("editor", "DELETE", remove.replace(&service, "other"), 400),
    ] {
        let answer = market.send(&server, user, method, &path, None);
        assert_eq!(answer.status, expected, "{user} {method}: {answer:?}");
        assert_eq!(market.records(), 0, "{user} {method}");
    }
    // It is still being made; then it is there.
    let last = format!("{instance}/last_operation");
    let (status, going) = send(&market, &server, ("GET", &last), None);
    assert_eq!((status, &going["state"]), (200, &json!("in progress")), "{going}");
    assert_eq!(send(&market, &server, ("GET", &instance), None).0, 404);
    let binding = format!("{instance}/service_bindings/{OTHER}");
    let bind = json!({"service_id": service, "plan_id": service});
    for (method, path, body) in [
        ("PUT", binding.clone(), Some(&bind)),
        ("DELETE", binding.clone() + &of, None),
        ("PATCH", format!("{instance}?accepts_incomplete=true"), Some(&bind)),
    ] {
        let (status, busy) = send(&market, &server, (method, &path), body);
        assert_eq!((status, &busy["error"]), (422, &json!("ConcurrencyError")), "{method} {busy}");
    }
    assert_eq!(market.records(), 0, "nothing is recorded before it is known how it ends");
    ended(&market, INSTANCE, None);
    assert_eq!(market.settled(&server, INSTANCE)["state"], "succeeded");
    assert_eq!(market.records(), 1);

    let (status, view) = send(&market, &server, ("GET", &instance), None);
    assert_eq!(status, 200, "{view}\n{}", server.log());
    assert_eq!((&view["service_id"], &view["plan_id"]), (&json!(service), &json!(service)));
    assert_eq!(view["parameters"], json!({"NAME": "page"}));
    let put = format!("{instance}?accepts_incomplete=true");
    for (name, expected) in [("page", 200), ("other", 409)] {
        let order = market.order(&service, json!({"NAME": name}));
        let (status, again) = send(&market, &server, ("PUT", &put), Some(&order));
        assert_eq!(status, expected, "{name}: {again}\n{}", server.log());
    }
    assert_eq!(market.send(&server, "viewer", "GET", &instance, None).status, 403);
    bindings(&market, &server, &service);
    let claim = market.town.get(&format!("brokertemplateinstance/{INSTANCE}"));
    assert_eq!(claim["spec"]["bindingIDs"], json!([]));

    assert_eq!(send(&market, &server, ("DELETE", &remove), None).0, 202);
    removed(&market, &server, INSTANCE);
    assert_eq!(send(&market, &server, ("DELETE", &remove), None).0, 410);
    assert!(!server.log().contains(PASSWORD), "a password is in the log");
}

/// One that was bound before, and one that is bound now.
fn bindings(market: &Market, server: &Served, service: &str) {
    let bind =
        json!({"service_id": service, "plan_id": service, "bind_resource": {"app_guid": "a"}});
    let binding = |id: &str| format!("/service_instances/{INSTANCE}/service_bindings/{id}");
    for (method, id, body, expected) in [
        ("GET", BOUND, None, 200),
        ("PUT", BOUND, Some(&bind), 200),
        ("PUT", OTHER, Some(&bind), 201),
    ] {
        let (status, bound) = send(market, server, (method, &binding(id)), body);
        assert_eq!(status, expected, "{method} {id}: {bound}\n{}", server.log());
        assert_eq!(bound["credentials"], json!({"password": PASSWORD}), "{method} {id}");
    }
    let unknown = "44444444-bbbb-4ccc-8ddd-00000000000f";
    assert_eq!(send(market, server, ("GET", &binding(unknown)), None).0, 404);
    let of = format!("?service_id={service}&plan_id={service}");
    for (id, expected) in [(BOUND, 200), (BOUND, 410), (OTHER, 200), (unknown, 410)] {
        let (status, unbound) = send(market, server, ("DELETE", &(binding(id) + &of)), None);
        assert_eq!(status, expected, "{id}: {unbound}");
    }
}

#[test]
fn what_was_ordered_elsewhere_is_unbound_and_removed_by_who_names_it_first() {
    let market = ordered_before(REMOVED);
    ended(&market, REMOVED, None);
    let service = market.service("web");
    // The template is gone, and is nobody's service any more; so is the instance's object.
    market.town.kubectl(&["delete", "templates.template.openshift.io", "web"]);
    market.town.kubectl(&["delete", "secret", "page"]);
    let server = market.serve_offering(1);
    let instance = format!("/service_instances/{REMOVED}");
    let of = format!("?service_id={service}&plan_id={service}");
    let unbind = format!("{instance}/service_bindings/{BOUND}{of}");
    let (status, unbound) = send(&market, &server, ("DELETE", &unbind), None);
    assert_eq!(status, 200, "{unbound}\n{}", server.log());
    let remove = format!("{instance}{of}&accepts_incomplete=true");
    assert_eq!(send(&market, &server, ("DELETE", &remove), None).0, 202, "{}", server.log());
    removed(&market, &server, REMOVED);
}

#[test]
fn what_failed_elsewhere_has_failed_here() {
    let market = ordered_before(FAILED);
    ended(&market, FAILED, Some("no room"));
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
    removed(&market, &server, FAILED);
}

#[test]
fn an_order_that_was_interrupted_is_carried_out_when_it_is_repeated() {
    let mut market = Market::new();
    market.makes_nothing();
    claimed(&market, CLAIMED);
    let service = market.service("web");
    let server = market.serve();
    let instance = format!("/service_instances/{CLAIMED}");
    assert_eq!(send(&market, &server, ("GET", &instance), None).0, 404);
    let put = format!("{instance}?accepts_incomplete=true");
    let order = market.order(&service, json!({"NAME": "page"}));
    assert_eq!(send(&market, &server, ("PUT", &put), Some(&order)).0, 202, "{}", server.log());
    let is_there = || (market.town.count("templateinstances") == 1).then_some(());
    assert!(within(30, is_there).is_some(), "nothing is made\n{}", server.log());
    let made = market.town.get(&format!("templateinstance/{CLAIMED}"));
    assert_eq!(made["spec"]["requester"]["username"], "editor");
}

/// Platforms that go by the original's status codes have ordered most of it.
#[test]
fn what_was_ordered_elsewhere_is_known_by_the_status_codes_of_the_original() {
    let mut market = ordered_before(STRICT);
    market.has_the_status_codes_of_the_original();
    ended(&market, STRICT, None);
    let service = market.service("web");
    let server = market.serve();
    let instance = format!("/service_instances/{STRICT}");
    let of = format!("?service_id={service}&plan_id={service}");
    let last = format!("{instance}/last_operation?operation=provisioning");
    let (status, stands) = send(&market, &server, ("GET", &last), None);
    assert_eq!((status, &stands["state"]), (200, &json!("succeeded")), "{stands}");
    let bind = json!({"service_id": service, "plan_id": service});
    // Of ids in capitals, as the original took them, those that it noted are known.
    let unknown = format!("{instance}/service_bindings/{}", OTHER.to_uppercase());
    assert_eq!(send(&market, &server, ("PUT", &unknown), Some(&bind)).0, 400);
    let binding = format!("{instance}/service_bindings/{}", BOUND.to_uppercase());
    let (status, bound) = send(&market, &server, ("PUT", &binding), Some(&bind));
    assert_eq!((status, &bound["credentials"]["password"]), (200, &json!(PASSWORD)), "{bound}");
    assert_eq!(send(&market, &server, ("DELETE", &(binding + &of)), None).0, 200);
    let remove = format!("{instance}{of}&accepts_incomplete=true");
    assert_eq!(send(&market, &server, ("DELETE", &remove), None).0, 202);
    let going = format!("{instance}/last_operation?operation=deprovisioning");
    let (status, stands) = send(&market, &server, ("GET", &going), None);
    assert_eq!((status, &stands["state"]), (200, &json!("in progress")), "{stands}");
}

/// Until the claim is gone the removal has not ended, whoever asks in whichever words.
#[test]
fn a_removal_that_was_begun_elsewhere_is_waited_for() {
    for (id, is_strict) in [(GOING, false), (GOING_STRICT, true)] {
        let mut market = ordered_before(id);
        if is_strict {
            market.has_the_status_codes_of_the_original();
        }
        ended(&market, id, None);
        let claim = format!("brokertemplateinstance/{id}");
        let hold = |finalizers: Value| {
            let patch = json!({"metadata": {"finalizers": finalizers}}).to_string();
            market.town.kubectl(&["patch", &claim, "--type=merge", "-p", &patch]);
        };
        hold(json!(["example.com/held"]));
        market.town.kubectl(&["delete", &claim, "--wait=false"]);
        let service = market.service("web");
        let server = market.serve();
        let instance = format!("/service_instances/{id}");
        let of = format!("?service_id={service}&plan_id={service}");
        let last = match is_strict {
            true => format!("{instance}/last_operation?operation=deprovisioning"),
            false => format!("{instance}/last_operation"),
        };
        let (status, going) = send(&market, &server, ("GET", &last), None);
        assert_eq!((status, &going["state"]), (200, &json!("in progress")), "{going}");
        let bind = json!({"service_id": service, "plan_id": service});
        let binding = format!("{instance}/service_bindings/{OTHER}");
        let (status, bound) = send(&market, &server, ("PUT", &binding), Some(&bind));
        assert_eq!((status, &bound["error"]), (422, &json!("ConcurrencyError")), "{bound}");
        let remove = format!("{instance}{of}&accepts_incomplete=true");
        let (status, asked) = send(&market, &server, ("DELETE", &remove), None);
        assert_eq!(status, 202, "{asked}\n{}", server.log());
        let gone = format!("{instance}/last_operation?operation=deprovisioning");
        let is_going = || {
            let there = market.town.get(&format!("templateinstance/{id}"));
            there["metadata"]["deletionTimestamp"].is_string().then_some(())
        };
        assert!(within(30, is_going).is_some(), "nobody removes it\n{}", server.log());
        // Not before: whoever finds no claim any more leaves the rest to its owner's end.
        hold(json!(null));
        let (status, stands) = send(&market, &server, ("GET", &gone), None);
        let words = "its objects are there";
        assert_eq!((status, &stands["state"]), (200, &json!("in progress")), "{words}: {stands}");
        market.town.kubectl(&["delete", "--ignore-not-found", "secret", "page"]);
        let patch = r#"{"metadata":{"finalizers":null}}"#;
        let what = format!("templateinstance/{id}");
        market.town.kubectl(&["patch", &what, "--type=merge", "-p", patch]);
        let ended = || {
            let (_, stands) = send(&market, &server, ("GET", &last), None);
            (stands["state"] == "succeeded").then_some(())
        };
        assert!(within(60, ended).is_some(), "it never ends\n{}", server.log());
    }
}

/// The platform knows it by the uid of its template, whatever services are called now.
#[test]
fn what_was_ordered_elsewhere_is_removed_by_the_id_that_it_had() {
    let mut market = ordered_before(NAMED);
    market.names_services();
    ended(&market, NAMED, None);
    let uid = market.service("web");
    let server = market.serve();
    let instance = format!("/service_instances/{NAMED}");
    let (status, view) = send(&market, &server, ("GET", &instance), None);
    assert_eq!((status, &view["service_id"]), (200, &json!(uid)), "{view}");
    let remove = format!("{instance}?service_id={uid}&plan_id={uid}&accepts_incomplete=true");
    let (status, asked) = send(&market, &server, ("DELETE", &remove), None);
    assert_eq!(status, 202, "{asked}\n{}", server.log());
    removed(&market, &server, NAMED);
}
