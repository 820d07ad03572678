//! A pod of somebody else's, as far as ExtendedJobs can follow it, and how far it has come.

use std::collections::BTreeMap;

use engine::trigger::{FollowedPods, Pod as PodNow};
use k8s_openapi::api::core::v1::Pod;
use kube::Resource as _;

use crate::calls::version_of;
use crate::quarks::api::following::{Following, When};

/// How many bytes of labels a pod that is followed may have: an API server accepts a megabyte of them, and those of
/// each pod that may be followed are held in memory.
const MOST_LABELS: usize = 16 << 10;

/// A pod of somebody else's, as far as it can be followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) stage: Stage,
    pub(super) version: u64,
}

/// How far a pod has come, as the first releases told it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// No kubelet has it yet.
    NotReady,
    /// A kubelet has it, and it does not run yet.
    Created,
    /// It runs, and is not ready.
    Running,
    Ready,
    /// It has ended, or is about to.
    Ending,
    /// It is as good as gone.
    Gone,
}

impl Following {
    /// These pods, which the ExtendedJob follows.
    pub(super) fn among<'p>(
        &self,
        peers: impl Iterator<Item = &'p Peer>,
        newest: u64,
    ) -> FollowedPods {
        let deletion = self.when == When::Deleted;
        let there = peers.filter(|peer| peer.stage != Stage::Gone);
        let pods = there.map(|peer| {
            let (name, is) = (peer.name.clone(), self.is(peer.stage));
            (peer.uid.clone(), PodNow { name, is, version: peer.version })
        });
        FollowedPods { of: self.of.to_string(), deletion, pods: pods.collect(), newest }
    }

    fn is(&self, stage: Stage) -> bool {
        match self.when {
            // Each pod was not ready once, seen or not.
            When::NotReady => true,
            When::Created => stage != Stage::NotReady,
            When::Ready => stage == Stage::Ready,
            When::Deleted => true,
        }
    }
}

impl Peer {
    /// Reads a pod; `None` for one with too many labels, and for one of a Job, for runs would trigger further runs for
    /// ever.
    pub(crate) fn of(pod: &Pod) -> Option<Self> {
        let metadata = pod.meta();
        let labels = metadata.labels.as_ref();
        let bytes: usize =
            labels.into_iter().flatten().map(|(key, value)| key.len() + value.len()).sum();
        let is_of_a_job = labels.is_some_and(|labels| labels.contains_key("job-name"));
        (!is_of_a_job && bytes <= MOST_LABELS).then_some(())?;
        Some(Self {
            name: metadata.name.clone()?,
            uid: metadata.uid.clone()?,
            labels: labels.cloned().unwrap_or_default(),
            stage: stage(pod),
            version: version(pod),
        })
    }

    /// Whether the pod is as it was `before`, as far as that can be followed.
    pub(super) fn is_as(&self, before: &Self) -> bool {
        (&self.name, &self.labels, self.stage) == (&before.name, &before.labels, before.stage)
    }
}

/// The resource version of a pod; 0 if it has none that can be read.
pub(super) fn version(pod: &Pod) -> u64 {
    version_of(pod.metadata.resource_version.as_deref())
}

fn stage(pod: &Pod) -> Stage {
    let goes = pod.metadata.deletion_timestamp.is_some();
    let status = pod.status.as_ref();
    let conditions = || status.into_iter().flat_map(|it| it.conditions.iter().flatten());
    let has = |kind: &str| conditions().any(|it| it.type_ == kind);
    let is_ready = || conditions().any(|it| it.type_ == "Ready" && it.status == "True");
    match status.and_then(|it| it.phase.as_deref()) {
        _ if pod.metadata.deletion_grace_period_seconds == Some(0) => Stage::Gone,
        Some("Pending") if has("PodScheduled") && has("Ready") => Stage::Created,
        None | Some("Pending") => Stage::NotReady,
        Some("Running") if goes => Stage::Ending,
        Some("Running") if is_ready() => Stage::Ready,
        Some("Running") => Stage::Running,
        Some(_) => Stage::Ending,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_pod_with_more_labels_than_can_be_kept_is_not_followed() {
        let pod = |count: usize| {
            let labels: BTreeMap<_, _> = (0..count)
                .map(|number| (format!("label-{number:04}"), "12345678".to_owned()))
                .collect();
            let pod = json!({"metadata": {"name": "p", "uid": "u", "labels": labels}});
            serde_json::from_value::<Pod>(pod).unwrap()
        };
        assert_eq!(Peer::of(&pod(900)).map(|peer| peer.labels.len()), Some(900));
        assert_eq!(Peer::of(&pod(1_000)), None);
    }

    /// A pod in this phase, with these conditions; in how many seconds it is to be gone, if somebody deletes it.
    fn staged(phase: Option<&str>, conditions: &[(&str, &str)], grace: Option<i64>) -> Stage {
        let conditions: Vec<Value> =
            conditions.iter().map(|(kind, holds)| json!({"type": kind, "status": holds})).collect();
        let deletion = grace.map(|_| "2026-01-01T00:00:00Z");
        let pod = json!({
            "metadata": {"deletionTimestamp": deletion, "deletionGracePeriodSeconds": grace},
            "status": {"phase": phase, "conditions": conditions},
        });
        stage(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn how_far_a_pod_has_come_is_told_by_its_phase_its_conditions_and_its_deletion() {
        const SCHEDULED: (&str, &str) = ("PodScheduled", "True");
        const UNREADY: (&str, &str) = ("Ready", "False");
        const READY: (&str, &str) = ("Ready", "True");
        const UNKNOWN: (&str, &str) = ("Ready", "Unknown");
        let grace = Some(30);
        for (name, phase, conditions, deletion, expected) in [
            ("nobody has said anything", None, &[][..], None, Stage::NotReady),
            ("it waits for a node", Some("Pending"), &[], None, Stage::NotReady),
            (
                "no node takes it",
                Some("Pending"),
                &[("PodScheduled", "False")],
                None,
                Stage::NotReady,
            ),
            ("it has a node", Some("Pending"), &[SCHEDULED], None, Stage::NotReady),
            ("a condition of no kubelet", Some("Pending"), &[UNREADY], None, Stage::NotReady),
            ("a kubelet has it", Some("Pending"), &[SCHEDULED, UNREADY], None, Stage::Created),
            ("it runs", Some("Running"), &[], None, Stage::Running),
            ("it is not ready", Some("Running"), &[SCHEDULED, UNREADY], None, Stage::Running),
            ("its node is not heard of", Some("Running"), &[UNKNOWN], None, Stage::Running),
            (
                "another condition holds",
                Some("Running"),
                &[("ContainersReady", "True")],
                None,
                Stage::Running,
            ),
            ("it is ready", Some("Running"), &[SCHEDULED, READY], None, Stage::Ready),
            ("it ended well", Some("Succeeded"), &[UNREADY], None, Stage::Ending),
            ("it failed", Some("Failed"), &[READY], None, Stage::Ending),
            ("it is lost", Some("Unknown"), &[READY], None, Stage::Ending),
            ("it is told to end", Some("Running"), &[SCHEDULED, READY], grace, Stage::Ending),
            ("it is told to end, unready", Some("Running"), &[UNREADY], grace, Stage::Ending),
            (
                "it is told to end before a node has it",
                Some("Pending"),
                &[],
                grace,
                Stage::NotReady,
            ),
            (
                "it is told to end as it begins",
                Some("Pending"),
                &[SCHEDULED, UNREADY],
                grace,
                Stage::Created,
            ),
            ("it ended as it was told", Some("Succeeded"), &[UNREADY], grace, Stage::Ending),
            ("it is removed by force", Some("Running"), &[SCHEDULED, READY], Some(0), Stage::Gone),
            ("it is removed before it has begun", Some("Pending"), &[], Some(0), Stage::Gone),
            ("it is removed and nothing is known of it", None, &[], Some(0), Stage::Gone),
            ("it is removed after its end", Some("Failed"), &[], Some(0), Stage::Gone),
        ] {
            assert_eq!(staged(phase, conditions, deletion), expected, "{name}");
        }
    }

    #[test]
    fn each_stage_is_what_some_wait_for() {
        let all = [
            Stage::NotReady,
            Stage::Created,
            Stage::Running,
            Stage::Ready,
            Stage::Ending,
            Stage::Gone,
        ];
        // Of each stage, whether a pod in it counts; one that is not there counts for nobody.
        for (when, deletion, counts) in [
            ("notready", false, [Some(true); 5]),
            ("created", false, [Some(false), Some(true), Some(true), Some(true), Some(true)]),
            ("ready", false, [Some(false), Some(false), Some(false), Some(true), Some(false)]),
            ("deleted", true, [Some(true); 5]),
        ] {
            let following = Following::read(&json!({"when": when, "selector": {}})).unwrap();
            for (stage, expected) in all.into_iter().zip(counts.into_iter().chain([None])) {
                let (name, uid) = ("p".to_owned(), "u".to_owned());
                let labels = BTreeMap::new();
                let peer = Peer { name, uid, labels, stage, version: 1 };
                let followed = following.among([&peer].into_iter(), 1);
                let found = followed.pods.get("u").map(|pod| pod.is);
                assert_eq!((followed.deletion, found), (deletion, expected), "{when}, {stage:?}");
            }
        }
    }
}
