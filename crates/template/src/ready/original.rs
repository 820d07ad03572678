//! The readiness of the kinds that the original waits for.
//!
//! It is decided as there, with all oddities: a Job has failed with its first failed pod, though another may complete
//! it; an object that is being deleted counts like any other; a StatefulSet never fails. Two things differ: a missing
//! `spec.replicas` is 1, and a Build without a phase has not failed, it is new.

use serde_json::Value;

use super::Readiness;
use super::status::{
    UNOBSERVED, condition, count, described, failed, generation, replicas, true_condition, waiting,
    with_reason,
};

/// The readiness of an object; `None` if the original does not wait for this kind, or not in this version.
pub(super) fn readiness(object: &Value) -> Option<Readiness> {
    let text = |of: &str| object[of].as_str().unwrap_or_default();
    match (text("apiVersion"), text("kind")) {
        ("v1" | "build.openshift.io/v1", "Build") => Some(build(object)),
        ("v1" | "build.openshift.io/v1", "BuildConfig") => Some(build_config(object)),
        ("v1" | "apps.openshift.io/v1", "DeploymentConfig") => {
            Some(rollout(object, "NewReplicationControllerAvailable"))
        }
        ("v1" | "route.openshift.io/v1", "Route") => Some(route(object)),
        ("apps/v1" | "apps/v1beta1" | "apps/v1beta2", "Deployment") => {
            Some(rollout(object, "NewReplicaSetAvailable"))
        }
        ("apps/v1" | "apps/v1beta1" | "apps/v1beta2", "StatefulSet") => Some(stateful_set(object)),
        ("batch/v1", "Job") => Some(job(object)),
        _ => None,
    }
}

fn build(object: &Value) -> Readiness {
    let text = |of: &str| object["status"][of].as_str().unwrap_or_default();
    match text("phase") {
        "Complete" => Readiness::Ready,
        phase @ ("" | "New" | "Pending" | "Running") => {
            let phase = if phase.is_empty() { "New" } else { phase };
            waiting(with_reason(&format!("the build is {phase}"), text("reason"), text("message")))
        }
        phase => {
            failed(with_reason(&format!("the build is {phase}"), text("reason"), text("message")))
        }
    }
}

/// The readiness of a BuildConfig. It would be ready with its latest Build: that is another object, which is not read.
fn build_config(object: &Value) -> Readiness {
    match count(object, "lastVersion") {
        0 => waiting("it has no build yet"),
        version => waiting(format!("its build {version} is not looked at")),
    }
}

/// The readiness of a Deployment or a DeploymentConfig; `reason` is the condition's reason after a successful rollout.
fn rollout(object: &Value, reason: &str) -> Readiness {
    if count(object, "observedGeneration") != generation(object) {
        return waiting(UNOBSERVED);
    }
    let Some(progressing) = condition(object, "Progressing") else {
        return waiting("it has no condition Progressing yet");
    };
    match progressing["status"].as_str() {
        Some("True") if progressing["reason"] == reason => match condition(object, "Available") {
            Some(available) if available["status"] == "True" => Readiness::Ready,
            Some(available) => waiting(described(available)),
            None => waiting("it has no condition Available yet"),
        },
        Some("False") => failed(described(progressing)),
        _ => waiting(described(progressing)),
    }
}

fn job(object: &Value) -> Readiness {
    let pods = count(object, "failed");
    if pods > 0 {
        let said = format!("pods that have failed: {pods}");
        let reason = true_condition(object, "Failed");
        return failed(match reason {
            Some(condition) => format!("{said}; {}", described(condition)),
            None => said,
        });
    }
    match object["status"]["completionTime"].is_null() {
        false => Readiness::Ready,
        true => waiting(format!("it has not completed; pods at work: {}", count(object, "active"))),
    }
}

fn stateful_set(object: &Value) -> Readiness {
    let observed = object["status"]["observedGeneration"].as_i64();
    let is_beta = object["apiVersion"] == "apps/v1beta1";
    if observed.unwrap_or(0) != generation(object) || (is_beta && observed.is_none()) {
        return waiting(UNOBSERVED);
    }
    let (ready, wanted) = (count(object, "readyReplicas"), replicas(object));
    match ready == wanted {
        true => Readiness::Ready,
        false => waiting(format!("pods that are ready: {ready} of {wanted}")),
    }
}

fn route(object: &Value) -> Readiness {
    match object["spec"]["host"].as_str().unwrap_or_default() {
        "" => waiting("it has no host yet"),
        _ => Readiness::Ready,
    }
}
