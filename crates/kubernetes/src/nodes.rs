//! Silent nodes, recognised by the state of their pods: no right to read nodes is needed.

use k8s_openapi::api::core::v1::{Pod, PodStatus};

/// After how many seconds it is worth telling that a kubelet has reported nothing about a pod assigned to its node.
pub(crate) const UNHEARD: i64 = 5;
/// How many seconds a kubelet may take to make a pod without a report.
pub(crate) const MAKES: i64 = 30;

/// Whether the node controller has given up the node of a pod, whose kubelet reports nothing: it changes only this one
/// condition of the pod.
pub(crate) fn is_silent(status: &PodStatus) -> bool {
    let is = |type_: &str, value: &str| {
        let mut conditions = status.conditions.iter().flatten();
        // A condition of the pod's readiness gates says nothing about its node.
        conditions.any(|condition| {
            condition.type_ == type_
                && condition.status == value
                && condition.reason.as_deref() != Some("ReadinessGatesNotReady")
        })
    };
    let lost = status.reason.as_deref() == Some("NodeLost");
    lost || status.phase.as_deref() == Some("Unknown")
        || (is("Ready", "False") && is("ContainersReady", "True"))
}

/// Whether a pod has a node whose kubelet has not reported yet: its first report is the time at which it took the pod.
pub(crate) fn is_unheard(pod: &Pod) -> bool {
    let is_placed = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    is_placed && pod.status.as_ref().is_none_or(|status| status.start_time.is_none())
}

/// The message about the silent node of a pod.
pub(crate) fn silent(node: Option<&str>) -> String {
    let node = node.unwrap_or("it is on");
    format!("the node {node} is not heard of: its kubelet is stopped, or cut off")
}

/// The message about the node of a pod that its kubelet has not reported.
pub(crate) fn unheard(node: &str) -> String {
    format!(
        "the node {node} has not said a word of its pod: its kubelet is stopped, cut off or busy"
    )
}

/// The message about the node of a pod that is being made for longer than [`MAKES`].
pub(crate) fn makes(node: &str) -> String {
    format!(
        "the node {node} makes its pod for more than {MAKES} s, and says no more: it may be pulling the image, or its \
         kubelet is stopped or cut off"
    )
}
