//! Pods that ExtendedJobs follow whose strategy is `podstate`, the trigger that the first releases had.
//!
//! Pods are watched in namespaces where an ExtendedJob follows them, and nowhere else.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use engine::trigger::FollowedPods;
use engine::vital;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use tokio::task::{AbortHandle, JoinSet};

use super::peer::Peer;
use super::table::Table;
use crate::calls::watching;
use crate::quarks::Controller;
use crate::quarks::api::following::Following;
use crate::quarks::api::key::Key;
use crate::quarks::api::resource::Resource;
use crate::text::{PAGE, Text};

/// The pods of a namespace that can be followed, by uid, and who follows them. A pod is matched with those alone that may
/// select it, and whoever is looked at finds its own pods: followers and pods may both be many.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// The pods; `None`: they were not listed yet.
    pods: Option<BTreeMap<String, Peer>>,
    /// Whether they are watched.
    is_watched: bool,
    /// Pods that were listed so far, until the first list has ended.
    listing: BTreeMap<String, Peer>,
    /// The highest resource version that was heard of, of any pod.
    newest: u64,
    /// The ExtendedJobs that follow pods of the namespace.
    followers: HashMap<Key, Follower>,
    /// The same, by a label that a pod has to have ([`Selecting::demands`]); `None`: by none.
    ///
    /// [`Selecting::demands`]: crate::quarks::api::selecting::Selecting::demands
    demanding: HashMap<Option<(String, String)>, HashSet<Key>>,
}

/// An ExtendedJob that follows pods.
#[derive(Debug)]
struct Follower {
    resource: Arc<Resource>,
    /// The uids of the pods that it selects.
    pods: BTreeSet<String>,
}

impl Follower {
    /// What it follows; `None`: that cannot be read.
    fn following(&self) -> Option<&Following> {
        self.resource.following.as_ref()?.as_deref().ok()
    }

    /// Takes a pod with these labels, or none any more. Returns whether the pod is or was one of its own.
    fn sees(&mut self, uid: &str, labels: Option<&BTreeMap<String, String>>) -> bool {
        let selects = |labels| self.following().is_some_and(|it| it.selecting.selects(labels));
        match labels.is_some_and(selects) {
            true => {
                self.pods.insert(uid.to_owned());
                true
            }
            false => self.pods.remove(uid),
        }
    }
}

/// The pods that can be followed, by namespace.
pub(crate) type ByNamespace = HashMap<Arc<str>, Peers>;

impl Peers {
    /// Notes that something was heard of a pod in this resource version.
    pub(crate) fn heard(&mut self, version: u64) {
        self.newest = self.newest.max(version);
    }

    /// Takes a pod as it was seen. Returns who follows it, if that is news.
    pub(crate) fn learn(&mut self, peer: Peer) -> Vec<Key> {
        let Some(pods) = &mut self.pods else {
            self.listing.insert(peer.uid.clone(), peer);
            return Vec::new();
        };
        let before = pods.insert(peer.uid.clone(), peer.clone());
        match before.as_ref().is_some_and(|before| peer.is_as(before)) {
            true => Vec::new(),
            false => self.show(&peer.uid, before.map(|it| it.labels).as_ref(), Some(&peer.labels)),
        }
    }

    /// Forgets a pod, which is gone. Returns who followed it.
    pub(crate) fn forget(&mut self, uid: &str) -> Vec<Key> {
        let gone = self.pods.as_mut().and_then(|pods| pods.remove(uid));
        gone.map(|gone| self.show(uid, Some(&gone.labels), None)).unwrap_or_default()
    }

    /// Takes the end of a list: pods that it lacks are gone. Returns who follows any.
    pub(crate) fn keep(&mut self, listed: &HashSet<String>) -> Vec<Key> {
        let mut pods = self.pods.take().unwrap_or_else(|| std::mem::take(&mut self.listing));
        pods.retain(|uid, _| listed.contains(uid));
        self.followers.values_mut().for_each(|follower| follower.pods.clear());
        for (uid, peer) in &pods {
            self.show(uid, None, Some(&peer.labels));
        }
        self.pods = Some(pods);
        self.followers.keys().cloned().collect()
    }

    /// Shows a pod, by its labels before and now, to those who may follow it. Returns who does, or did.
    fn show(
        &mut self,
        uid: &str,
        before: Option<&BTreeMap<String, String>>,
        now: Option<&BTreeMap<String, String>>,
    ) -> Vec<Key> {
        let labels = before.into_iter().chain(now).flatten();
        let demanded = labels.map(|(name, value)| Some((name.clone(), value.clone())));
        let demanded: HashSet<_> = demanded.chain([None]).collect();
        let mut told = Vec::new();
        for key in demanded.iter().filter_map(|label| self.demanding.get(label)).flatten() {
            if let Some(follower) = self.followers.get_mut(key)
                && follower.sees(uid, now)
            {
                told.push(key.clone());
            }
        }
        told
    }

    /// Notes that an ExtendedJob follows pods, as it is now.
    fn follow(&mut self, key: &Key, resource: &Arc<Resource>) {
        let resource = Arc::clone(resource);
        let mut follower = Follower { resource, pods: BTreeSet::new() };
        let of = |follower: &Follower| follower.following().map(|it| it.of.clone());
        match self.followers.get_mut(key) {
            // It selects what it selected before.
            Some(known) if of(known) == of(&follower) => known.resource = follower.resource,
            _ => {
                self.leave(key);
                let demands = follower.following().and_then(|it| it.selecting.demands.clone());
                self.demanding.entry(demands).or_default().insert(key.clone());
                for (uid, peer) in self.pods.iter().flatten() {
                    follower.sees(uid, Some(&peer.labels));
                }
                self.followers.insert(key.clone(), follower);
            }
        }
    }

    /// Notes that one does not follow pods any more.
    fn leave(&mut self, key: &Key) {
        let Some(follower) = self.followers.remove(key) else { return };
        let demands = follower.following().and_then(|it| it.selecting.demands.clone());
        if let Some(keys) = self.demanding.get_mut(&demands) {
            keys.remove(key);
            if keys.is_empty() {
                self.demanding.remove(&demands);
            }
        }
    }

    /// The pods that an ExtendedJob follows; `None`: they were not listed yet, or it follows none.
    fn followed(&self, key: &Key) -> Option<FollowedPods> {
        let (pods, follower) = (self.pods.as_ref()?, self.followers.get(key)?);
        let its = follower.pods.iter().filter_map(|uid| pods.get(uid));
        Some(follower.following()?.among(its, self.newest))
    }
}

impl Table {
    /// Notes that an ExtendedJob follows pods of its namespace, as it is now.
    pub(crate) fn follow_peers(&mut self, key: &Key, resource: &Arc<Resource>) {
        if resource.following.is_some() {
            let peers = self.peers.entry(Arc::clone(&key.namespace)).or_default();
            peers.follow(key, resource);
        } else {
            self.follow_no_peers(key);
        }
    }

    /// Notes that one follows no pods any more.
    pub(crate) fn follow_no_peers(&mut self, key: &Key) {
        if let Some(peers) = self.peers.get_mut(&key.namespace) {
            peers.leave(key);
            if peers.followers.is_empty() {
                self.leave_peers(&key.namespace);
            }
        }
    }

    /// The pods that an ExtendedJob follows; `None`: they are not known, or it follows none.
    pub(crate) fn followed(&self, key: &Key) -> Option<FollowedPods> {
        self.peers.get(&key.namespace)?.followed(key)
    }

    /// Forgets the pods of a namespace, which nobody follows any more and which are to be watched no more.
    pub(crate) fn leave_peers(&mut self, namespace: &str) {
        if self.peers.remove(namespace).is_some() {
            self.peers_wanted.notify_one();
        }
    }

    /// Has the pods watched that it follows, if they were not listed yet.
    pub(crate) fn want_peers(&self, resource: &Resource) {
        let peers = self.peers.get(&resource.namespace).filter(|_| resource.following.is_some());
        if peers.is_some_and(|peers| peers.pods.is_none()) {
            self.peers_wanted.notify_one();
        }
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

    use super::super::peer::Stage;
    use super::*;
    use crate::quarks::api::dialect::Dialect;

    /// An ExtendedJob of this name that follows these pods.
    fn follower(name: &str, podstate: &Value) -> Arc<Resource> {
        let object = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1"},
            "spec": {"trigger": {"strategy": "podstate", "podstate": podstate}},
        }));
        Arc::new(Resource::of(Dialect::ExtendedJob, &object.unwrap()).unwrap())
    }

    /// One that follows pods that match these labels and expressions.
    fn selecting(name: &str, labels: &Value, expressions: &Value) -> Arc<Resource> {
        let selector = json!({"matchLabels": labels, "matchExpressions": expressions});
        follower(name, &json!({"when": "created", "selector": selector}))
    }

    /// A pod of this uid and with these labels, in any state that is followed.
    fn peer(uid: &str, labels: &[(&str, &str)], stage: Stage) -> Peer {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let labels = labels.collect();
        Peer { name: uid.to_owned(), uid: uid.to_owned(), labels, stage, version: 1 }
    }

    #[test]
    fn of_a_pod_those_hear_who_follow_it_or_did() {
        let web = || json!({"app": "web"});
        let one_of = |values: Value| json!([{"key": "app", "operator": "In", "values": values}]);
        let followers = [
            selecting("web", &web(), &json!([])),
            selecting("web-of-blue", &json!({"app": "web", "tier": "blue"}), &json!([])),
            selecting("db", &json!({"app": "db"}), &json!([])),
            selecting("one", &json!({}), &one_of(json!(["web"]))),
            selecting("either", &json!({}), &one_of(json!(["web", "db"]))),
            selecting("other", &json!({}), &json!([{"key": "app", "operator": "DoesNotExist"}])),
            follower("each", &json!({"when": "ready"})),
            follower("at-fault", &json!({"when": "never"})),
        ];
        let mut peers = Peers::default();
        for of in &followers[..4] {
            peers.follow(&of.key(), of);
        }
        let red = [("app", "web"), ("tier", "red")];
        assert!(peers.learn(peer("listed", &red, Stage::Ready)).is_empty(), "until all are listed");
        peers.keep(&HashSet::from(["listed".to_owned()]));
        // Those that come after the list see what is there, too.
        for of in &followers[4..] {
            peers.follow(&of.key(), of);
        }
        let names = |keys: Vec<Key>| {
            let mut names: Vec<_> = keys.iter().map(|key| key.name.to_string()).collect();
            names.sort();
            names
        };
        let blue = [("app", "web"), ("tier", "blue")];
        let (new, ready) = (Stage::NotReady, Stage::Ready);
        for (name, pod, expected) in [
            ("it comes", peer("a", &red, new), &["each", "either", "one", "web"][..]),
            ("nothing has changed", peer("a", &red, new), &[]),
            ("it is ready", peer("a", &red, ready), &["each", "either", "one", "web"]),
            (
                "another label",
                peer("a", &blue, ready),
                &["each", "either", "one", "web", "web-of-blue"],
            ),
            (
                "it is another's",
                peer("a", &[("app", "db")], ready),
                &["db", "each", "either", "one", "web", "web-of-blue"],
            ),
            ("it is nobody's", peer("a", &[], ready), &["db", "each", "either", "other"]),
        ] {
            assert_eq!(names(peers.learn(pod)), expected, "{name}");
        }
        assert_eq!(names(peers.forget("a")), ["each", "other"], "it is gone");
        let its = |peers: &Peers, at: usize| {
            let followed = peers.followed(&followers[at].key());
            followed.map(|it| it.pods.into_keys().collect::<Vec<_>>())
        };
        for (at, expected) in [(0, Some(1)), (2, Some(0)), (4, Some(1)), (6, Some(1)), (7, None)] {
            assert_eq!(its(&peers, at).map(|it| it.len()), expected, "{}", followers[at].name);
        }
        // One that selects others from now on.
        let changed = selecting("db", &web(), &json!([]));
        peers.follow(&changed.key(), &changed);
        assert_eq!(its(&peers, 2).unwrap(), ["listed"]);
        assert_eq!(names(peers.learn(peer("b", &[("app", "db")], new))), ["each", "either"]);
        peers.keep(&HashSet::from(["b".to_owned()]));
        assert_eq!((its(&peers, 0), its(&peers, 4)), (Some(vec![]), Some(vec!["b".to_owned()])));
        for of in &followers {
            peers.leave(&of.key());
        }
        assert!(peers.demanding.is_empty() && peers.followers.is_empty());
    }

    #[test]
    fn what_a_pod_costs_is_who_follows_it_and_not_all_who_follow_any() {
        let mut peers = Peers::default();
        for number in 0..1000 {
            let of =
                selecting(&format!("f{number}"), &json!({"app": format!("a{number}")}), &json!([]));
            peers.follow(&of.key(), &of);
        }
        peers.keep(&HashSet::new());
        let begun = std::time::Instant::now();
        for number in 0..5000 {
            let app = format!("a{}", number % 1000);
            let told = peers.learn(peer(&format!("p{number}"), &[("app", &app)], Stage::Ready));
            let [one] = told.as_slice() else { panic!("{told:?}") };
            assert_eq!(peers.followed(one).unwrap().pods.len(), number / 1000 + 1);
        }
        // All followers with all pods would be billions of matches.
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }

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
        let each = follower("a", &json!({"when": "ready"}));
        for name in ["a", "b"] {
            table.follow_peers(&key(name), &each);
        }
        table.follow_no_peers(&key("a"));
        assert!(!told(&table).await, "another follows them still");
        table.follow_no_peers(&key("b"));
        assert!(told(&table).await && table.peers.is_empty());
        table.follow_peers(&key("a"), &each);
        table.leave(&"n".into());
        assert!(told(&table).await, "nobody looks there any more");
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
}
