use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use http::{HeaderValue, Method};
use osb::server::{
    Authentication, Authenticator, Credentials, Presented, Principal, Settings, error_response,
};
use osb::{Error, ErrorKind};
use serde_json::json;
use tower_service::Service;

use crate::support::{AUTHORIZATION, Answer, Ask, INSTANCE, Rig, get, provision_with, put};

#[tokio::test]
async fn item_02_every_route_wants_authentication_before_anything_else() {
    let rig = Rig::new();
    let paths = [
        "/v2/catalog",
        INSTANCE,
        "/v2/service_instances/i/last_operation",
        "/openapi.json",
        "/",
        "/v2",
        "/unknown",
        "/v2/service_instances/i/service_bindings/b/last_operation",
        "/v2/service_instances/%FF",
    ];
    for path in paths {
        for method in
            [Method::GET, Method::PUT, Method::PATCH, Method::DELETE, Method::POST, Method::OPTIONS]
        {
            // No version, a body that is no JSON and a second content type: only the 401 is told.
            let ask = Ask::bare(method, path)
                .body("{")
                .header("content-type", "text/plain")
                .header("content-type", "text/html");
            let answer = rig.send(ask).await;
            let description = answer.refusal(401, "Unauthorized");
            assert!(description.starts_with("Authorization: "), "{description}");
            assert!(answer.header("www-authenticate").unwrap().starts_with("Basic realm="));
        }
    }
    assert_eq!(rig.heard(), []);
}

#[tokio::test]
async fn item_02_only_the_right_password_is_let_in() {
    let rig = Rig::new();
    let wrong = [
        "Basic cGxhdGZvcm06c2VjcmV1", // platform:secreu
        "Basic cGxhdGZvcm06",         // platform:
        "Basic OnNlY3JldA==",         // :secret
        "Basic cGxhdGZvcm0=",         // platform
        "Basic",
        "Basic ",
        "Basic !!!!",
        "Basic cGxhdGZvcm06c2VjcmV0AAAA",
        "cGxhdGZvcm06c2VjcmV0",
        "Bearer secret",
        "Bearer platform:secret",
        "Bearer cGxhdGZvcm06c2VjcmV0",
        "Digest x",
        " ",
        "Basic\tcGxhdGZvcm06c2VjcmV0",
    ];
    for authorization in wrong {
        let ask =
            get("/v2/catalog").without("authorization").header("authorization", authorization);
        rig.send(ask).await.refusal(401, "Unauthorized");
    }
    for authorization in
        [AUTHORIZATION, "basic   cGxhdGZvcm06c2VjcmV0", "BASIC cGxhdGZvcm06c2VjcmV0 "]
    {
        let ask =
            get("/v2/catalog").without("authorization").header("authorization", authorization);
        assert_eq!(rig.send(ask).await.status, 200, "{authorization}");
    }
}

#[tokio::test]
async fn item_02_a_token_is_as_good_as_a_password_and_a_long_password_as_a_short_one() {
    let long = "p".repeat(2000);
    let credentials =
        Credentials::new().token("ci", "t0ken", "platform").user("u", &long, "platform");
    let rig = Rig::with(Settings::new(Authentication::fixed(credentials)));
    let basic = data_encoding::BASE64.encode(format!("u:{long}").as_bytes());
    for (authorization, status) in [
        ("Bearer t0ken".to_owned(), 200),
        ("bearer  t0ken".to_owned(), 200),
        ("Bearer t0ke".to_owned(), 401),
        ("Basic t0ken".to_owned(), 401),
        (format!("Basic {basic}"), 200),
    ] {
        let ask =
            get("/v2/catalog").without("authorization").header("authorization", &authorization);
        let answer = rig.send(ask).await;
        assert_eq!(answer.status, status, "{authorization}");
    }
}

#[tokio::test]
async fn item_02_tokens_alone_are_challenged_for_as_tokens() {
    let credentials = Credentials::new().token("ci", "t", "platform");
    let rig = Rig::with(Settings::new(Authentication::fixed(credentials)));
    let answer = rig.send(Ask::bare(Method::GET, "/v2/catalog")).await;
    assert!(answer.header("www-authenticate").unwrap().starts_with("Bearer realm="));
}

#[tokio::test]
async fn two_authorization_headers_are_400() {
    let rig = Rig::new();
    let answer = rig.send(get("/v2/catalog").header("authorization", AUTHORIZATION)).await;
    answer.names(&["Authorization"]);
}

#[tokio::test]
async fn credentials_can_change_between_requests() {
    let current = Arc::new(Mutex::new(Arc::new(Credentials::new())));
    let source = Arc::clone(&current);
    let authentication =
        Authentication::Credentials(Arc::new(move || source.lock().unwrap().clone()));
    let rig = Rig::with(Settings::new(authentication));
    rig.send(get("/v2/catalog")).await.refusal(401, "Unauthorized");
    *current.lock().unwrap() = Arc::new(Credentials::new().user("platform", "secret", "r"));
    assert_eq!(rig.send(get("/v2/catalog")).await.status, 200);
}

struct Directory;

#[async_trait]
impl Authenticator for Directory {
    async fn authenticate(&self, request: Presented<'_>) -> Result<Option<Principal>, Error> {
        tokio::task::yield_now().await;
        match request.authorization.as_bytes() {
            b"Custom reader" if request.method == "GET" && request.path == "/v2/catalog" => {
                Ok(Some(Principal::new("a reader", "platform")))
            }
            b"Custom reader" => Err(Error::new(ErrorKind::Forbidden, "this may not be done")),
            b"Custom known" => Ok(Some(Principal::new("someone", "platform"))),
            b"Custom down" => Err(Error::new(ErrorKind::Unavailable, "the directory is away")),
            _ => Ok(None),
        }
    }

    fn challenge(&self) -> HeaderValue {
        HeaderValue::from_static("Custom")
    }
}

#[tokio::test]
async fn an_authenticator_of_the_embedding_program_decides() {
    let rig = Rig::with(Settings::new(Authentication::Authenticator(Arc::new(Directory))));
    for (authorization, status) in [("Custom known", 200), ("Custom down", 503), ("Custom x", 401)]
    {
        let ask =
            get("/v2/catalog").without("authorization").header("authorization", authorization);
        let answer = rig.send(ask).await;
        assert_eq!(answer.status, status, "{authorization}");
        assert_eq!(answer.header("www-authenticate"), (status == 401).then_some("Custom"));
    }
    let reader = |ask: Ask| ask.without("authorization").header("authorization", "Custom reader");
    assert_eq!(rig.send(reader(get("/v2/catalog"))).await.status, 200);
    let refused = rig.send(reader(put(INSTANCE, &provision_with(json!({}))))).await;
    refused.refusal(403, "Forbidden");
}

#[tokio::test]
async fn layers_around_the_routes_learn_who_asked() {
    let rig = Rig::new();
    let response = rig.router.clone().call(get("/v2/catalog").0).await.unwrap();
    let principal = response.extensions().get::<Principal>();
    assert_eq!(principal, Some(&Principal::new("platform", "platform")));
    let response = rig.router.clone().call(Ask::bare(Method::GET, "/").0).await.unwrap();
    assert_eq!(response.extensions().get::<Principal>(), None);
}

#[tokio::test]
async fn routes_beside_the_api_can_ask_and_refuse_in_the_same_way() {
    let credentials = Credentials::new().user("platform", "secret", "operator");
    let authentication = Authentication::fixed(credentials);
    let (known, _) = get("/").0.into_parts();
    let principal = authentication.principal(&known).await.unwrap();
    assert_eq!(principal, Some(Principal::new("platform", "operator")));
    let (unknown, _) = Ask::bare(Method::GET, "/").0.into_parts();
    let error = authentication.principal(&unknown).await.unwrap_err();
    Answer::of(error_response(error)).await.refusal(401, "Unauthorized");
}

#[tokio::test]
async fn without_authentication_everybody_may_ask() {
    let rig = Rig::with(Settings::new(Authentication::Disabled));
    let ask = Ask::bare(Method::GET, "/v2/catalog").header("x-broker-api-version", "2.17");
    assert_eq!(rig.send(ask).await.status, 200);
}
