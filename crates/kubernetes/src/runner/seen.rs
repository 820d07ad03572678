//! What is seen of a run's Job and pod, in few words; and what that means: pure.

use agent::{Error, Message};
use engine::names::RunName;
use engine::record::Key;
use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Event, Pod, PodStatus};
use osb::{BindingId, InstanceId};
use serde::{Deserialize, Serialize};

use super::delivery::AGENT_CONTAINER;
use super::manifest::{
    BINDING_ID, BROKER_CONTAINER, ENDED, GIVEN, INSTANCE_ID, KEPT, PROGRESS, RELEASED, RUN,
};
use super::mounts::{Need, needs};
use super::settings::JobSettings;
use crate::nodes::{is_silent, is_unheard};
use crate::warnings::{MOUNTS, Warned};

/// Why Kubernetes gives up a Job whose time is up.
const OVER: &str = "DeadlineExceeded";
/// What is said of a pod that failed and has no more to say.
pub(super) const UNKNOWN: &str = "its pod failed, and how its broker ended is not known";

/// Of a Job.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SeenJob {
    pub(super) run: RunName,
    pub(super) namespace: String,
    /// `None`: a question for the catalog, or a foreign Job.
    pub(super) record: Option<Key>,
    pub(super) version: u64,
    pub(super) uid: String,
    /// In seconds since 1970.
    pub(super) created: i64,
    /// When Kubernetes gives it up, in seconds since 1970.
    pub(super) until: Option<i64>,
    pub(super) given: bool,
    /// Whether its broker may say how far it is.
    pub(super) progress: bool,
    /// Until when it is kept, if it is no longer needed.
    pub(super) released: Option<i64>,
    /// No pod of it may go on, and why.
    pub(super) ended: Option<Ended>,
    /// Why Kubernetes gave it up: the reason and the message of its condition.
    pub(super) failed: Option<(String, String)>,
    /// How it is waited for and kept.
    pub(super) kept: Option<Kept>,
    /// Its pod ended well.
    pub(super) complete: bool,
    pub(super) going: bool,
    /// It is not there any more, and nobody released it.
    pub(super) deleted: bool,
    /// A list was without it, which may have been an old one.
    pub(super) unsure: bool,
}

/// How a run is waited for and kept, by the settings that it was made by. In seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Kept {
    pub(super) start_timeout: u64,
    pub(super) grace: u64,
    pub(super) succeeded: u64,
    pub(super) failed: u64,
}

impl Kept {
    /// What is longer than any period of ours was not written by us, and is as good as for ever.
    fn read(kept: &str) -> Option<Self> {
        let Self { start_timeout, grace, succeeded, failed } = serde_json::from_str(kept).ok()?;
        let [start_timeout, grace, succeeded, failed] = [start_timeout, grace, succeeded, failed]
            .map(|seconds: u64| seconds.min(i32::MAX.unsigned_abs().into()));
        Some(Self { start_timeout, grace, succeeded, failed })
    }

    pub(super) fn of(settings: &JobSettings) -> Self {
        Self {
            start_timeout: settings.start_timeout.as_secs(),
            grace: settings.grace.as_secs(),
            succeeded: settings.keep_succeeded.as_secs(),
            failed: settings.keep_failed.as_secs(),
        }
    }
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
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) version: u64,
    pub(super) uid: String,
    /// In seconds since 1970.
    pub(super) created: i64,
    pub(super) node: Option<String>,
    /// When it is to be gone, in seconds since 1970, if somebody asked for it to go.
    pub(super) going: Option<i64>,
    /// When somebody asked for that.
    pub(super) asked: Option<i64>,
    /// Why it is to be gone, where servers say so.
    pub(super) leaving: Option<String>,
    /// Its node is not heard of.
    pub(super) silent: bool,
    /// A node has it, whose kubelet has said nothing of it yet.
    pub(super) unheard: bool,
    /// The agent was in charge once.
    pub(super) began: bool,
    /// Its broker's container is what begins next, and may have begun by now.
    pub(super) begins: bool,
    /// It is not there any more; this is how it was.
    pub(super) gone: bool,
    /// What has to be there before it begins, as long as it does not.
    pub(super) needs: Vec<Need>,
    pub(super) stage: Stage,
}

/// What Kubernetes warns of, of a Job or a pod.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Warning {
    pub(super) run: RunName,
    /// The Job's or the pod's.
    uid: String,
    waits: Waits,
    /// It says only that it has waited.
    vague: bool,
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
    /// It is over, and nobody knows how far it came.
    Failed(String),
}

/// Why a pod does not begin.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Waits {
    pub(super) why: String,
    /// It will not mend by itself.
    pub(super) for_ever: bool,
    /// For an image, which is tried again and again.
    pub(super) pulls: bool,
}

/// The end of the broker's container.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct End {
    /// What the agent left.
    pub(super) message: Option<String>,
    /// What the kubelet says instead.
    pub(super) said: Option<String>,
    pub(super) exit_code: i32,
    pub(super) reason: String,
    /// What Kubernetes says of the pod: `Evicted`, and why.
    pub(super) pod: Option<String>,
    /// When, in seconds since 1970.
    pub(super) at: Option<i64>,
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
        let condition = |type_: &str| {
            let conditions = job.status.as_ref()?.conditions.as_ref()?;
            conditions.iter().find(|it| it.type_ == type_ && it.status == "True")
        };
        let said = |condition: &JobCondition| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            (text(&condition.reason), text(&condition.message))
        };
        // From 1.31 on it has failed only when all of its pods have ended; that its time is up is said before.
        let is_over_time = |(reason, _): &(String, String)| reason == OVER;
        let failed = condition("Failed").map(said);
        let failed = failed.or_else(|| condition("FailureTarget").map(said).filter(is_over_time));
        let created = metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
        let lifetime = job.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
        Some(Self {
            run,
            namespace: metadata.namespace.clone().unwrap_or_default(),
            record,
            version: version(metadata.resource_version.as_deref()),
            uid: metadata.uid.clone().unwrap_or_default(),
            created,
            until: lifetime.map(|lifetime| created.saturating_add(lifetime)),
            given: annotation(GIVEN).is_some(),
            progress: annotation(PROGRESS).is_some(),
            released: annotation(RELEASED).and_then(|until| until.parse().ok()),
            ended: annotation(ENDED).and_then(|why| serde_json::from_str(why).ok()),
            failed,
            kept: annotation(KEPT).and_then(|kept| Kept::read(kept)),
            complete: condition("Complete").is_some(),
            going: metadata.deletion_timestamp.is_some(),
            deleted: false,
            unsure: false,
        })
    }

    /// The Job that a pod was of, which is not there.
    pub(super) fn deleted(pod: &SeenPod) -> Self {
        Self {
            run: pod.run.clone(),
            namespace: pod.namespace.clone(),
            record: None,
            version: 0,
            uid: String::new(),
            created: pod.created,
            until: None,
            given: true,
            progress: false,
            released: None,
            ended: None,
            failed: None,
            kept: None,
            complete: false,
            going: true,
            deleted: true,
            unsure: false,
        }
    }

    /// What Kubernetes says, if it gave the Job up because its time is up.
    pub(super) fn over_time(&self) -> Option<&str> {
        let (reason, said) = self.failed.as_ref()?;
        (reason == OVER).then_some(said.as_str())
    }

    /// Whether that is why its pods go, as far as it can be known: it says so a moment later.
    pub(super) fn goes_over_time(&self, now: i64) -> bool {
        let undecided = self.failed.is_none() && !self.complete && !self.deleted && !self.going;
        self.over_time().is_some() || (undecided && self.until.is_some_and(|until| until <= now))
    }
}

impl SeenPod {
    /// `None` if it is of no run of ours.
    pub(super) fn of(pod: &Pod) -> Option<Self> {
        let metadata = &pod.metadata;
        let stage = pod.status.as_ref().map_or(Stage::Waiting(None), stage);
        let going = metadata.deletion_timestamp.as_ref().map(|time| time.0.as_second());
        let grace = metadata.deletion_grace_period_seconds.unwrap_or_default();
        let installed = is_installed(pod);
        Some(Self {
            run: RunName::parse(metadata.labels.as_ref()?.get(RUN)?)?,
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone()?,
            version: version(metadata.resource_version.as_deref()),
            uid: metadata.uid.clone().unwrap_or_default(),
            created: metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            going,
            asked: going.map(|going| going.saturating_sub(grace)),
            leaving: pod.status.as_ref().and_then(leaving),
            silent: pod.status.as_ref().is_some_and(is_silent),
            unheard: is_unheard(pod),
            began: matches!(stage, Stage::Running | Stage::Ended(_)),
            begins: installed && stage == Stage::Waiting(None),
            gone: false,
            needs: if stage == Stage::Waiting(None) { needs(pod) } else { Vec::new() },
            stage,
        })
    }

    /// Takes what is newer, and keeps what a pod's status may forget: that its broker began, what its
    /// container left, why an image cannot be pulled.
    pub(super) fn update(&mut self, newer: Self) {
        let began = self.began || newer.began;
        let known = std::mem::replace(self, newer);
        self.began = began;
        self.leaving = self.leaving.take().or(known.leaving);
        let keep = match (&known.stage, &self.stage) {
            (Stage::Ended(End { message, .. }), Stage::Ended(end)) => {
                message.is_some() && end.message.is_none()
            }
            (Stage::Ended(_), _) => true,
            (Stage::Waiting(Some(then)), Stage::Waiting(Some(now))) => then.pulls && now.pulls,
            _ => false,
        };
        if keep {
            self.stage = known.stage;
        }
    }
}

impl Warning {
    /// `None` if it says nothing of why a run does not begin, or is of nothing that can be ours.
    pub(super) fn of_event(event: &Event) -> Option<Self> {
        let warned = Warned::of(event)?;
        let name = match warned.of_pod {
            true => warned.name.rsplit_once('-')?.0,
            false => &warned.name,
        };
        Some(Self {
            run: RunName::parse(name)?,
            uid: warned.uid,
            waits: Waits { why: warned.why, for_ever: false, pulls: false },
            vague: warned.vague,
        })
    }

    /// What a pod mounts is missing.
    pub(super) fn of_mount(pod: &SeenPod, said: &str) -> Self {
        Self {
            run: pod.run.clone(),
            uid: pod.uid.clone(),
            waits: Waits { why: format!("{MOUNTS}: {said}"), for_ever: false, pulls: false },
            vague: false,
        }
    }

    /// Takes the newer one, unless it says less.
    pub(super) fn update(&mut self, newer: Self) {
        if !(newer.vague && newer.uid == self.uid) {
            *self = newer;
        }
    }

    /// What it says, if it is of the Job or the pod with this uid.
    pub(super) fn of(&self, uid: &str) -> Option<Waits> {
        (self.uid == uid).then(|| self.waits.clone())
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
    let never_was = status.container_statuses.iter().flatten().any(never_was);
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
            // Its own program could not be started: the agent never was in charge.
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
        // The kubelet is not there any more to say how it ended.
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

/// Whether the broker's container is said to have ended only because its pod did: kubelets from 1.27 on say that of one
/// that they never made. One that was made has an id, and one that was seen to run and is gone has other words.
fn never_was(status: &ContainerStatus) -> bool {
    let ended = status.state.as_ref().and_then(|state| state.terminated.as_ref());
    let is_told = ended.is_some_and(|end| {
        let words = end.message.as_deref().unwrap_or_default();
        end.reason.as_deref() == Some("ContainerStatusUnknown")
            && words.ends_with("could not be located when the pod was terminated")
            && end.started_at.is_none()
    });
    let has_id = status.container_id.as_deref().is_some_and(|id| !id.is_empty());
    is_told && !has_id && status.restart_count == 0 && status.name == BROKER_CONTAINER
}

/// Of a pod that is over, whose broker's container is not known to have begun.
fn failed(status: &PodStatus, agent: Option<ContainerState>, of_pod: Option<String>) -> Stage {
    let untold = status.container_statuses.as_ref().is_none_or(Vec::is_empty);
    let why = of_pod.or_else(|| agent.and_then(not_installed));
    let why = why.unwrap_or_else(|| "its pod failed before the broker began".to_owned());
    // A kubelet that evicts forgets what it said of the containers.
    match untold && !was_rejected(status) {
        true => Stage::Failed(why),
        false => Stage::NeverBegan(why),
    }
}

/// Whether nothing has to end before the broker's container begins.
fn is_installed(pod: &Pod) -> bool {
    let status = pod.status.as_ref().and_then(|status| status.init_container_statuses.as_ref());
    let mut statuses = status.into_iter().flatten();
    if let Some(agent) = statuses.find(|status| status.name == AGENT_CONTAINER) {
        return agent.state.as_ref().is_some_and(|state| state.terminated.is_some());
    }
    let Some(spec) = &pod.spec else { return false };
    let mut first = spec.init_containers.iter().flatten();
    spec.node_name.is_some() && !first.any(|container| container.name == AGENT_CONTAINER)
}

/// Whether a kubelet did not take a pod that the scheduler gave it.
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

/// Who takes a pod away, and why: servers since 1.25 say so.
fn leaving(status: &PodStatus) -> Option<String> {
    let condition =
        status.conditions.iter().flatten().find(|condition| {
            condition.type_ == "DisruptionTarget" && condition.status == "True"
        })?;
    let reason = condition.reason.clone().unwrap_or_default();
    let said = condition.message.clone().unwrap_or_default();
    Some(format!("{reason}: {said}"))
}

/// What Kubernetes says of a pod as a whole.
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

/// Why a container waits, if that is more than that it is being made.
fn waits(state: ContainerState) -> Option<Waits> {
    let waiting = state.waiting?;
    let reason = waiting.reason.unwrap_or_default();
    let said = waiting.message.unwrap_or_default();
    let as_root = said.contains("runAsNonRoot") || said.contains("runAsUser");
    let what = match reason.as_str() {
        "" | "ContainerCreating" | "PodInitializing" => return None,
        "ErrImagePull" | "ImagePullBackOff" | "RegistryUnavailable" => "the image cannot be pulled",
        "InvalidImageName" => "the name of the image is not one",
        "ErrImageNeverPull" => "the image is not on the node, and may not be pulled",
        "CreateContainerConfigError" if as_root => "the container may not run as this user",
        "CreateContainerConfigError" => "the pod asks for something that is not there",
        _ => "the container cannot be made",
    };
    let for_ever = as_root || ["InvalidImageName", "ErrImageNeverPull"].contains(&reason.as_str());
    let pulls = what == "the image cannot be pulled";
    Some(Waits { why: format!("{what}: {reason}: {said}"), for_ever, pulls })
}

fn unscheduled(status: &PodStatus) -> Option<Waits> {
    let condition = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
    let said = condition.message.clone().unwrap_or_default();
    Some(Waits { why: format!("no node takes the pod: {said}"), for_ever: false, pulls: false })
}
