//! Errors with which a request is refused: values of the domain, mapped to HTTP in one place.
//!
//! A platform deletes what it asked for after most 5xx ("Orphan Mitigation"), and never after a 4xx.
//! So a refusal that changed nothing is a 4xx, whoever is to blame, and 5xx is kept for the cases in
//! which something may have been made.

use std::borrow::Cow;
use std::time::Duration;

/// Why a request was refused; decides the status and the error word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// 400: the request itself is wrong.
    BadRequest,
    /// 401: no credentials, or not ours.
    Unauthorized,
    /// 403: known, but not allowed to.
    Forbidden,
    /// 404: no such resource, or no such route.
    NotFound,
    /// 405: the route has no such method.
    MethodNotAllowed,
    /// 408: the request did not arrive in time.
    RequestTimeout,
    /// 409: the id is taken by something else.
    Conflict,
    /// 410: what is to be deleted does not exist.
    Gone,
    /// 412: the version of the API is not one that we speak.
    UnsupportedVersion,
    /// 413: the body is over the limit.
    PayloadTooLarge,
    /// 422 `AsyncRequired`: slow, and `accepts_incomplete=true` was not given.
    AsyncRequired,
    /// 422 `ConcurrencyError`: another operation is in progress.
    ConcurrencyError,
    /// 422 `RequiresApp`: a binding of this service needs an application.
    RequiresApp,
    /// 422 `MaintenanceInfoConflict`: the platform's version of the plan is not the catalog's.
    MaintenanceInfoConflict,
    /// 422 without a word of the specification.
    Unprocessable,
    /// 429: too much work is waiting.
    TooManyRequests,
    /// 500: a fault of ours or of the broker; something may have been made.
    Internal,
    /// 503: not ready, going away, or without a store that works; only in the last case may the request have been
    /// recorded.
    Unavailable,
    /// 504: a held operation did not end in time and is being undone.
    Timeout,
}

impl ErrorKind {
    /// The HTTP status.
    pub fn status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::RequestTimeout => 408,
            Self::Conflict => 409,
            Self::Gone => 410,
            Self::UnsupportedVersion => 412,
            Self::PayloadTooLarge => 413,
            Self::AsyncRequired
            | Self::ConcurrencyError
            | Self::RequiresApp
            | Self::MaintenanceInfoConflict
            | Self::Unprocessable => 422,
            Self::TooManyRequests => 429,
            Self::Internal => 500,
            Self::Unavailable => 503,
            Self::Timeout => 504,
        }
    }

    /// The `error` member: one camel-case word (section "Broker Errors").
    pub fn word(self) -> &'static str {
        match self {
            Self::BadRequest => "BadRequest",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::RequestTimeout => "RequestTimeout",
            Self::Conflict => "Conflict",
            Self::Gone => "Gone",
            Self::UnsupportedVersion => "UnsupportedVersion",
            Self::PayloadTooLarge => "PayloadTooLarge",
            Self::AsyncRequired => "AsyncRequired",
            Self::ConcurrencyError => "ConcurrencyError",
            Self::RequiresApp => "RequiresApp",
            Self::MaintenanceInfoConflict => "MaintenanceInfoConflict",
            Self::Unprocessable => "Unprocessable",
            Self::TooManyRequests => "TooManyRequests",
            Self::Internal => "InternalError",
            Self::Unavailable => "Unavailable",
            Self::Timeout => "Timeout",
        }
    }
}

/// A refused request: what was wrong, where, and what to do. Never holds a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{description}")]
pub struct Error {
    /// Why.
    pub kind: ErrorKind,
    /// For people; names the field and the remedy. Non-empty.
    pub description: Cow<'static, str>,
    /// Only on failures of update and deprovision.
    pub instance_usable: Option<bool>,
    /// Only on failures of update.
    pub update_repeatable: Option<bool>,
    /// Sent as `Retry-After`, in whole seconds.
    pub retry_after: Option<Duration>,
}

impl Error {
    /// A refusal with a description.
    pub fn new(kind: ErrorKind, description: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            description: description.into(),
            instance_usable: None,
            update_repeatable: None,
            retry_after: None,
        }
    }

    /// 400.
    pub fn bad_request(description: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::BadRequest, description)
    }

    /// 404.
    pub fn not_found(description: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::NotFound, description)
    }

    /// 500.
    pub fn internal(description: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Internal, description)
    }

    /// Says whether the instance still works; for update and deprovision.
    #[must_use]
    pub fn instance_usable(mut self, usable: bool) -> Self {
        self.instance_usable = Some(usable);
        self
    }

    /// Says whether the update may be repeated as it was; for update.
    #[must_use]
    pub fn update_repeatable(mut self, repeatable: bool) -> Self {
        self.update_repeatable = Some(repeatable);
        self
    }

    /// Says when to come again.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }
}
