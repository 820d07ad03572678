//! What is known of Jobs and pods: from watches, and from what this process makes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::names::RunName;
use futures_util::{Stream, StreamExt, pin_mut};
use kube::runtime::watcher::{self, Event};
use tokio::sync::{Notify, watch};

use super::seen::{SeenJob, SeenPod};

/// How long the first lists may take.
const FIRST_LIST: Duration = Duration::from_secs(60);

/// Everything that is known of runs without asking.
pub(super) struct Known {
    table: Mutex<BTreeMap<RunName, Seen>>,
    waiting: Mutex<HashMap<RunName, Arc<Notify>>>,
    listed: watch::Sender<u8>,
}

/// What is known of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub(super) job: Option<SeenJob>,
    /// In the order in which they were first seen.
    pub(super) pods: Vec<SeenPod>,
}

/// One of the two things that are watched.
pub(super) trait Watched: Sized {
    const BIT: u8;

    fn run(&self) -> &RunName;
    /// Takes it into what is known, unless something newer is known.
    fn learn(self, seen: &mut Seen);
    fn forget(&self, seen: &mut Seen);
    /// Forgets what is not among these.
    fn keep(seen: &mut Seen, uids: &[String]);
    fn uid(&self) -> &str;
}

impl Watched for SeenJob {
    const BIT: u8 = 1;

    fn run(&self) -> &RunName {
        &self.run
    }

    fn learn(self, seen: &mut Seen) {
        if seen.job.as_ref().is_none_or(|known| known.version <= self.version) {
            seen.job = Some(self);
        }
    }

    fn forget(&self, seen: &mut Seen) {
        seen.job.take_if(|job| job.uid == self.uid);
    }

    fn keep(seen: &mut Seen, uids: &[String]) {
        seen.job.take_if(|job| !uids.contains(&job.uid));
    }

    fn uid(&self) -> &str {
        &self.uid
    }
}

impl Watched for SeenPod {
    const BIT: u8 = 2;

    fn run(&self) -> &RunName {
        &self.run
    }

    fn learn(self, seen: &mut Seen) {
        match seen.pods.iter_mut().find(|pod| pod.uid == self.uid) {
            Some(pod) if pod.version <= self.version => *pod = self,
            Some(_) => {}
            None => seen.pods.push(self),
        }
    }

    fn forget(&self, seen: &mut Seen) {
        seen.pods.retain(|pod| pod.uid != self.uid);
    }

    fn keep(seen: &mut Seen, uids: &[String]) {
        seen.pods.retain(|pod| uids.contains(&pod.uid));
    }

    fn uid(&self) -> &str {
        &self.uid
    }
}

impl Default for Known {
    fn default() -> Self {
        Self { table: Mutex::default(), waiting: Mutex::default(), listed: watch::Sender::new(0) }
    }
}

impl Known {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<RunName, Seen>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until everything was listed once.
    pub(super) async fn complete(&self) -> bool {
        let mut listed = self.listed.subscribe();
        let all = listed.wait_for(|listed| *listed == SeenJob::BIT | SeenPod::BIT);
        tokio::time::timeout(FIRST_LIST, all).await.is_ok()
    }

    pub(super) fn get(&self, run: &RunName) -> Seen {
        self.lock().get(run).cloned().unwrap_or_default()
    }

    pub(super) fn jobs(&self) -> Vec<SeenJob> {
        self.lock().values().filter_map(|seen| seen.job.clone()).collect()
    }

    pub(super) fn learn(&self, watched: impl Watched) {
        let run = watched.run().clone();
        self.change(&run, |seen| watched.learn(seen));
    }

    pub(super) fn forget(&self, watched: &impl Watched) {
        self.change(watched.run(), |seen| watched.forget(seen));
    }

    /// Changes what is known of a run, and wakes those who wait for it.
    pub(super) fn change(&self, run: &RunName, change: impl FnOnce(&mut Seen)) {
        let mut table = self.lock();
        change(table.entry(run.clone()).or_default());
        if table.get(run).is_some_and(|seen| seen.job.is_none() && seen.pods.is_empty()) {
            table.remove(run);
        }
        drop(table);
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(notify) = waiting.get(run) {
            notify.notify_waiters();
        }
    }

    fn finish<W: Watched>(&self, uids: &[String]) {
        let mut table = self.lock();
        table.values_mut().for_each(|seen| W::keep(seen, uids));
        table.retain(|_, seen| seen.job.is_some() || !seen.pods.is_empty());
        drop(table);
        self.listed.send_modify(|listed| *listed |= W::BIT);
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.values().for_each(|notify| notify.notify_waiters());
    }

    /// Waits until something is new of a run, unless it is by now.
    pub(super) async fn changed(
        &self,
        run: &RunName,
        within: Duration,
        new: impl Fn(&Seen) -> bool,
    ) {
        let notify = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(waiting.entry(run.clone()).or_default())
        };
        let notified = notify.notified();
        pin_mut!(notified);
        notified.as_mut().enable();
        if !new(&self.get(run)) {
            let _ = tokio::time::timeout(within, notified).await;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Ours and the table's.
        if waiting.get(run).is_some_and(|notify| Arc::strong_count(notify) <= 2) {
            waiting.remove(run);
        }
    }
}

/// Follows one kind for ever. To be spawned; ends when it is dropped.
pub(super) async fn follow<K, W: Watched>(
    known: Arc<Known>,
    stream: impl Stream<Item = Result<Event<K>, watcher::Error>>,
    read: impl Fn(&K) -> Option<W>,
    seen: impl Fn(&W),
) {
    let mut listing: Vec<String> = Vec::new();
    pin_mut!(stream);
    while let Some(event) = stream.next().await {
        match event {
            Ok(Event::Apply(object)) => {
                if let Some(watched) = read(&object) {
                    seen(&watched);
                    known.learn(watched);
                }
            }
            Ok(Event::InitApply(object)) => {
                if let Some(watched) = read(&object) {
                    listing.push(watched.uid().to_owned());
                    known.learn(watched);
                }
            }
            Ok(Event::Delete(object)) => {
                read(&object).iter().for_each(|watched| known.forget(watched));
            }
            Ok(Event::Init) => listing.clear(),
            Ok(Event::InitDone) => known.finish::<W>(&listing),
            Err(error) => tracing::warn!(%error, "the watch of runs was interrupted"),
        }
    }
}
