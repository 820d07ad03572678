//! Follows what is in a namespace, or in all of them, and tells who may have something to do.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{self as core, ConfigMap, Namespace, Pod, Secret};
use kube::Resource as _;
use kube::api::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::Controller;
use super::dialect::{Dialect, TRIGGERED};
use super::document::Document;
use super::held::Object;
use super::install::installed;
use super::peers::Peer;
use super::reference::Kind;
use super::seen::SeenPod;
use super::table::{Key, Table, Watched};
use crate::calls::{Again, watching};
use crate::names;
use crate::warnings::Warned;

const PAGE: u32 = 500;
/// How often kinds are asked for that the API server does not know.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// How often it is looked whether everything was listed.
const LISTS: Duration = Duration::from_millis(500);

/// Where something is watched: a namespace, or everywhere.
pub(super) type Scope = Option<Arc<str>>;

/// How one kind is taken into the table.
pub(super) trait Follows<K>: Copy + Send + 'static {
    /// What it follows.
    fn what(self) -> Watched;
    /// What tells the objects of a list apart.
    type Id: Eq + std::hash::Hash + Send;

    /// Takes an object as it is; who may have something to do.
    fn learn(self, table: &mut Table, object: &K) -> (Option<Self::Id>, Vec<Key>);
    /// It is not there any more.
    fn forget(self, table: &mut Table, object: &K) -> Vec<Key>;
    /// A list of a scope has no others than these.
    fn finish(self, table: &mut Table, scope: &Scope, listed: HashSet<Self::Id>) -> Vec<Key>;
}

#[derive(Clone, Copy)]
struct OfResources(Dialect);
#[derive(Clone, Copy)]
struct OfJobs;
#[derive(Clone, Copy)]
struct OfPods;
#[derive(Clone, Copy)]
struct OfConfigMaps;
#[derive(Clone, Copy)]
struct OfSecrets;

impl Follows<Document> for OfResources {
    fn what(self) -> Watched {
        Watched::Resources(self.0)
    }

    type Id = Key;

    fn learn(self, table: &mut Table, document: &Document) -> (Option<Key>, Vec<Key>) {
        let keys = document.read(self.0).map(|resource| table.learn(resource));
        let keys = keys.unwrap_or_default();
        (keys.first().cloned(), keys)
    }

    fn forget(self, table: &mut Table, document: &Document) -> Vec<Key> {
        let gone = document.read(self.0);
        gone.into_iter().for_each(|gone| table.forget_one(&gone.key(), &gone.uid));
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

    fn learn(self, table: &mut Table, job: &Job) -> (Option<Arc<str>>, Vec<Key>) {
        let Some(job) = table.seen_job(job) else { return (None, Vec::new()) };
        let uid = Arc::clone(&job.uid);
        (Some(uid), vec![table.learn_job(job)])
    }

    fn forget(self, table: &mut Table, job: &Job) -> Vec<Key> {
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

    fn learn(self, table: &mut Table, pod: &Pod) -> (Option<Arc<str>>, Vec<Key>) {
        let Some(pod) = SeenPod::of(pod) else { return (None, Vec::new()) };
        (Some(Arc::clone(&pod.uid)), table.learn_pod(pod).into_iter().collect())
    }

    /// What it left stays known until its run is settled.
    fn forget(self, table: &mut Table, pod: &Pod) -> Vec<Key> {
        let gone = SeenPod::of(pod).map(|pod| SeenPod { gone: true, ..pod });
        gone.and_then(|pod| table.learn_pod(pod)).into_iter().collect()
    }

    fn finish(self, table: &mut Table, scope: &Scope, listed: HashSet<Arc<str>>) -> Vec<Key> {
        table.keep_pods(scope.as_deref(), &listed);
        Vec::new()
    }
}

#[derive(Clone, Copy)]
pub(super) struct OfPeers;

impl Follows<Pod> for OfPeers {
    fn what(self) -> Watched {
        Watched::Peers
    }

    type Id = String;

    fn learn(self, table: &mut Table, pod: &Pod) -> (Option<String>, Vec<Key>) {
        let peers = pod.metadata.namespace.as_deref().and_then(|it| table.peers.get_mut(it));
        let (Some(peers), Some(peer)) = (peers, Peer::of(pod)) else { return (None, Vec::new()) };
        let is_news = peers.learn(&peer);
        let followers = peers.followers.iter().filter(|_| is_news).cloned();
        (pod.metadata.uid.clone(), followers.collect())
    }

    fn forget(self, table: &mut Table, pod: &Pod) -> Vec<Key> {
        let peers = pod.metadata.namespace.as_deref().and_then(|it| table.peers.get_mut(it));
        let (Some(peers), Some(uid)) = (peers, &pod.metadata.uid) else { return Vec::new() };
        let is_news = peers.forget(uid);
        peers.followers.iter().filter(|_| is_news).cloned().collect()
    }

    fn finish(self, table: &mut Table, scope: &Scope, listed: HashSet<String>) -> Vec<Key> {
        let peers = scope.as_ref().and_then(|scope| table.peers.get_mut(scope));
        let Some(peers) = peers else { return Vec::new() };
        peers.keep(&listed);
        peers.followers.iter().cloned().collect()
    }
}

#[derive(Clone, Copy)]
struct OfWarnings;

impl Follows<core::Event> for OfWarnings {
    fn what(self) -> Watched {
        Watched::Warnings
    }

    type Id = ();

    fn learn(self, table: &mut Table, event: &core::Event) -> (Option<()>, Vec<Key>) {
        let key = Warned::of(event).and_then(|warned| table.warn(warned));
        (None, key.into_iter().collect())
    }

    /// It is forgotten with what it is of.
    fn forget(self, _: &mut Table, _: &core::Event) -> Vec<Key> {
        Vec::new()
    }

    fn finish(self, _: &mut Table, _: &Scope, _: HashSet<()>) -> Vec<Key> {
        Vec::new()
    }
}

/// A namespace and a name.
type Place = (Arc<str>, Arc<str>);

fn learn(table: &mut Table, object: Option<Object>) -> (Option<Place>, Vec<Key>) {
    let Some(object) = object else { return (None, Vec::new()) };
    let id = (Arc::clone(&object.namespace), Arc::clone(&object.name));
    let changed = table.objects.learn(object.clone());
    (Some(id), if changed { table.referrers(&object) } else { Vec::new() })
}

fn forget(table: &mut Table, object: Option<Object>) -> Vec<Key> {
    let Some(object) = object else { return Vec::new() };
    let gone = table.objects.forget(&object);
    if gone { table.referrers(&object) } else { Vec::new() }
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

    fn learn(self, table: &mut Table, map: &ConfigMap) -> (Option<Self::Id>, Vec<Key>) {
        learn(table, Object::of_config_map(map))
    }

    fn forget(self, table: &mut Table, map: &ConfigMap) -> Vec<Key> {
        let keys = forget(table, Object::of_config_map(map));
        let label = map.metadata.labels.as_ref().and_then(|all| all.get(names::KEEPS));
        match label {
            // The agent's, for one: whose runs go on may need it.
            Some(_) => {
                let namespace = map.metadata.namespace.as_deref().unwrap_or_default();
                table.agents.remove(namespace);
                table.keys(Some(namespace))
            }
            None => keys,
        }
    }

    fn finish(self, table: &mut Table, scope: &Scope, listed: HashSet<Self::Id>) -> Vec<Key> {
        // That the agent's went may not have been told.
        table.agents.retain(|namespace| scope.as_ref().is_some_and(|scope| scope != namespace));
        finish(table, scope, Kind::ConfigMap, &listed)
    }
}

impl Follows<Secret> for OfSecrets {
    fn what(self) -> Watched {
        Watched::Secrets
    }

    type Id = Place;

    fn learn(self, table: &mut Table, secret: &Secret) -> (Option<Self::Id>, Vec<Key>) {
        learn(table, Object::of_secret(secret))
    }

    fn forget(self, table: &mut Table, secret: &Secret) -> Vec<Key> {
        forget(table, Object::of_secret(secret))
    }

    fn finish(self, table: &mut Table, scope: &Scope, listed: HashSet<Self::Id>) -> Vec<Key> {
        finish(table, scope, Kind::Secret, &listed)
    }
}

impl Controller {
    /// Watches everything of a scope for as long as the tasks live.
    pub(super) fn watch(self: &Arc<Self>, scope: &Scope) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        self.table().watches(scope);
        let all = || watching().page_size(PAGE);
        let ours = || all().labels(TRIGGERED);
        for dialect in Dialect::ALL {
            let resources: Api<Document> = match scope {
                Some(namespace) => {
                    Api::namespaced_with(self.client.clone(), namespace, &dialect.resource())
                }
                None => Api::all_with(self.client.clone(), &dialect.resource()),
            };
            let mut known = self.dialects.subscribe();
            let follow =
                Arc::clone(self).follow(OfResources(dialect), scope.clone(), resources, all());
            tasks.spawn(async move {
                if known.wait_for(|known| known.contains(&dialect)).await.is_ok() {
                    follow.await;
                }
            });
        }
        tasks.spawn(Arc::clone(self).follow(OfJobs, scope.clone(), self.all(scope), ours()));
        tasks.spawn(Arc::clone(self).follow(OfPods, scope.clone(), self.all(scope), ours()));
        tasks.spawn(Arc::clone(self).follow(OfConfigMaps, scope.clone(), self.all(scope), all()));
        tasks.spawn(Arc::clone(self).follow(OfSecrets, scope.clone(), self.all(scope), all()));
        let warnings = all().fields("type=Warning");
        let follow = Arc::clone(self).follow(OfWarnings, scope.clone(), self.all(scope), warnings);
        let (controller, scope) = (Arc::clone(self), scope.clone());
        tasks.spawn(async move {
            // What they are of has to be known before.
            while !controller.table().is_complete(scope.as_deref().unwrap_or_default()) {
                tokio::time::sleep(LISTS).await;
            }
            follow.await;
        });
        tasks
    }

    /// Asks for the kinds that are not known until all are: their definitions may come later, and an API server that
    /// has just started denies those that it has.
    pub(super) async fn follow_definitions(self: Arc<Self>) {
        while self.dialects.borrow().len() < Dialect::ALL.len() {
            tokio::time::sleep(ASK_AGAIN).await;
            let Ok(known) = installed(&self.client).await else { continue };
            // What is denied again was there, and is watched.
            let is_news = |it: &Dialect| known.contains(it) || self.dialects.borrow().contains(it);
            let known: Vec<Dialect> = Dialect::ALL.into_iter().filter(is_news).collect();
            if known.len() > self.dialects.borrow().len() {
                tracing::info!(?known, "the API server knows more kinds than before");
                self.table().expects(known.len());
                self.dialects.send_replace(known);
            }
        }
    }

    fn all<K>(&self, scope: &Scope) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        match scope {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    pub(super) async fn follow<K, F: Follows<K>>(
        self: Arc<Self>,
        follows: F,
        scope: Scope,
        api: Api<K>,
        of: watcher::Config,
    ) where
        K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let events = watcher(api, of).backoff(Again::default());
        pin_mut!(events);
        let mut listing = HashSet::new();
        while let Some(event) = events.next().await {
            let keys = match event {
                Ok(Event::Init) => {
                    listing = HashSet::new();
                    continue;
                }
                Ok(Event::InitApply(object)) => {
                    let (id, _) = follows.learn(&mut self.table(), &object);
                    listing.extend(id);
                    continue;
                }
                Ok(Event::InitDone) => self.listed(follows, &scope, std::mem::take(&mut listing)),
                Ok(Event::Apply(object)) => follows.learn(&mut self.table(), &object).1,
                Ok(Event::Delete(object)) => follows.forget(&mut self.table(), &object),
                Err(error) => {
                    let of = scope.as_deref().unwrap_or("all namespaces");
                    tracing::warn!(what = ?follows.what(), of, %error, "a watch was interrupted");
                    continue;
                }
            };
            self.queue.push(keys);
        }
    }

    /// Once everything was listed, everyone may have something to do; after that too, for a list that is read
    /// again stands for all that was missed.
    fn listed<K, F: Follows<K>>(
        &self,
        follows: F,
        scope: &Scope,
        listed: HashSet<F::Id>,
    ) -> Vec<Key> {
        let mut table = self.table();
        let mut keys = follows.finish(&mut table, scope, listed);
        let first = table.listed(scope.as_ref(), follows.what());
        if first || table.is_complete(scope.as_deref().unwrap_or_default()) {
            keys = table.keys(scope.as_deref());
        }
        keys
    }

    /// Follows which namespaces are monitored, for as long as it is polled.
    pub(super) async fn follow_namespaces(self: Arc<Self>, selector: String) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let config = watching().labels(&selector);
        let events = watcher(namespaces, config).backoff(Again::default());
        pin_mut!(events);
        let mut watched: std::collections::HashMap<Arc<str>, JoinSet<()>> = Default::default();
        let mut listing = HashSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listing.clear(),
                Ok(Event::Apply(namespace) | Event::InitApply(namespace)) => {
                    let Some(name) = namespace.meta().name.as_deref().map(Arc::<str>::from) else {
                        continue;
                    };
                    listing.insert(Arc::clone(&name));
                    let begin = || {
                        tracing::info!(namespace = &*name, "it is monitored");
                        self.watch(&Some(Arc::clone(&name)))
                    };
                    watched.entry(Arc::clone(&name)).or_insert_with(begin);
                }
                Ok(Event::Delete(namespace)) => {
                    let name = namespace.meta().name.as_deref().unwrap_or_default();
                    self.leave(&mut watched, |known| known == name);
                }
                Ok(Event::InitDone) => {
                    self.leave(&mut watched, |known| !listing.contains(known));
                    self.table().knows_scopes = true;
                }
                Err(error) => tracing::warn!(%error, "the watch of namespaces was interrupted"),
            }
        }
    }

    fn leave(
        &self,
        watched: &mut std::collections::HashMap<Arc<str>, JoinSet<()>>,
        gone: impl Fn(&str) -> bool,
    ) {
        watched.retain(|name, tasks| {
            let goes = gone(name);
            if goes {
                tracing::info!(namespace = &**name, "it is no longer monitored");
                tasks.abort_all();
                self.table().leave(name);
            }
            !goes
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::seen::SeenJob;
    use super::*;

    #[test]
    fn one_that_was_made_anew_is_not_forgotten_with_the_one_before() {
        let of = |uid: &str, version: &str| -> Document {
            let document = serde_json::json!({
                "apiVersion": "quarks.cloudfoundry.org/v1alpha1", "kind": "QuarksJob",
                "metadata": {"name": "a", "namespace": "n", "uid": uid, "resourceVersion": version},
                "spec": {},
            });
            serde_json::from_str(&document.to_string()).unwrap()
        };
        let follows = OfResources(Dialect::QuarksJob);
        let mut table = Table::new(2, b"key");
        let known = |table: &Table| {
            let found = table.keys(None).into_iter().next()?;
            Some(table.get(&found)?.resource.clone()?.uid.to_string())
        };
        follows.learn(&mut table, &of("first", "1"));
        follows.learn(&mut table, &of("second", "3"));
        follows.forget(&mut table, &of("first", "2"));
        assert_eq!(known(&table).as_deref(), Some("second"), "a watch is behind an answer");
        follows.forget(&mut table, &of("second", "4"));
        assert_eq!(known(&table), None);
    }

    #[test]
    fn an_agent_that_went_while_nothing_was_watched_is_brought_again() {
        for (scope, left) in [(None, vec![]), (Some("a"), vec!["b"]), (Some("c"), vec!["a", "b"])] {
            let mut table = Table::new(2, b"key");
            table.agents.extend(["a", "b"].map(Arc::from));
            OfConfigMaps.finish(&mut table, &scope.map(Arc::from), HashSet::new());
            let mut found: Vec<&str> = table.agents.iter().map(|it| &**it).collect();
            found.sort_unstable();
            assert_eq!(found, left, "a list of {scope:?} is without it");
        }
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
