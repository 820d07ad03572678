use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;

use super::double::{Answer, Double, Seen};
use super::*;
use crate::broker::Action;
use crate::model::{
    BindRequest, BindingId, DeprovisionRequest, InstanceId, LastOperation, LastOperationQuery,
    Object, OperationState, ProvisionRequest, UnbindRequest, UpdateRequest,
};

mod orders;
mod polls;

fn client(double: &Double) -> Client {
    Client::new(ClientSettings::new(double.url())).unwrap()
}

fn instance() -> InstanceId {
    InstanceId::new("i").unwrap()
}

fn binding() -> BindingId {
    BindingId::new("b").unwrap()
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn provision_request() -> ProvisionRequest {
    read(json!({
        "service_id": "s", "plan_id": "p", "organization_guid": "o", "space_guid": "sp",
        "parameters": {"password": "hunter2"},
    }))
}

fn bind_request() -> BindRequest {
    read(json!({"service_id": "s", "plan_id": "p"}))
}

fn deprovision_request() -> DeprovisionRequest {
    read(json!({"service_id": "s", "plan_id": "p"}))
}

fn unbind_request() -> UnbindRequest {
    read(json!({"service_id": "s", "plan_id": "p"}))
}

#[tokio::test]
async fn every_route_is_spelt_as_the_specification_has_it() {
    let double = Double::start(|seen: &Seen| match seen.path.as_str() {
        "/v2/catalog" => Answer::json(200, &json!({"services": []})),
        path if path.ends_with("last_operation") => {
            Answer::json(200, &json!({"state": "succeeded"}))
        }
        _ if seen.method == Method::GET => {
            Answer::json(200, &json!({"service_id": "s", "plan_id": "p"}))
        }
        _ => Answer::json(200, &json!({})),
    })
    .await;
    let client = client(&double);
    let (i, b) = (InstanceId::new("a/ü").unwrap(), BindingId::new("..").unwrap());
    let query = LastOperationQuery { operation: Some("o p".to_owned()), ..Default::default() };
    let update: UpdateRequest = read(json!({"service_id": "s"}));

    client.catalog(None).await.unwrap();
    client.provision(&i, &provision_request()).await.unwrap();
    client.update(&i, &update).await.unwrap();
    client.deprovision(&i, &deprovision_request()).await.unwrap();
    client.instance(&i).await.unwrap();
    client.instance_last_operation(&i, &query).await.unwrap();
    client.bind(&i, &b, &bind_request()).await.unwrap();
    client.unbind(&i, &b, &unbind_request()).await.unwrap();
    client.binding(&i, &b).await.unwrap();
    client.binding_last_operation(&i, &b, &query).await.unwrap();
    client.accepting_incomplete(false).update(&i, &update).await.unwrap();

    let instance = "/v2/service_instances/a%2F%C3%BC";
    let binding = format!("{instance}/service_bindings/%2E%2E");
    let names = "service_id=s&plan_id=p&accepts_incomplete=true";
    let expected = [
        "GET /v2/catalog".to_owned(),
        format!("PUT {instance}?accepts_incomplete=true"),
        format!("PATCH {instance}?accepts_incomplete=true"),
        format!("DELETE {instance}?{names}"),
        format!("GET {instance}"),
        format!("GET {instance}/last_operation?operation=o%20p"),
        format!("PUT {binding}?accepts_incomplete=true"),
        format!("DELETE {binding}?{names}"),
        format!("GET {binding}"),
        format!("GET {binding}/last_operation?operation=o%20p"),
        format!("PATCH {instance}"),
    ];
    assert_eq!(double.lines(), expected);
    for seen in double.seen() {
        let has_body = seen.method == Method::PUT || seen.method == Method::PATCH;
        let content_type = seen.header("content-type");
        assert_eq!(content_type, has_body.then_some("application/json"), "{}", seen.line());
    }
    assert_eq!(double.seen()[1].json()["parameters"]["password"], "hunter2");
}

#[tokio::test]
async fn every_request_bears_the_headers() {
    let double = Double::start(|_| Answer::json(200, &json!({"services": []}))).await;
    let value = json!({"user_id": "u"}).as_object().cloned().unwrap();
    let settings = ClientSettings {
        auth: Auth::Basic { user: "u".to_owned(), password: "p".to_owned().into() },
        api_version: "2.16".to_owned(),
        originating_identity: Some(OriginatingIdentity {
            platform: "cloudfoundry".to_owned(),
            value: value.into(),
        }),
        user_agent: "tester".to_owned(),
        ..ClientSettings::new(double.url())
    };
    let client = Client::new(settings).unwrap();
    let generated = client.catalog(None).await.unwrap();
    let identified = client.clone().with_request_identity("mine").unwrap();
    let given = identified.catalog(None).await.unwrap();
    let other = OriginatingIdentity { platform: "other".to_owned(), value: Object::new().into() };
    for identity in [Some(&other), None] {
        let client = client.clone().with_originating_identity(identity).unwrap();
        client.catalog(None).await.unwrap();
    }

    let seen = double.seen();
    for (name, expected) in [
        ("authorization", "Basic dTpw"),
        ("x-broker-api-version", "2.16"),
        ("x-broker-api-originating-identity", "cloudfoundry eyJ1c2VyX2lkIjoidSJ9"),
        ("user-agent", "tester"),
        ("accept", "application/json"),
    ] {
        assert_eq!(seen[0].header(name), Some(expected), "{name}");
    }
    let sent = seen[0].header("x-broker-api-request-identity").unwrap();
    assert_eq!((sent, sent.len()), (generated.request_identity.as_str(), 36));
    assert_eq!(seen[1].header("x-broker-api-request-identity"), Some("mine"));
    assert_eq!(given.request_identity, "mine");
    for (seen, expected) in [(&seen[2], Some("other e30=")), (&seen[3], None)] {
        assert_eq!(seen.header("x-broker-api-originating-identity"), expected);
    }
}

#[tokio::test]
async fn a_prefix_precedes_every_route() {
    let double = Double::start(|_| Answer::json(200, &json!({"services": []}))).await;
    let settings = ClientSettings::new(format!("{}/brokers/mine/", double.url()));
    Client::new(settings).unwrap().catalog(None).await.unwrap();
    assert_eq!(double.lines(), ["GET /brokers/mine/v2/catalog"]);
}

#[tokio::test]
async fn an_unchanged_catalog_is_not_read_again() {
    let double = Double::start(|seen: &Seen| match seen.header("if-none-match") {
        Some("\"1\"") => Answer::raw(304, ""),
        _ => Answer::json(200, &json!({"services": []})).header("etag", "\"1\""),
    })
    .await;
    let client = client(&double);
    let first = client.catalog(None).await.unwrap();
    assert!(first.body.is_some());
    let second = client.catalog(first.etag.as_deref()).await.unwrap();
    assert_eq!((second.status, second.body), (304, None));
}

#[tokio::test]
async fn a_304_that_was_not_asked_for_is_malformed() {
    let double = Double::start(|_| Answer::raw(304, "")).await;
    let error = client(&double).catalog(None).await.unwrap_err();
    assert!(matches!(error, ClientError::Malformed { status: 304, .. }));
}

#[tokio::test]
async fn answers_are_sorted_by_their_status() {
    let body = json!({"operation": "op", "dashboard_url": "http://d"});
    type IsRight = fn(&Ordered<crate::ProvisionedBody>) -> bool;
    let cases: [(u16, IsRight); 3] = [
        (200, |body| matches!(body, Ordered::Done(_))),
        (201, |body| matches!(body, Ordered::Created(_))),
        (202, |body| {
            matches!(body, Ordered::Accepted { operation: Some(operation), body }
                if operation == "op" && body.dashboard_url.as_deref() == Some("http://d"))
        }),
    ];
    for (status, is_right) in cases {
        let answer = Answer::json(status, &body).header("retry-after", "7");
        let double = Double::start(move |_| answer.clone()).await;
        let response = client(&double).provision(&instance(), &provision_request()).await.unwrap();
        assert!(is_right(&response.body), "{status}: {response:?}");
        assert_eq!(response.retry_after, Some(Duration::from_secs(7)));
    }
}

#[tokio::test]
async fn a_202_may_name_no_operation() {
    for body in [json!({}), json!({"operation": null}), json!({"operation": ""})] {
        let answer = Answer::json(202, &body);
        let double = Double::start(move |_| answer.clone()).await;
        let response = client(&double).deprovision(&instance(), &deprovision_request()).await;
        let expected = Ordered::Accepted { operation: None, body: () };
        assert_eq!(response.unwrap().body, expected, "{body}");
    }
}

#[tokio::test]
async fn answers_that_are_not_the_specifications_are_malformed_and_not_repeated() {
    let cases = [
        (Answer::raw(201, "hunter2"), "not JSON from line 1 column 1"),
        (Answer::raw(201, ""), "empty where JSON is expected"),
        (Answer::json(201, &json!(["hunter2"])), "not a JSON object"),
        (Answer::json(202, &json!({"operation": 7})), "operation: expected a string"),
        (
            Answer::json(200, &json!({"dashboard_url": ["hunter2"]})),
            "dashboard_url: expected a string",
        ),
        (Answer::json(204, &json!({})), "the route does not define this status"),
        (Answer::raw(302, ""), "the route does not define this status"),
    ];
    for (answer, why) in cases {
        let status = answer.status;
        let double = Double::start(move |_| answer.clone()).await;
        let error = client(&double).provision(&instance(), &provision_request()).await.unwrap_err();
        assert_eq!(error.status(), Some(status));
        assert!(error.to_string().ends_with(why), "{error}");
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    }
}

#[tokio::test]
async fn a_refusal_keeps_what_the_broker_said() {
    let body = json!({
        "error": "ConcurrencyError", "description": "busy\u{1b}[31m now\n",
        "instance_usable": true, "update_repeatable": false,
    });
    let answer = Answer::json(422, &body).header("retry-after", "3");
    let double = Double::start(move |_| answer.clone()).await;
    let update: UpdateRequest = read(json!({"service_id": "s"}));
    let error = client(&double).update(&instance(), &update).await.unwrap_err();
    assert!(error.is_passing());
    let ClientError::Refused(refusal) = error else { panic!("{error:?}") };
    let expected = Refusal {
        status: 422,
        error: Some("ConcurrencyError".to_owned()),
        description: Some("busy [31m now".to_owned()),
        instance_usable: Some(true),
        update_repeatable: Some(false),
        retry_after: Some(Duration::from_secs(3)),
    };
    assert_eq!(refusal, expected);
    assert_eq!(refusal.to_string(), "the broker answered 422 ConcurrencyError: busy [31m now");
}

#[tokio::test]
async fn a_refusal_may_say_nothing() {
    let double = Double::start(|_| Answer::raw(502, "<html>hunter2</html>")).await;
    let error = client(&double).instance(&instance()).await.unwrap_err();
    assert_eq!(error.to_string(), "the broker answered 502");
    assert!(!format!("{error:?}").contains("hunter2"));
}

#[tokio::test]
async fn silence_is_a_timeout_and_the_body_counts() {
    let double =
        Double::start(|_| Answer::json(200, &json!({})).after(Duration::from_secs(60))).await;
    let timeout = Duration::from_millis(50);
    let settings = ClientSettings { timeout, ..ClientSettings::new(double.url()) };
    let error = Client::new(settings).unwrap().instance(&instance()).await.unwrap_err();
    assert!(matches!(error, ClientError::Timeout { after } if after == timeout), "{error:?}");
}

#[tokio::test]
async fn a_broken_connection_may_have_been_received_and_a_refused_one_was_not() {
    let double = Double::start(|_| Answer::hang_up()).await;
    let error = client(&double).instance(&instance()).await.unwrap_err();
    assert!(matches!(error, ClientError::Transport { sent: true, .. }), "{error:?}");

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = Client::new(ClientSettings::new(url)).unwrap().instance(&instance()).await;
    let error = error.unwrap_err();
    assert!(matches!(error, ClientError::Transport { sent: false, .. }), "{error:?}");
}

#[tokio::test]
async fn an_endless_answer_is_not_read_to_its_end() {
    let body = vec![b' '; MAX_RESPONSE_BYTES + 1];
    let double = Double::start(move |_| Answer::raw(200, body.clone())).await;
    let error = client(&double).catalog(None).await.unwrap_err();
    assert!(matches!(error, ClientError::Malformed { status: 200, .. }), "{error:?}");
}

#[tokio::test]
async fn a_raw_request_is_sent_as_given() {
    let double = Double::start(|_| Answer::raw(418, "tea")).await;
    let mut headers = HeaderMap::new();
    headers.insert(API_VERSION_HEADER, HeaderValue::from_static(""));
    let body = Bytes::from_static(b"{not json");
    let raw = client(&double).send(Method::POST, "/v3/x?y", headers, body).await.unwrap();
    assert_eq!((raw.status, raw.body.as_ref()), (418, b"tea".as_slice()));
    let seen = &double.seen()[0];
    assert_eq!(
        (seen.line().as_str(), seen.body.as_ref()),
        ("POST /v3/x?y", b"{not json".as_slice())
    );
    assert_eq!(seen.header("x-broker-api-version"), Some(""));
    assert_eq!(seen.header("authorization"), None);
}

#[tokio::test]
async fn nothing_shows_the_credentials() {
    let settings = ClientSettings {
        auth: Auth::Basic { user: "u".to_owned(), password: "hunter2".to_owned().into() },
        ..ClientSettings::new("http://broker")
    };
    let client = Client::new(settings).unwrap();
    let shown = format!("{client:?} {:?}", client.headers());
    assert!(!shown.contains("hunter2") && !shown.contains("Basic"), "{shown}");
}

#[tokio::test]
async fn tls_trusts_the_given_authority_and_no_other() {
    let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(signed.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![signed.cert.der().clone()], key.unwrap())
        .unwrap();
    let tls = TlsAcceptor::from(Arc::new(config));
    let catalog = |_: &Seen| Answer::json(200, &json!({"services": []}));
    let double = Double::serve(catalog, Some(tls)).await;
    let url = format!("https://localhost:{}", double.address.port());
    let with = |pem: &str| {
        let ca_certificates = Some(pem.as_bytes().to_vec());
        Client::new(ClientSettings { ca_certificates, ..ClientSettings::new(&url) }).unwrap()
    };

    with(&signed.cert.pem()).catalog(None).await.unwrap();
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let error = with(&other.cert.pem()).catalog(None).await.unwrap_err();
    assert!(matches!(error, ClientError::Transport { sent: false, .. }), "{error:?}");
}
