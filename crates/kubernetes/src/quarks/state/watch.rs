//! Watches the kinds in a namespace or in all of them, and queues the QuarksJobs that may have something to do.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::vital;
use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Namespace;
use kube::Resource as _;
use kube::api::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::follows::{Follows, OfConfigMaps, OfJobs, OfPods, OfResources, OfSecrets, OfWarnings};
use super::table::Watched;
use crate::calls::{Again, is_forbidden, is_unserved, watching};
use crate::quarks::Controller;
use crate::quarks::api::dialect::{Dialect, TRIGGERED};
use crate::quarks::api::document::Document;
use crate::quarks::api::key::Key;
use crate::text::{PAGE, Text};

/// After this time a kind that is not served counts as having no definition any more, and a missing right as not
/// granted: an API server that has just started denies kinds that it has for a moment, and rights are granted one after
/// the other.
const ABSENT: Duration = Duration::from_secs(60);

/// How many lists are read at once: of a page of large objects two copies are in memory.
pub(crate) const LISTS_AT_ONCE: usize = 2;

/// How often the watch of Events looks whether everything else was listed.
const LISTS: Duration = Duration::from_millis(500);

/// The scope of a watch: a namespace, or `None` for all.
pub(crate) type Scope = Option<Arc<str>>;

/// Why a kind cannot be listed that nothing else has to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Absence {
    /// The kind is not served: there are no objects of it.
    Unserved,
    /// QuarksJobs or ExtendedJobs may not be listed: there may be some, of which none is run.
    Forbidden(Dialect),
    /// Events may not be listed: what keeps a pod from beginning is told only as far as the pod says it.
    Unwarned,
}

impl Absence {
    /// The absence that an error of a watch means, if the kind need not be waited for. Without rights to the kinds that
    /// all runs need nothing can be run; and a kind that was listed before is known.
    fn of(what: Watched, was_listed: bool, error: &watcher::Error) -> Option<Self> {
        match what {
            _ if is_unserved(error) => Some(Self::Unserved),
            Watched::Resources(dialect) if !was_listed && is_forbidden(error) => {
                Some(Self::Forbidden(dialect))
            }
            Watched::Warnings if is_forbidden(error) => Some(Self::Unwarned),
            _ => None,
        }
    }

    /// For how long the absence has lasted; a new one is told, once.
    fn lasts(self, known: &mut Option<(Self, Instant)>, tell: impl FnOnce()) -> Duration {
        let same = known.filter(|(known, _)| *known == self);
        let (_, since) = *known.insert(same.unwrap_or_else(|| {
            tell();
            (self, Instant::now())
        }));
        since.elapsed()
    }

    fn tell(self, what: Watched, of: &str, error: &watcher::Error) {
        match self {
            Self::Unserved => tracing::warn!(?what, of, %error, "it is not served any more"),
            Self::Forbidden(dialect) => {
                let right = format!("list and watch {}.{}", dialect.plural(), dialect.group());
                let words = "a right is missing: until it is granted none of these is run, and all others wait for it for a \
                             minute";
                tracing::warn!(right, of, %error, "{words}");
            }
            Self::Unwarned => {
                let words = "a right is missing: until it is granted it is not told why Kubernetes makes no pod, or no volume";
                tracing::warn!(right = "list and watch events", of, %error, "{words}");
            }
        }
    }
}

impl Controller {
    /// Watches all kinds of a scope for as long as the tasks live.
    pub(crate) fn watch(self: &Arc<Self>, scope: &Scope) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        self.table().watches(scope);
        let all = || watching().page_size(PAGE);
        let ours = || all().labels(TRIGGERED);
        for dialect in Dialect::ALL {
            let resources: Api<Text<Document>> = match scope {
                Some(namespace) => {
                    Api::namespaced_with(self.client.clone(), namespace, &dialect.resource())
                }
                None => Api::all_with(self.client.clone(), &dialect.resource()),
            };
            let mut known = self.dialects.subscribe();
            let follow =
                Arc::clone(self).follow(OfResources(dialect), scope.clone(), resources, all());
            let follow = async move {
                if known.wait_for(|known| known.contains(&dialect)).await.is_ok() {
                    follow.await;
                }
            };
            tasks.spawn(vital::task("a watch of what is run", follow));
        }
        let jobs = Arc::clone(self).follow(OfJobs, scope.clone(), self.all(scope), ours());
        tasks.spawn(vital::task("a watch of Jobs", jobs));
        let pods = Arc::clone(self).follow(OfPods, scope.clone(), self.all(scope), ours());
        tasks.spawn(vital::task("a watch of pods", pods));
        let maps = Arc::clone(self).follow(OfConfigMaps, scope.clone(), self.all(scope), all());
        tasks.spawn(vital::task("a watch of ConfigMaps", maps));
        let secrets = Arc::clone(self).follow(OfSecrets, scope.clone(), self.all(scope), all());
        tasks.spawn(vital::task("a watch of Secrets", secrets));
        let warnings = watching().page_size(PAGE).fields("type=Warning");
        let follow = Arc::clone(self).follow(OfWarnings, scope.clone(), self.all(scope), warnings);
        let (controller, scope) = (Arc::clone(self), scope.clone());
        let follow = async move {
            // The Jobs and pods that Events are about have to be known before.
            while !controller.table().is_complete(scope.as_deref().unwrap_or_default()) {
                tokio::time::sleep(LISTS).await;
            }
            follow.await;
        };
        tasks.spawn(vital::task("a watch of Events", follow));
        tasks
    }

    fn all<K>(&self, scope: &Scope) -> Api<Text<K>>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        match scope {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    /// Watches a kind for as long as it is polled, and queues who may have something to do.
    pub(crate) async fn follow<K, F: Follows<K>>(
        self: Arc<Self>,
        follows: F,
        scope: Scope,
        api: Api<Text<K>>,
        of: watcher::Config,
    ) where
        K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let events = watcher(api, of).backoff(Again::default());
        pin_mut!(events);
        let mut listing = HashSet::new();
        let mut was_listed = false;
        let mut absent = None;
        // Held while it lists.
        let mut _room = None;
        while let Some(event) = events.next().await {
            if !matches!(event, Ok(Event::InitApply(_))) {
                _room = None;
            }
            let keys = match event {
                Ok(Event::Init) => {
                    listing = HashSet::new();
                    _room = self.lists.acquire().await.ok();
                    Vec::new()
                }
                Ok(Event::InitApply(text)) => {
                    let seen = seen(follows, &text);
                    let id = seen.and_then(|seen| follows.learn(&mut self.table(), seen).0);
                    listing.extend(id);
                    Vec::new()
                }
                Ok(Event::InitDone) => {
                    (was_listed, absent) = (true, None);
                    self.listed(follows, &scope, std::mem::take(&mut listing))
                }
                Ok(Event::Apply(text)) => {
                    let seen = seen(follows, &text);
                    seen.map(|seen| follows.learn(&mut self.table(), seen).1).unwrap_or_default()
                }
                Ok(Event::Delete(text)) => {
                    // An object that is too heavy to be read can be gone, too.
                    let gone = follows.read(&text).or_else(|| text.gist());
                    let seen = gone.and_then(|object| follows.see(object));
                    seen.map(|seen| follows.forget(&mut self.table(), seen)).unwrap_or_default()
                }
                Err(error) => self.interrupted(follows, &scope, was_listed, &mut absent, &error),
            };
            self.queue.push(keys);
        }
    }

    /// Tells of the error of a watch. Stops waiting for a kind that has been `absent` for [`ABSENT`].
    fn interrupted<K, F: Follows<K>>(
        &self,
        follows: F,
        scope: &Scope,
        was_listed: bool,
        absent: &mut Option<(Absence, Instant)>,
        error: &watcher::Error,
    ) -> Vec<Key> {
        let (what, of) = (follows.what(), scope.as_deref().unwrap_or("all namespaces"));
        let Some(absence) = Absence::of(what, was_listed, error) else {
            tracing::warn!(?what, of, %error, "a watch was interrupted");
            return Vec::new();
        };
        match absence.lasts(absent, || absence.tell(what, of, error)) < ABSENT {
            true => Vec::new(),
            false => self.passed_over(follows, scope),
        }
    }

    /// Takes the end of a list. Once all kinds were listed, every QuarksJob of the scope may have something to do;
    /// after that, too, for a list that is read again stands for all that was missed.
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

    /// Stops waiting for a kind that cannot be listed. Nothing is forgotten by that.
    fn passed_over<K, F: Follows<K>>(&self, follows: F, scope: &Scope) -> Vec<Key> {
        let mut table = self.table();
        let was_complete = table.is_complete(scope.as_deref().unwrap_or_default());
        match table.listed(scope.as_ref(), follows.what()) && !was_complete {
            true => table.keys(scope.as_deref()),
            false => Vec::new(),
        }
    }

    /// Watches which namespaces are monitored, for as long as it is polled.
    pub(crate) async fn follow_namespaces(self: Arc<Self>, selector: String) {
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
                    self.table().know_scopes();
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

/// What matters of an object; `None`: nothing does, or it is too heavy.
fn seen<K: DeserializeOwned, F: Follows<K>>(follows: F, text: &Text<K>) -> Option<F::Seen> {
    follows.read(text).and_then(|object| follows.see(object))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_kind_that_is_not_served_or_may_not_be_listed_is_waited_for_by_no_other() {
        let ejobs = Watched::Resources(Dialect::ExtendedJob);
        let unserved = Some(Absence::Unserved);
        let forbidden = Some(Absence::Forbidden(Dialect::ExtendedJob));
        let unwarned = Some(Absence::Unwarned);
        let nothing_there = "404 page not found";
        for (name, code, said, what, was_listed, expected) in [
            ("not served", 404, nothing_there, ejobs, false, unserved),
            ("not served any more", 404, nothing_there, ejobs, true, unserved),
            ("no right", 403, "forbidden", ejobs, false, forbidden),
            ("a right that was taken away", 403, "forbidden", ejobs, true, None),
            ("none to what all runs have", 403, "forbidden", Watched::Jobs, false, None),
            ("none to events", 403, "forbidden", Watched::Warnings, false, unwarned),
            ("none to events any more", 403, "forbidden", Watched::Warnings, true, unwarned),
            ("none to others' pods", 403, "forbidden", Watched::Peers, false, None),
            ("busy", 429, "too many requests", ejobs, false, None),
        ] {
            let status = Status::failure(said, "").with_code(code).boxed();
            let error = watcher::Error::InitialListFailed(kube::Error::Api(status));
            assert_eq!(Absence::of(what, was_listed, &error), expected, "{name}");
        }
    }
}
