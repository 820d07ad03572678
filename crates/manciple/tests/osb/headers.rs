//! Items 1 to 10: headers, errors, ids.

use axum::body::Body;
use data_encoding::BASE64;
use http::{Method, Request};
use serde_json::{Value, json};

use crate::harness::{Api, SERVICE, binding, instance, order};

#[tokio::test(start_paused = true)]
async fn item_01_an_absent_empty_or_unsupported_version_is_412() {
    let api = Api::new().await;
    let absent = Request::get("/v2/catalog").body(Body::empty()).unwrap();
    api.raw(absent).await.refused(412, "UnsupportedVersion", "2.17");
    for version in ["", "3.0", "1.9", "two"] {
        let headers = [("X-Broker-API-Version", version)];
        let answer = api.send_with(Method::GET, "/v2/catalog", None, &headers).await;
        answer.refused(412, "UnsupportedVersion", "2.17");
    }
    for version in ["2.13", "2.17", "2.99"] {
        let headers = [("X-Broker-API-Version", version)];
        api.send_with(Method::GET, "/v2/catalog", None, &headers).await.is(200);
    }
}

#[tokio::test(start_paused = true)]
async fn item_02_authentication_fails_with_401_before_the_body_and_the_version_are_looked_at() {
    let api = Api::guarded().await;
    let paths = ["/v2/catalog", &instance("i"), &binding("i", "b"), "/openapi.json", "/nothing"];
    for path in paths {
        for authorization in [
            None,
            Some("Basic wrong".to_owned()),
            Some(format!("Basic {}", BASE64.encode(b"platform:wrong"))),
            Some("Bearer wrong".to_owned()),
        ] {
            let mut request = Request::put(path);
            if path == "/openapi.json" || path == "/v2/catalog" {
                request = Request::get(path);
            }
            if let Some(authorization) = &authorization {
                request = request.header("Authorization", authorization);
            }
            let answer = api.raw(request.body(Body::from("{")).unwrap()).await;
            answer.refused(401, "Unauthorized", "Authorization");
        }
    }
    let good = format!("Basic {}", BASE64.encode(b"platform:planted-password"));
    for authorization in [good.as_str(), "Bearer planted-token"] {
        let headers = [("Authorization", authorization)];
        api.send_with(Method::GET, "/v2/catalog", None, &headers).await.is(200);
    }
}

#[tokio::test(start_paused = true)]
async fn item_03_the_request_identity_comes_back_on_errors_too() {
    let api = Api::new().await;
    let headers = [("X-Broker-API-Request-Identity", "e26cee84-6b38-4456-b34e-d1a9f002c956")];
    for path in ["/v2/catalog", "/v2/service_instances/none", "/nowhere"] {
        let answer = api.send_with(Method::GET, path, None, &headers).await;
        assert_eq!(answer.header("x-broker-api-request-identity"), Some(headers[0].1), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn item_04_the_originating_identity_reaches_the_broker_and_garbage_is_400() {
    let api = Api::new().await;
    let value = BASE64.encode(br#"{"user_id":"683ea748"}"#);
    let identity = format!("cloudfoundry {value}");
    let headers = [("X-Broker-API-Originating-Identity", identity.as_str())];
    let body = Some(order(json!({})));
    api.send_with(Method::PUT, &instance("i"), body, &headers).await.is(202);
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let seen = api.runner.works()[0].originating_identity.clone().unwrap();
    assert_eq!(seen.platform, "cloudfoundry");
    assert_eq!(seen.value.expose()["user_id"], json!("683ea748"));
    for garbage in ["cloudfoundry", "cloudfoundry !!!", "cloudfoundry bm90anNvbg=="] {
        let headers = [("X-Broker-API-Originating-Identity", garbage)];
        let body = Some(order(json!({})));
        let answer = api.send_with(Method::PUT, &instance("j"), body, &headers).await;
        answer.refused(400, "BadRequest", "Originating-Identity");
    }
}

#[tokio::test(start_paused = true)]
async fn item_05_a_malformed_body_or_another_content_type_is_400() {
    let api = Api::new().await;
    let send = |content_type: Option<&'static str>, body: String| {
        let mut request = Request::put(instance("i")).header("X-Broker-API-Version", "2.17");
        if let Some(content_type) = content_type {
            request = request.header("Content-Type", content_type);
        }
        api.raw(request.body(Body::from(body)).unwrap())
    };
    let json = Some("application/json");
    for body in ["", "{", "[]", "3", "nul", &"[".repeat(50_000), "{\"a\":1}x", "\u{feff}{}"] {
        send(json, body.to_owned()).await.is(400);
    }
    let good = order(json!({})).to_string();
    send(Some("text/plain"), good.clone()).await.refused(400, "BadRequest", "Content-Type");
    // Korifi sends none.
    send(None, good.clone()).await.is(202);
    send(Some("application/json; charset=utf-8"), good).await.is(202);
}

#[tokio::test(start_paused = true)]
async fn item_06_unknown_members_are_ignored() {
    let api = Api::new().await;
    let body = order(json!({ "from_the_future": { "deep": [1, 2, 3] } }));
    api.put(&instance("i"), body).await.is(202);
}

#[tokio::test(start_paused = true)]
async fn item_07_errors_have_one_camel_case_word_and_a_description() {
    let api = Api::new().await;
    api.provision("i", json!({})).await.is(202);
    let answers = [
        api.put("/v2/service_instances/j", order(json!({}))).await,
        api.update("i", json!({})).await,
        api.provision("k", json!({ "maintenance_info": { "version": "9.9.9" } })).await,
        api.get("/v2/service_instances/unknown").await,
        api.get("/v2/nothing").await,
        api.send(Method::POST, "/v2/catalog", None).await,
    ];
    let words: Vec<_> = answers.iter().map(crate::harness::Answer::word).collect();
    let expected = [
        "AsyncRequired",
        "ConcurrencyError",
        "MaintenanceInfoConflict",
        "NotFound",
        "NotFound",
        "MethodNotAllowed",
    ];
    assert_eq!(words, expected);
    for answer in &answers {
        assert!(answer.word().bytes().all(|byte| byte.is_ascii_alphabetic()));
        assert!(!answer.body["description"].as_str().unwrap().is_empty());
    }
    assert!(answers[..3].iter().all(|answer| answer.status == 422));
}

#[tokio::test(start_paused = true)]
async fn item_08_usable_and_repeatable_are_said_only_of_updates_and_deprovisions() {
    use engine::testing::scripted_runner::Act;
    use std::time::Duration;
    let api = Api::new().await;
    api.provisioned("i").await;
    api.runner.script(|_| {
        let mut failure = osb::Failure::failed("it broke");
        failure.instance_usable = Some(false);
        failure.update_repeatable = Some(true);
        let reason = engine::record::Reason::Reported;
        Act::End(Duration::ZERO, Err(engine::ports::RunFailure::new(reason, failure)))
    });
    let last = async |path: String, operation: String| api.finish(&path, &operation).await.body;
    let bind = api.bind("i", "b", json!({})).await.operation();
    let bind = last(binding("i", "b"), bind).await;
    let update = api.update("i", json!({ "parameters": { "size": 2 } })).await.operation();
    let update = last(instance("i"), update).await;
    let remove = api.unbind("i", "b").await.operation();
    last(binding("i", "b"), remove).await;
    let provision = api.provision("j", json!({})).await.operation();
    let provision = last(instance("j"), provision).await;
    let deprovision = api.deprovision("j").await.operation();
    let deprovision = last(instance("j"), deprovision).await;
    let flags = |body: &Value| {
        (body.get("instance_usable").cloned(), body.get("update_repeatable").cloned())
    };
    assert_eq!(flags(&provision), (None, None));
    assert_eq!(flags(&bind), (None, None));
    assert_eq!(flags(&update), (Some(json!(false)), Some(json!(true))));
    assert_eq!(flags(&deprovision), (Some(json!(false)), None));
}

#[tokio::test(start_paused = true)]
async fn item_09_a_4xx_changes_nothing() {
    let api = Api::new().await;
    api.provisioned("i").await;
    api.bound("i", "b").await;
    let writes = api.store.writes();
    let runs = api.runner.works().len();
    let refused = [
        api.provision("i", json!({ "parameters": { "size": 1 } })).await,
        api.put(&instance("x"), order(json!({ "service_id": "unknown" }))).await,
        api.update("i", json!({ "plan_id": "unknown" })).await,
        api.update("i", json!({ "parameters": { "size": 11 } })).await,
        api.bind("i", "b", json!({ "parameters": { "size": 1 } })).await,
        api.deprovision("i").await,
        api.unbind("i", "unknown").await,
        api.delete(&instance("i")).await,
    ];
    for answer in &refused {
        assert!(answer.status.is_client_error(), "{answer:?}");
    }
    assert_eq!((api.store.writes(), api.runner.works().len()), (writes, runs));
}

#[tokio::test(start_paused = true)]
async fn item_10_ids_are_any_non_empty_string() {
    let api = Api::new().await;
    let ids = ["a%2Fb", "%2e", "~", "%C3%BC%F0%9F%A6%80", "a%20b", "%25", "..%2F..%2Fetc"];
    for id in ids {
        api.provisioned(id).await;
        api.bound(id, id).await;
        let view = api.get(&format!("/v2/service_instances/{id}")).await;
        assert_eq!(view.is(200).body["service_id"], SERVICE);
    }
    assert_eq!(api.runner.works()[0].instance_id.as_str(), "a/b");
    let long = "x".repeat(10_000);
    api.provision(&long, json!({})).await.refused(400, "BadRequest", "instance_id");
    api.provision("a%00b", json!({})).await.refused(400, "BadRequest", "instance_id");
    api.provision("%ff", json!({})).await.refused(400, "BadRequest", "instance_id");
    let operation = api.provision("z", json!({})).await.operation();
    assert!(operation.len() <= 10_000);
}
