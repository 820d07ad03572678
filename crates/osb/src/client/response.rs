//! Reads the answer to a request: its status, as the route defines it, and its body, or the error in it (section
//! "Service Broker Errors").

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::ETAG;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::{ClientError, Refusal};
use super::retry_after;
use crate::decode;
use crate::model::LastOperation;

/// An answer as it came.
#[derive(Clone)]
pub struct RawResponse {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; may hold credentials.
    pub body: Bytes,
    /// The request identity that was sent; empty if none was.
    pub request_identity: String,
}

impl std::fmt::Debug for RawResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawResponse")
            .field("status", &self.status)
            .field("bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// An answer that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Response<T> {
    /// The status.
    pub status: u16,
    /// The body that was read.
    pub body: T,
    /// When the broker wants to be asked again.
    pub retry_after: Option<Duration>,
    /// The tag of the body, quotes included.
    pub etag: Option<String>,
    /// The request identity that was sent.
    pub request_identity: String,
}

impl<T> Response<T> {
    pub(super) fn map<U>(self, f: impl FnOnce(T) -> U) -> Response<U> {
        Response {
            status: self.status,
            body: f(self.body),
            retry_after: self.retry_after,
            etag: self.etag,
            request_identity: self.request_identity,
        }
    }
}

/// The successful answer to a request that changes something.
#[derive(Debug, Clone, PartialEq)]
pub enum Ordered<T> {
    /// 201: the resource was made by this request.
    Created(T),
    /// 200: the request was carried out, or the resource is as asked for already.
    Done(T),
    /// 202: the operation is in progress, to be polled.
    Accepted {
        /// The operation to poll with, if the broker names its operations.
        operation: Option<String>,
        /// The body as far as it is known already.
        body: T,
    },
}

impl RawResponse {
    /// Returns the answer if its status is one that the route defines as a success, or the error.
    ///
    /// Statuses below 400 that the route does not define are malformed: the specification has the
    /// platform take them for a failure.
    pub(super) fn expect(self, statuses: &[u16]) -> Result<Self, ClientError> {
        match self.status {
            status if statuses.contains(&status) => Ok(self),
            400.. => Err(ClientError::Refused(self.refusal())),
            _ => Err(self.malformed("the route does not define this status".to_owned())),
        }
    }

    /// Reads the body.
    pub(super) fn read<T: DeserializeOwned>(self) -> Result<Response<T>, ClientError> {
        let body = decode::from_slice(&self.body).map_err(|why| self.malformed(why))?;
        Ok(self.with(body))
    }

    /// Reads the state of an operation.
    pub(crate) fn last_operation(self) -> Result<Response<LastOperation>, ClientError> {
        let mut response: Response<LastOperation> = self.expect(&[200])?.read()?;
        response.body.retry_after = response.retry_after.map(|after| after.as_secs());
        Ok(response)
    }

    /// Reads the body of a request that changes something.
    pub(super) fn ordered<T: DeserializeOwned>(self) -> Result<Response<Ordered<T>>, ClientError> {
        let value: Value = decode::json(&self.body).map_err(|why| self.malformed(why))?;
        if !value.is_object() {
            return Err(self.malformed("not a JSON object".to_owned()));
        }
        let operation = match value.get("operation") {
            None | Some(Value::Null) => None,
            Some(Value::String(operation)) => {
                Some(operation.clone()).filter(|operation| !operation.is_empty())
            }
            Some(_) => return Err(self.malformed("operation: expected a string".to_owned())),
        };
        let body: T = decode::from_value(value).map_err(|why| self.malformed(why))?;
        let body = match self.status {
            201 => Ordered::Created(body),
            202 => Ordered::Accepted { operation, body },
            _ => Ordered::Done(body),
        };
        Ok(self.with(body))
    }

    pub(super) fn with<T>(self, body: T) -> Response<T> {
        Response {
            status: self.status,
            body,
            retry_after: retry_after::read(&self.headers, Timestamp::now()),
            etag: self.headers.get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned),
            request_identity: self.request_identity,
        }
    }

    fn malformed(&self, why: String) -> ClientError {
        ClientError::Malformed { status: self.status, why }
    }

    /// Reads the refusal in an error's body. Of a body that is not the specification's (a proxy's page) only the status
    /// is taken.
    fn refusal(&self) -> Refusal {
        let body = decode::json(&self.body).unwrap_or_default();
        let text = |name: &str| {
            let text = body.get(name).and_then(Value::as_str).map(printable);
            text.filter(|text| !text.is_empty())
        };
        let flag = |name: &str| body.get(name).and_then(Value::as_bool);
        Refusal {
            status: self.status,
            error: text("error"),
            description: text("description"),
            instance_usable: flag("instance_usable"),
            update_repeatable: flag("update_repeatable"),
            retry_after: retry_after::read(&self.headers, Timestamp::now()),
        }
    }
}

/// A broker's text, fit for a terminal and a log: no control characters, at most 4096 characters.
fn printable(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(plain).take(4096).collect::<String>().trim().to_owned()
}
