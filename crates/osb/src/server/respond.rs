//! Writes the answers of the server, each kind in one place.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode};
use serde::Serialize;

use super::query::MAX_OPERATION_CHARS;
use crate::backend::Reply;
use crate::error::Error;
use crate::model::{BindingBody, InstanceMetadata, LastOperation, OperationState, ProvisionedBody};

/// The `Retry-After` of a 503 while there is no catalog, and of a 429.
pub(super) const SOON: Duration = Duration::from_secs(5);

/// A refusal, with the header that belongs to its status.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) error: Error,
    pub(super) header: Option<(HeaderName, HeaderValue)>,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self { error, header: None }
    }
}

/// The members of a failure that a route may tell (section "Broker Errors" and item 8 of the project's acceptance
/// list).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Telling {
    /// Neither `instance_usable` nor `update_repeatable`.
    Neither,
    /// `instance_usable`: deprovision.
    Usable,
    /// Both: update, and an instance's `last_operation`.
    Both,
}

#[derive(Serialize)]
struct ErrorBody<'e> {
    error: &'static str,
    description: &'e str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance_usable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    update_repeatable: Option<bool>,
}

/// The response for a refusal.
pub(super) fn refusal(refusal: &Refusal, telling: Telling) -> Response {
    let Refusal { error, header } = refusal;
    let description = if error.description.is_empty() {
        "the request was refused without a reason"
    } else {
        &error.description
    };
    let body = ErrorBody {
        error: error.kind.word(),
        description,
        instance_usable: error.instance_usable.filter(|_| telling != Telling::Neither),
        update_repeatable: error.update_repeatable.filter(|_| telling == Telling::Both),
    };
    let status = StatusCode::from_u16(error.kind.status());
    let mut response = json(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), &body);
    if let Some((name, value)) = header {
        response.headers_mut().insert(name, value.clone());
    }
    retry_after(&mut response, error.retry_after);
    response
}

/// The response for an instance made or changed. `created` is the status if this request made it.
pub(super) fn provisioned(reply: Reply<ProvisionedBody>, created: StatusCode) -> Response {
    #[derive(Serialize)]
    struct Accepted {
        #[serde(skip_serializing_if = "Option::is_none")]
        dashboard_url: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<InstanceMetadata>,
        #[serde(skip_serializing_if = "Option::is_none")]
        operation: Option<String>,
    }
    match reply {
        Reply::Created(body) => json(created, &body),
        Reply::Done(body) => json(StatusCode::OK, &body),
        Reply::Accepted { operation, body: ProvisionedBody { dashboard_url, metadata } } => {
            let operation = checked(operation);
            json(StatusCode::ACCEPTED, &Accepted { dashboard_url, metadata, operation })
        }
    }
}

/// The response for a binding. While it is being made, nothing of it is told.
pub(super) fn bound(reply: Reply<BindingBody>) -> Response {
    match reply {
        Reply::Created(body) => json(StatusCode::CREATED, &body),
        Reply::Done(body) => json(StatusCode::OK, &body),
        Reply::Accepted { operation, .. } => accepted(operation),
    }
}

/// The response for something removed.
pub(super) fn removed(reply: Reply<()>) -> Response {
    match reply {
        Reply::Created(()) | Reply::Done(()) => raw(StatusCode::OK, Bytes::from_static(b"{}")),
        Reply::Accepted { operation, .. } => accepted(operation),
    }
}

/// The response for the state of an operation.
pub(super) fn last_operation(mut operation: LastOperation, telling: Telling) -> Response {
    let failed = operation.state == OperationState::Failed && telling == Telling::Both;
    operation.instance_usable = operation.instance_usable.filter(|_| failed);
    operation.update_repeatable = operation.update_repeatable.filter(|_| failed);
    operation.description = operation.description.filter(|description| !description.is_empty());
    let mut response = json(StatusCode::OK, &operation);
    retry_after(&mut response, operation.retry_after.map(Duration::from_secs));
    response
}

/// A response with a value as its body.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => raw(status, Bytes::from(bytes)),
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written as JSON");
            const BODY: &[u8] =
                br#"{"error":"InternalError","description":"the answer cannot be written as JSON"}"#;
            raw(StatusCode::INTERNAL_SERVER_ERROR, Bytes::from_static(BODY))
        }
    }
}

/// A response with bytes that are JSON already.
pub(super) fn raw(status: StatusCode, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn accepted(operation: String) -> Response {
    #[derive(Serialize)]
    struct Accepted {
        #[serde(skip_serializing_if = "Option::is_none")]
        operation: Option<String>,
    }
    json(StatusCode::ACCEPTED, &Accepted { operation: checked(operation) })
}

/// The operation's name, if platforms accept it. Otherwise it is left out: the work has begun, so
/// that an error would be wrong, and without a name a platform asks after the only operation.
fn checked(operation: String) -> Option<String> {
    let fits = !operation.is_empty() && operation.chars().count() <= MAX_OPERATION_CHARS;
    if !fits {
        tracing::error!(length = operation.len(), "an operation's name is empty or too long");
    }
    Some(operation).filter(|_| fits)
}

/// Sets `Retry-After` in whole seconds, rounded up.
fn retry_after(response: &mut Response, after: Option<Duration>) {
    if let Some(after) = after {
        let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
}
