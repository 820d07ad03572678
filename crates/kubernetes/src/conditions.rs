//! Conditions of statuses, and the end of a Job by its conditions.

use k8s_openapi::api::batch::v1::{Job, JobCondition};
use serde_json::{Value, json};

/// The reason with which Kubernetes gives up a Job whose time is up, though its pods may go on.
pub(crate) const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";

/// How a Job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobEnd {
    Complete,
    /// Kubernetes gave the Job up.
    Failed {
        reason: String,
        message: String,
        /// When it failed, in seconds since 1970; 0 if that is not said.
        at: i64,
    },
}

impl JobEnd {
    /// The failure that a condition reports.
    pub(crate) fn failed(condition: &JobCondition) -> Self {
        let at = condition.last_transition_time.as_ref().map(|at| at.0.as_second());
        Self::Failed {
            reason: condition.reason.clone().unwrap_or_default(),
            message: condition.message.clone().unwrap_or_default(),
            at: at.unwrap_or_default(),
        }
    }
}

/// The condition of a Job of this type, if it is true.
pub(crate) fn job_condition<'j>(job: &'j Job, type_: &str) -> Option<&'j JobCondition> {
    let mut conditions = job.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|it| it.type_ == type_ && it.status == "True")
}

/// The status of a condition, as it is spelled, and since when (RFC 3339).
pub(crate) type Stands<'a> = (&'a str, &'a str);

/// A condition with a reason and a message. Its time is that of the last change of its status: that of the condition
/// `before`, if that has the same status, or now.
pub(crate) fn condition(
    kind: &str,
    status: &str,
    (reason, message): (&str, &str),
    before: Option<Stands<'_>>,
    now: &str,
) -> Value {
    let since = before.filter(|(stood, _)| *stood == status).map_or(now, |(_, since)| since);
    let mut condition = json!({
        "type": kind,
        "status": status,
        "reason": reason,
        "lastTransitionTime": since,
    });
    // Kubernetes 1.20 takes an empty string for null, and refuses it.
    if !message.is_empty() {
        condition["message"] = json!(message);
    }
    condition
}

/// The status of an existing condition, and since when.
pub(crate) fn stands(condition: &Value) -> Option<Stands<'_>> {
    Some((condition["status"].as_str()?, condition["lastTransitionTime"].as_str()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_that_of_the_last_write_that_said_something_else() {
        let there = |status: &str| json!({"type": "Ready", "status": status, "reason": "Other", "lastTransitionTime": "then"});
        for (name, before, since) in [
            ("there is none", Value::Null, "now"),
            ("it stood so", there("True"), "then"),
            ("it did not stand so", there("False"), "now"),
            ("nobody knew", there("Unknown"), "now"),
            ("it has no time", json!({"type": "Ready", "status": "True"}), "now"),
        ] {
            let said = condition("Ready", "True", ("Made", "all of it"), stands(&before), "now");
            let expected = json!({
                "type": "Ready", "status": "True", "reason": "Made", "message": "all of it",
                "lastTransitionTime": since,
            });
            assert_eq!(said, expected, "{name}");
        }
    }

    #[test]
    fn an_empty_message_is_left_out() {
        let said = condition("Ready", "True", ("Made", ""), None, "now");
        assert_eq!(said.get("message"), None);
    }
}
