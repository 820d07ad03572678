//! The settings of a server, with their defaults: where the specification leaves a choice, and its limits.

use std::sync::Arc;
use std::time::Duration;

use super::authentication::Authentication;
use super::body::Bodies;
use super::observer::Observer;

/// The settings of a server: its behaviour where the specification leaves a choice, and its limits.
#[derive(Clone)]
pub struct Settings {
    /// The senders whose requests are answered.
    pub authentication: Authentication,
    /// The answer to a request without `X-Broker-API-Version`.
    pub missing_version: MissingVersion,
    /// The largest body accepted, in bytes; a larger one is answered 413. So is one that would take more than 8 MiB of
    /// memory once it is read, however small.
    pub body_limit: usize,
    /// How long a body may take to arrive; a slower one is answered 408.
    pub body_timeout: Duration,
    /// The room for bodies that are being read, which routers may share; one for which there is none in the time that
    /// it has to arrive is answered 429.
    pub bodies: Bodies,
    /// How many requests that change something may be under way at once; more are answered 429.
    pub changes_in_flight: usize,
    /// The observer that is told of every exchange.
    pub observer: Option<Arc<dyn Observer>>,
}

/// The answer to a request without a version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MissingVersion {
    /// 412, as every known checker wants it.
    #[default]
    PreconditionFailed,
    /// 400, as the specification suggests.
    BadRequest,
    /// The request is answered as if it had sent [`crate::API_VERSION`].
    Accept,
}

impl Settings {
    /// The defaults: bodies of at most 1 MiB that arrive within 10 s, 32 MiB of them at once, at most 1024
    /// changes under way.
    pub fn new(authentication: Authentication) -> Self {
        Self {
            authentication,
            missing_version: MissingVersion::default(),
            body_limit: 1024 * 1024,
            body_timeout: Duration::from_secs(10),
            bodies: Bodies::default(),
            changes_in_flight: 1024,
            observer: None,
        }
    }
}
