//! The kinds of trouble, as far as the reaction to them differs.

use engine::redact::Redactor;

use super::requester::MAY_NOT_IMPERSONATE;
use crate::calls::{CallError, secretless};

/// Why the work on an instance does not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The trouble may pass: the work is tried again, for as long as the objects may take.
    Passing(String),
    /// The trouble will not pass, unless the API server answered from an outdated state: the work is tried again a few
    /// times.
    Doubtful(String),
    /// The trouble will not pass.
    Final(String),
    /// Somebody else wrote the instance: what is known of it is outdated.
    Old,
}

impl Trouble {
    /// The trouble with `what` put before its message.
    pub(super) fn of(self, what: &str) -> Self {
        self.with(|why| format!("{what}: {why}"))
    }

    /// The message; `None` if somebody else wrote the instance.
    pub(super) fn reason(self) -> Option<String> {
        match self {
            Self::Passing(why) | Self::Doubtful(why) | Self::Final(why) => Some(why),
            Self::Old => None,
        }
    }

    /// The trouble with its message redacted.
    pub(super) fn redacted(self, redactor: &Redactor) -> Self {
        self.with(|why| redactor.redact(&why).into_owned())
    }

    /// The trouble of a call about a Secret, with the part of the message hidden that may quote it. The kind of trouble
    /// is decided before, by the whole message.
    pub(super) fn of_a_secret(self) -> Self {
        self.with(|why| secretless(&why))
    }

    fn with(self, words: impl Fn(String) -> String) -> Self {
        match self {
            Self::Passing(why) => Self::Passing(words(why)),
            Self::Doubtful(why) => Self::Doubtful(words(why)),
            Self::Final(why) => Self::Final(words(why)),
            Self::Old => Self::Old,
        }
    }
}

/// Classifies the error of a call in the requester's name.
impl From<CallError> for Trouble {
    fn from(error: CallError) -> Self {
        let said = match error {
            CallError::NotFound => {
                let why = "not found: its namespace or its kind is not there";
                return Self::Doubtful(why.to_owned());
            }
            CallError::Conflict | CallError::Unserved => return Self::Passing(error.to_string()),
            CallError::Exists => return Self::Final(error.to_string()),
            CallError::Failed(said) if is_too_large(&said) => return Self::Final(said),
            CallError::Overloaded(said)
            | CallError::Failed(said)
            | CallError::Unsent(said)
            | CallError::NoAnswer(said)
            | CallError::Hindered(said)
            | CallError::Stays(said) => return Self::Passing(said),
            CallError::Invalid(said) => return Self::Final(said),
            CallError::Forbidden(said) | CallError::Denied(said) => said,
        };
        // A missing right to impersonate is for the administrator to grant, not for the requester; the others pass.
        let passes = [MAY_NOT_IMPERSONATE, "exceeded quota", "is being terminated"];
        match passes.iter().any(|words| said.contains(words)) {
            true => Self::Passing(said),
            false => Self::Doubtful(said),
        }
    }
}

/// Whether a message says that an object is too large: etcd and the API server report that as failures of theirs.
pub(super) fn is_too_large(said: &str) -> bool {
    let said = said.to_lowercase();
    ["request is too large", "request entity too large", "send message larger than max"]
        .iter()
        .any(|words| said.contains(words))
}

/// The trouble of a failed write of the instance itself.
pub(super) fn written<T>(result: Result<T, CallError>) -> Result<T, Trouble> {
    result.map_err(|error| match error {
        CallError::Conflict | CallError::NotFound => Trouble::Old,
        CallError::Failed(said) if is_too_large(&said) => Trouble::Final(format!(
            "the instance and its status together are larger than the API server keeps: {said}: let its template have \
             fewer objects, or less in them"
        )),
        error => Trouble::Passing(error.to_string()),
    })
}
