//! What is seen of a run's Job and pod, in few words: pure.

use engine::names::RunName;
use engine::record::Key;
use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::core::v1::{Event, Pod, PodAffinityTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use osb::{BindingId, InstanceId};
use serde::{Deserialize, Serialize};

use super::manifest::{BINDING_ID, FENCED, GIVEN, INSTANCE_ID, KEPT, PROGRESS, RELEASED, RUN};
use super::mounts::{Need, needs};
use super::settings::JobSettings;
use super::stage::{End, Stage, Waits, is_installed, leaving, stage};
use crate::calls::version_of;
use crate::conditions::{DEADLINE_EXCEEDED, JobEnd, job_condition};
use crate::nodes::{is_silent, is_unheard};
use crate::text::Text;
use crate::warnings::{MOUNTS, Warned};

/// What is known of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub(super) job: Option<SeenJob>,
    /// Those that have had a node before the others, of these those that have begun, and the oldest first: the others stand
    /// in for it.
    pub(super) pods: Vec<SeenPod>,
    /// The last.
    pub(super) warning: Option<Warning>,
    /// The uids of pods that were left out, of which an answer may be late.
    pub(super) left_out: Vec<String>,
    /// By what it was said last how it stands.
    pub(super) answered: Option<Versions>,
}

/// Of a Job, and of its pods together: another sum is other pods, or newer ones.
pub(super) type Versions = (Option<u64>, u64);

impl Seen {
    pub(super) fn versions(&self) -> Versions {
        let pods = self.pods.iter().map(|pod| pod.version).sum();
        (self.job.as_ref().map(|job| job.version), pods)
    }
}

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
    /// Somebody holds it up: a queue, or a policy.
    pub(super) suspended: bool,
    /// Until when it is kept, if it is no longer needed.
    pub(super) released: Option<i64>,
    /// No pod of it may go on, and why.
    pub(super) fenced: Option<Fence>,
    pub(super) end: Option<JobEnd>,
    /// How it is waited for and kept.
    pub(super) periods: Option<Periods>,
    pub(super) presence: Presence,
    /// A list was without it, which may have been an old one.
    pub(super) unsure: bool,
}

/// Whether a Job is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    There,
    /// Somebody asked for it to go.
    Deleting,
    /// It is not there any more: somebody else deleted it, or, where it is `released` too, we did.
    Deleted,
}

/// How a run is waited for and kept, by the settings that it was made by. In seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Periods {
    pub(super) start_timeout: u64,
    pub(super) grace: u64,
    pub(super) succeeded: u64,
    pub(super) failed: u64,
}

impl Periods {
    /// What is longer than any period of ours was not written by us, and is as good as for ever.
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
    /// Somebody asked for it.
    Cancelled,
    /// Its pod was taken away, or another was made beside it.
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
    /// The uid of its Job, which it has lost where that was deleted without it.
    pub(super) job: Option<String>,
    /// In seconds since 1970.
    pub(super) created: i64,
    pub(super) node: Option<String>,
    /// The version at which it had a node, or might have one at any moment, as others of its run do not keep it from that:
    /// it may have begun. `None`: it has had none.
    pub(super) placed: Option<u64>,
    /// A list was without it, and nothing else has said that it went, nor whether it had a node by then.
    pub(super) missed: bool,
    /// If somebody asked for it to go.
    pub(super) deletion: Option<Deletion>,
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

/// That a pod is to go. In seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Deletion {
    /// When somebody asked for it.
    pub(super) asked: i64,
    /// When it is to be gone.
    pub(super) until: i64,
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

impl Seen {
    /// Whether nothing of it is worth knowing any more.
    pub(super) fn is_over(&self) -> bool {
        let unneeded = match &self.job {
            None => true,
            Some(job) => job.released.is_some() && job.unsure,
        };
        unneeded && self.pods.iter().all(|pod| pod.gone)
    }

    /// Labels are anybody's to give: what is not of the run's Job is none of its pods. Nor is one that goes and never had
    /// a node, where another is there: Kubernetes makes one too many if it had no answer as to the first.
    pub(super) fn leave_others_out(&mut self) {
        if let Some(job) = &self.job {
            self.pods.retain(|pod| pod.is_of(job));
        }
        let intact = || self.pods.iter().filter(|pod| !pod.is_leaving() && !pod.has_ended());
        if intact().next().is_some() {
            // What had no node while another had one has had none since.
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

    /// Whether nothing more will be printed.
    pub(super) fn is_quiet(&self) -> bool {
        self.pods.iter().all(|pod| pod.gone || pod.has_ended())
    }

    /// Whether its Job was there, and is not any more.
    pub(super) fn is_deleted(&self) -> bool {
        self.job.as_ref().is_some_and(SeenJob::is_deleted)
    }
}

impl SeenJob {
    /// Of one as it came; however large it is, it is there.
    pub(super) fn of_text(job: &Text<Job>) -> Option<Self> {
        Self::of(&job.gist()?)
    }

    /// `None` if it is no run of ours.
    pub(super) fn of(job: &Job) -> Option<Self> {
        let metadata = &job.metadata;
        let annotation = |name: &str| metadata.annotations.as_ref()?.get(name);
        let run = RunName::parse(metadata.labels.as_ref()?.get(RUN)?)?;
        let instance = annotation(INSTANCE_ID).and_then(|id| InstanceId::new(id).ok());
        let binding = annotation(BINDING_ID).and_then(|id| BindingId::new(id).ok());
        let record = instance.map(|instance| Key::of(instance, binding));
        let condition = |type_| job_condition(job, type_);
        let is_over_time = |it: &&JobCondition| it.reason.as_deref() == Some(DEADLINE_EXCEEDED);
        // From 1.31 on it has failed only when all of its pods have ended; that its time is up is said before.
        let target = || condition("FailureTarget").filter(is_over_time);
        let failed = condition("Failed").or_else(target).map(JobEnd::failed);
        let complete = || condition("Complete").map(|_| JobEnd::Complete);
        let presence = match metadata.deletion_timestamp {
            Some(_) => Presence::Deleting,
            None => Presence::There,
        };
        let created = metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
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
            suspended: false,
            released: None,
            fenced: None,
            end: None,
            periods: None,
            presence: Presence::Deleted,
            unsure: false,
        }
    }

    /// Whether it goes, or is gone: somebody has deleted it.
    pub(super) fn is_leaving(&self) -> bool {
        self.presence != Presence::There
    }

    /// Whether it is not there any more.
    pub(super) fn is_deleted(&self) -> bool {
        self.presence == Presence::Deleted
    }

    /// Whether it is there and stays: no list was without it, nobody has deleted it, nor is it done with.
    pub(super) fn is_held(&self) -> bool {
        !self.unsure && !self.is_deleted() && self.released.is_none()
    }

    /// What Kubernetes says, if it gave the Job up because its time is up.
    pub(super) fn over_time(&self) -> Option<&str> {
        match &self.end {
            Some(JobEnd::Failed { reason, message, .. }) if reason == DEADLINE_EXCEEDED => {
                Some(message)
            }
            _ => None,
        }
    }

    /// Whether that is why its pods go, as far as it can be known: it says so a moment later.
    pub(super) fn goes_over_time(&self, now: i64) -> bool {
        let undecided = self.end.is_none() && !self.is_leaving();
        self.over_time().is_some() || (undecided && self.until.is_some_and(|until| until <= now))
    }
}

impl SeenPod {
    /// Of one as it came; however large it is, it is there.
    pub(super) fn of_text(pod: &Text<Pod>) -> Option<Self> {
        Self::of(&pod.gist()?)
    }

    /// `None` if it is of no run of ours.
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
            created: metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
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

    /// Whether it is of that Job; of one that is not known any more, whatever has its label there may be.
    fn is_of(&self, job: &SeenJob) -> bool {
        let is_its = || self.job.as_ref().is_some_and(|uid| *uid == job.uid);
        self.namespace == job.namespace && (job.uid.is_empty() || is_its())
    }

    /// It is not there, and nothing said how it went.
    pub(super) fn miss(&mut self) {
        self.missed |= !self.gone;
        self.gone = true;
    }

    /// Whether nothing of it goes on.
    pub(super) fn has_ended(&self) -> bool {
        !matches!(self.stage, Stage::Waiting(_) | Stage::Running)
    }

    /// Whether it goes, or is gone.
    pub(super) fn is_leaving(&self) -> bool {
        self.gone || self.deletion.is_some()
    }

    /// Takes what is newer, and keeps what may be forgotten: whose it is, that it had a node and its broker began, what
    /// its container left, why an image cannot be pulled.
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

/// Whether it waits while another pod of its run has a node.
fn is_kept_apart(pod: &Pod) -> bool {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let others = affinity.and_then(|it| it.pod_anti_affinity.as_ref());
    let terms = others
        .into_iter()
        .flat_map(|it| it.required_during_scheduling_ignored_during_execution.iter().flatten());
    let labels = |term: &PodAffinityTerm| term.label_selector.clone()?.match_labels;
    terms.filter_map(labels).any(|labels| labels.contains_key(RUN))
}

/// The Job that a pod is of, as the API server has it: by its uid.
fn job_of(metadata: &ObjectMeta) -> Option<String> {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.kind == "Job").map(|owner| owner.uid.clone())
}
