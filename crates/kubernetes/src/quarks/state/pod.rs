//! What is held in memory of a pod of a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent::GATHERING_VARIABLE;
use k8s_openapi::api::core::v1::{
    Container, ContainerRestartRuleOnExitCodes, ContainerState, ContainerStatus, Pod, PodSpec,
    PodStatus,
};

use super::indexes::INDEX;
use crate::nodes::{is_silent, is_unheard};
use crate::pods::{is_no_image, is_pull, never_was, without_node};
use crate::quarks::api::dialect::{Dialect, TRIGGERED};
use crate::quarks::api::pod::{CONTAINERS, SIDECAR, TOLD_ENDED};

/// How many seconds a pod has to end if its spec does not say so.
const GRACE: i64 = 30;

/// A pod of a Job of ours.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SeenPod {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) uid: Arc<str>,
    pub(crate) version: u64,
    /// The uid of its Job.
    pub(crate) job: Arc<str>,
    /// The QuarksJob that its labels name: the kind, and the name as the value of a label.
    pub(crate) of: Option<(Dialect, Arc<str>)>,
    /// Its Job was deleted without it.
    pub(crate) orphan: bool,
    pub(crate) work: PodWork,
    /// It is gone; this is how it was last.
    pub(crate) gone: bool,
    /// By when it is to be gone, in seconds since 1970, if it is being deleted.
    pub(crate) deletion: Option<i64>,
    /// How many seconds it has to end when it is told to.
    pub(crate) grace: i64,
    /// Whether our sidecar is one of its containers.
    pub(crate) sidecar: bool,
    /// The names of its wrapped containers.
    pub(crate) wrapped: Vec<Arc<str>>,
    /// How many containers share what its kubelet keeps of all termination messages of a pod.
    pub(crate) sharers: usize,
    /// Its sidecar has ended, and was started again, or will be.
    pub(crate) anew: bool,
    /// Its sidecar waits to be told that the others have ended.
    pub(crate) waits_for_us: bool,
    /// When its last container ended, in seconds since 1970.
    pub(crate) ended: i64,
    /// How its containers ended, those that have; our sidecar too.
    pub(crate) containers: BTreeMap<Arc<str>, SeenEnd>,
    /// The containers that its kubelet never made, and will not any more.
    pub(crate) unmade: Vec<Arc<str>>,
    /// Why it does not begin.
    pub(crate) trouble: Option<String>,
    pub(crate) node: Option<Arc<str>>,
    /// Its node is not heard of.
    pub(crate) silent: bool,
    /// Its number, where its Job gives each of its pods one.
    pub(crate) index: Option<u32>,
    /// Since when, in seconds since 1970, nothing was heard of it: from the kubelet of its node, or from a scheduler.
    pub(crate) unheard_since: Option<i64>,
    /// A container of it has begun.
    pub(crate) began: bool,
    /// Why all of the pod was ended by Kubernetes, as by eviction.
    pub(crate) ended_for: Option<String>,
    /// How its containers ended before that were started again, or are to be.
    pub(crate) before: BTreeMap<Arc<str>, SeenEnd>,
}

/// How far the work of a pod is: that of the containers of its template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodWork {
    GoesOn,
    Over {
        /// All of them have succeeded.
        well: bool,
        /// A container that is not of the template goes on in the pod.
        lingers: bool,
    },
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SeenEnd {
    pub(crate) code: i32,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl SeenPod {
    /// Reads a pod; `None` if it is of no Job.
    pub(crate) fn of(pod: &Pod) -> Option<Self> {
        let metadata = &pod.metadata;
        let mut owners = metadata.owner_references.iter().flatten();
        let owner = owners.find(|owner| owner.kind == "Job" && owner.controller == Some(true));
        // A pod that was left behind when its Job was deleted is known to be its only by this label.
        let label = |name: &str| metadata.labels.as_ref()?.get(name);
        let job = owner.map(|owner| &owner.uid).or_else(|| label("controller-uid"))?;
        let status = pod.status.as_ref();
        let spec = pod.spec.as_ref();
        let Ends { containers, anew, sidecar, work, waits_for_us } = Ends::of(pod);
        Some(Self {
            namespace: metadata.namespace.as_deref()?.into(),
            name: metadata.name.as_deref()?.into(),
            uid: metadata.uid.as_deref()?.into(),
            version: metadata.resource_version.as_deref()?.parse().ok()?,
            job: job.as_str().into(),
            of: label(TRIGGERED).and_then(|kind| {
                let dialect = Dialect::ALL.into_iter().find(|it| it.kind() == kind)?;
                Some((dialect, label(&dialect.names_pods())?.as_str().into()))
            }),
            orphan: owner.is_none(),
            work,
            gone: false,
            deletion: metadata.deletion_timestamp.as_ref().map(|at| at.0.as_second()),
            grace: spec.and_then(|it| it.termination_grace_period_seconds).unwrap_or(GRACE),
            waits_for_us,
            anew,
            sidecar,
            wrapped: wrapped(pod),
            sharers: spec.map(sharers).unwrap_or_default(),
            ended: status.map(last_end).unwrap_or_default(),
            containers,
            unmade: status.map(unmade).unwrap_or_default(),
            trouble: status.and_then(trouble),
            node: spec.and_then(|it| it.node_name.as_deref()).map(Arc::from),
            index: metadata.annotations.as_ref().and_then(|all| all.get(INDEX)?.parse().ok()),
            silent: status.is_some_and(is_silent),
            unheard_since: placed(pod).filter(|_| is_unheard(pod) || is_unlooked_at(pod)),
            began: status.is_some_and(began),
            ended_for: status.and_then(ended_for),
            before: status.map(before).unwrap_or_default(),
        })
    }
}

/// How the containers of a pod have ended, and what that makes of the pod: members of [`SeenPod`].
struct Ends {
    containers: BTreeMap<Arc<str>, SeenEnd>,
    anew: bool,
    sidecar: bool,
    work: PodWork,
    waits_for_us: bool,
}

impl Ends {
    fn of(pod: &Pod) -> Self {
        let status = pod.status.as_ref();
        let phase = status.and_then(|it| it.phase.as_deref()).unwrap_or_default();
        let annotation = |name: &str| pod.metadata.annotations.as_ref()?.get(name);
        let is_told = annotation(TOLD_ENDED).is_some();
        let mut containers = status.map(ends).unwrap_or_default();
        let again = status.filter(|_| is_told).and_then(told_and_started_again);
        let again = again.filter(|(name, _)| !containers.contains_key(name));
        let anew = again.is_some();
        containers.extend(again);
        let named = annotation(CONTAINERS).map(|it| it.split(',').collect::<Vec<_>>());
        let over =
            |name: &&str| containers.get(*name).is_some_and(|end| !restarts(pod, name, end.code));
        let ended_well =
            |name: &&str| over(name) && containers.get(*name).is_some_and(|end| end.code == 0);
        // A container that ends with 0 because all of its pod was ended has not done its work.
        let is_given_up = phase == "Failed" && status.is_some_and(|it| it.reason.is_some());
        let all_well =
            !is_given_up && named.as_ref().is_some_and(|named| named.iter().all(ended_well));
        let succeeded = phase == "Succeeded" || all_well;
        // Kubernetes also waits for containers that were put into the pod, which may never end.
        let all_over = named.as_ref().is_some_and(|named| named.iter().all(over));
        let others = named.iter().flatten().filter(|name| **name != SIDECAR);
        let sidecar = named.iter().flatten().any(|name| *name == SIDECAR);
        let goes_on = status.is_some_and(|it| others_go_on(it, &named));
        // A native sidecar is ended by the kubelet, once nothing else goes on.
        let mut main = pod.spec.iter().flat_map(|spec| &spec.containers);
        let is_ours_to_end = goes_on || main.any(|container| container.name == SIDECAR);
        let waits_for_us = sidecar
            && phase != "Failed"
            && is_ours_to_end
            && !containers.contains_key(SIDECAR)
            && !is_told
            && others.copied().all(|name| over(&name));
        let work = match succeeded || all_over || phase == "Failed" {
            true => PodWork::Over { well: succeeded, lingers: all_over && goes_on },
            false => PodWork::GoesOn,
        };
        Self { anew, sidecar, work, waits_for_us, containers }
    }
}

/// Whether a container that has ended with this code is started again by its kubelet.
fn restarts(pod: &Pod, name: &str, code: i32) -> bool {
    let Some(spec) = pod.spec.as_ref() else { return code != 0 };
    let own = spec.containers.iter().find(|container| container.name == name);
    // From Kubernetes 1.34 on a container may have rules of its own; the first that fits counts.
    let rules = own.and_then(|own| own.restart_policy_rules.as_ref()).into_iter().flatten();
    let fits = |codes: &ContainerRestartRuleOnExitCodes| {
        let is_in = codes.values.iter().flatten().any(|value| *value == code);
        is_in == (codes.operator == "In")
    };
    let mut fitting = rules.filter(|rule| rule.exit_codes.as_ref().is_some_and(fits));
    let policy = own.and_then(|own| own.restart_policy.as_deref());
    match (fitting.next(), policy.or(spec.restart_policy.as_deref())) {
        (Some(rule), _) => rule.action.starts_with("Restart"),
        (None, Some("Never")) => false,
        (None, _) => code != 0 || policy == Some("Always"),
    }
}

impl SeenPod {
    /// Whether all containers of the template have ended well.
    pub(crate) fn has_succeeded(&self) -> bool {
        matches!(self.work, PodWork::Over { well: true, .. })
    }

    /// Whether all containers of the template are over, well or not.
    pub(crate) fn is_over(&self) -> bool {
        self.work != PodWork::GoesOn
    }

    /// Whether the pod's work is over, and a container that is not of the template goes on in it.
    pub(crate) fn lingers(&self) -> bool {
        matches!(self.work, PodWork::Over { lingers: true, .. })
    }

    /// Whether the pod succeeded by itself. One that ends with 0 when it is told to end has not done all of its work.
    pub(crate) fn did_its_work(&self) -> bool {
        self.has_succeeded() && self.deletion.is_none()
    }

    /// Whether the pod is seen to go on though the run of its Job is over. That counts only as long as the end of the
    /// Job is not heard of: the watch of pods may be late.
    pub(crate) fn outlasts(&self) -> bool {
        !(self.is_over() || self.gone || self.deletion.is_some())
    }
}

/// Whether no scheduler has set a condition of the pod.
fn is_unlooked_at(pod: &Pod) -> bool {
    let has_node = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let waits = !has_node && phase.is_none_or(|phase| phase == "Pending");
    let conditions = pod.status.iter().flat_map(|it| it.conditions.iter().flatten());
    waits && !conditions.into_iter().any(|it| it.type_ == "PodScheduled")
}

/// When the pod was given its node, or else made, in seconds since 1970.
fn placed(pod: &Pod) -> Option<i64> {
    let mut conditions = pod.status.iter().flat_map(|it| it.conditions.iter().flatten());
    let placed = conditions.find(|it| it.type_ == "PodScheduled" && it.status == "True");
    let at = placed.and_then(|it| it.last_transition_time.as_ref());
    at.or(pod.metadata.creation_timestamp.as_ref()).map(|at| at.0.as_second())
}

fn wrapped(pod: &Pod) -> Vec<Arc<str>> {
    let is_told = |container: &&Container| {
        let mut env = container.env.iter().flatten();
        container.name != SIDECAR && env.any(|variable| variable.name == GATHERING_VARIABLE)
    };
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.filter(is_told).map(|container| container.name.as_str().into()).collect()
}

/// The number of all containers, whoever has put them there.
fn sharers(spec: &PodSpec) -> usize {
    let first = spec.init_containers.as_ref().map_or(0, Vec::len);
    let to_debug = spec.ephemeral_containers.as_ref().map_or(0, Vec::len);
    spec.containers.len() + first + to_debug
}

fn statuses(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let first = status.init_container_statuses.iter().flatten();
    first.chain(status.container_statuses.iter().flatten())
}

/// Whether a container goes on that is none of the named ones.
fn others_go_on(status: &PodStatus, named: &Option<Vec<&str>>) -> bool {
    let is_other = |name: &str| named.as_ref().is_some_and(|named| !named.contains(&name));
    let mut main = status.container_statuses.iter().flatten();
    main.any(|container| {
        let ended = container.state.as_ref().is_some_and(|state| state.terminated.is_some());
        is_other(&container.name) && !ended
    })
}

fn began(status: &PodStatus) -> bool {
    let is_waiting = |state: &ContainerState| state.running.is_none() && state.terminated.is_none();
    let mut made = statuses(status).filter(|it| !never_was(it));
    made.any(|container| container.state.as_ref().is_some_and(|it| !is_waiting(it)))
}

fn unmade(status: &PodStatus) -> Vec<Arc<str>> {
    statuses(status).filter(|it| never_was(it)).map(|it| it.name.as_str().into()).collect()
}

fn ends(status: &PodStatus) -> BTreeMap<Arc<str>, SeenEnd> {
    let made = statuses(status).filter(|it| !never_was(it));
    made.filter_map(|it| end_of(it, it.state.as_ref()?)).collect()
}

fn before(status: &PodStatus) -> BTreeMap<Arc<str>, SeenEnd> {
    statuses(status).filter_map(|it| end_of(it, it.last_state.as_ref()?)).collect()
}

fn end_of(container: &ContainerStatus, state: &ContainerState) -> Option<(Arc<str>, SeenEnd)> {
    let ended = state.terminated.as_ref()?;
    let seen = SeenEnd {
        code: ended.exit_code,
        reason: ended.reason.clone().unwrap_or_default(),
        message: ended.message.clone().unwrap_or_default(),
    };
    Some((container.name.as_str().into(), seen))
}

/// How a native sidecar ended that was told to and that a kubelet has started again. One that was killed before it was
/// told has left nothing yet, and still works; so does one whose node went down and started all of the pod again, which
/// ended before the others did.
fn told_and_started_again(status: &PodStatus) -> Option<(Arc<str>, SeenEnd)> {
    let mut first = status.init_container_statuses.iter().flatten();
    let sidecar = first.find(|container| container.name == SIDECAR)?;
    let finished =
        |state: &ContainerState| Some(state.terminated.as_ref()?.finished_at.as_ref()?.0);
    let main = status.container_statuses.iter().flatten();
    let others = main.filter_map(|it| finished(it.state.as_ref()?)).max();
    if finished(sidecar.last_state.as_ref()?) < others {
        return None;
    }
    let has_left = |end: &SeenEnd| end.code == 0 || !end.message.is_empty();
    end_of(sidecar, sidecar.last_state.as_ref()?).filter(|(_, end)| has_left(end))
}

fn last_end(status: &PodStatus) -> i64 {
    let states = statuses(status).flat_map(|it| [&it.state, &it.last_state]).flatten();
    let ends = states.filter_map(|it| it.terminated.as_ref()?.finished_at.as_ref());
    ends.map(|at| at.0.as_second()).max().unwrap_or_default()
}

/// What is said of a container that ends too often.
pub(crate) const BEGUN_AGAIN: &str = "is begun again, each time after a longer pause";

/// Why a pod does not begin, in words that stay the same while it tries again.
fn trouble(status: &PodStatus) -> Option<String> {
    // The same words from the container's end until it is started again.
    let begun_again = || {
        let mut all = statuses(status).filter(|container| container.name != SIDECAR);
        all.find_map(|container| {
            let state = container.state.as_ref()?;
            let waits = state.waiting.as_ref().and_then(|it| it.reason.as_deref());
            let last = container.last_state.as_ref().and_then(|last| last.terminated.as_ref());
            let end = match &state.terminated {
                Some(end) if end.exit_code != 0 && container.restart_count > 0 => Some(end),
                _ if waits == Some("CrashLoopBackOff") => last,
                _ => return None,
            };
            let name = &container.name;
            let code = end.map_or_else(String::new, |end| format!(" with {}", end.exit_code));
            Some(format!("container {name}: it ends{code} and {BEGUN_AGAIN}"))
        })
    };
    let waiting = statuses(status).find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let why = match waiting.reason.as_deref()? {
            // For a container that ends too often, its ends are told.
            "" | "ContainerCreating" | "PodInitializing" | "CrashLoopBackOff" => return None,
            reason if is_pull(reason) || is_no_image(reason) => {
                format!("the image {} cannot be pulled", container.image)
            }
            reason => match waiting.message.as_deref().filter(|said| !said.is_empty()) {
                Some(said) => format!("{reason}: {said}"),
                None => reason.to_owned(),
            },
        };
        Some(format!("container {}: {why}", container.name))
    });
    waiting.or_else(begun_again).or_else(|| without_node(status, "Unschedulable"))
}

/// Why all of a pod was ended, in words: it was evicted, its node went.
fn ended_for(status: &PodStatus) -> Option<String> {
    let reason = status.reason.as_deref()?;
    Some(format!("{reason}: {}", status.message.as_deref().unwrap_or_default()))
}
