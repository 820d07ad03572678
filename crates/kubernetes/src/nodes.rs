//! Nodes that are not heard of, by what is seen of their pods: no right to look at nodes is needed.

use k8s_openapi::api::core::v1::{Pod, PodStatus};

/// How long a kubelet may say nothing of a pod that its node was given before that is worth telling, in seconds.
pub(crate) const UNHEARD: i64 = 5;
/// How long a kubelet may take to make a pod without a word, in seconds.
pub(crate) const MAKES: i64 = 30;

/// Whether the node's controller has given up a node whose kubelet says nothing: of a pod it changes this
/// one condition.
pub(crate) fn is_silent(status: &PodStatus) -> bool {
    let is = |type_: &str, value: &str| {
        let mut conditions = status.conditions.iter().flatten();
        // That of gates which somebody has given the pod is not of its node.
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

/// Whether a pod has a node, and not yet a word of its kubelet: the first is when it took the pod.
pub(crate) fn is_unheard(pod: &Pod) -> bool {
    let is_placed = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    is_placed && pod.status.as_ref().is_none_or(|status| status.start_time.is_none())
}

/// Of the node of a pod that is silent, in words.
pub(crate) fn silent(node: Option<&str>) -> String {
    let node = node.unwrap_or("it is on");
    format!("the node {node} is not heard of: its kubelet is stopped, or cut off")
}

/// Of the node of a pod that is unheard, in words.
pub(crate) fn unheard(node: &str) -> String {
    format!(
        "the node {node} has not said a word of its pod: its kubelet is stopped, cut off or busy"
    )
}

/// Of the node of a pod that is being made for longer than [`MAKES`], in words.
pub(crate) fn makes(node: &str) -> String {
    format!(
        "the node {node} makes its pod for more than {MAKES} s, and says no more: it may be pulling the image, or its \
         kubelet is stopped or cut off"
    )
}
