//! Turns the end of a run that failed into a [`RunFailure`].

use osb::jobs::contract::{Capability, exit, failure_kind};
use osb::{Action, Failure, FailureKind};
use serde_json::Value;

use super::said::{MAX_DESCRIPTION_BYTES, said, with_log};
use super::shape::member;
use super::{Asked, Ended};
use crate::ports::RunFailure;
use crate::record::Reason;
use crate::redact::Redactor;

/// The meaning of an exit status other than 0.
pub(super) enum Meaning {
    /// The resource exists already, as asked for: the output is read as that of a success.
    Exists,
    /// The resource is gone, which is what was asked for.
    Gone,
    /// The run failed.
    Failed(RunFailure),
}

pub(super) fn fail(reason: Reason, description: impl Into<String>) -> RunFailure {
    RunFailure::new(reason, Failure::failed(description))
}

/// A failure with the end of the log.
pub(super) fn fail_with_log(reason: Reason, what: &str, ended: &Ended<'_>) -> RunFailure {
    fail(reason, with_log(what, ended.log, ended.redactor))
}

/// Reads an exit status other than 0.
pub(super) fn of_status(status: i32, asked: &Asked<'_>, ended: &Ended<'_>) -> Meaning {
    let said = asked.can(Capability::StructuredErrors).then(|| reported(ended)).flatten();
    let removes = matches!(asked.action, Some(Action::Unbind | Action::Deprovision));
    let kind = match asked.can(Capability::ExitCodes).then(|| failure_kind(status)) {
        Some(None) => return Meaning::Exists,
        Some(Some(FailureKind::Gone)) if removes => return Meaning::Gone,
        Some(Some(kind)) => kind,
        None => FailureKind::Failed,
    };
    let Some((reason, what)) = told_apart(kind, status) else {
        return Meaning::Failed(match said {
            Some(said) => {
                let (reason, kind) = said.word_means();
                said.into_failure(reason, kind)
            }
            None => {
                let what = format!("the broker exited with status {status}");
                fail_with_log(Reason::ExitStatus, &what, ended)
            }
        });
    };
    Meaning::Failed(match said {
        Some(said) => said.into_failure(reason, kind),
        None => {
            let what = format!("the broker says: {what} (exit status {status})");
            let description = with_log(&what, ended.log, ended.redactor);
            RunFailure::new(reason, Failure::new(kind, description))
        }
    })
}

/// The description of a failure without a description of its own.
pub(crate) const SAYS_NOTHING: &str = "the broker reports a failure and does not say which";

/// The reason of a failure that a broker has reported.
pub(crate) fn reason(kind: FailureKind) -> Reason {
    told_apart(kind, 0).map_or(Reason::Reported, |(reason, _)| reason)
}

/// The reason and the words for a kind of failure; `None` for one that says only that it failed.
fn told_apart(kind: FailureKind, status: i32) -> Option<(Reason, &'static str)> {
    Some(match kind {
        FailureKind::Failed => return None,
        FailureKind::Unsupported if status == i32::from(exit::UNSUPPORTED_CHANGE) => {
            (Reason::Unsupported, "it cannot make this change")
        }
        FailureKind::Unsupported => (Reason::Unsupported, "it does not support this"),
        FailureKind::Invalid => (Reason::Invalid, "the request asks for something impossible"),
        FailureKind::Conflict => (Reason::Conflict, "the id is taken by something else"),
        FailureKind::Gone => (Reason::Reported, "it does not exist"),
        FailureKind::Busy => (Reason::Busy, "something else is being done to it"),
        FailureKind::Transient => (Reason::Reported, "a passing fault"),
    })
}

/// A failure as a broker reported it in JSON.
#[derive(Default)]
pub(super) struct Reported {
    word: Option<String>,
    description: Option<String>,
    instance_usable: Option<bool>,
    update_repeatable: Option<bool>,
    retry_after: Option<u64>,
}

impl Reported {
    /// Reads a reported failure. Members of a wrong type are passed over: the failure itself is worth more than its
    /// form.
    pub(super) fn read(value: &Value, redactor: &Redactor) -> Self {
        let text =
            |name: &str| said(member(value, name)?.as_str()?, redactor, MAX_DESCRIPTION_BYTES);
        Self {
            word: text("error"),
            description: text("description"),
            instance_usable: member(value, "instance_usable").and_then(Value::as_bool),
            update_repeatable: member(value, "update_repeatable").and_then(Value::as_bool),
            retry_after: member(value, "retry_after").and_then(Value::as_u64),
        }
    }

    /// The meaning of the specification's error word ("Broker Errors").
    fn word_means(&self) -> (Reason, FailureKind) {
        match self.word.as_deref() {
            Some("ConcurrencyError") => (Reason::Busy, FailureKind::Busy),
            Some("MaintenanceInfoConflict" | "RequiresApp") => {
                (Reason::Invalid, FailureKind::Invalid)
            }
            _ => (Reason::Reported, FailureKind::Failed),
        }
    }

    pub(super) fn into_failure(self, reason: Reason, kind: FailureKind) -> RunFailure {
        let description = self.description.or(self.word);
        let description = description.unwrap_or_else(|| SAYS_NOTHING.to_owned());
        RunFailure::new(
            reason,
            Failure {
                kind,
                description,
                instance_usable: self.instance_usable,
                update_repeatable: self.update_repeatable,
                retry_after: self.retry_after,
            },
        )
    }
}

/// The structured error on stdout: one JSON object with a word or a description, and nothing beside it.
fn reported(ended: &Ended<'_>) -> Option<Reported> {
    let value: Value = serde_json::from_slice(ended.text()).ok()?;
    let said = Reported::read(&value, ended.redactor);
    (said.word.is_some() || said.description.is_some()).then_some(said)
}

/// The name of a signal for people, as `signal 9 (SIGKILL, …)`.
pub(super) fn signal(number: i32) -> String {
    let name = match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL, which is what happens when memory runs out",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return format!("signal {number}"),
    };
    format!("signal {number} ({name})")
}
