//! Jobs whose time is over and that go on: Kubernetes is asked to look at them again.
//!
//! A Job controller comes back to a Job when its `activeDeadlineSeconds` should be over, and only then. That of 1.20 counts
//! from its first attempt to begin the Job; where the second one counted, it comes a moment too early, and never again
//! until something changes. So the Job went on for ever, and its run with it.

use std::time::Duration;

use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::Controller;
use super::seen::SeenJob;
use super::table::Key;
use crate::calls::{CallError, call};

/// When Kubernetes was last asked to look at a Job, in seconds since 1970: an annotation of the Job.
pub(super) const REMINDED: &str = "manciple.dev/reminded";

/// How long after the end of its time Kubernetes may take, in seconds, and clocks may differ.
const LATE: i64 = 5;
/// It is asked again after so many seconds.
const AGAIN: i64 = 60;

/// When the time of a Job is over that has begun, in seconds since 1970, unless Kubernetes is ending it already.
pub(super) fn over_at(spec: &JobSpec, status: Option<&JobStatus>) -> Option<i64> {
    let status = status?;
    let mut holding = status.conditions.iter().flatten().filter(|it| it.status == "True");
    let is_ending = |kind: &str| ["FailureTarget", "SuccessCriteriaMet"].contains(&kind);
    if holding.any(|it| is_ending(&it.type_)) {
        return None;
    }
    let begun = status.start_time.as_ref()?.0.as_second();
    Some(begun.saturating_add(spec.active_deadline_seconds?))
}

/// When Kubernetes is to be asked to look at a Job, in seconds since 1970; `None`: it need not.
fn due(job: &SeenJob) -> Option<i64> {
    let over_at = job.over_at.filter(|_| job.end.is_none() && !job.deleting)?;
    let again = job.reminded.map(|at| at.saturating_add(AGAIN));
    Some(over_at.saturating_add(LATE).max(again.unwrap_or_default()))
}

impl Controller {
    /// Has Kubernetes look again at the Jobs of one whose time is over. When to look again, if any has a time.
    pub(super) async fn remind(&self, key: &Key) -> Option<Duration> {
        let now = i64::try_from(self.now() / 1000).unwrap_or(i64::MAX);
        let timed: Vec<(SeenJob, i64)> = {
            let table = self.table();
            let jobs = table.get(key).into_iter().flat_map(|entry| entry.jobs.values());
            jobs.filter_map(|job| due(job).map(|due| (job.clone(), due))).collect()
        };
        let mut next: Option<i64> = None;
        for (job, due) in timed {
            let mut at = due;
            if due <= now {
                at = now.saturating_add(AGAIN);
                if let Err(error) = self.remind_of(key, &job, now).await {
                    let (namespace, name) = (&*key.namespace, &*job.name);
                    tracing::warn!(namespace, name, %error, "a Job goes on though its time is over");
                }
            }
            next = next.into_iter().chain([at]).min();
        }
        let wait = u64::try_from(next?.saturating_sub(now)).unwrap_or_default();
        Some(Duration::from_secs(wait.max(1)))
    }

    async fn remind_of(&self, key: &Key, job: &SeenJob, now: i64) -> Result<(), CallError> {
        let patch = json!({"metadata": {
            "uid": &*job.uid, "annotations": {REMINDED: now.to_string()},
        }});
        let jobs = self.api::<Job>(&key.namespace);
        match call(jobs.patch(&job.name, &PatchParams::default(), &Patch::Merge(patch))).await {
            Ok(job) => {
                self.table().learn_answer(&job);
                Ok(())
            }
            // It changed: then there is news of it.
            Err(CallError::NotFound | CallError::Conflict) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::tests;
    use super::*;

    /// One that began at 1,000 seconds and may last for 60.
    fn job(reminded: &Value, status: &Value) -> SeenJob {
        let mut job = tests::job("u", "j");
        job["spec"]["activeDeadlineSeconds"] = json!(60);
        job["status"] = status.clone();
        if !reminded.is_null() {
            job["metadata"]["annotations"][REMINDED] = reminded.clone();
        }
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
            ("somebody wrote something else there", json!("soon"), began.clone(), Some(1065)),
            ("it has not begun", json!(null), json!({}), None),
            ("it has ended", json!(null), with("Failed"), None),
            ("it is being ended", json!(null), with("FailureTarget"), None),
        ] {
            assert_eq!(due(&job(&reminded, &status)), expected, "{name}");
        }
        let mut without = job(&json!(null), &began);
        without.over_at = None;
        assert_eq!(due(&without), None, "it may last for ever");
    }
}
