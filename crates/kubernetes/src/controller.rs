//! The controller of a replica: it carries operations out while it leads, and does what users ask for by changing
//! resources.
//!
//! ```text
//! Lease ──▶ leads? ──▶ engine.resume ◀── records with an operation in progress
//! watch ──▶ heard of a record ──▶ engine
//!       ──▶ it is gone        ──▶ bury its resource
//!       ──▶ it was deleted by hand ──▶ have the broker remove it
//! ```

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use engine::Engine;
use engine::record::Key;
use tokio::sync::Semaphore;
use tokio::task::JoinError;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::events::tell_why_it_stays;
use crate::lease::Lead;
use crate::store::{KubernetesStore, RecordChange};
use crate::tasks::Tasks;

/// How often all records with something to do are checked again, also those whose last try failed.
const AGAIN: Duration = Duration::from_secs(15);
/// The longest pause before a failed removal is tried again.
const LONGEST: Duration = Duration::from_secs(10 * 60);
/// How many resources are removed at a time: slow removals, as where a webhook does not answer, do not keep other
/// changes from being heard.
const AT_A_TIME: usize = 16;

/// Runs the controller for ever; to be spawned.
pub async fn control(engine: Engine, store: Arc<KubernetesStore>, lead: Arc<Lead>) {
    // The loss of the lead is noticed at once, whatever is being waited for.
    let mut held = lead.held();
    let leaves = engine.clone();
    let loses = async move {
        while held.changed().await.is_ok() {
            if !*held.borrow_and_update() {
                leaves.set_driving(false);
            }
        }
    };
    tokio::select! {
        () = loses => {}
        () = follow(engine, store, lead) => {}
    }
}

async fn follow(engine: Engine, store: Arc<KubernetesStore>, lead: Arc<Lead>) {
    let Some(mut changes) = store.changes() else { return };
    let mut controller = Controller::new(engine, store);
    let mut held = lead.held();
    // The Lease may be held already.
    held.mark_changed();
    let mut again = interval(AGAIN);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            changed = held.changed() => match changed {
                Ok(()) => {
                    let leads = *held.borrow_and_update();
                    controller.lead(leads).await;
                }
                Err(_) => return,
            },
            Some(change) = changes.recv() => controller.hear(&change),
            Some((key, ended)) = controller.removals.next() => controller.ended(&key, ended),
            _ = again.tick() => controller.look(),
        }
    }
}

struct Controller {
    engine: Engine,
    store: Arc<KubernetesStore>,
    /// Removals that users asked for: when the next try is due, and the pause after that.
    tried: HashMap<Key, (Instant, Duration)>,
    /// The records whose resources, instances or bindings are being removed, each with the last change that came
    /// meanwhile.
    removing: HashMap<Key, Option<RecordChange>>,
    removals: Tasks<Key, ()>,
    turns: Arc<Semaphore>,
}

impl Controller {
    fn new(engine: Engine, store: Arc<KubernetesStore>) -> Self {
        let turns = Arc::new(Semaphore::new(AT_A_TIME));
        let (tried, removing, removals) = (HashMap::new(), HashMap::new(), Tasks::default());
        Self { engine, store, tried, removing, removals, turns }
    }

    async fn lead(&mut self, leads: bool) {
        self.engine.set_driving(leads);
        if !leads {
            return;
        }
        match self.engine.resume().await {
            Ok(count) => tracing::info!(count, "leading; operations were taken up"),
            // It is tried again soon.
            Err(error) => tracing::warn!(%error, "operations could not be taken up"),
        }
        self.look();
        // Sweeps what the former leader left between an outcome and the release of its run.
        let engine = self.engine.clone();
        tokio::spawn(async move {
            if let Err(error) = engine.sweep_once().await {
                tracing::warn!(%error, "could not sweep");
            }
        });
    }

    /// Checks all records with something to do, as if their changes had just come.
    fn look(&mut self) {
        if !self.engine.drives() {
            return;
        }
        let outstanding = self.store.outstanding();
        let keys: HashSet<&Key> = outstanding.iter().map(|change| &change.key).collect();
        self.tried.retain(|key, _| keys.contains(key));
        for change in &outstanding {
            // If it was woken each time, an operation that waits for its turn would count as a new one.
            self.engine.told_again(&change.key, change.busy);
            self.see(change);
        }
    }

    fn hear(&mut self, change: &RecordChange) {
        self.engine.heard_of(&change.key, change.busy);
        self.see(change);
    }

    /// Acts on a change, if a resource has to be buried or was deleted by somebody.
    fn see(&mut self, change: &RecordChange) {
        if let Some(heard) = self.removing.get_mut(&change.key) {
            *heard = Some(change.clone());
            return;
        }
        if !self.engine.drives() || !(change.gone || self.is_due(change)) {
            return;
        }
        let key = change.key.clone();
        self.removing.insert(key.clone(), None);
        let (engine, store) = (self.engine.clone(), Arc::clone(&self.store));
        let (turns, gone) = (Arc::clone(&self.turns), change.gone);
        self.removals.begin(key.clone(), async move {
            let _turn = turns.acquire_owned().await;
            if engine.drives() {
                if gone { bury(&store, &key).await } else { remove(&engine, &store, &key).await }
            }
        });
    }

    /// Whether somebody deleted the resource, and a removal is due.
    fn is_due(&mut self, change: &RecordChange) -> bool {
        let now = Instant::now();
        let (due, pause) = self.tried.get(&change.key).copied().unwrap_or((now, AGAIN));
        let is_due = change.unwanted && due <= now;
        if is_due {
            self.tried.insert(change.key.clone(), (now + pause, (pause * 2).min(LONGEST)));
        }
        is_due
    }

    fn ended(&mut self, key: &Key, ended: Result<(), JoinError>) {
        if let Err(error) = ended {
            // The removal is tried again at the next check.
            tracing::error!(record = %key, %error, "the removal of a resource broke off");
        }
        if let Some(heard) = self.removing.remove(key).flatten() {
            self.hear(&heard);
        }
    }
}

async fn bury(store: &KubernetesStore, key: &Key) {
    if let Err(error) = store.bury(key).await {
        tracing::warn!(record = %key, %error, "its resource cannot be removed yet");
    }
}

/// Removes the instance or binding whose resource somebody deleted; the resource goes after it.
async fn remove(engine: &Engine, store: &Arc<KubernetesStore>, key: &Key) {
    let why = format!("its resource was deleted: by hand, or with namespace {}", store.namespace());
    match engine.remove(key, &why).await {
        Ok(()) => {
            tracing::info!(record = %key, "its resource was deleted: it is being removed");
        }
        Err(error) => {
            tracing::warn!(record = %key, %error, "its resource was deleted, and it stays");
            tell_why_it_stays(store, key, &error.to_string());
        }
    }
}
