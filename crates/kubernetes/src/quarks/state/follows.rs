//! How objects of each kind that is watched are taken into the table.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{self as core, ConfigMap, Pod, Secret};
use serde::de::DeserializeOwned;

use super::object::Object;
use super::peer::{self, Peer};
use super::pod::SeenPod;
use super::table::{Table, Watched};
use super::watch::Scope;
use crate::quarks::api::dialect::Dialect;
use crate::quarks::api::document::Document;
use crate::quarks::api::key::Key;
use crate::quarks::api::reference::Kind;
use crate::quarks::api::resource::Resource;
use crate::text::Text;
use crate::warnings::Warned;

/// How objects of one kind are taken into the table.
pub(crate) trait Follows<K>: Copy + Send + 'static {
    /// The kind.
    fn what(self) -> Watched;
    /// What identifies an object of a list.
    type Id: Eq + std::hash::Hash + Send;
    /// The part of an object that is taken into the table.
    type Seen: Send;

    /// Reads an object; `None`: it is too heavy, and treated as missing.
    fn read(self, text: &Text<K>) -> Option<K>
    where
        K: DeserializeOwned,
    {
        text.read()
    }

    /// Takes from an object what matters; `None`: nothing does. This is done without a lock on the table, which all
    /// others wait for: to parse and to digest a megabyte takes milliseconds, and whoever may write an object may write
    /// it again and again.
    fn see(self, object: K) -> Option<Self::Seen>;
    /// Takes an object as it was seen. Returns its identity, if it belongs to the list, and who may have something to
    /// do.
    fn learn(self, table: &mut Table, seen: Self::Seen) -> (Option<Self::Id>, Vec<Key>);
    /// Forgets an object, which is gone. Returns who may have something to do.
    fn forget(self, table: &mut Table, seen: Self::Seen) -> Vec<Key>;
    /// Takes the end of a list of a scope: objects that it lacks are gone. Returns who may have something to do.
    fn finish(self, table: &mut Table, scope: &Scope, listed: HashSet<Self::Id>) -> Vec<Key>;
}

#[derive(Clone, Copy)]
pub(crate) struct OfResources(pub(crate) Dialect);
#[derive(Clone, Copy)]
pub(crate) struct OfJobs;
#[derive(Clone, Copy)]
pub(crate) struct OfPods;
#[derive(Clone, Copy)]
pub(crate) struct OfConfigMaps;
#[derive(Clone, Copy)]
pub(crate) struct OfSecrets;

impl Follows<Document> for OfResources {
    fn what(self) -> Watched {
        Watched::Resources(self.0)
    }

    type Id = Key;
    type Seen = Resource;

    /// Parts that are too heavy are told of when the QuarksJob is looked at.
    fn read(self, text: &Text<Document>) -> Option<Document> {
        text.in_parts()
    }

    fn see(self, document: Document) -> Option<Resource> {
        document.read(self.0)
    }

    fn learn(self, table: &mut Table, resource: Resource) -> (Option<Key>, Vec<Key>) {
        let keys = table.learn(resource);
        (keys.first().cloned(), keys)
    }

    fn forget(self, table: &mut Table, gone: Resource) -> Vec<Key> {
        table.forget_one(&gone.key(), &gone.uid);
        Vec::new()
    }

    fn finish(self, table: &mut Table, scope: &Scope, listed: HashSet<Key>) -> Vec<Key> {
        table.keep(self.0, scope.as_deref(), &listed);
        Vec::new()
    }
}

impl Follows<Job> for OfJobs {
    fn what(self) -> Watched {
        Watched::Jobs
    }

    type Id = Arc<str>;
    /// The whole Job: only the table can tell whether it is ours.
    type Seen = Job;

    /// A Job that is heavy must not count as missing: its run would be lost, and begun again.
    fn read(self, text: &Text<Job>) -> Option<Job> {
        text.gist()
    }

    fn see(self, job: Job) -> Option<Job> {
        Some(job)
    }

    fn learn(self, table: &mut Table, job: Job) -> (Option<Arc<str>>, Vec<Key>) {
        let Some(job) = table.seen_job(&job) else { return (None, Vec::new()) };
        let uid = Arc::clone(&job.uid);
        (Some(uid), vec![table.learn_job(job)])
    }

    fn forget(self, table: &mut Table, job: Job) -> Vec<Key> {
        let Some(uid) = job.metadata.uid.as_deref() else { return Vec::new() };
        let known = table.known_job(uid).cloned();
        if known.is_none() {
            table.forget_left(uid);
        }
        known.map(|job| table.forget_job(&job)).into_iter().collect()
    }

    fn finish(self, table: &mut Table, scope: &Scope, listed: HashSet<Arc<str>>) -> Vec<Key> {
        table.doubt(scope.as_deref(), &listed)
    }
}

impl Follows<Pod> for OfPods {
    fn what(self) -> Watched {
        Watched::Pods
    }

    type Id = Arc<str>;
    type Seen = SeenPod;

    /// A pod that is heavy must not count as missing, either.
    fn read(self, text: &Text<Pod>) -> Option<Pod> {
        text.gist()
    }

    fn see(self, pod: Pod) -> Option<SeenPod> {
        SeenPod::of(&pod)
    }

    fn learn(self, table: &mut Table, pod: SeenPod) -> (Option<Arc<str>>, Vec<Key>) {
        let waits = table.note_lasting(&pod);
        (Some(Arc::clone(&pod.uid)), waits.into_iter().chain(table.learn_pod(pod)).collect())
    }

    /// Marks the pod as gone: what it left stays known until its run is settled.
    fn forget(self, table: &mut Table, pod: SeenPod) -> Vec<Key> {
        let pod = SeenPod { gone: true, ..pod };
        let waits = table.note_lasting(&pod);
        waits.into_iter().chain(table.learn_pod(pod)).collect()
    }

    fn finish(self, table: &mut Table, scope: &Scope, listed: HashSet<Arc<str>>) -> Vec<Key> {
        table.keep_pods(scope.as_deref(), &listed);
        table.keep_lasting(scope.as_deref(), &listed)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct OfPeers;

/// A pod of whatever kind.
pub(crate) struct SeenPeer {
    namespace: String,
    uid: String,
    version: u64,
    /// What can be followed of the pod; `None`: nothing.
    peer: Option<Peer>,
}

impl Follows<Pod> for OfPeers {
    fn what(self) -> Watched {
        Watched::Peers
    }

    type Id = String;
    type Seen = SeenPeer;

    /// A pod that is heavy must not count as missing: if it came back, that would be a change.
    fn read(self, text: &Text<Pod>) -> Option<Pod> {
        text.gist()
    }

    fn see(self, pod: Pod) -> Option<SeenPeer> {
        let (peer, version) = (Peer::of(&pod), peer::version(&pod));
        Some(SeenPeer { namespace: pod.metadata.namespace?, uid: pod.metadata.uid?, version, peer })
    }

    fn learn(self, table: &mut Table, pod: SeenPeer) -> (Option<String>, Vec<Key>) {
        let peers = table.peers.get_mut(&*pod.namespace);
        let Some(peers) = peers else { return (None, Vec::new()) };
        peers.heard(pod.version);
        let Some(peer) = pod.peer else { return (None, Vec::new()) };
        (Some(pod.uid), peers.learn(peer))
    }

    fn forget(self, table: &mut Table, pod: SeenPeer) -> Vec<Key> {
        let Some(peers) = table.peers.get_mut(&*pod.namespace) else { return Vec::new() };
        peers.heard(pod.version);
        peers.forget(&pod.uid)
    }

    fn finish(self, table: &mut Table, scope: &Scope, listed: HashSet<String>) -> Vec<Key> {
        let peers = scope.as_ref().and_then(|scope| table.peers.get_mut(scope));
        peers.map(|peers| peers.keep(&listed)).unwrap_or_default()
    }
}

#[derive(Clone, Copy)]
pub(crate) struct OfWarnings;

impl Follows<core::Event> for OfWarnings {
    fn what(self) -> Watched {
        Watched::Warnings
    }

    type Id = ();
    type Seen = Warned;

    fn see(self, event: core::Event) -> Option<Warned> {
        Warned::of(&event)
    }

    fn learn(self, table: &mut Table, warned: Warned) -> (Option<()>, Vec<Key>) {
        (None, table.warn(warned).into_iter().collect())
    }

    /// Does nothing: a warning is forgotten with its run.
    fn forget(self, _: &mut Table, _: Warned) -> Vec<Key> {
        Vec::new()
    }

    fn finish(self, _: &mut Table, _: &Scope, _: HashSet<()>) -> Vec<Key> {
        Vec::new()
    }
}

/// A namespace and a name.
type Place = (Arc<str>, Arc<str>);

fn learn(table: &mut Table, object: &Object) -> (Option<Place>, Vec<Key>) {
    let id = (Arc::clone(&object.namespace), Arc::clone(&object.name));
    let changed = table.objects.learn(object.clone());
    (Some(id), if changed { table.referrers(object) } else { Vec::new() })
}

fn forget(table: &mut Table, object: &Object) -> Vec<Key> {
    let gone = table.objects.forget(object);
    if gone { table.referrers(object) } else { Vec::new() }
}

fn finish(table: &mut Table, scope: &Scope, kind: Kind, listed: &HashSet<Place>) -> Vec<Key> {
    let gone = table.objects.keep(scope.as_deref(), kind, listed);
    gone.iter().flat_map(|object| table.referrers(object)).collect()
}

impl Follows<ConfigMap> for OfConfigMaps {
    fn what(self) -> Watched {
        Watched::ConfigMaps
    }

    type Id = Place;
    type Seen = Object;

    fn see(self, map: ConfigMap) -> Option<Object> {
        Object::of_config_map(&map)
    }

    fn learn(self, table: &mut Table, map: Object) -> (Option<Self::Id>, Vec<Key>) {
        learn(table, &map)
    }

    fn forget(self, table: &mut Table, map: Object) -> Vec<Key> {
        let keys = forget(table, &map);
        // The agent's may be needed by runs that go on; what had its name may have kept others from beginning.
        if table.agents.went(&map) { table.keys(Some(&map.namespace)) } else { keys }
    }

    fn finish(self, table: &mut Table, scope: &Scope, listed: HashSet<Self::Id>) -> Vec<Key> {
        table.agents.listed(scope);
        finish(table, scope, Kind::ConfigMap, &listed)
    }
}

impl Follows<Secret> for OfSecrets {
    fn what(self) -> Watched {
        Watched::Secrets
    }

    type Id = Place;
    type Seen = Object;

    fn see(self, secret: Secret) -> Option<Object> {
        Object::of_secret(&secret)
    }

    fn learn(self, table: &mut Table, secret: Object) -> (Option<Self::Id>, Vec<Key>) {
        learn(table, &secret)
    }

    fn forget(self, table: &mut Table, secret: Object) -> Vec<Key> {
        forget(table, &secret)
    }

    fn finish(self, table: &mut Table, scope: &Scope, listed: HashSet<Self::Id>) -> Vec<Key> {
        finish(table, scope, Kind::Secret, &listed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::SeenJob;
    use super::*;

    #[test]
    fn one_that_was_made_anew_is_not_forgotten_with_the_one_before() {
        let of = |uid: &str, version: &str| -> Resource {
            let document = serde_json::json!({
                "apiVersion": "quarks.cloudfoundry.org/v1alpha1", "kind": "QuarksJob",
                "metadata": {"name": "a", "namespace": "n", "uid": uid, "resourceVersion": version},
                "spec": {},
            });
            let document: Document = serde_json::from_str(&document.to_string()).unwrap();
            document.read(Dialect::QuarksJob).unwrap()
        };
        let follows = OfResources(Dialect::QuarksJob);
        let mut table = Table::new(2, b"key");
        let known = |table: &Table| {
            let found = table.keys(None).into_iter().next()?;
            Some(table.get(&found)?.resource.clone()?.uid.to_string())
        };
        follows.learn(&mut table, of("first", "1"));
        follows.learn(&mut table, of("second", "3"));
        follows.forget(&mut table, of("first", "2"));
        assert_eq!(known(&table).as_deref(), Some("second"), "a watch is behind an answer");
        follows.forget(&mut table, of("second", "4"));
        assert_eq!(known(&table), None);
    }

    #[test]
    fn a_job_that_was_deleted_is_not_deleted_again_for_what_a_watch_says_of_it_later() {
        let job = |version: &str| {
            let job: Job = serde_json::from_value(serde_json::json!({
                "metadata": {
                    "name": "a-0123456789abcdef", "namespace": "n", "uid": "u",
                    "resourceVersion": version,
                    "annotations": {"manciple.dev/run-id": "1"},
                    "ownerReferences": [{
                        "apiVersion": "quarks.cloudfoundry.org/v1alpha1", "kind": "QuarksJob",
                        "name": "a", "uid": "owner", "controller": true,
                    }],
                },
                "spec": {"template": {"spec": {"containers": []}}},
            }))
            .unwrap();
            SeenJob::of(&job).unwrap()
        };
        let mut table = Table::new(2, b"key");
        let key = table.learn_job(job("1"));
        table.goes(&key, &job("1"));
        table.learn_job(job("2"));
        assert!(table.known_job("u").unwrap().deleting);
    }
}
