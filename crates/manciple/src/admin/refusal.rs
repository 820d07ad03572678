//! Refusals of the operator's routes, with the same body as those of the Open Service Broker API.

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use osb::server::{Authentication, error_response};
use osb::{Error, ErrorKind};

/// An [`Error`] as an answer.
pub(crate) struct Refusal(pub(crate) Error);

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        error_response(self.0)
    }
}

/// The answer to somebody who is not authorized: a 401 says how to authenticate.
pub(crate) fn unwelcome(error: Error, authentication: &Authentication) -> Response {
    let unknown = error.kind == ErrorKind::Unauthorized;
    let mut response = error_response(error);
    if unknown {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, authentication.challenge());
    }
    response
}

/// Gives the router's own 405 a body; `Allow` stays.
pub(crate) async fn explain_method(mut response: Response) -> Response {
    if response.status() != StatusCode::METHOD_NOT_ALLOWED {
        return response;
    }
    let error = Error::new(ErrorKind::MethodNotAllowed, "the route has no such method");
    let mut explained = error_response(error);
    if let Some(allow) = response.headers_mut().remove(header::ALLOW) {
        explained.headers_mut().insert(header::ALLOW, allow);
    }
    explained
}
