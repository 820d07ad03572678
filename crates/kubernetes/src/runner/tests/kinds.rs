//! The kinds of Jobs and pods that standings are tried with.

use serde_json::{Value, json};

use super::super::seen::{Presence, SeenJob, SeenPod};
use super::status::{ended, installed, of, running, waiting, with};
use super::{REPORT, job, pod};

pub(super) fn made() -> SeenJob {
    job(&json!({}))
}

pub(super) fn suspended() -> SeenJob {
    job(&json!({"spec": {"suspend": true}}))
}

pub(super) fn with_condition(type_: &str, reason: &str, message: &str) -> SeenJob {
    job(&json!({"status": {"active": null, "conditions": [
        {"type": type_, "status": "True", "reason": reason, "message": message}]}}))
}

pub(super) fn failed_job() -> SeenJob {
    with_condition("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
}

pub(super) fn late_job() -> SeenJob {
    let said = "Job was active longer than specified deadline";
    with_condition("Failed", "DeadlineExceeded", said)
}

/// As from 1.31 on, until all of its pods have ended.
pub(super) fn target() -> SeenJob {
    let said = "Job was active longer than specified deadline";
    with_condition("FailureTarget", "DeadlineExceeded", said)
}

/// One that ran, as its status told before.
pub(super) fn forgotten() -> SeenPod {
    let made = of("Failed", &installed(), &waiting("PodInitializing", ""));
    SeenPod { began: true, ..pod("a", &made) }
}

pub(super) fn annotated(name: &str, value: &str) -> SeenJob {
    job(&json!({"metadata": {"annotations": {name: value}}}))
}

pub(super) fn fenced_as(why: &Value) -> SeenJob {
    annotated("manciple.dev/ended", &why.to_string())
}

pub(super) fn deleted_job() -> SeenJob {
    SeenJob { presence: Presence::Deleted, ..made() }
}

pub(super) fn reported() -> Value {
    of("Succeeded", &installed(), &ended(0, "Completed", REPORT))
}

pub(super) fn killed() -> Value {
    of("Failed", &installed(), &ended(137, "Error", ""))
}

pub(super) fn silent() -> SeenPod {
    let conditions = json!([{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]);
    pod("a", &with(running(), "conditions", conditions))
}
