//! What is answered under the name of a broker, before a simulated API server.

use std::sync::atomic::{AtomicBool, Ordering};

use axum::Json;
use axum::response::IntoResponse;
use http::StatusCode;
use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use kubernetes::Client;
use osb::server::{Authentication, Credentials};
use serde_json::{Value, json};

use super::*;

const IDENTITY: &str = "x-broker-api-request-identity";

#[test]
fn what_is_below_a_broker_stays_as_it_was_written() {
    for (path, expected) in [
        ("/brokers/a/v2/catalog", Some(("a", "/v2/catalog"))),
        ("/brokers/a/v2/x%2Fy?service_id=s%20t&b", Some(("a", "/v2/x%2Fy?service_id=s%20t&b"))),
        ("/brokers/a/", Some(("a", "/"))),
        ("/brokers/a//v2", Some(("a", "//v2"))),
        ("/brokers/a/brokers/b/v2", Some(("a", "/brokers/b/v2"))),
        ("/brokers//v2", Some(("", "/v2"))),
        ("/brokers/a", None),
        ("/brokers/a?x=/v2", None),
        ("/v2/catalog", None),
        ("/brokersa/v2", None),
    ] {
        let found = below(&path.parse().unwrap());
        let found = found.map(|(name, uri)| (name, uri.to_string()));
        let expected = expected.map(|(name, uri)| (name.to_owned(), uri.to_owned()));
        assert_eq!(found, expected, "{path}");
    }
}

/// Has a `Broker` `one`, no records, and no answer for those who ask for keys; once it is said, a catalog that `two` left.
fn server(is_left: &Arc<AtomicBool>) -> Client {
    let is_left = Arc::clone(is_left);
    let answer = move |uri: Uri| {
        let is_left = is_left.load(Ordering::Relaxed);
        async move {
            let query = uri.query().unwrap_or_default();
            if query.contains("watch=true") {
                std::future::pending::<()>().await;
            }
            let path = uri.path();
            if path.contains("/secrets") {
                let said = json!({"kind": "Status", "code": 503, "message": "come again"});
                return (StatusCode::SERVICE_UNAVAILABLE, Json(said)).into_response();
            }
            let catalog = json!({"metadata": {
                "name": "catalog-two", "annotations": {"manciple.dev/broker-name": "all/two"},
            }});
            let broker = json!({"metadata": {"name": "one"}, "spec": {"image": "broker:1"}});
            let items = match path {
                _ if path.ends_with("/brokers") => vec![broker],
                _ if is_left && query.contains("keeps%3Dcatalog") => vec![catalog],
                _ => Vec::new(),
            };
            Json(list(&items)).into_response()
        }
    };
    Client::new(Router::new().fallback(answer), "home")
}

fn list(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": items})
}

/// The routes of a server that knows what [`server`] has, and can open nothing of it.
async fn closed(is_left: &Arc<AtomicBool>) -> (Arc<Groups>, Router) {
    let client = server(is_left);
    let registry = Registry::open(client.clone(), "home").await.unwrap();
    let serve: Box<Serve> = Box::new(|_, _, _| unreachable!("without keys"));
    let cluster = Connected::before(client, &registry, "all");
    let groups = Groups::new(cluster, registry, "all", serve);
    groups.begin().await.unwrap();
    let known = Credentials::new().token("platform", "planted", "platform");
    let routes = routes(Arc::clone(&groups), Settings::new(Authentication::fixed(known)));
    (groups, routes)
}

/// The answer to a request for a path, of an identity that it has to have.
async fn answer(
    routes: &Router,
    path: &str,
    authorization: Option<&str>,
    version: Option<&str>,
) -> Response {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = path.parse().unwrap();
    for (name, value) in [
        ("authorization", authorization),
        ("x-broker-api-version", version),
        (IDENTITY, Some("4f-d2")),
    ] {
        if let Some(value) = value {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
    }
    let response = routes.clone().call(request).await.unwrap();
    assert_eq!(response.headers()[IDENTITY], "4f-d2", "{path}");
    response
}

/// What a platform that speaks our version is answered, and after how many seconds it is to come again.
async fn asked(routes: &Router, path: &str, authorization: Option<&str>) -> (u16, Option<String>) {
    let response = answer(routes, path, authorization, Some("2.17")).await;
    let again = response.headers().get(RETRY_AFTER).map(|it| it.to_str().unwrap().to_owned());
    (response.status().as_u16(), again)
}

#[tokio::test(start_paused = true)]
async fn who_asks_is_judged_before_the_version_and_both_before_the_broker() {
    let (_groups, routes) = closed(&Arc::default()).await;
    let (ours, strange) = (Some("Bearer planted"), Some("Bearer wrong"));
    for (case, path, authorization, version, expected) in [
        ("of nobody, without a version", "/brokers/one/v2/catalog", None, None, 401),
        ("of a stranger, in an old one", "/brokers/none/v2/catalog", strange, Some("1.0"), 401),
        ("without a version", "/brokers/one/v2/catalog", ours, None, 412),
        ("in an old one", "/brokers/one/v2/service_instances/i", ours, Some("1.0"), 412),
        ("without a version, nobody's", "/brokers/none/v2/catalog", ours, None, 412),
        ("without a version, elsewhere", "/v2/catalog", ours, None, 412),
        ("in our version", "/brokers/one/v2/catalog", ours, Some("2.17"), 503),
        ("in our version, nobody's", "/brokers/none/v2/catalog", ours, Some("2.17"), 404),
        ("operators speak none", "/brokers/one/admin/v1/instances", ours, None, 503),
        ("operators speak none, nobody's", "/brokers/none/admin/v1/instances", ours, None, 404),
        ("no broker is named", "/brokers/one", ours, None, 404),
    ] {
        let response = answer(&routes, path, authorization, version).await;
        assert_eq!(response.status().as_u16(), expected, "{case}");
        let challenged = response.headers().contains_key(WWW_AUTHENTICATE);
        assert_eq!(challenged, expected == 401, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_cannot_be_opened_now_is_not_said_to_be_none() {
    let is_left = Arc::new(AtomicBool::new(false));
    let (groups, routes) = closed(&is_left).await;
    let (ours, strange) = (Some("Bearer planted"), Some("Bearer wrong"));
    let again = Some("5".to_owned());
    for (case, path, authorization, expected) in [
        ("its Broker is there", "/brokers/one/v2/catalog", ours, (503, again.clone())),
        ("its operators, too", "/brokers/one/admin/v1/instances", ours, (503, again.clone())),
        ("nobody has it", "/brokers/none/v2/catalog", ours, (404, None)),
        ("nobody has it yet", "/brokers/two/v2/catalog", ours, (404, None)),
        ("no broker is named", "/brokers/one", ours, (404, None)),
        ("elsewhere", "/v2/catalog", ours, (404, None)),
        ("of a stranger", "/brokers/one/v2/catalog", strange, (401, None)),
        ("of nobody", "/brokers/none/v2/catalog", None, (401, None)),
    ] {
        assert_eq!(asked(&routes, path, authorization).await, expected, "{case}");
    }

    // Left behind by one that another replica served, and that never was heard of here.
    is_left.store(true, Ordering::Relaxed);
    let keeps = tokio::spawn(Arc::clone(&groups).keep());
    let learnt = async {
        while asked(&routes, "/brokers/two/v2/catalog", ours).await != (503, again.clone()) {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(2 * LEARN, learnt).await.expect("it is not learnt of");
    assert_eq!(asked(&routes, "/brokers/none/v2/catalog", ours).await, (404, None));
    keeps.abort();
}
