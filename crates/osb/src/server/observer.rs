//! The observer of a server: it is told of each exchange, for metrics and logs.

use std::time::Duration;

use http::Method;

use super::authentication::Principal;
use crate::error::Error;

/// One request and its answer, for metrics and logs. Holds no secret.
#[derive(Debug)]
pub struct Exchange<'e> {
    /// The method of the request.
    pub method: &'e Method,
    /// The route, as a template without ids, fit for a label; `unknown` for one that the API does not have.
    pub route: &'static str,
    /// The status answered; `None` if the client hung up before.
    pub status: Option<u16>,
    /// The time from the request's head to the answer's.
    pub duration: Duration,
    /// `X-Broker-API-Request-Identity`, as the platform chose it: for logs, not for labels.
    pub request_identity: Option<&'e str>,
    /// The sender; `None` if nobody known sent it.
    pub principal: Option<&'e Principal>,
    /// The error with which it was refused.
    pub error: Option<&'e Error>,
}

/// A listener that is told of every exchange, once, when its answer is ready or its client has gone.
pub trait Observer: Send + Sync + 'static {
    /// Called when an exchange is over, before the answer is sent on: it should return soon.
    fn responded(&self, exchange: &Exchange<'_>);
}
