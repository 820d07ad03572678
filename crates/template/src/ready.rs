//! Decides whether an awaited object of a template is ready.
//!
//! An annotation of the object asks to wait. What ready means depends on the kind: for the kinds that the original
//! waits for it is the same as there, for all others what kstatus (sigs.k8s.io/cli-utils) says. An expression in
//! another annotation decides instead of either.
//!
//! ```text
//! is_awaited? ──▶ ready-when ──▶ a kind of the original ──▶ any other kind
//! ```

mod kinds;
mod original;
mod status;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::Value;

use crate::cel::{self, Fault};
use crate::period::period;

/// The original's annotation by which an object is waited for: `true`, in capital or small letters.
const WAIT_FOR_READY: &str = "template.alpha.openshift.io/wait-for-ready";
/// The annotation that says when an object is ready: a CEL expression over the object as `self`.
const READY_WHEN: &str = "template.manciple.dev/ready-when";
/// The annotation that says how long an object is waited for.
const READY_TIMEOUT: &str = "template.manciple.dev/ready-timeout";
/// How many characters a text for people may have.
const TEXT: usize = 256;

/// The readiness of an object. The texts are for people, and quote nothing of a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// The object is ready.
    Ready,
    /// The object may become ready; with what it waits for.
    Waiting(String),
    /// The object will not become ready by itself; with the reason.
    Failed(String),
}

/// Whether somebody waits for an object to be ready.
pub fn is_awaited(object: &Value) -> bool {
    let annotations = &object["metadata"]["annotations"];
    let wait = annotations[WAIT_FOR_READY].as_str();
    wait.is_some_and(|wait| wait.to_lowercase() == "true") || annotations[READY_WHEN].is_string()
}

/// The readiness of an object, as the API server returns it.
pub fn readiness(object: &Value) -> Readiness {
    let readiness = match object["metadata"]["annotations"][READY_WHEN].as_str() {
        Some(expression) => when(expression, object),
        None => original::readiness(object).unwrap_or_else(|| kinds::readiness(object)),
    };
    match readiness {
        Readiness::Ready => Readiness::Ready,
        Readiness::Waiting(text) => Readiness::Waiting(cut(&text)),
        Readiness::Failed(text) => Readiness::Failed(cut(&text)),
    }
}

/// What keeps a pod from running, as far as its status says so: a container that cannot be started, or that there is no node
/// for it.
pub fn hindrance(pod: &Value) -> Option<String> {
    kinds::hindrance(pod).map(|why| cut(&why))
}

/// How long an object, or a whole instance, is waited for, by its `metadata.annotations`; `None` if they do not say.
///
/// # Errors
///
/// If the annotation is no positive period, or no text.
pub fn timeout(annotations: &Value) -> Result<Option<Duration>, String> {
    let annotation = &annotations[READY_TIMEOUT];
    if annotation.is_null() {
        return Ok(None);
    }
    let wrong = || {
        let said = cut(annotation.as_str().unwrap_or_default());
        format!("annotation {READY_TIMEOUT}: {said:?} is not a period; write 90s, 15m or 1h30m")
    };
    let period = annotation.as_str().and_then(period).ok_or_else(wrong)?;
    match period.is_zero() {
        true => Err(format!("annotation {READY_TIMEOUT}: it must be longer than nothing")),
        false => Ok(Some(period)),
    }
}

fn when(expression: &str, object: &Value) -> Readiness {
    match cel::holds(expression, object) {
        Ok(true) => Readiness::Ready,
        Ok(false) => Readiness::Waiting(format!("annotation {READY_WHEN} is not true yet")),
        Err(Fault::NotYet(what)) => {
            Readiness::Waiting(format!("annotation {READY_WHEN} cannot be decided yet: {what}"))
        }
        Err(Fault::Wrong(what)) => Readiness::Failed(format!("annotation {READY_WHEN}: {what}")),
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
