//! What is seen of a run's Job and pod, in few words; and what that means: pure.

use engine::names::RunName;
use engine::record::Key;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodStatus};
use osb::{BindingId, InstanceId};
use serde::{Deserialize, Serialize};

use super::manifest::{
    AGENT_CONTAINER, BINDING_ID, BROKER_CONTAINER, ENDED, GIVEN, INSTANCE_ID, RELEASED, RUN,
};

/// Of a Job.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SeenJob {
    pub(super) run: RunName,
    /// `None`: a question for the catalog, or a foreign Job.
    pub(super) record: Option<Key>,
    pub(super) version: u64,
    pub(super) uid: String,
    /// In seconds since 1970.
    pub(super) created: i64,
    pub(super) given: bool,
    /// Until when it is kept, if it is no longer needed.
    pub(super) released: Option<i64>,
    /// No pod of it may go on, and why.
    pub(super) ended: Option<Ended>,
    /// Why Kubernetes gave it up: the reason and the message of its condition.
    pub(super) failed: Option<(String, String)>,
    pub(super) going: bool,
}

/// Why no pod of a run may go on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Ended {
    /// Somebody asked for it.
    Cancelled,
    /// Its pod was taken away.
    Lost(String),
    /// It would never have begun.
    Hopeless(String),
}

/// Of a pod.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SeenPod {
    pub(super) run: RunName,
    pub(super) name: String,
    pub(super) version: u64,
    pub(super) uid: String,
    /// When it is to be gone, in seconds since 1970, if somebody asked for it to go.
    pub(super) going: Option<i64>,
    pub(super) stage: Stage,
}

/// How far a pod is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Stage {
    /// Nothing of the broker has begun; why it waits, if that is worth telling.
    Waiting(Option<Waits>),
    /// The agent is in charge.
    Running,
    /// The broker's container has ended.
    Ended(End),
    /// It never began, and will not.
    NeverBegan(String),
}

/// Why a pod does not begin.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Waits {
    pub(super) why: String,
    /// It will not mend by itself.
    pub(super) for_ever: bool,
}

/// The end of the broker's container.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct End {
    pub(super) message: String,
    pub(super) exit_code: i32,
    pub(super) reason: String,
    /// What Kubernetes says of the pod: `Evicted`, and why.
    pub(super) pod: Option<String>,
}

impl SeenJob {
    /// `None` if it is no run of ours.
    pub(super) fn of(job: &Job) -> Option<Self> {
        let metadata = &job.metadata;
        let annotation = |name: &str| metadata.annotations.as_ref()?.get(name);
        let run = RunName::parse(metadata.labels.as_ref()?.get(RUN)?)?;
        let instance = annotation(INSTANCE_ID).and_then(|id| InstanceId::new(id).ok());
        let binding = annotation(BINDING_ID).and_then(|id| BindingId::new(id).ok());
        let record = instance.map(|instance| match binding {
            Some(binding) => Key::Binding(instance, binding),
            None => Key::Instance(instance),
        });
        let conditions =
            job.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
        let failed = conditions
            .filter(|condition| condition.type_ == "Failed" && condition.status == "True")
            .map(|condition| {
                let text = |text: &Option<String>| text.clone().unwrap_or_default();
                (text(&condition.reason), text(&condition.message))
            })
            .next();
        Some(Self {
            run,
            record,
            version: version(metadata.resource_version.as_deref()),
            uid: metadata.uid.clone().unwrap_or_default(),
            created: metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            given: annotation(GIVEN).is_some(),
            released: annotation(RELEASED).and_then(|until| until.parse().ok()),
            ended: annotation(ENDED).and_then(|why| serde_json::from_str(why).ok()),
            failed,
            going: metadata.deletion_timestamp.is_some(),
        })
    }
}

impl SeenPod {
    /// `None` if it is of no run of ours.
    pub(super) fn of(pod: &Pod) -> Option<Self> {
        let metadata = &pod.metadata;
        Some(Self {
            run: RunName::parse(metadata.labels.as_ref()?.get(RUN)?)?,
            name: metadata.name.clone()?,
            version: version(metadata.resource_version.as_deref()),
            uid: metadata.uid.clone().unwrap_or_default(),
            going: metadata.deletion_timestamp.as_ref().map(|time| time.0.as_second()),
            stage: pod.status.as_ref().map_or(Stage::Waiting(None), stage),
        })
    }
}

fn version(version: Option<&str>) -> u64 {
    version.and_then(|version| version.parse().ok()).unwrap_or_default()
}

fn stage(status: &PodStatus) -> Stage {
    let of = |statuses: &Option<Vec<ContainerStatus>>, name: &str| {
        let found = statuses.iter().flatten().find(|status| status.name == name);
        found.and_then(|status| status.state.clone())
    };
    let broker = of(&status.container_statuses, BROKER_CONTAINER);
    let agent = of(&status.init_container_statuses, AGENT_CONTAINER);
    let of_pod = of_pod(status);
    let phase = status.phase.as_deref().unwrap_or_default();
    match broker {
        Some(ContainerState { terminated: Some(end), .. }) => {
            let reason = end.reason.unwrap_or_default();
            // Its own program could not be started: the agent never was in charge.
            if ["ContainerCannotRun", "StartError"].contains(&reason.as_str()) {
                let said = end.message.unwrap_or_default();
                return Stage::NeverBegan(format!("the broker's container cannot run: {said}"));
            }
            Stage::Ended(End {
                message: end.message.unwrap_or_default(),
                exit_code: end.exit_code,
                reason,
                pod: of_pod,
            })
        }
        Some(ContainerState { running: Some(_), .. }) => Stage::Running,
        _ if phase == "Failed" => {
            let why = of_pod.or_else(|| agent.and_then(not_installed));
            let why = why.unwrap_or_else(|| "its pod failed before the broker began".to_owned());
            Stage::NeverBegan(why)
        }
        broker => {
            let waiting = [broker, agent].into_iter().flatten().find_map(waits);
            Stage::Waiting(waiting.or_else(|| unscheduled(status)))
        }
    }
}

/// What Kubernetes says of a pod as a whole.
fn of_pod(status: &PodStatus) -> Option<String> {
    let reason = status.reason.clone().filter(|reason| !reason.is_empty())?;
    let said = status.message.clone().unwrap_or_default();
    Some(format!("its pod failed: {reason}: {said}"))
}

fn not_installed(agent: ContainerState) -> Option<String> {
    let end = agent.terminated?;
    let said = end.message.filter(|said| !said.is_empty()).or(end.reason).unwrap_or_default();
    Some(format!("the agent could not be installed: exit status {}: {said}", end.exit_code))
}

/// Why a container waits, if that is more than that it is being made.
fn waits(state: ContainerState) -> Option<Waits> {
    let waiting = state.waiting?;
    let reason = waiting.reason.unwrap_or_default();
    let said = waiting.message.unwrap_or_default();
    let what = match reason.as_str() {
        "" | "ContainerCreating" | "PodInitializing" => return None,
        "ErrImagePull" | "ImagePullBackOff" | "RegistryUnavailable" => "the image cannot be pulled",
        "InvalidImageName" => "the name of the image is not one",
        "ErrImageNeverPull" => "the image is not on the node, and may not be pulled",
        "CreateContainerConfigError" => "the pod asks for something that is not there",
        _ => "the container cannot be made",
    };
    let for_ever = ["InvalidImageName", "ErrImageNeverPull"].contains(&reason.as_str());
    Some(Waits { why: format!("{what}: {reason}: {said}"), for_ever })
}

fn unscheduled(status: &PodStatus) -> Option<Waits> {
    let condition = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
    let said = condition.message.clone().unwrap_or_default();
    Some(Waits { why: format!("no node takes the pod: {said}"), for_ever: false })
}
