//! Input: a request as HTTP/1.1 writes it, but for its version; lines may end in LF alone:
//!
//! ```text
//! PUT /v2/service_instances/i?accepts_incomplete=true
//! Content-Type: application/json
//!
//! {"service_id": "db", "plan_id": "small", "organization_guid": "o", "space_guid": "s"}
//! ```
//!
//! Credentials and a version are added where the input has none of its own.

mod stub;

use std::cell::OnceCell;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::BodyExt as _;
use osb::server::{Authentication, Credentials, Settings, router};
use osb::{Backend, rounded_integers};
use serde_json::Value;
use tokio::runtime::Runtime;
use tower_service::Service as _;

use self::stub::Stub;
use crate::{PLANTED, plants};

/// The property that every request has an answer, and none is 5xx: a refusal says why, repeats no value, and has not
/// reached the backend; what has reached it can be kept.
///
/// # Panics
/// If that does not hold.
pub fn requests(input: &[u8]) {
    let Some((request, body)) = read(input) else { return };
    let path = request.uri().path().to_owned();
    let bodiless = *request.method() == Method::HEAD;
    let changes = !bodiless && *request.method() != Method::GET;
    let reads_a_body = matches!(*request.method(), Method::PUT | Method::PATCH);
    let (status, json, heard) = SERVER.with(|server| server.get_or_init(Server::new).ask(request));
    let told = String::from_utf8_lossy(&json);
    let context = format!("{status} for {path}: {told}");
    assert!(status < 500, "{context}");
    assert!(heard <= usize::from(status < 300), "{context}");
    if status < 300 {
        assert!(!changes || heard == 1, "{context}");
        assert!(!reads_a_body || !is_rounded(body), "{context}");
    }
    // The answer to a HEAD loses its body here or on its way out.
    if status == 304 || (bodiless && json.is_empty()) {
        return;
    }
    let answer: Value = serde_json::from_slice(&json).expect(&context);
    if status < 300 {
        return;
    }
    let described = answer["description"].as_str().is_some_and(|said| !said.trim().is_empty());
    assert!(answer.is_object() && described && answer["error"].is_string(), "{context}");
    if is_a_value_only(body) {
        assert!(!told.contains(PLANTED), "{context}");
    }
}

/// Whether the body holds a number that is not what was written, once it is read.
fn is_rounded(body: &[u8]) -> bool {
    let value = serde_json::from_slice(body).unwrap_or_default();
    rounded_integers(body, &value).next().is_some()
}

/// Whether the planted secret stands in a body as a value, and nowhere as a name: names are told.
fn is_a_value_only(body: &[u8]) -> bool {
    let Ok(value) = serde_json::from_slice::<Value>(body) else { return false };
    plants(&value) && !names(&value)
}

fn names(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(names),
        Value::Object(members) => {
            members.iter().any(|(name, value)| name.contains(PLANTED) || names(value))
        }
        _ => false,
    }
}

/// Reads a request from an input; `None` if no HTTP server would take it for one and hand it on.
fn read(input: &[u8]) -> Option<(Request<Body>, &[u8])> {
    let mut rest = input;
    let mut line = || {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let line = &rest[..end];
        rest = &rest[end + 1..];
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    };
    let first = line()?;
    let (method, target) = first.split_at(first.iter().position(|byte| *byte == b' ')?);
    let method = Method::from_bytes(method).ok()?;
    let uri = Uri::try_from(target.trim_ascii()).ok()?;
    let mut request = Request::new(Body::empty());
    let headers = request.headers_mut();
    while let Some(header) = line().filter(|header| !header.is_empty()) {
        let (name, value) = header.split_at(header.iter().position(|byte| *byte == b':')?);
        let name = HeaderName::from_bytes(name).ok()?;
        headers.append(name, HeaderValue::from_bytes(value[1..].trim_ascii()).ok()?);
    }
    for (name, value) in [("authorization", AUTHORIZATION), ("x-broker-api-version", "2.17")] {
        if !headers.contains_key(name) {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.body_mut() = Body::from(rest.to_vec());
    Some((request, rest))
}

/// The credentials of the platform: `platform`, `secret`.
const AUTHORIZATION: &str = "Basic cGxhdGZvcm06c2VjcmV0";

thread_local! {
    /// The server, made once: to compile a catalog for each input would be most of the work.
    static SERVER: OnceCell<Server> = const { OnceCell::new() };
}

struct Server {
    runtime: Runtime,
    stub: Arc<Stub>,
    router: Router,
}

impl Server {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let stub = Arc::new(Stub::new());
        let credentials = Credentials::new().user("platform", "secret", "platform");
        let settings = Settings::new(Authentication::fixed(credentials));
        let router = router(Arc::clone(&stub) as Arc<dyn Backend>, settings);
        Self { runtime, stub, router }
    }

    /// Sends a request; returns status, body, and how many times the backend was called.
    fn ask(&self, request: Request<Body>) -> (u16, Vec<u8>, usize) {
        self.runtime.block_on(async {
            let response = self.router.clone().call(request).await.unwrap();
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            (status, body.to_vec(), self.stub.heard())
        })
    }
}
