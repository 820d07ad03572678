use http::Method;
use osb::Error;
use osb::server::{MissingVersion, Settings, refuse};
use serde_json::json;

use crate::support::{
    AUTHORIZATION, Answer, Ask, INSTANCE, Rig, bind_with, get, patch, provision_with, put, settings,
};

fn versioned(version: &str) -> Ask {
    get("/v2/catalog").without("x-broker-api-version").header("x-broker-api-version", version)
}

#[tokio::test]
async fn item_01_an_unsupported_version_is_412_naming_the_wanted_one() {
    let rig = Rig::new();
    for version in [
        "1.9",
        "3.0",
        "2.2",
        "2.0",
        "2",
        "2.",
        ".17",
        "2.x",
        "2.17.1",
        "2.-17",
        "+2.17",
        "2.99999999999",
        "\u{e9}",
        "latest",
    ] {
        let description = rig.send(versioned(version)).await.refusal(412, "UnsupportedVersion");
        assert!(description.contains("2.17"), "{version}: {description}");
    }
    for version in ["2.3", "2.12", "2.13", "2.17", "2.18", "2.100"] {
        assert_eq!(rig.send(versioned(version)).await.status, 200, "{version}");
    }
}

#[tokio::test]
async fn item_01_a_missing_or_empty_version_is_412_unless_set_otherwise() {
    for (policy, status) in [
        (MissingVersion::PreconditionFailed, 412),
        (MissingVersion::BadRequest, 400),
        (MissingVersion::Accept, 200),
    ] {
        let rig = Rig::with(Settings { missing_version: policy, ..settings() });
        let missing = get("/v2/catalog").without("x-broker-api-version");
        assert_eq!(rig.send(missing).await.status, status);
        let answer = rig.send(versioned("")).await;
        assert_eq!(answer.status, status);
        if status != 200 {
            assert!(answer.json()["description"].as_str().unwrap().contains("2.17"));
        }
        rig.send(versioned("1.0")).await.refusal(412, "UnsupportedVersion");
    }
}

#[tokio::test]
async fn item_01_the_version_is_judged_before_route_method_and_body() {
    let rig = Rig::new();
    for (method, path) in
        [(Method::GET, "/v2/unknown"), (Method::POST, "/v2/catalog"), (Method::PUT, INSTANCE)]
    {
        let ask = Ask::bare(method, path).header("authorization", AUTHORIZATION).body("{");
        rig.send(ask).await.refusal(412, "UnsupportedVersion");
    }
    // Beside the API there is no version to speak of.
    let ask = Ask::bare(Method::GET, "/openapi.json").header("authorization", AUTHORIZATION);
    assert_eq!(rig.send(ask).await.status, 200);
}

#[tokio::test]
async fn singleton_headers_sent_twice_are_400_naming_them() {
    let rig = Rig::new();
    let cases = [
        ("x-broker-api-version", "X-Broker-API-Version", "2.17"),
        ("content-type", "Content-Type", "application/json"),
        (
            "x-broker-api-originating-identity",
            "X-Broker-API-Originating-Identity",
            "cloudfoundry e30=",
        ),
        ("x-broker-api-request-identity", "X-Broker-API-Request-Identity", "r"),
    ];
    for (name, spelt, value) in cases {
        for ask in [
            get("/v2/catalog"),
            get(INSTANCE),
            put(INSTANCE, &provision_with(json!({}))).without("content-type"),
            patch(INSTANCE, &json!({"service_id": "db"})).without("content-type"),
        ] {
            let ask = ask.without(name).header(name, value).header(name, value);
            let answer = rig.send(ask).await;
            answer.names(&[spelt]);
            assert_eq!(answer.header("x-broker-api-request-identity"), None);
        }
    }
    assert_eq!(rig.heard(), []);
}

#[tokio::test]
async fn item_03_the_request_identity_is_echoed_on_every_answer() {
    let rig = Rig::new();
    let asks = [
        (get("/v2/catalog"), 200),
        (get("/v2/catalog").without("authorization"), 401),
        (get("/v2/catalog").without("x-broker-api-version"), 412),
        (get("/unknown"), 404),
        (Ask::new(Method::POST, INSTANCE), 405),
        (put(INSTANCE, &json!({})), 400),
        (put(INSTANCE, &provision_with(json!({}))), 201),
    ];
    for (ask, status) in asks {
        let answer = rig.send(ask.header("x-broker-api-request-identity", "4f-d2 ~")).await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.header("x-broker-api-request-identity"), Some("4f-d2 ~"));
    }
    let calls = rig.heard_calls();
    assert_eq!(calls[0].0.request_identity.as_deref(), Some("4f-d2 ~"));
    assert_eq!(rig.send(get("/v2/catalog")).await.header("x-broker-api-request-identity"), None);
}

#[tokio::test]
async fn item_03_a_request_identity_that_cannot_be_echoed_is_400() {
    let rig = Rig::new();
    for identity in [b"a\tb".as_slice(), b"\xff", "ü".as_bytes(), &[b'x'; 1025]] {
        let answer =
            rig.send(get("/v2/catalog").header("x-broker-api-request-identity", identity)).await;
        answer.names(&["X-Broker-API-Request-Identity"]);
        assert_eq!(answer.header("x-broker-api-request-identity"), None);
    }
    let longest = get("/v2/catalog").header("x-broker-api-request-identity", [b'x'; 1024]);
    assert_eq!(rig.send(longest).await.status, 200);
    let empty = get("/v2/catalog").header("x-broker-api-request-identity", "");
    assert_eq!(rig.send(empty).await.status, 200);
}

#[tokio::test]
async fn what_no_backend_hears_of_is_refused_in_the_same_order_and_with_its_identity() {
    for (case, ask, status, word) in [
        ("of nobody", versioned("1.0").without("authorization"), 401, "Unauthorized"),
        ("in an old version", versioned("1.0"), 412, "UnsupportedVersion"),
        (
            "without a version",
            get(INSTANCE).without("x-broker-api-version"),
            412,
            "UnsupportedVersion",
        ),
        ("as it should be", get("/v2/catalog"), 404, "NotFound"),
        ("beside the API", get("/elsewhere").without("x-broker-api-version"), 404, "NotFound"),
    ] {
        let (parts, _) = ask.header("x-broker-api-request-identity", "4f-d2").0.into_parts();
        let refused = refuse(&settings(), &parts, Error::not_found("nobody is here")).await;
        let answer = Answer::of(refused).await;
        answer.refusal(status, word);
        assert_eq!(answer.header("x-broker-api-request-identity"), Some("4f-d2"), "{case}");
        assert_eq!(answer.header("www-authenticate").is_some(), status == 401, "{case}");
    }
}

fn identified(value: impl AsRef<[u8]>) -> Ask {
    put(INSTANCE, &provision_with(json!({}))).header("x-broker-api-originating-identity", value)
}

#[tokio::test]
async fn item_04_51_52_the_originating_identity_reaches_the_backend_parsed() {
    let rig = Rig::new();
    let identities = [
        ("cloudfoundry", json!({"user_id": "683ea748"})),
        (
            "kubernetes",
            json!({"username": "duke", "uid": "c2dde", "groups": ["admin"], "extra": {"k": ["v"]}}),
        ),
        ("mine", json!({})),
    ];
    for (platform, value) in identities {
        let encoded = data_encoding::BASE64.encode(value.to_string().as_bytes());
        for encoded in [encoded.as_str(), encoded.trim_end_matches('=')] {
            assert_eq!(rig.send(identified(format!("{platform} {encoded}"))).await.status, 201);
            let identity = rig.heard_calls()[0].0.originating_identity.clone().unwrap();
            assert_eq!(identity.platform, platform);
            assert_eq!(json!(identity.value.expose()), value);
        }
    }
    assert_eq!(rig.send(identified("")).await.status, 201);
    assert_eq!(rig.heard_calls()[0].0.originating_identity, None);
}

#[tokio::test]
async fn item_04_a_garbled_originating_identity_is_400() {
    let rig = Rig::new();
    let garbled = [
        "cloudfoundry".as_bytes(),
        b"e30=",
        b" e30=",
        b"cloudfoundry ",
        b"cloudfoundry !!!",
        b"cloudfoundry W10=",
        b"cloudfoundry bnVsbA==",
        b"cloudfoundry e30= more",
        b"cloudfoundry ew==",
        b"\xff e30=",
        b"cloudfoundry /w==",
    ];
    for value in garbled {
        let description =
            rig.send(identified(value)).await.names(&["X-Broker-API-Originating-Identity"]);
        assert!(!description.contains("e30"), "{description}");
    }
    assert_eq!(rig.heard(), []);
}

#[tokio::test]
async fn item_05_another_content_type_is_400_and_a_missing_one_is_taken_for_json() {
    let rig = Rig::new();
    let binding = crate::support::BINDING;
    for (path, body) in [(INSTANCE, provision_with(json!({}))), (binding, bind_with(json!({})))] {
        let with = |content_type: &str| {
            put(path, &body).without("content-type").header("content-type", content_type)
        };
        for wrong in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "application/json2",
            "json",
            "application/merge-patch+json",
            "; application/json",
        ] {
            rig.send(with(wrong)).await.names(&["Content-Type"]);
        }
        assert_eq!(rig.heard(), []);
        for right in [
            "application/json",
            "application/json; charset=utf-8",
            "Application/JSON;charset=UTF-8",
            "",
        ] {
            assert_eq!(rig.send(with(right)).await.status, 201, "{right}");
        }
        assert_eq!(rig.send(put(path, &body).without("content-type")).await.status, 201);
        rig.heard();
    }
}

#[tokio::test]
async fn faults_of_headers_query_path_and_body_are_told_together() {
    let rig = Rig::new();
    let ask = put("/v2/service_instances/%00?accepts_incomplete=yes", &json!({"service_id": 5}))
        .without("content-type")
        .header("content-type", "text/plain")
        .header("x-broker-api-originating-identity", "x");
    rig.send(ask).await.names(&[
        "X-Broker-API-Originating-Identity",
        "Content-Type",
        "accepts_incomplete",
        "instance_id",
        "service_id",
        "plan_id",
        "organization_guid",
        "space_guid",
    ]);
}
