//! When Kubernetes has to be asked to look at a Job again that it seems to have forgotten: pure.
//!
//! A Job controller comes back to a Job when its `activeDeadlineSeconds` should be over, and only then. That of
//! Kubernetes 1.20 counts from its first attempt to begin the Job; if the second attempt counted, it comes back a
//! moment too early, and never again until something changes. So the Job would go on for ever, and its run with it.
//!
//! It also does not begin a Job while it waits to hear of the pods of an earlier Job of the same name. If a Job is
//! deleted and the next of its name is made at once, the controller waits for five minutes; and then nothing tells it
//! that they are over.

use k8s_openapi::api::batch::v1::{JobSpec, JobStatus};

use super::job::SeenJob;

/// The annotation of a Job with when Kubernetes was last asked to look at it, in seconds since 1970.
pub(crate) const REMINDED: &str = "manciple.dev/reminded";

/// How many seconds after its time Kubernetes may take, and clocks may differ.
const LATE: i64 = 5;
/// How many seconds a Job controller may wait before it begins a Job: what it expects of pods is void after five
/// minutes (`ExpectationsTimeout`).
const UNBEGUN: i64 = 330;
/// After how many seconds Kubernetes is asked again.
pub(crate) const AGAIN: i64 = 60;

/// When Kubernetes has to have begun a Job that was made at `created`, or to have ended one that it began, in seconds
/// since 1970; `None`: it is ending it already, or the Job has no such time.
pub(crate) fn due_at(spec: &JobSpec, status: Option<&JobStatus>, created: i64) -> Option<i64> {
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let mut holding = conditions.iter().filter(|it| it.status == "True");
    let is_ending = |kind: &str| ["FailureTarget", "SuccessCriteriaMet"].contains(&kind);
    if holding.any(|it| is_ending(&it.type_)) {
        return None;
    }
    match status.and_then(|status| status.start_time.as_ref()) {
        Some(begun) => Some(begun.0.as_second().saturating_add(spec.active_deadline_seconds?)),
        // Whoever manages or has suspended the Job begins it when they like.
        None if spec.suspend == Some(true) || spec.managed_by.is_some() => None,
        None => Some(created.saturating_add(UNBEGUN)),
    }
}

/// When Kubernetes is to be asked to look at a Job again, in seconds since 1970; `None`: it need not be asked.
pub(crate) fn due(job: &SeenJob, now: i64) -> Option<i64> {
    let due_at = job.due_at.filter(|_| job.end.is_none() && !job.deleting)?;
    // A time in the future is of a clock that was ahead, or was written to keep us from asking.
    let reminded = job.reminded.filter(|at| *at <= now.saturating_add(LATE));
    let again = reminded.map(|at| at.saturating_add(AGAIN));
    Some(due_at.saturating_add(LATE).max(again.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::batch::v1::Job;
    use serde_json::{Value, json};

    use super::*;
    use crate::quarks::tests;

    /// One that was made at 900 seconds and may last for 60.
    fn job(reminded: &Value, status: &Value) -> Value {
        let mut job = tests::job("u", "j");
        job["metadata"]["creationTimestamp"] = json!("1970-01-01T00:15:00Z");
        job["spec"]["activeDeadlineSeconds"] = json!(60);
        job["status"] = status.clone();
        if !reminded.is_null() {
            job["metadata"]["annotations"][REMINDED] = reminded.clone();
        }
        job
    }

    fn seen(job: Value) -> SeenJob {
        SeenJob::of(&serde_json::from_value::<Job>(job).unwrap()).unwrap()
    }

    #[test]
    fn kubernetes_is_asked_after_the_time_of_a_job_that_goes_on_and_again_while_it_does() {
        let began = json!({"startTime": "1970-01-01T00:16:40Z"});
        let with = |kind: &str| {
            let mut status = began.clone();
            status["conditions"] = json!([{"type": kind, "status": "True"}]);
            status
        };
        for (name, reminded, status, expected) in [
            ("it goes on", json!(null), began.clone(), Some(1065)),
            ("it was asked", json!("1070"), began.clone(), Some(1130)),
            ("it was asked long before", json!("900"), began.clone(), Some(1065)),
            ("by a clock that is ahead", json!("1252"), began.clone(), Some(1312)),
            ("so it seems, and it never was", json!("9999999"), began.clone(), Some(1065)),
            ("somebody wrote something else there", json!("soon"), began.clone(), Some(1065)),
            ("it has ended", json!(null), with("Failed"), None),
            ("it is being ended", json!(null), with("FailureTarget"), None),
            ("it was not begun", json!(null), json!({}), Some(1235)),
            ("nobody has looked at it", json!(null), json!(null), Some(1235)),
            ("it was not begun, and that was said", json!("1240"), json!({}), Some(1300)),
            (
                "it ended before it began",
                json!(null),
                json!({"conditions": [
                {"type": "Failed", "status": "True"}]}),
                None,
            ),
        ] {
            assert_eq!(due(&seen(job(&reminded, &status)), 1250), expected, "{name}");
        }
    }

    #[test]
    fn kubernetes_is_asked_to_begin_no_job_that_somebody_holds_back_and_to_end_none_without_a_time()
    {
        for (name, member, value, status) in [
            ("it is held back", "suspend", json!(true), json!({})),
            ("others see to it", "managedBy", json!("example.com/queue"), json!({})),
            (
                "it may last for ever",
                "activeDeadlineSeconds",
                json!(null),
                json!({"startTime": "1970-01-01T00:16:40Z"}),
            ),
        ] {
            let mut job = job(&json!(null), &status);
            job["spec"][member] = value;
            assert_eq!(due(&seen(job), 1250), None, "{name}");
        }
    }
}
