//! The stage of a run's pod: how far it is, why it does not begin, or how it ended, by its status; pure.

use agent::{Error, Message};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodStatus};

use super::delivery::AGENT_CONTAINER;
use super::labels::BROKER_CONTAINER;
use crate::pods::{is_no_image, is_pull, never_was, without_node};

/// The message for a pod that failed without saying how.
pub(super) const UNKNOWN: &str = "its pod failed, and how its broker ended is not known";

/// The stage of a pod.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Stage {
    /// The broker has not begun; with the reason, if that is worth telling.
    Waiting(Option<Waits>),
    /// The agent runs.
    Running,
    /// The broker's container has ended.
    Ended(End),
    /// The pod never began, and will not.
    NeverBegan(String),
    /// The pod is over, and how far it came is unknown.
    Failed(String),
}

/// Why a pod does not begin.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Waits {
    pub(super) why: String,
    /// Whether the pod will wait for ever.
    pub(super) for_ever: bool,
    /// Whether the pod waits for an image, whose pull is tried again and again.
    pub(super) pulls: bool,
}

/// The end of the broker's container.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct End {
    /// The message that the agent left.
    pub(super) message: Option<String>,
    /// The kubelet's message instead.
    pub(super) said: Option<String>,
    pub(super) exit_code: i32,
    pub(super) reason: String,
    /// The reason that Kubernetes gives for the pod, such as `Evicted`, with its message.
    pub(super) pod: Option<String>,
    /// When the container ended, in seconds since 1970.
    pub(super) at: Option<i64>,
}

/// The stage of a pod, by its status.
pub(super) fn stage(status: &PodStatus) -> Stage {
    let of = |statuses: &Option<Vec<ContainerStatus>>, name: &str| {
        let found = statuses.iter().flatten().find(|status| status.name == name);
        found.and_then(|status| status.state.clone())
    };
    let broker = of(&status.container_statuses, BROKER_CONTAINER);
    let mut containers = status.container_statuses.iter().flatten();
    let never_was = containers.any(|it| it.name == BROKER_CONTAINER && never_was(it));
    let agent = of(&status.init_container_statuses, AGENT_CONTAINER);
    let of_pod = of_pod(status);
    let phase = status.phase.as_deref().unwrap_or_default();
    let over = phase == "Failed" || phase == "Succeeded";
    match broker {
        Some(ContainerState { terminated: Some(end), .. }) => {
            let reason = end.reason.unwrap_or_default();
            let said = end.message.filter(|said| !said.is_empty());
            if never_was {
                let why = || "its pod was ended before the broker began".to_owned();
                return Stage::NeverBegan(of_pod.unwrap_or_else(why));
            }
            // The container's program could not be started: the agent never ran.
            if ["ContainerCannotRun", "StartError"].contains(&reason.as_str()) {
                let said = said.unwrap_or_default();
                return Stage::NeverBegan(format!("the broker's container cannot run: {said}"));
            }
            let (message, said) = match said {
                Some(said) if Message::parse(&said) == Err(Error::NotOurs) => (None, Some(said)),
                message => (message, None),
            };
            let at = end.finished_at.map(|time| time.0.as_second());
            Stage::Ended(End { message, said, exit_code: end.exit_code, reason, pod: of_pod, at })
        }
        // There is no kubelet any more that could say how the container ended.
        Some(ContainerState { running: Some(_), .. }) if over => {
            Stage::Failed(of_pod.unwrap_or_else(|| UNKNOWN.to_owned()))
        }
        Some(ContainerState { running: Some(_), .. }) => Stage::Running,
        _ if over => failed(status, agent, of_pod),
        broker => {
            let waiting = [broker, agent].into_iter().flatten().find_map(waits);
            Stage::Waiting(waiting.or_else(|| unscheduled(status)))
        }
    }
}

/// Whether no other container has to end before the broker's begins.
pub(super) fn is_installed(pod: &Pod) -> bool {
    let status = pod.status.as_ref().and_then(|status| status.init_container_statuses.as_ref());
    let mut statuses = status.into_iter().flatten();
    if let Some(agent) = statuses.find(|status| status.name == AGENT_CONTAINER) {
        return agent.state.as_ref().is_some_and(|state| state.terminated.is_some());
    }
    let Some(spec) = &pod.spec else { return false };
    let mut first = spec.init_containers.iter().flatten();
    spec.node_name.is_some() && !first.any(|container| container.name == AGENT_CONTAINER)
}

/// Who removes a pod, and why: servers since 1.25 say so.
pub(super) fn leaving(status: &PodStatus) -> Option<String> {
    let condition =
        status.conditions.iter().flatten().find(|condition| {
            condition.type_ == "DisruptionTarget" && condition.status == "True"
        })?;
    let reason = condition.reason.clone().unwrap_or_default();
    let said = condition.message.clone().unwrap_or_default();
    Some(format!("{reason}: {said}"))
}

/// The stage of a pod that is over, whose broker's container is not known to have begun.
fn failed(status: &PodStatus, agent: Option<ContainerState>, of_pod: Option<String>) -> Stage {
    let untold = status.container_statuses.as_ref().is_none_or(Vec::is_empty);
    let why = of_pod.or_else(|| agent.and_then(not_installed));
    let why = why.unwrap_or_else(|| "its pod failed before the broker began".to_owned());
    // A kubelet that evicts a pod drops its containers' states.
    match untold && !was_rejected(status) {
        true => Stage::Failed(why),
        false => Stage::NeverBegan(why),
    }
}

/// Whether the kubelet rejected a pod that the scheduler assigned to it.
fn was_rejected(status: &PodStatus) -> bool {
    const REJECTED: [&str; 7] = [
        "AppArmor",
        "HostPortConflict",
        "MatchNodeSelector",
        "NodeAffinity",
        "PodOSNotSupported",
        "UnexpectedAdmissionError",
        "UnsupportedHostnamePolicy",
    ];
    let reason = status.reason.as_deref().unwrap_or_default();
    let said = status.message.as_deref().unwrap_or_default();
    REJECTED.contains(&reason)
        || reason.starts_with("OutOf")
        || said.starts_with("Pod was rejected")
        || (reason == "Evicted" && said.contains("The node had condition"))
}

/// The message of Kubernetes about a pod as a whole.
fn of_pod(status: &PodStatus) -> Option<String> {
    let said = match status.reason.clone().filter(|reason| !reason.is_empty()) {
        Some(reason) => format!("{reason}: {}", status.message.as_deref().unwrap_or_default()),
        None => leaving(status)?,
    };
    Some(format!("its pod failed: {said}"))
}

fn not_installed(agent: ContainerState) -> Option<String> {
    let end = agent.terminated?;
    let said = end.message.filter(|said| !said.is_empty()).or(end.reason).unwrap_or_default();
    Some(format!("the agent could not be installed: exit status {}: {said}", end.exit_code))
}

/// Why a container waits, unless it is only being made.
fn waits(state: ContainerState) -> Option<Waits> {
    let waiting = state.waiting?;
    let reason = waiting.reason.unwrap_or_default();
    let said = waiting.message.unwrap_or_default();
    let as_root = said.contains("runAsNonRoot") || said.contains("runAsUser");
    let what = match reason.as_str() {
        "" | "ContainerCreating" | "PodInitializing" => return None,
        reason if is_pull(reason) => "the image cannot be pulled",
        "InvalidImageName" => "the name of the image is not one",
        "ErrImageNeverPull" => "the image is not on the node, and may not be pulled",
        "CreateContainerConfigError" if as_root => "the container may not run as this user",
        "CreateContainerConfigError" => "the pod asks for something that is not there",
        _ => "the container cannot be made",
    };
    let for_ever = as_root || is_no_image(&reason);
    let pulls = is_pull(&reason);
    Some(Waits { why: format!("{what}: {reason}: {said}"), for_ever, pulls })
}

fn unscheduled(status: &PodStatus) -> Option<Waits> {
    let why = without_node(status, "no node takes the pod")?;
    Some(Waits { why, for_ever: false, pulls: false })
}
