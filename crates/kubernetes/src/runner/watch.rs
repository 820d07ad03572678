//! The known runs: their Jobs and pods, from watches, and from what this process makes.
//!
//! A deleted object stays known: a run whose Job somebody deleted is lost, not absent, and a report that was seen once
//! cannot be lost any more. Only a release makes a run forgotten.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::names::RunName;
use futures_util::{Stream, StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Event as CoreEvent;
use kube::Resource;
use kube::runtime::watcher::{self, Event};
use tokio::sync::{Notify, watch};

use super::Shared;
use super::places::Right;
use super::seen::{Presence, Seen, SeenJob, SeenPod, Versions, Warning};
use crate::calls::is_forbidden;
use crate::names;
use crate::text::Text;

/// How long the first lists may take.
const FIRST_LIST: Duration = Duration::from_secs(60);
/// How many runs with deleted Jobs are remembered: those that were released, whose pods go a moment later, and those
/// that nobody released, mostly another replica's.
const REMEMBERED: usize = 500;

/// All runs that are known without asking the API server.
#[derive(Default)]
pub(super) struct KnownRuns {
    table: Mutex<Table>,
    waiting: Mutex<HashMap<RunName, Arc<Notify>>>,
    listed: watch::Sender<BTreeSet<(&'static str, String)>>,
    /// The namespaces that may not be listed.
    refused: watch::Sender<BTreeSet<String>>,
    /// Whether the first lists are not waited for any more.
    begun: AtomicBool,
}

#[derive(Default)]
struct Table {
    runs: BTreeMap<RunName, Seen>,
    /// The runs whose Jobs were deleted, the earliest first.
    deleted: VecDeque<RunName>,
}

/// A watched kind: Jobs or pods.
pub(super) trait Watched: Sized {
    const KIND: &'static str;

    fn run(&self) -> &RunName;
    fn uid(&self) -> &str;
    /// Takes the object into what is known, unless that is newer.
    fn learn(self, seen: &mut Seen);
    /// Notes that the object is gone; it has its last state.
    fn forget(self, seen: &mut Seen);
    /// Notes that a list of a namespace has only these uids.
    fn keep(seen: &mut Seen, namespace: &str, uids: &[String]);
    /// Does at once what cannot wait, when an object of a run was made, changed or removed.
    fn heard(shared: &Arc<Shared>, run: &RunName);
}

impl Watched for SeenJob {
    const KIND: &'static str = "Job";

    fn run(&self) -> &RunName {
        &self.run
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn learn(self, seen: &mut Seen) {
        match &mut seen.job {
            Some(known) if known.version > self.version => {}
            // A Job in another namespace does not displace a known one.
            Some(known) if known.namespace != self.namespace && known.is_held() => {}
            // A new Job of the same name, after the release of the former one.
            Some(known) if known.uid != self.uid => {
                *seen = Seen { job: Some(self), ..Seen::default() };
            }
            job => {
                // The API server does not know of the release of a lingering Job.
                let released = self.released.or(job.as_ref().and_then(|known| known.released));
                *job = Some(Self { released, ..self });
            }
        }
    }

    fn forget(self, seen: &mut Seen) {
        if seen.job.as_ref().is_some_and(|job| job.uid == self.uid) {
            let released = seen.job.as_ref().and_then(|job| job.released).or(self.released);
            seen.job = Some(Self { presence: Presence::Deleted, released, ..self });
        }
    }

    fn keep(seen: &mut Seen, namespace: &str, uids: &[String]) {
        if let Some(job) = seen.job.as_mut().filter(|job| job.namespace == namespace) {
            job.unsure = !job.is_deleted() && !uids.contains(&job.uid);
        }
    }

    fn heard(_: &Arc<Shared>, _: &RunName) {}
}

impl Watched for SeenPod {
    const KIND: &'static str = "Pod";

    fn run(&self) -> &RunName {
        &self.run
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn learn(self, seen: &mut Seen) {
        if seen.left_out.contains(&self.uid) {
            return;
        }
        match seen.pods.iter_mut().find(|pod| pod.uid == self.uid) {
            Some(pod) if pod.version <= self.version => pod.update(self),
            Some(_) => {}
            None => seen.pods.push(self),
        }
    }

    fn forget(self, seen: &mut Seen) {
        let uid = self.uid.clone();
        self.learn(seen);
        seen.pods.iter_mut().filter(|pod| pod.uid == uid).for_each(|pod| pod.gone = true);
    }

    fn keep(seen: &mut Seen, namespace: &str, uids: &[String]) {
        let is_missing =
            |pod: &&mut SeenPod| pod.namespace == namespace && !uids.contains(&pod.uid);
        seen.pods.iter_mut().filter(is_missing).for_each(SeenPod::miss);
    }

    fn heard(shared: &Arc<Shared>, run: &RunName) {
        Arc::clone(shared).guard(run);
    }
}

impl KnownRuns {
    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all kinds were listed once in all namespaces; in all but the first it may also be forbidden, so that
    /// a namespace that is gone does not stop the others. Returns the namespaces that are not listed in time.
    pub(super) async fn complete(&self, namespaces: &[String]) -> Vec<String> {
        let missing = || {
            let (listed, refused) = (self.listed.borrow(), self.refused.borrow());
            let is_listed = |kind, name: &String| listed.contains(&(kind, name.clone()));
            let is_missing = |(index, name): &(usize, &String)| {
                let all = is_listed(SeenJob::KIND, name) && is_listed(SeenPod::KIND, name);
                !all && (*index == 0 || !refused.contains(*name))
            };
            let missing = namespaces.iter().enumerate().filter(is_missing);
            missing.map(|(_, name)| name.clone()).collect::<Vec<_>>()
        };
        let (mut listed, mut refused) = (self.listed.subscribe(), self.refused.subscribe());
        let all = async {
            while !missing().is_empty() {
                let _ = tokio::select! {
                    changed = listed.changed() => changed,
                    changed = refused.changed() => changed,
                };
            }
        };
        let _ = tokio::time::timeout(FIRST_LIST, all).await;
        self.begun.store(true, Ordering::Relaxed);
        missing()
    }

    /// The namespaces that may not be listed.
    pub(super) fn refused(&self) -> BTreeSet<String> {
        self.refused.borrow().clone()
    }

    /// Notes that a namespace may not be listed. Returns whether that was known.
    fn refuse(&self, namespace: &str) -> bool {
        !self.refused.send_if_modified(|refused| refused.insert(namespace.to_owned()))
    }

    pub(super) fn get(&self, run: &RunName) -> Seen {
        self.lock().runs.get(run).cloned().unwrap_or_default()
    }

    /// Notes by which versions the state of a run was reported.
    pub(super) fn answered(&self, run: &RunName, versions: Versions) {
        if let Some(seen) = self.lock().runs.get_mut(run) {
            seen.answered = Some(versions);
        }
    }

    /// The Jobs that exist.
    pub(super) fn jobs(&self) -> Vec<SeenJob> {
        let table = self.lock();
        let jobs = table.runs.values().filter_map(|seen| seen.job.as_ref());
        jobs.filter(|job| !job.is_deleted()).cloned().collect()
    }

    pub(super) fn learn(&self, watched: impl Watched) {
        let run = watched.run().clone();
        self.change(&run, |seen| watched.learn(seen));
    }

    pub(super) fn forget(&self, watched: impl Watched) {
        let run = watched.run().clone();
        self.change(&run, |seen| watched.forget(seen));
    }

    /// Takes in a warning of a known run; others are not ours.
    pub(super) fn warn(&self, warning: Warning) {
        if self.lock().runs.contains_key(&warning.run) {
            let run = warning.run.clone();
            self.change(&run, |seen| match &mut seen.warning {
                Some(known) => known.update(warning),
                none => *none = Some(warning),
            });
        }
    }

    /// Changes what is known of a run, and wakes those who wait for it.
    pub(super) fn change(&self, run: &RunName, change: impl FnOnce(&mut Seen)) {
        let mut table = self.lock();
        let seen = table.runs.entry(run.clone()).or_default();
        let was_deleted = seen.is_deleted();
        change(seen);
        seen.leave_others_out();
        if seen.job.as_ref().is_some_and(|job| job.is_deleted() && job.released.is_some()) {
            seen.pods.retain(|pod| !pod.gone);
        }
        let (is_over, is_deleted) = (seen.is_over(), seen.is_deleted());
        if is_over {
            table.runs.remove(run);
        } else if is_deleted && !was_deleted {
            table.remember(run);
        }
        drop(table);
        self.wake(run);
    }

    /// Wakes those who wait for a run.
    pub(super) fn wake(&self, run: &RunName) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(notify) = waiting.get(run) {
            notify.notify_waiters();
        }
    }

    /// Ends a list of a namespace, which had only these uids. Returns the runs there whose earlier events have to be
    /// checked; for the first lists that is done at once for all.
    pub(super) fn finish<W: Watched>(&self, namespace: &str, uids: &[String]) -> Vec<RunName> {
        let mut table = self.lock();
        for seen in table.runs.values_mut() {
            W::keep(seen, namespace, uids);
            seen.leave_others_out();
        }
        table.runs.retain(|_, seen| !seen.is_over());
        drop(table);
        self.listed.send_if_modified(|listed| listed.insert((W::KIND, namespace.to_owned())));
        // A later refusal is logged again.
        self.refused.send_if_modified(|refused| refused.remove(namespace));
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.values().for_each(|notify| notify.notify_waiters());
        drop(waiting);
        let jobs = self.begun.load(Ordering::Relaxed).then(|| self.jobs()).into_iter().flatten();
        jobs.filter(|job| job.namespace == namespace).map(|job| job.run).collect()
    }

    /// Waits until `new` holds for a run, or it has changed, unless `new` holds by now.
    pub(super) async fn changed(
        &self,
        run: &RunName,
        within: Duration,
        new: impl Fn(&Seen) -> bool,
    ) {
        let waiter = Waiter::new(self, run);
        let notified = waiter.notify.notified();
        pin_mut!(notified);
        notified.as_mut().enable();
        if !new(&self.get(run)) {
            let _ = tokio::time::timeout(within, notified).await;
        }
    }
}

/// A waiter for changes of a run, until it is dropped: a caller that also waits for something else may drop it at any
/// time.
struct Waiter<'k> {
    known: &'k KnownRuns,
    run: &'k RunName,
    notify: Arc<Notify>,
}

impl<'k> Waiter<'k> {
    fn new(known: &'k KnownRuns, run: &'k RunName) -> Self {
        let mut waiting = known.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let notify = Arc::clone(waiting.entry(run.clone()).or_default());
        drop(waiting);
        Self { known, run, notify }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut waiting = self.known.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // The two references are ours and the table's.
        if waiting.get(self.run).is_some_and(|notify| Arc::strong_count(notify) <= 2) {
            waiting.remove(self.run);
        }
    }
}

impl Table {
    fn remember(&mut self, run: &RunName) {
        self.deleted.push_back(run.clone());
        if self.deleted.len() > REMEMBERED
            && let Some(oldest) = self.deleted.pop_front()
            && self.runs.get(&oldest).is_some_and(Seen::is_deleted)
        {
            self.runs.remove(&oldest);
        }
    }
}

/// A reader that ignores objects of other homes: groups of the same name may have theirs in the same namespace.
pub(super) fn at_home<K: Resource, W>(
    home: String,
    read: impl Fn(&K) -> Option<W>,
) -> impl Fn(&K) -> Option<W> {
    move |object| names::is_at_home(object.meta(), &home).then(|| read(object)).flatten()
}

/// Watches one kind in a namespace for ever. To be spawned; ends when it is dropped.
pub(super) async fn follow<K: Resource, W: Watched>(
    shared: Arc<Shared>,
    namespace: String,
    stream: impl Stream<Item = Result<Event<K>, watcher::Error>>,
    read: impl Fn(&K) -> Option<W>,
) {
    let known = &shared.known;
    let read = at_home(shared.home().to_owned(), read);
    let mut listing: Vec<String> = Vec::new();
    pin_mut!(stream);
    while let Some(event) = stream.next().await {
        match event {
            Ok(Event::Apply(object)) => {
                let Some(watched) = read(&object) else { continue };
                let run = watched.run().clone();
                known.learn(watched);
                W::heard(&shared, &run);
            }
            Ok(Event::InitApply(object)) => {
                if let Some(watched) = read(&object) {
                    listing.push(watched.uid().to_owned());
                    known.learn(watched);
                }
            }
            Ok(Event::Delete(object)) => {
                let Some(watched) = read(&object) else { continue };
                let run = watched.run().clone();
                known.forget(watched);
                W::heard(&shared, &run);
            }
            Ok(Event::Init) => listing.clear(),
            Ok(Event::InitDone) => {
                for run in known.finish::<W>(&namespace, &listing) {
                    Arc::clone(&shared).guard_after_a_list(&run);
                }
            }
            Err(error) => {
                let is_forbidden = is_forbidden(&error);
                if is_forbidden {
                    shared.note_forbidden(&namespace, Right::Jobs, &error.to_string());
                }
                // The list is tried again every few seconds; that it is forbidden is logged once.
                if !(is_forbidden && known.refuse(&namespace)) {
                    tracing::warn!(namespace, %error, "the watch of runs was interrupted");
                }
            }
        }
    }
}

/// Watches the warning events of Kubernetes, for ever.
pub(super) async fn follow_warnings(
    known: Arc<KnownRuns>,
    namespace: String,
    stream: impl Stream<Item = Result<Event<Text<CoreEvent>>, watcher::Error>>,
) {
    let mut is_told = false;
    pin_mut!(stream);
    while let Some(event) = stream.next().await {
        match event {
            Ok(Event::Apply(event) | Event::InitApply(event)) => {
                let warning = event.read().and_then(|event| Warning::of_event(&event));
                warning.into_iter().for_each(|warning| known.warn(warning));
            }
            Ok(Event::InitDone) => is_told = false,
            Ok(Event::Delete(_) | Event::Init) => {}
            // As in [`follow`], a refusal is logged once.
            Err(error) if is_forbidden(&error) && is_told => {}
            Err(error) => {
                is_told = is_forbidden(&error);
                tracing::warn!(namespace, %error, "the watch of warnings was interrupted");
            }
        }
    }
}
