use axum::Router;
use http::Method;
use osb::{BindingId, DeprovisionRequest, InstanceId, LastOperationQuery, PlanId, ServiceId};
use serde_json::json;

use crate::support::{Ask, Heard, INSTANCE, Rig, delete, get, provision_with, put};

#[tokio::test]
async fn unknown_routes_are_404_as_json() {
    let rig = Rig::new();
    for path in [
        "/",
        "/v2",
        "/v2/",
        "/v1/catalog",
        "/v2/catalog/",
        "/v2/catalog/x",
        "//v2/catalog",
        "/v2//catalog",
        "/V2/catalog",
        "/v2/service_instances",
        "/v2/service_instances/i/",
        "/v2/service_instances/i/x",
        "/v2/service_instances/i/service_bindings",
        "/v2/service_instances/i/service_bindings/b/x",
        "/v2/service_instances/i/service_bindings/b/last_operation/x",
        "/a/b/c/d/e/f/g/h",
        "/v2/x/../catalog",
        "/v2/%63atalog",
        "/favicon.ico",
    ] {
        for method in [Method::GET, Method::PUT] {
            rig.send(Ask::new(method, path)).await.refusal(404, "NotFound");
        }
    }
}

#[tokio::test]
async fn a_slash_at_the_end_of_a_brokers_url_is_named() {
    let rig = Rig::new();
    for (path, named) in [("//v2/catalog", true), ("/v2//catalog", false), ("//v3/catalog", false)]
    {
        let told = rig.send(get(path)).await.refusal(404, "NotFound");
        assert_eq!(told.contains("without a slash at its end"), named, "{path}: {told}");
    }
}

#[tokio::test]
async fn methods_that_a_route_lacks_are_405_as_json_with_allow() {
    let rig = Rig::new();
    let cases = [
        (
            "/v2/catalog",
            "GET, HEAD",
            vec![Method::PUT, Method::POST, Method::DELETE, Method::PATCH, Method::OPTIONS],
        ),
        (
            INSTANCE,
            "GET, HEAD, PUT, PATCH, DELETE",
            vec![Method::POST, Method::OPTIONS, Method::TRACE],
        ),
        ("/v2/service_instances/i/last_operation", "GET, HEAD", vec![Method::PUT, Method::DELETE]),
        (
            "/v2/service_instances/i/service_bindings/b",
            "GET, HEAD, PUT, DELETE",
            vec![Method::PATCH, Method::POST],
        ),
        (
            "/v2/service_instances/i/service_bindings/b/last_operation",
            "GET, HEAD",
            vec![Method::PATCH],
        ),
        ("/openapi.json", "GET, HEAD", vec![Method::PUT]),
    ];
    for (path, allow, methods) in cases {
        for method in methods {
            let answer = rig.send(Ask::new(method, path)).await;
            answer.refusal(405, "MethodNotAllowed");
            assert_eq!(answer.header("allow"), Some(allow));
        }
    }
    assert_eq!(rig.heard(), []);
}

#[tokio::test]
async fn item_10_ids_are_any_string_percent_decoded_once() {
    let rig = Rig::new();
    let cases = [
        ("a%2Fb", "a/b"),
        (".", "."),
        ("..", ".."),
        ("%2e%2E", ".."),
        ("~", "~"),
        ("a%20b", "a b"),
        ("a+b", "a+b"),
        ("%C3%BC%E2%82%AC", "ü€"),
        ("a%252Fb", "a%2Fb"),
        ("%3F%23%26", "?#&"),
        ("a;b=c", "a;b=c"),
        ("last_operation", "last_operation"),
        ("%F0%9F%90%98", "🐘"),
        ("0", "0"),
    ];
    for (encoded, id) in cases {
        let instance = InstanceId::new(id).unwrap();
        let binding = BindingId::new(id).unwrap();
        let path = format!("/v2/service_instances/{encoded}");
        assert_eq!(rig.send(put(&path, &provision_with(json!({})))).await.status, 201);
        let heard = rig.heard();
        assert!(
            matches!(&heard[..], [Heard::Provision(heard, _)] if *heard == instance),
            "{encoded}: {heard:?}"
        );
        rig.send(get(&format!("{path}/service_bindings/{encoded}"))).await;
        assert_eq!(rig.heard(), [Heard::Binding(instance.clone(), binding.clone())]);
        rig.send(get(&format!("{path}/service_bindings/{encoded}/last_operation"))).await;
        let query = LastOperationQuery::default();
        assert_eq!(rig.heard(), [Heard::BindingLastOperation(instance, binding, query)]);
    }
}

#[tokio::test]
async fn item_10_ids_that_are_none_are_400_naming_them() {
    let rig = Rig::new();
    let long = "x".repeat(10_000);
    for encoded in
        ["", "%FF", "%C3", "%", "%4", "%zz", "%00", "%0A", "%7F", "%ED%A0%80", long.as_str()]
    {
        let instance = format!("/v2/service_instances/{encoded}");
        for (path, name) in [
            (instance.clone(), "instance_id"),
            (format!("{instance}/last_operation"), "instance_id"),
            (format!("{instance}/service_bindings/b"), "instance_id"),
            (format!("/v2/service_instances/i/service_bindings/{encoded}"), "binding_id"),
            (
                format!("/v2/service_instances/i/service_bindings/{encoded}/last_operation"),
                "binding_id",
            ),
        ] {
            let description = rig.send(get(&path)).await.names(&[name]);
            assert!(description.len() < 200, "{description}");
        }
    }
    assert_eq!(rig.heard(), []);
}

#[tokio::test]
async fn queries_are_decoded_and_known_members_are_sent_once() {
    let rig = Rig::new();
    let path = "/v2/service_instances/i?accepts_incomplete=true&service_id=a%2Fb+c&plan%5Fid=%C3%BC%2B&x=1&x=2&&=";
    assert_eq!(rig.send(delete(path)).await.status, 200);
    let [(call, heard)] = &rig.heard_calls()[..] else { panic!("one call") };
    assert!(call.accepts_incomplete);
    let request = DeprovisionRequest {
        service_id: ServiceId::new("a/b c").unwrap(),
        plan_id: PlanId::new("ü+").unwrap(),
    };
    assert_eq!(*heard, Heard::Deprovision(InstanceId::new("i").unwrap(), request));
    for (query, name) in [
        ("service_id=a&service_id=a&plan_id=p", "service_id"),
        ("service_id=a&plan_id=p&plan_id=q", "plan_id"),
        (
            "service_id=a&plan_id=p&accepts_incomplete=true&accepts_incomplete=true",
            "accepts_incomplete",
        ),
        ("service_id=%FF&plan_id=p", "service_id"),
        ("service_id=a&plan_id=%4", "plan_id"),
    ] {
        rig.send(delete(&format!("/v2/service_instances/i?{query}"))).await.names(&[name]);
    }
    assert_eq!(rig.heard(), []);
}

#[tokio::test]
async fn accepts_incomplete_is_true_or_false() {
    let rig = Rig::new();
    let body = provision_with(json!({}));
    for (query, accepts) in
        [("", false), ("?accepts_incomplete=true", true), ("?accepts_incomplete=false", false)]
    {
        assert_eq!(rig.send(put(&format!("{INSTANCE}{query}"), &body)).await.status, 201);
        assert_eq!(rig.heard_calls()[0].0.accepts_incomplete, accepts);
    }
    for wrong in ["", "=", "=1", "=True", "=yes", "=true%20", "=%00"] {
        let path = format!("{INSTANCE}?accepts_incomplete{wrong}");
        rig.send(put(&path, &body)).await.names(&["accepts_incomplete"]);
    }
    assert_eq!(rig.heard(), []);
}

#[tokio::test]
async fn head_is_get() {
    let rig = Rig::new();
    for path in ["/v2/catalog", "/openapi.json"] {
        assert_eq!(rig.send(Ask::new(Method::HEAD, path)).await.status, 200);
    }
    rig.send(Ask::new(Method::HEAD, INSTANCE)).await.refusal(404, "NotFound");
    assert_eq!(rig.heard(), [Heard::Instance(InstanceId::new("i").unwrap())]);
}

#[tokio::test]
async fn the_openapi_document_is_served() {
    let rig = Rig::new();
    let answer = rig.send(get("/openapi.json")).await;
    assert_eq!((answer.status, answer.bytes.as_slice()), (200, osb::OPENAPI.as_bytes()));
    answer.json();
}

#[tokio::test]
async fn the_router_can_be_nested_and_merged() {
    let rig = Rig::new();
    let health = Router::new().route("/healthz", axum::routing::get(async || "ok"));
    let nested = Rig {
        router: Router::new().nest("/brokers/one", rig.router.clone()).merge(health.clone()),
        backend: rig.backend.clone(),
    };
    assert_eq!(nested.send(get("/brokers/one/v2/catalog")).await.status, 200);
    assert_eq!(nested.send(get("/brokers/one/openapi.json")).await.status, 200);
    nested.send(get("/brokers/one/unknown")).await.refusal(404, "NotFound");
    nested
        .send(get("/brokers/one/v2/catalog").without("authorization"))
        .await
        .refusal(401, "Unauthorized");
    let path = "/brokers/one/v2/service_instances/a%2Fb";
    assert_eq!(nested.send(put(path, &provision_with(json!({})))).await.status, 201);
    let heard = nested.heard();
    assert!(matches!(&heard[..], [Heard::Provision(id, _)] if id.as_str() == "a/b"), "{heard:?}");

    let merged = Rig { router: health.merge(rig.router.clone()), backend: rig.backend.clone() };
    assert_eq!(merged.send(Ask::bare(Method::GET, "/healthz")).await.bytes, b"ok");
    merged.send(Ask::bare(Method::GET, "/v2/catalog")).await.refusal(401, "Unauthorized");
}
