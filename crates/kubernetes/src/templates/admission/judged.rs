//! What a decision about an AdmissionReview is made of, and what comes of it.

use jiff::Timestamp;
use ring::hmac;

use super::Changes;
use super::answer::Answer;
use crate::access::Identity;

/// The context in which requests are decided.
pub(super) struct AdmissionContext<'a> {
    /// The sealing key.
    pub(super) seal: &'a hmac::Key,
    /// The API server's time.
    pub(super) now: Timestamp,
    /// The end of a generated name, if one is needed.
    pub(super) suffix: &'a str,
    /// Who may change the spec of an instance.
    pub(super) changes: Changes,
}

/// The right to name another requester of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Assign {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// The result of a decision.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Judged {
    /// The answer is certain.
    Answered(Answer),
    /// The answer depends on whether a user has a right.
    Depends { who: Identity, on: Assign, allowed: Answer, refused: Answer },
}
