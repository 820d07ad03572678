//! Where the specification leaves a choice, and how much a server bears: all that may be set of one, and what is usual.

use std::sync::Arc;
use std::time::Duration;

use super::authentication::Authentication;
use super::body::Bodies;
use super::observer::Observer;

/// How the server behaves where the specification leaves a choice, and what it bears.
#[derive(Clone)]
pub struct Settings {
    /// Who may ask.
    pub authentication: Authentication,
    /// What a request without `X-Broker-API-Version` is answered.
    pub missing_version: MissingVersion,
    /// The largest body accepted, in bytes; a larger one is answered 413. So is one that would take more than 8 MiB of memory
    /// once it is read, however small.
    pub body_limit: usize,
    /// How long a body may take to arrive; a slower one is answered 408.
    pub body_timeout: Duration,
    /// The room for bodies that are being read, which routers may share; one for which there is none in the time that it
    /// has to arrive is answered 429.
    pub bodies: Bodies,
    /// How many requests that change something may be under way at once; more are answered 429.
    pub changes_in_flight: usize,
    /// Told of every exchange.
    pub observer: Option<Arc<dyn Observer>>,
}

/// What a request without a version is answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MissingVersion {
    /// 412, as every known checker wants it.
    #[default]
    PreconditionFailed,
    /// 400, as the specification suggests.
    BadRequest,
    /// As if it had sent ours.
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
