//! What is known of a run's Job and pods, in few bytes; pure.

use engine::names::RunName;
use engine::record::Key;
use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::core::v1::{Event, Pod, PodAffinityTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use osb::{BindingId, InstanceId};
use serde::{Deserialize, Serialize};

use super::labels::{BINDING_ID, FENCED, GIVEN, INSTANCE_ID, KEPT, PROGRESS, RELEASED, RUN};
use super::needs::{Need, needs};
use super::settings::JobSettings;
use super::stage::{End, Stage, Waits, is_installed, leaving, stage};
use crate::calls::{created, version_of};
use crate::conditions::{DEADLINE_EXCEEDED, JobEnd, job_condition};
use crate::nodes::{is_silent, is_unheard};
use crate::text::Text;
use crate::warnings::{MOUNTS, Warned};

/// What is known of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub(super) job: Option<SeenJob>,
    /// The pods: those that have had a node come before the others, among these the ones that have begun, and the
    /// oldest first. The first one stands for the run.
    pub(super) pods: Vec<SeenPod>,
    /// The last warning.
    pub(super) warning: Option<Warning>,
    /// The uids of pods that were left out; late answers may still name them.
    pub(super) left_out: Vec<String>,
    /// The versions by which the state of the run was last reported.
    pub(super) answered: Option<Versions>,
}

/// The version of a Job, and the sum of those of its pods: another sum means other or newer pods.
pub(super) type Versions = (Option<u64>, u64);

impl Seen {
    pub(super) fn versions(&self) -> Versions {
        let pods = self.pods.iter().map(|pod| pod.version).sum();
        (self.job.as_ref().map(|job| job.version), pods)
    }
}

/// What is known of a Job.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SeenJob {
    pub(super) run: RunName,
    pub(super) namespace: String,
    /// The record of the run; `None` for a question for the catalog, or a foreign Job.
    pub(super) record: Option<Key>,
    pub(super) version: u64,
    pub(super) uid: String,
    /// When it was created, in seconds since 1970.
    pub(super) created: i64,
    /// When Kubernetes gives the Job up, in seconds since 1970.
    pub(super) until: Option<i64>,
    pub(super) given: bool,
    /// Whether its broker may report progress.
    pub(super) progress: bool,
    /// Whether a queue or a policy suspends the Job.
    pub(super) suspended: bool,
    /// Until when the Job is kept, if it is no longer needed.
    pub(super) released: Option<i64>,
    /// Why no pod of the Job may go on, if the Job is fenced off.
    pub(super) fenced: Option<Fence>,
    pub(super) end: Option<JobEnd>,
    /// How the Job is waited for and kept.
    pub(super) periods: Option<Periods>,
    pub(super) presence: Presence,
    /// Whether the Job was missing from a list, which may have been outdated.
    pub(super) unsure: bool,
}

/// Whether a Job exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    There,
    /// The Job is being deleted.
    Deleting,
    /// The Job does not exist any more: somebody else deleted it, or, where it is `released` too, we did.
    Deleted,
}

/// How a run is waited for and kept, by the settings with which it was made. In seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Periods {
    pub(super) start_timeout: u64,
    pub(super) grace: u64,
    pub(super) succeeded: u64,
    pub(super) failed: u64,
}

impl Periods {
    /// Reads the annotation. A longer period than any of ours was not written by us, and is cut to what is practically
    /// for ever.
    fn read(periods: &str) -> Option<Self> {
        let Self { start_timeout, grace, succeeded, failed } =
            serde_json::from_str(periods).ok()?;
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
pub(super) enum Fence {
    /// Somebody asked for the end of the run.
    Cancelled,
    /// The pod was deleted, or another was made beside it.
    Lost(String),
    /// The run would never have begun.
    Hopeless(String),
}

/// What is known of a pod.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SeenPod {
    pub(super) run: RunName,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) version: u64,
    pub(super) uid: String,
    /// The uid of its Job; `None` if the Job was deleted without the pod.
    pub(super) job: Option<String>,
    /// When it was created, in seconds since 1970.
    pub(super) created: i64,
    pub(super) node: Option<String>,
    /// The version at which the pod had a node, or, as other pods of its run do not keep it from that, might have got
    /// one at any moment: it may have begun. `None`: it has had none.
    pub(super) placed: Option<u64>,
    /// Whether the pod was missing from a list, and nothing else has reported its end, nor whether it had a node by
    /// then.
    pub(super) missed: bool,
    /// The deletion of the pod, if somebody deleted it.
    pub(super) deletion: Option<Deletion>,
    /// Why the pod is being removed, where servers say so.
    pub(super) leaving: Option<String>,
    /// Whether its node is silent.
    pub(super) silent: bool,
    /// Whether the pod has a node whose kubelet has not reported it yet.
    pub(super) unheard: bool,
    /// Whether the agent has begun once.
    pub(super) began: bool,
    /// Whether the broker's container begins next, and may have begun by now.
    pub(super) begins: bool,
    /// Whether the pod is gone; the rest is its last state.
    pub(super) gone: bool,
    /// The mounts that have to exist before the pod begins, as long as it has not begun.
    pub(super) needs: Vec<Need>,
    pub(super) stage: Stage,
}

/// The deletion of a pod, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Deletion {
    /// When the pod was deleted.
    pub(super) asked: i64,
    /// When the pod has to be gone.
    pub(super) until: i64,
}

/// A warning of Kubernetes about a Job or a pod.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Warning {
    pub(super) run: RunName,
    /// The uid of the Job or the pod.
    uid: String,
    waits: Waits,
    /// Whether the warning says only that something was waited for.
    vague: bool,
}

impl Seen {
    /// Whether the run can be forgotten.
    pub(super) fn is_over(&self) -> bool {
        let unneeded = match &self.job {
            None => true,
            Some(job) => job.released.is_some() && job.unsure,
        };
        unneeded && self.pods.iter().all(|pod| pod.gone)
    }

    /// Leaves out pods that do not count: those that are not of the run's Job, because anybody can set labels; and,
    /// where another pod is there, those that are being deleted and never had a node, because Kubernetes makes one too
    /// many if it got no answer about the first.
    pub(super) fn leave_others_out(&mut self) {
        if let Some(job) = &self.job {
            self.pods.retain(|pod| pod.is_of(job));
        }
        let intact = || self.pods.iter().filter(|pod| !pod.is_leaving() && !pod.has_ended());
        if intact().next().is_some() {
            // A pod that had no node while another had one has had none since.
            let held_since = intact().filter_map(|pod| pod.placed).min();
            let was_held_off = |pod: &SeenPod| held_since.is_some_and(|since| since < pod.version);
            let goes = |pod: &SeenPod| {
                pod.is_leaving() && pod.placed.is_none() && (!pod.missed || was_held_off(pod))
            };
            let gone = self.pods.iter().filter(|pod| goes(pod)).map(|pod| pod.uid.clone());
            self.left_out.extend(gone);
            self.pods.retain(|pod| !self.left_out.contains(&pod.uid));
        }
        self.pods.sort_by_key(|pod| {
            (pod.placed.is_none(), !(pod.began || pod.has_ended()), pod.created)
        });
    }

    /// Whether no pod of the run will print more.
    pub(super) fn is_quiet(&self) -> bool {
        self.pods.iter().all(|pod| pod.gone || pod.has_ended())
    }

    /// Whether the Job existed, and does not any more.
    pub(super) fn is_deleted(&self) -> bool {
        self.job.as_ref().is_some_and(SeenJob::is_deleted)
    }
}

impl SeenJob {
    /// Reads a Job from its text, of whatever size.
    pub(super) fn of_text(job: &Text<Job>) -> Option<Self> {
        Self::of(&job.gist()?)
    }

    /// Reads a Job; `None` if it is no run of ours.
    pub(super) fn of(job: &Job) -> Option<Self> {
        let metadata = &job.metadata;
        let annotation = |name: &str| metadata.annotations.as_ref()?.get(name);
        let run = RunName::parse(metadata.labels.as_ref()?.get(RUN)?)?;
        let instance = annotation(INSTANCE_ID).and_then(|id| InstanceId::new(id).ok());
        let binding = annotation(BINDING_ID).and_then(|id| BindingId::new(id).ok());
        let record = instance.map(|instance| Key::of(instance, binding));
        let condition = |type_| job_condition(job, type_);
        let is_over_time = |it: &&JobCondition| it.reason.as_deref() == Some(DEADLINE_EXCEEDED);
        // From Kubernetes 1.31 on a Job has failed only when all of its pods have ended; that its time is up is said
        // before.
        let target = || condition("FailureTarget").filter(is_over_time);
        let failed = condition("Failed").or_else(target).map(JobEnd::failed);
        let complete = || condition("Complete").map(|_| JobEnd::Complete);
        let presence = match metadata.deletion_timestamp {
            Some(_) => Presence::Deleting,
            None => Presence::There,
        };
        let created = created(metadata);
        let lifetime = job.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
        Some(Self {
            run,
            namespace: metadata.namespace.clone().unwrap_or_default(),
            record,
            version: version_of(metadata.resource_version.as_deref()),
            uid: metadata.uid.clone().unwrap_or_default(),
            created,
            until: lifetime.map(|lifetime| created.saturating_add(lifetime)),
            given: annotation(GIVEN).is_some(),
            progress: annotation(PROGRESS).is_some(),
            suspended: job.spec.as_ref().is_some_and(|spec| spec.suspend == Some(true)),
            released: annotation(RELEASED).and_then(|until| until.parse().ok()),
            fenced: annotation(FENCED).and_then(|why| serde_json::from_str(why).ok()),
            end: failed.or_else(complete),
            periods: annotation(KEPT).and_then(|periods| Periods::read(periods)),
            presence,
            unsure: false,
        })
    }

    /// The Job of a pod, which does not exist any more.
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
            suspended: false,
            released: None,
            fenced: None,
            end: None,
            periods: None,
            presence: Presence::Deleted,
            unsure: false,
        }
    }

    /// Whether the Job is being deleted, or is gone.
    pub(super) fn is_leaving(&self) -> bool {
        self.presence != Presence::There
    }

    /// Whether the Job does not exist any more.
    pub(super) fn is_deleted(&self) -> bool {
        self.presence == Presence::Deleted
    }

    /// Whether the Job exists and stays: it was missing from no list, and was neither deleted nor released.
    pub(super) fn is_held(&self) -> bool {
        !self.unsure && !self.is_deleted() && self.released.is_none()
    }

    /// The message of Kubernetes, if it gave the Job up because its time was up.
    pub(super) fn over_time(&self) -> Option<&str> {
        match &self.end {
            Some(JobEnd::Failed { reason, message, .. }) if reason == DEADLINE_EXCEEDED => {
                Some(message)
            }
            _ => None,
        }
    }

    /// Whether the pods of the Job are ended because its time is up, as far as that is known: Kubernetes says so a
    /// moment later.
    pub(super) fn goes_over_time(&self, now: i64) -> bool {
        let undecided = self.end.is_none() && !self.is_leaving();
        self.over_time().is_some() || (undecided && self.until.is_some_and(|until| until <= now))
    }
}

impl SeenPod {
    /// Reads a pod from its text, of whatever size.
    pub(super) fn of_text(pod: &Text<Pod>) -> Option<Self> {
        Self::of(&pod.gist()?)
    }

    /// Reads a pod; `None` if it is of no run of ours.
    pub(super) fn of(pod: &Pod) -> Option<Self> {
        let metadata = &pod.metadata;
        let stage = pod.status.as_ref().map_or(Stage::Waiting(None), stage);
        let grace = metadata.deletion_grace_period_seconds.unwrap_or_default();
        let deletion = metadata.deletion_timestamp.as_ref().map(|time| {
            let until = time.0.as_second();
            Deletion { asked: until.saturating_sub(grace), until }
        });
        let installed = is_installed(pod);
        let version = version_of(metadata.resource_version.as_deref());
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        Some(Self {
            run: RunName::parse(metadata.labels.as_ref()?.get(RUN)?)?,
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone()?,
            version,
            uid: metadata.uid.clone().unwrap_or_default(),
            job: job_of(metadata),
            created: created(metadata),
            placed: (node.is_some() || !is_kept_apart(pod)).then_some(version),
            missed: false,
            node,
            deletion,
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

    /// Whether the pod is of a Job; if the Job's uid is not known any more, any pod with the label there is.
    fn is_of(&self, job: &SeenJob) -> bool {
        let is_its = || self.job.as_ref().is_some_and(|uid| *uid == job.uid);
        self.namespace == job.namespace && (job.uid.is_empty() || is_its())
    }

    /// Notes that the pod is gone, and nothing reported how.
    pub(super) fn miss(&mut self) {
        self.missed |= !self.gone;
        self.gone = true;
    }

    /// Whether the pod has ended.
    pub(super) fn has_ended(&self) -> bool {
        !matches!(self.stage, Stage::Waiting(_) | Stage::Running)
    }

    /// Whether the pod is being deleted, or is gone.
    pub(super) fn is_leaving(&self) -> bool {
        self.gone || self.deletion.is_some()
    }

    /// Takes over a newer state, and keeps what that may lack: the Job, that the pod had a node and its broker began,
    /// what its container left, why an image cannot be pulled.
    pub(super) fn update(&mut self, newer: Self) {
        let (began, placed) = (self.began || newer.began, self.placed.or(newer.placed));
        let known = std::mem::replace(self, newer);
        (self.began, self.placed) = (began, placed);
        self.job = self.job.take().or(known.job);
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
    /// Reads an event; `None` if it does not say why a run does not begin, or is about nothing of ours.
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

    /// The warning that something a pod mounts is missing.
    pub(super) fn of_mount(pod: &SeenPod, said: &str) -> Self {
        Self {
            run: pod.run.clone(),
            uid: pod.uid.clone(),
            waits: Waits { why: format!("{MOUNTS}: {said}"), for_ever: false, pulls: false },
            vague: false,
        }
    }

    /// Takes over a newer warning, unless it says less.
    pub(super) fn update(&mut self, newer: Self) {
        if !(newer.vague && newer.uid == self.uid) {
            *self = newer;
        }
    }

    /// The reason, if the warning is about the Job or the pod with this uid.
    pub(super) fn of(&self, uid: &str) -> Option<Waits> {
        (self.uid == uid).then(|| self.waits.clone())
    }
}

/// Whether a pod has an anti-affinity to the other pods of its run, so that it waits while one has a node.
fn is_kept_apart(pod: &Pod) -> bool {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let others = affinity.and_then(|it| it.pod_anti_affinity.as_ref());
    let terms = others
        .into_iter()
        .flat_map(|it| it.required_during_scheduling_ignored_during_execution.iter().flatten());
    let labels = |term: &PodAffinityTerm| term.label_selector.clone()?.match_labels;
    terms.filter_map(labels).any(|labels| labels.contains_key(RUN))
}

/// The uid of a pod's Job, by its owner references.
fn job_of(metadata: &ObjectMeta) -> Option<String> {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.kind == "Job").map(|owner| owner.uid.clone())
}
