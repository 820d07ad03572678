//! Reads the status of pods, as far as runs of brokers and QuarksJobs need it alike; pure.

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};

/// Whether a container counts as ended only because its pod did, and was never made: kubelets from 1.27 on report such
/// containers as ended. One that was made has an id, and one that was seen to run and is gone has that in its last
/// state.
pub(crate) fn never_was(status: &ContainerStatus) -> bool {
    let ended = status.state.as_ref().and_then(|state| state.terminated.as_ref());
    let is_told = ended.is_some_and(|end| {
        let words = end.message.as_deref().unwrap_or_default();
        end.reason.as_deref() == Some("ContainerStatusUnknown")
            && words.ends_with("could not be located when the pod was terminated")
            && end.started_at.is_none()
    });
    let has_id = status.container_id.as_deref().is_some_and(|id| !id.is_empty());
    let ran = status.last_state.as_ref().is_some_and(|last| last.terminated.is_some());
    is_told && !has_id && !ran && status.restart_count == 0
}

/// Whether this reason means that a container waits for an image whose pull the kubelet tries again and again. Between
/// the tries the reason is `ImagePullBackOff`, and at them that of the runtime: a registry's, or a signature's.
pub(crate) fn is_pull(reason: &str) -> bool {
    const PULLS: [&str; 5] = [
        "ErrImagePull",
        "ImagePullBackOff",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    ];
    PULLS.contains(&reason)
}

/// Whether this reason means that a container waits for an image that the kubelet does not try to pull.
pub(crate) fn is_no_image(reason: &str) -> bool {
    ["InvalidImageName", "ErrImageNeverPull"].contains(&reason)
}

/// Why a pod has no node, if its status says so: `words` if no node takes it. From Kubernetes 1.27 on a pod may be held
/// back before the scheduler looks for one.
pub(crate) fn without_node(status: &PodStatus, words: &str) -> Option<String> {
    let mut conditions = status.conditions.iter().flatten();
    let condition = conditions.find(|it| it.type_ == "PodScheduled" && it.status == "False")?;
    let words = match condition.reason.as_deref() {
        Some("SchedulingGated") => "it is held back by its spec.schedulingGates",
        _ => words,
    };
    let said = condition.message.as_deref().map(|said| format!(": {said}"));
    Some(format!("{words}{}", said.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_pod_without_a_node_is_held_back_or_taken_by_none() {
        let gated = json!({"reason": "SchedulingGated", "message": "Scheduling is blocked"});
        let full = json!({"reason": "Unschedulable", "message": "0/1 nodes"});
        for (condition, expected) in [
            (gated, Some("it is held back by its spec.schedulingGates: Scheduling is blocked")),
            (full, Some("no node: 0/1 nodes")),
            (json!({}), Some("no node")),
            (json!({"status": "True"}), None),
            (json!({"type": "Ready"}), None),
        ] {
            let mut said = json!({"type": "PodScheduled", "status": "False"});
            let members = condition.as_object().unwrap().clone();
            said.as_object_mut().unwrap().extend(members);
            let status: Value = json!({"conditions": [said]});
            let status = serde_json::from_value(status).unwrap();
            assert_eq!(without_node(&status, "no node").as_deref(), expected, "{condition}");
        }
    }
}
