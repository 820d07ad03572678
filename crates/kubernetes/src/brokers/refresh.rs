//! Keeps the catalog of a group up to date: asks each broker in turn, puts their offers in force as one catalog, and
//! writes the status of each `Broker`. A broker that does not answer holds up no other.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use engine::policy::doubled;
use engine::ports::{RunFailure, StoreError};
use engine::record::Reason;
use engine::{CatalogError, Engine};
use kube::api::{Patch, PatchParams};
use osb::Failure;
use serde_json::{Value, json};
use tokio::task::JoinError;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::registry::{Registry, Resources};
use super::resource::Edition;
use super::table::Brokers;
use crate::calls::{CallError, call};
use crate::resources::time;
use crate::runner::JobRunner;
use crate::tasks::Tasks;

/// How often the keeper checks which brokers are to be asked.
const TICK: Duration = Duration::from_millis(500);
/// How often the keeper looks for orders of plans that have left the catalog.
const LATE: Duration = Duration::from_secs(10);
/// The pause before a catalog that could not be saved is tried again.
const TROUBLE: Duration = Duration::from_secs(5);
/// The pause before a broker that did not answer is asked again; doubled each time.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest pause before a broker is asked again.
const LONGEST: Duration = Duration::from_secs(60);

/// Which `Broker`s belong to a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Share {
    /// All `Broker`s of the namespace.
    All,
    /// The `Broker` of this name.
    One(String),
}

impl Share {
    /// The `Broker`s of the group.
    fn of(&self, all: &Resources) -> Resources {
        match self {
            Self::All => all.clone(),
            // There is a group for each `Broker`, and each group sees all of them.
            Self::One(name) => {
                let one = all.get_key_value(name);
                one.map(|(name, resource)| (name.clone(), Arc::clone(resource)))
                    .into_iter()
                    .collect()
            }
        }
    }
}

/// The keeper of a group's catalog.
pub struct Keeper {
    /// The engine that serves the catalog.
    pub engine: Engine,
    /// The runner that asks the brokers.
    pub runner: JobRunner,
    /// The brokers of the group.
    pub brokers: Arc<Brokers>,
    /// The registry with the `Broker` resources.
    pub registry: Arc<Registry>,
    /// Which of these `Broker`s belong to the group.
    pub share: Share,
    /// How often a catalog is read again; zero: when its `Broker` changes, and on demand.
    pub refresh: Duration,
}

/// How many brokers are asked at once: a question is a Job, and after a start all are due. The others are asked as
/// these answer.
const ASKED_AT_ONCE: usize = 16;

/// When a broker is asked next.
struct Turn {
    edition: Edition,
    /// When the broker is due; `None`: it is not asked any more.
    due: Option<Instant>,
    failures: u32,
    asking: bool,
}

impl Turn {
    /// Whether the broker is to be asked now, if its edition is still the same.
    fn is_due(&self, edition: &Edition, now: Instant) -> bool {
        !self.asking && self.edition == *edition && self.due.is_some_and(|due| due <= now)
    }
}

/// A question that has ended: the broker that was asked, and whether there was a good answer.
type Asked = ((String, Edition), Result<bool, JoinError>);

/// The state of the keeper's loop.
struct State {
    turns: HashMap<String, Turn>,
    /// The questions in progress.
    asks: Tasks<(String, Edition), bool>,
    /// The statuses as they were last written, by uid: the watch is behind.
    written: HashMap<String, Value>,
    leads: bool,
    /// Whether another replica has saved a catalog, or that is not known.
    behind: bool,
    /// When to look next for plans that were ordered while they left the catalog.
    late: Instant,
    /// Whether the offers are to be put in force.
    publish: bool,
    /// When to try again to put them in force.
    again: Instant,
    /// Whether statuses are to be written.
    to_tell: bool,
    /// When to try again to write statuses.
    tell_again: Instant,
}

impl Keeper {
    /// Keeps the catalog for ever; to be spawned.
    pub async fn keep(self) {
        let mut registry = self.registry.changes();
        let mut changes = self.brokers.changes();
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut state = State {
            turns: HashMap::new(),
            asks: Tasks::default(),
            written: HashMap::new(),
            leads: false,
            behind: true,
            late: Instant::now(),
            publish: false,
            again: Instant::now(),
            to_tell: false,
            tell_again: Instant::now(),
        };
        registry.mark_changed();
        loop {
            tokio::select! {
                changed = registry.changed() => match changed {
                    Ok(()) => self.learn(&mut state, registry.borrow_and_update().as_ref()),
                    Err(_) => return,
                },
                _ = changes.changed() => state.to_tell = true,
                () = self.engine.store().catalog_changed() => state.behind = true,
                Some(asked) = state.asks.next() => self.asked(&mut state, asked),
                _ = tick.tick() => {}
            }
            self.step(&mut state).await;
        }
    }

    fn learn(&self, state: &mut State, resources: Option<&Resources>) {
        let resources = resources.map(|all| self.share.of(all)).unwrap_or_default();
        let gone = self.brokers.learn(&resources, state.leads);
        state.turns.retain(|name, _| resources.contains_key(name));
        state.written.retain(|uid, _| resources.values().any(|resource| resource.uid == *uid));
        for (name, resource) in &resources {
            let edition = resource.edition();
            if state.turns.get(name).is_none_or(|turn| turn.edition != edition) {
                let turn = Turn { edition, due: Some(Instant::now()), failures: 0, asking: false };
                state.turns.insert(name.clone(), turn);
            }
        }
        if let Some(offer) = self.engine.offer_in_force().filter(|_| !state.leads) {
            // The catalog may have been read before the statuses that say which service belongs to which broker.
            self.brokers.seed(&offer, false);
        }
        if gone {
            // Other brokers may now own the services of those that are gone.
            state.publish = true;
        }
    }

    async fn step(&self, state: &mut State) {
        let leads = self.engine.drives();
        if leads && !state.leads {
            // Answers that came on demand, while another replica led, may be outdated.
            self.brokers.stand_down();
            self.follow(state).await;
            state.turns.values_mut().for_each(|turn| turn.due = turn.due.or(Some(Instant::now())));
            state.written.clear();
            (state.publish, state.to_tell) = (true, true);
        }
        if !leads && state.leads {
            self.brokers.stand_down();
        }
        state.leads = leads;
        if leads {
            let now = Instant::now();
            if state.late <= now {
                state.late = now + LATE;
                // If that is not known now, the next check finds it.
                state.publish |= self.engine.lacks_a_plan().await.unwrap_or_default();
            }
            let is_ready = self.brokers.is_ready()
                || (self.engine.offer_in_force().is_some() && self.brokers.is_deserted());
            let publishes = state.publish && state.again <= now && is_ready;
            if (publishes || state.behind) && self.is_overtaken(state).await {
                state.turns.values_mut().for_each(|turn| turn.due = Some(now));
                self.brokers.stand_down();
                // If there is no broker to ask, nothing else would say which service belongs to which broker.
                state.publish |= self.brokers.is_nobody_asked();
            }
            self.ask(state);
            if publishes {
                state.publish = !self.publish().await;
                if state.publish {
                    state.again = Instant::now() + TROUBLE;
                }
            }
        } else if state.behind {
            self.follow(state).await;
        }
        // Only the leader writes statuses: two replicas would contradict each other.
        if leads && state.to_tell && state.tell_again <= Instant::now() {
            state.to_tell = !self.tell(state).await;
            state.tell_again =
                Instant::now() + if state.to_tell { TROUBLE } else { Duration::ZERO };
        }
    }

    /// Takes over the catalog that the former leader saved. If it cannot be read, it is tried again at the next tick.
    async fn follow(&self, state: &mut State) {
        let loaded = self.engine.load_catalog().await;
        state.behind = loaded.is_err();
        if let Err(error) = loaded {
            tracing::warn!(%error, "the saved catalog cannot be read");
        }
        if let Some(offer) = self.engine.offer_in_force() {
            self.brokers.seed(&offer, state.leads || self.engine.drives());
        }
    }

    /// Whether another replica has put a different catalog in force: each replica reads the catalog anew on demand, and
    /// only the leader knows which service belongs to which broker. So the leader asks, too.
    async fn is_overtaken(&self, state: &mut State) -> bool {
        let ours = self.engine.offer_in_force();
        self.follow(state).await;
        ours.is_some() && self.engine.offer_in_force() != ours
    }

    fn ask(&self, state: &mut State) {
        let now = Instant::now();
        let turns = &state.turns;
        let room = ASKED_AT_ONCE.saturating_sub(state.asks.len());
        let is_due = |name: &str, edition: &Edition| {
            turns.get(name).is_some_and(|turn| turn.is_due(edition, now))
        };
        let mut due = self.brokers.those(is_due);
        // The broker that has waited longest comes first: those that never answer are soon due again.
        due.sort_by_key(|(name, ..)| turns.get(name).and_then(|turn| turn.due));
        for (name, edition, settings) in due.into_iter().take(room) {
            let Some(turn) = state.turns.get_mut(&name) else { continue };
            turn.asking = true;
            let (runner, brokers) = (self.runner.clone(), Arc::clone(&self.brokers));
            let (of, asked) = (name.clone(), edition.clone());
            state.asks.begin((name, edition), async move {
                let waits = |what: Option<&str>| brokers.waits(&of, &asked, what);
                let answer = runner.ask(&settings, waits).await;
                if let Err(failure) = &answer {
                    let said = &failure.failure.description;
                    tracing::warn!(broker = of, said, "its catalog cannot be had");
                }
                let answers = answer.is_ok();
                brokers.answered(&of, &asked, answer);
                answers
            });
        }
    }

    fn asked(&self, state: &mut State, ((name, edition), answers): Asked) {
        let answers = answers.unwrap_or_else(|error| {
            tracing::error!(broker = name, %error, "the question for its catalog broke off");
            let why = "the question for its catalog broke off, by a defect of Manciple: the log says where";
            let failure = RunFailure::new(Reason::Lost, Failure::failed(why));
            self.brokers.answered(&name, &edition, Err(failure));
            false
        });
        state.publish = true;
        let turn = state.turns.get_mut(&name).filter(|turn| turn.edition == edition);
        let Some(turn) = turn else { return };
        turn.asking = false;
        turn.failures = if answers { 0 } else { turn.failures.saturating_add(1) };
        let pause = match turn.failures {
            0 => self.refresh,
            failures => doubled(AGAIN, failures, LONGEST),
        };
        turn.due = (!pause.is_zero()).then(|| Instant::now() + pause);
    }

    /// Puts the merged catalog in force; whether that succeeded.
    async fn publish(&self) -> bool {
        match self.engine.set_offer(self.brokers.merged()).await {
            Ok(in_force) => {
                self.brokers.settle(&in_force);
                true
            }
            Err(error) => {
                let source = std::error::Error::source(&error);
                let why = source.map_or_else(|| error.to_string(), |it| format!("{error}: {it}"));
                tracing::error!(why, "the catalog of the brokers was not put in force");
                // A catalog that only cannot be written now is soon tried again.
                if !matches!(error, CatalogError::Store(StoreError::Unavailable(_))) {
                    self.brokers.keep_out(why);
                }
                false
            }
        }
    }

    /// Writes the statuses; whether all were written.
    async fn tell(&self, state: &mut State) -> bool {
        let now = i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_millis());
        let now = time(now.unwrap_or_default().unsigned_abs());
        let mut done = true;
        for told in self.brokers.told(&now) {
            if state.written.get(&told.uid) == Some(&told.status) {
                continue;
            }
            // A member that is absent now has to be removed.
            let mut status = told.status.clone();
            if status.get("serviceNames").is_none() {
                status["serviceNames"] = Value::Null;
            }
            let patch = Patch::Merge(json!({"metadata": {"uid": told.uid}, "status": status}));
            let api = self.registry.api();
            match call(api.patch_status(&told.name, &PatchParams::default(), &patch)).await {
                Ok(_) => drop(state.written.insert(told.uid, told.status)),
                Err(CallError::NotFound | CallError::Conflict) => {}
                Err(error) => {
                    tracing::warn!(broker = told.name, %error, "its status was not written");
                    done = false;
                }
            }
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::super::resource::Resource;
    use super::*;

    #[test]
    fn a_group_has_its_own_brokers_of_all() {
        let resource = |name: &str| {
            let seen = json!({"metadata": {"name": name}, "spec": {"image": "b:1"}}).to_string();
            Arc::new(Resource::of(&serde_json::from_str(&seen).unwrap()).unwrap())
        };
        let all: Resources = ["a", "b", "c"].map(|it| (it.to_owned(), resource(it))).into();
        for (share, expected) in [
            (Share::All, &["a", "b", "c"][..]),
            (Share::One("b".to_owned()), &["b"]),
            (Share::One("d".to_owned()), &[]),
        ] {
            let of = share.of(&all);
            assert_eq!(of.keys().collect::<Vec<_>>(), expected, "{share:?}");
            assert!(of.iter().all(|(name, own)| Arc::ptr_eq(own, &all[name])), "{share:?}");
        }
    }

    #[test]
    fn one_is_asked_when_it_is_due_as_it_is_then_and_not_twice_at_once() {
        let now = Instant::now();
        let (soon, late) = (now + TICK, now.checked_sub(TICK).unwrap());
        let edition = |generation| Edition { uid: "u".to_owned(), generation };
        for (name, due, asking, generation, is_due) in [
            ("due", Some(now), false, 1, true),
            ("overdue", Some(late), false, 1, true),
            ("not yet", Some(soon), false, 1, false),
            ("never again", None, false, 1, false),
            ("it is being asked", Some(now), true, 1, false),
            ("it is another by now", Some(now), false, 2, false),
        ] {
            let turn = Turn { edition: edition(1), due, failures: 0, asking };
            assert_eq!(turn.is_due(&edition(generation), now), is_due, "{name}");
        }
    }
}
