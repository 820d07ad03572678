//! What whoever runs a server is told of each exchange, for metrics and logs.

use std::time::Duration;

use http::Method;

use super::authentication::Principal;
use crate::error::Error;

/// One request and its answer, for metrics and logs. Holds no secret.
#[derive(Debug)]
pub struct Exchange<'e> {
    /// What was asked.
    pub method: &'e Method,
    /// Of which route: a template without ids, fit for a label; `unknown` for none of ours.
    pub route: &'static str,
    /// The status answered; `None` if the client hung up before.
    pub status: Option<u16>,
    /// From the request's head to the answer's.
    pub duration: Duration,
    /// `X-Broker-API-Request-Identity`, as the platform chose it: for logs, not for labels.
    pub request_identity: Option<&'e str>,
    /// Who asked; `None` if nobody known did.
    pub principal: Option<&'e Principal>,
    /// Why it was refused.
    pub error: Option<&'e Error>,
}

/// Told of every exchange, once, when its answer is ready or its client has gone.
pub trait Observer: Send + Sync + 'static {
    /// An exchange is over. Called on the way of the answer: return soon.
    fn responded(&self, exchange: &Exchange<'_>);
}
