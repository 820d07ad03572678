//! The answers of the webhook to the API server.

use data_encoding::BASE64;
use serde_json::{Value, json};

use super::review::{API_VERSION, KIND};
use crate::templates::names::{GROUP, Kind};

/// The status code where something cannot be found out now.
pub(super) const UNANSWERED: u16 = 503;

/// A fault of a member of an object, in Kubernetes' words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrong {
    /// The path of the member, such as `spec.secret.name`.
    pub(super) field: String,
    /// What is wrong, such as `Required value`.
    pub(super) says: String,
}

impl Wrong {
    pub(super) fn new(field: impl Into<String>, says: impl Into<String>) -> Self {
        Self { field: field.into(), says: says.into() }
    }

    pub(super) fn required(field: impl Into<String>) -> Self {
        Self::new(field, "Required value")
    }

    /// Parses a text that begins with the path.
    pub(super) fn of(text: &str) -> Self {
        let (field, says) = text.split_once(": ").unwrap_or(("", text));
        Self::new(field, says)
    }
}

/// An answer to an AdmissionReview.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    /// The request is admitted, with these changes (RFC 6902), and a warning for the user.
    Admitted { patch: Vec<Value>, warning: Option<String> },
    /// The request is refused, with a Status.
    Refused(Value),
}

impl Answer {
    /// Admits the request as it is.
    pub(super) fn as_it_is() -> Self {
        Self::patched(Vec::new())
    }

    pub(super) fn patched(patch: Vec<Value>) -> Self {
        Self::Admitted { patch, warning: None }
    }

    pub(super) fn warned(warning: String) -> Self {
        Self::Admitted { patch: Vec::new(), warning: Some(warning) }
    }

    /// Refuses an object with OpenShift's messages.
    pub(super) fn invalid(kind: Kind, name: &str, wrongs: &[Wrong]) -> Self {
        let words = |wrong: &Wrong| format!("{}: {}", wrong.field, wrong.says);
        let all: Vec<String> = wrongs.iter().map(words).collect();
        let all = match all.as_slice() {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let kind = kind.name();
        let cause = |wrong: &Wrong| json!({"field": wrong.field, "message": wrong.says});
        let causes: Vec<Value> = wrongs.iter().map(cause).collect();
        Self::Refused(json!({
            "status": "Failure",
            "code": 422,
            "reason": "Invalid",
            "message": format!("{kind}.{GROUP} {name:?} is invalid: {all}"),
            // kubectl shows these.
            "details": {"group": GROUP, "kind": kind, "name": name, "causes": causes},
        }))
    }

    /// Refuses an AdmissionReview that makes no sense.
    pub(super) fn senseless(why: &str) -> Self {
        Self::Refused(json!({
            "status": "Failure", "code": 400, "reason": "BadRequest", "message": why,
        }))
    }

    /// Refuses because something cannot be found out now.
    pub(super) fn unanswered(why: &str) -> Self {
        tracing::warn!(why, "who ordered an instance could not be verified");
        Self::Refused(json!({
            "status": "Failure", "code": UNANSWERED, "reason": "ServiceUnavailable",
            "message": format!("it cannot be verified now: {why}"),
        }))
    }

    /// The response as the API server reads it.
    pub(super) fn document(&self, uid: &str) -> Value {
        let mut response = json!({"uid": uid, "allowed": matches!(self, Self::Admitted { .. })});
        match self {
            Self::Refused(status) => response["status"] = status.clone(),
            Self::Admitted { patch, warning } => {
                if !patch.is_empty() {
                    response["patchType"] = json!("JSONPatch");
                    response["patch"] = json!(BASE64.encode(json!(patch).to_string().as_bytes()));
                }
                if let Some(warning) = warning {
                    response["warnings"] = json!([warning]);
                }
            }
        }
        json!({"apiVersion": API_VERSION, "kind": KIND, "response": response})
    }
}
