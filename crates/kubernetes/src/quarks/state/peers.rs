//! Pods that ExtendedJobs follow whose strategy is `podstate`, the trigger that the first releases had.
//!
//! Pods are watched in namespaces where an ExtendedJob follows them, and nowhere else.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use engine::trigger::{FollowedPods, Pod as PodNow};
use engine::vital;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource as _;
use kube::api::Api;
use tokio::task::{AbortHandle, JoinSet};

use super::table::Table;
use crate::calls::{version_of, watching};
use crate::quarks::Controller;
use crate::quarks::api::following::{Following, When};
use crate::quarks::api::key::Key;
use crate::quarks::api::resource::Resource;
use crate::text::{PAGE, Text};

/// How many bytes of labels a pod that is followed may have: an API server accepts a megabyte of them, and those of
/// each pod that may be followed are held in memory.
const MOST_LABELS: usize = 16 << 10;

/// A pod of somebody else's, as far as it can be followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    name: String,
    uid: String,
    labels: BTreeMap<String, String>,
    stage: Stage,
    version: u64,
}

/// How far a pod has come, as the first releases told it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
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

/// The pods of a namespace that can be followed, by uid, and who follows them.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// The pods; `None`: they were not listed yet.
    pub(crate) pods: Option<BTreeMap<String, Peer>>,
    /// Whether they are watched.
    is_watched: bool,
    /// Pods that were listed so far, until the first list has ended.
    listing: BTreeMap<String, Peer>,
    /// The highest resource version that was heard of, of any pod.
    pub(crate) newest: u64,
    /// The ExtendedJobs that follow pods of the namespace.
    pub(crate) followers: HashSet<Key>,
}

impl Following {
    /// The pods among these that the ExtendedJob follows.
    pub(crate) fn among(&self, peers: &BTreeMap<String, Peer>, newest: u64) -> FollowedPods {
        let deletion = self.when == When::Deleted;
        let followed = peers.values().filter(|peer| self.selecting.selects(&peer.labels));
        let there = followed.filter(|peer| peer.stage != Stage::Gone);
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
    fn is_as(&self, before: &Self) -> bool {
        (&self.name, &self.labels, self.stage) == (&before.name, &before.labels, before.stage)
    }
}

/// The resource version of a pod; 0 if it has none that can be read.
pub(crate) fn version(pod: &Pod) -> u64 {
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

/// The pods that can be followed, by namespace.
pub(crate) type ByNamespace = HashMap<Arc<str>, Peers>;

impl Peers {
    /// Takes a pod as it was seen. Returns whether that is news.
    pub(crate) fn learn(&mut self, peer: &Peer) -> bool {
        let pods = self.pods.as_mut().unwrap_or(&mut self.listing);
        let before = pods.insert(peer.uid.clone(), peer.clone());
        !before.is_some_and(|before| peer.is_as(&before))
    }

    /// Forgets a pod, which is gone. Returns whether it was known.
    pub(crate) fn forget(&mut self, uid: &str) -> bool {
        self.pods.as_mut().is_some_and(|pods| pods.remove(uid).is_some())
    }

    /// Takes the end of a list: pods that it lacks are gone.
    pub(crate) fn keep(&mut self, listed: &HashSet<String>) {
        let pods = self.pods.get_or_insert_with(|| std::mem::take(&mut self.listing));
        pods.retain(|uid, _| listed.contains(uid));
    }
}

impl Table {
    /// Notes that an ExtendedJob follows pods of its namespace, or no longer does.
    pub(crate) fn follow_peers(&mut self, key: &Key, follows: bool) {
        if follows {
            let peers = self.peers.entry(Arc::clone(&key.namespace)).or_default();
            peers.followers.insert(key.clone());
        } else if let Some(peers) = self.peers.get_mut(&key.namespace) {
            peers.followers.remove(key);
            if peers.followers.is_empty() {
                self.leave_peers(&key.namespace);
            }
        }
    }

    /// Forgets the pods of a namespace, which nobody follows any more and which are to be watched no more.
    pub(crate) fn leave_peers(&mut self, namespace: &str) {
        if self.peers.remove(namespace).is_some() {
            self.peers_wanted.notify_one();
        }
    }

    /// Whether it follows pods that were not listed yet.
    pub(crate) fn lacks_peers(&self, resource: &Resource) -> bool {
        let peers = self.peers.get(&resource.namespace).filter(|_| resource.following.is_some());
        peers.is_some_and(|peers| peers.pods.is_none())
    }
}

impl Controller {
    /// Watches the pods of the namespaces in which an ExtendedJob follows some, for as long as it is polled.
    pub(crate) async fn follow_peers(self: Arc<Self>) {
        let mut tasks = JoinSet::new();
        let mut watched: HashMap<Arc<str>, AbortHandle> = HashMap::new();
        let changed = Arc::clone(&self.table().peers_wanted);
        loop {
            changed.notified().await;
            while tasks.try_join_next().is_some() {}
            let wanted: Vec<Arc<str>> = {
                let mut table = self.table();
                watched.retain(|name, task| {
                    let is_wanted = table.peers.contains_key(name);
                    if !is_wanted {
                        task.abort();
                    }
                    is_wanted
                });
                let new = table.peers.iter_mut().filter(|(_, peers)| !peers.is_watched);
                new.map(|(name, peers)| {
                    peers.is_watched = true;
                    Arc::clone(name)
                })
                .collect()
            };
            for namespace in wanted {
                let api: Api<Text<Pod>> = Api::namespaced(self.client.clone(), &namespace);
                let all = watching().page_size(PAGE);
                let scope = Some(Arc::clone(&namespace));
                let task = Arc::clone(&self).follow(super::follows::OfPeers, scope, api, all);
                let task = vital::task("a watch of others' pods", task);
                // A namespace that was left and is followed again needs another watch.
                if let Some(before) = watched.insert(namespace, tasks.spawn(task)) {
                    before.abort();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::quarks::api::dialect::Dialect;

    #[tokio::test]
    async fn pods_are_watched_no_more_when_the_last_who_follows_them_is_gone() {
        let key = |name: &str| Key {
            dialect: Dialect::ExtendedJob,
            namespace: "n".into(),
            name: name.into(),
        };
        let told = async |table: &Table| {
            tokio::time::timeout(Duration::ZERO, table.peers_wanted.notified()).await.is_ok()
        };
        let mut table = Table::new(2, b"key");
        for name in ["a", "b"] {
            table.follow_peers(&key(name), true);
        }
        table.follow_peers(&key("a"), false);
        assert!(!told(&table).await, "another follows them still");
        table.follow_peers(&key("b"), false);
        assert!(told(&table).await && table.peers.is_empty());
        table.follow_peers(&key("a"), true);
        table.leave(&"n".into());
        assert!(told(&table).await, "nobody looks there any more");
    }

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

    #[test]
    fn without_a_selector_each_pod_is_followed_as_in_the_original() {
        for podstate in [
            json!({"when": "ready"}),
            json!({"when": "ready", "selector": null}),
            json!({"when": "ready", "selector": {}}),
        ] {
            let following = Following::read(&podstate).unwrap();
            assert!(following.selecting.selects(&BTreeMap::new()), "{podstate}");
        }
        let why = Following::read(&json!({"when": "ready", "selector": "app=web"})).unwrap_err();
        assert!(why.starts_with("spec.trigger.podstate.selector: has to be an object"), "{why}");
    }

    #[test]
    fn an_operator_that_is_none_is_named_by_its_place() {
        let wanted = json!([{"key": "env", "operator": "near", "values": ["a"]}]);
        let podstate = json!({"when": "ready", "selector": {"matchExpressions": wanted}});
        let why = Following::read(&podstate).unwrap_err();
        assert!(why.starts_with("spec.trigger.podstate.selector: "), "{why}");
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
                let peer = Peer { name, uid: uid.clone(), labels, stage, version: 1 };
                let followed = following.among(&BTreeMap::from([(uid, peer)]), 1);
                let found = followed.pods.get("u").map(|pod| pod.is);
                assert_eq!((followed.deletion, found), (deletion, expected), "{when}, {stage:?}");
            }
        }
    }
}
