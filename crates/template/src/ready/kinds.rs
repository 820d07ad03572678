//! The readiness of kinds that the original does not wait for, as kstatus defines it.

use serde_json::Value;

use super::Readiness;
use super::status::{
    UNOBSERVED, condition, count, described, failed, generation, replicas, true_condition, waiting,
    with_reason,
};

/// Conditions that say that an object is ready, the more specific first: the first that exists decides.
const READY: [&str; 5] = ["Ready", "Available", "Complete", "Succeeded", "Established"];

pub(super) fn readiness(object: &Value) -> Readiness {
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return waiting("it is being deleted");
    }
    let observed = object["status"]["observedGeneration"].as_i64();
    if observed.is_some_and(|observed| observed < generation(object)) {
        return waiting(UNOBSERVED);
    }
    if let Some(stalled) = true_condition(object, "Stalled") {
        return failed(described(stalled));
    }
    if let Some(reconciling) = true_condition(object, "Reconciling") {
        return waiting(described(reconciling));
    }
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let group = version.split_once('/').map_or("", |(group, _)| group);
    match (group, object["kind"].as_str().unwrap_or_default()) {
        ("", "Pod") => pod(object),
        ("", "PersistentVolumeClaim") => claim(object),
        ("", "Service") => service(object),
        ("", "Namespace") => phase(object, "Active"),
        ("apps" | "extensions", "DaemonSet") => daemon_set(object),
        ("apps" | "extensions", "ReplicaSet") => replica_set(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(object),
        _ => conditions(object),
    }
}

fn conditions(object: &Value) -> Readiness {
    if let Some(failure) = true_condition(object, "Failed") {
        return failed(described(failure));
    }
    let Some(decides) = READY.iter().find_map(|kind| condition(object, kind)) else {
        return Readiness::Ready;
    };
    let observed = decides["observedGeneration"].as_i64();
    match decides["status"].as_str() {
        _ if observed.is_some_and(|observed| observed < generation(object)) => waiting(UNOBSERVED),
        Some("True") => Readiness::Ready,
        _ => waiting(described(decides)),
    }
}

fn phase(object: &Value, wanted: &str) -> Readiness {
    match object["status"]["phase"].as_str().unwrap_or_default() {
        "" => waiting("it has no phase yet"),
        phase if phase == wanted => Readiness::Ready,
        phase => waiting(format!("it is {phase}, not {wanted}")),
    }
}

/// The readiness of a claim. One that has lost its volume does not get it back.
fn claim(object: &Value) -> Readiness {
    match object["status"]["phase"].as_str() {
        Some("Lost") => failed("the claim has lost its volume"),
        _ => phase(object, "Bound"),
    }
}

fn service(object: &Value) -> Readiness {
    let ingress = object["status"]["loadBalancer"]["ingress"].as_array();
    let has_address = ingress.is_some_and(|ingress| !ingress.is_empty());
    match object["spec"]["type"] == "LoadBalancer" && !has_address {
        true => waiting("its load balancer has no address yet"),
        false => Readiness::Ready,
    }
}

fn pod(object: &Value) -> Readiness {
    let text = |of: &str| object["status"][of].as_str().unwrap_or_default();
    match text("phase") {
        "Succeeded" => Readiness::Ready,
        "Failed" => failed(with_reason("the pod is Failed", text("reason"), text("message"))),
        "Running" if true_condition(object, "Ready").is_some() => Readiness::Ready,
        phase => {
            let phase = if phase.is_empty() { "Pending" } else { phase };
            waiting(match hindrance(object) {
                Some(why) => format!("the pod is {phase}; {why}"),
                None => format!("the pod is {phase}, not ready"),
            })
        }
    }
}

/// What keeps a pod from running.
pub(super) fn hindrance(pod: &Value) -> Option<String> {
    held_up(pod).or_else(|| unscheduled(pod))
}

/// What keeps a container of a pod from running, such as `CrashLoopBackOff`; with the image, where that cannot be had.
fn held_up(object: &Value) -> Option<String> {
    let of = |list: &str| object["status"][list].as_array().into_iter().flatten();
    of("initContainerStatuses").chain(of("containerStatuses")).find_map(|container| {
        let reason = container["state"]["waiting"]["reason"].as_str()?;
        let usual = ["ContainerCreating", "PodInitializing"].contains(&reason);
        let text = |of: &str| container[of].as_str().unwrap_or_default();
        let (name, image) = (text("name"), text("image"));
        (!usual).then(|| match reason.contains("Image") && !image.is_empty() {
            true => format!("container {name}: image {image}: {reason}"),
            false => format!("container {name}: {reason}"),
        })
    })
}

fn unscheduled(object: &Value) -> Option<String> {
    condition(object, "PodScheduled")
        .filter(|condition| condition["status"] == "False")
        .map(described)
}

fn daemon_set(object: &Value) -> Readiness {
    let wanted = object["status"]["desiredNumberScheduled"].as_i64();
    // The controller always writes both counts, also if no node fits.
    let (Some(wanted), true) = (wanted, object["status"]["observedGeneration"].is_i64()) else {
        return waiting(UNOBSERVED);
    };
    let updates = object["spec"]["updateStrategy"]["type"] != "OnDelete";
    let updated = if updates { "updatedNumberScheduled" } else { "currentNumberScheduled" };
    reached(object, wanted, ["currentNumberScheduled", updated, "numberAvailable", "numberReady"])
}

fn replica_set(object: &Value) -> Readiness {
    if let Some(failure) = true_condition(object, "ReplicaFailure") {
        return waiting(described(failure));
    }
    let wanted = replicas(object);
    let counts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
    match count(object, "replicas") - wanted {
        surplus if surplus > 0 => waiting(format!("pods that are still to go: {surplus}")),
        _ => reached(object, wanted, counts),
    }
}

/// Ready, if all counts of the status have reached the wanted number.
fn reached<const N: usize>(object: &Value, wanted: i64, counts: [&str; N]) -> Readiness {
    let short = counts.into_iter().find(|of| count(object, of) < wanted);
    short.map_or(Readiness::Ready, |of| waiting(format!("{of}: {} of {wanted}", count(object, of))))
}

fn definition(object: &Value) -> Readiness {
    let refused = condition(object, "NamesAccepted").filter(|names| names["status"] == "False");
    match (refused, condition(object, "Established")) {
        (Some(names), _) => failed(described(names)),
        (None, Some(established)) if established["status"] == "True" => Readiness::Ready,
        (None, Some(established)) => waiting(described(established)),
        (None, None) => waiting("it has no condition Established yet"),
    }
}
