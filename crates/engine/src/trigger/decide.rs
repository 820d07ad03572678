//! The rules.

use super::references::{differ, remembered};
use super::{Concurrency, Outcome, Record, Run, State, Strategy, Trigger, Work};

/// Why a run was ended whose place another takes.
pub const REPLACED: &str = "Replaced";

/// One thing to do: one call, but for outputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Say that it is not completed: another run comes, or goes on.
    Reopen,
    /// Write this record, and this strategy if it is another, in one write: it is what makes the run.
    Record {
        /// What is recorded from now on.
        record: Record,
        /// What the spec says from now on.
        strategy: Strategy,
    },
    /// Begin the work of a run.
    Start(Run),
    /// Keep what a run has left.
    Keep(Run),
    /// Publish the outcome of a run.
    Settle(Run, Outcome),
    /// Remove what is left of a settled run.
    Remove(u64),
}

/// Why a trigger has to wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// Of these things that it refers to.
    References(Vec<String>),
    /// A run goes on.
    Run,
    /// Whether more changes come.
    Changes,
}

/// What to do, in this order, and what is waited for. After it has been done everything is looked at again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// In this order.
    pub actions: Vec<Action>,
    /// `None`: no trigger waits.
    pub wait: Option<Wait>,
}

/// Decides. `now` is what a run that is recorded has as its time, RFC 3339.
pub fn decide(state: &State, now: &str) -> Decision {
    let mut decision = Decision::default();
    let open = open(state);
    for run in &open {
        decision.actions.extend(match state.runs.get(&run.id) {
            None => Some(Action::Start(run.clone())),
            Some(Work::Going) => None,
            Some(Work::Ended) => Some(Action::Keep(run.clone())),
            Some(Work::Kept(outcome)) => Some(Action::Settle(run.clone(), outcome.clone())),
            Some(Work::Gone) => {
                let why = "its Job was deleted by somebody else before it ended";
                Some(Action::Settle(run.clone(), Outcome::failed("Lost", why)))
            }
        });
    }
    let left = state.left.iter().filter(|id| state.settled.contains(id));
    decision.actions.extend(left.map(|id| Action::Remove(*id)));
    match triggered(state, &open) {
        Some(Triggered::By(trigger)) => begin(state, open, trigger, now, &mut decision),
        Some(Triggered::Baseline) => {
            let record = record(state, open, state.record.last);
            decision.actions.push(Action::Record { record, strategy: state.strategy });
        }
        Some(Triggered::Not(wait)) => decision.wait = Some(wait),
        None => {}
    }
    decision
}

/// The runs that are not settled, and who lost the record of them finds them by their work.
fn open(state: &State) -> Vec<Run> {
    let mut open: Vec<Run> =
        state.record.open.iter().filter(|run| !state.settled.contains(&run.id)).cloned().collect();
    for id in state.runs.keys() {
        let known = state.settled.contains(id) || open.iter().any(|run| run.id == *id);
        // Numbers below the last that are not open were settled so long ago that nobody remembers.
        if !known && *id > state.record.last {
            open.push(Run { id: *id, trigger: Trigger::Now, at: String::new() });
        }
    }
    open
}

enum Triggered {
    By(Trigger),
    /// Nothing ran yet, and nothing is to: changes count from here.
    Baseline,
    Not(Wait),
}

fn triggered(state: &State, open: &[Run]) -> Option<Triggered> {
    let trigger = match state.strategy {
        Strategy::Now => Trigger::Now,
        Strategy::Once if !state.record.once => Trigger::Once,
        Strategy::Once | Strategy::Done if state.follows_config => match &state.record.references {
            None => return Some(Triggered::Baseline),
            Some(before) if differ(before, &state.references) => Trigger::ConfigChange,
            Some(_) => return None,
        },
        Strategy::Manual | Strategy::Once | Strategy::Done => return None,
    };
    if !state.missing.is_empty() {
        return Some(Triggered::Not(Wait::References(state.missing.clone())));
    }
    if trigger == Trigger::ConfigChange {
        // The run that goes on may have seen some of it: one more after it sees all.
        if !open.is_empty() {
            return Some(Triggered::Not(Wait::Run));
        }
        if state.unchanged < state.settle {
            return Some(Triggered::Not(Wait::Changes));
        }
    }
    Some(Triggered::By(trigger))
}

fn begin(state: &State, mut open: Vec<Run>, trigger: Trigger, now: &str, into: &mut Decision) {
    let strategy = match (trigger, state.strategy) {
        (Trigger::Now, _) => Strategy::Manual,
        (Trigger::Once, _) => Strategy::Done,
        (Trigger::ConfigChange, as_it_is) => as_it_is,
    };
    let last = open.iter().map(|run| run.id).chain([state.record.last]).max().unwrap_or(0);
    match (state.concurrency, open.is_empty()) {
        (Concurrency::Forbid, false) => {
            let record = record(state, open, last);
            into.actions.push(Action::Record { record, strategy });
            return;
        }
        (Concurrency::Queue, false) => {
            into.wait = Some(Wait::Run);
            return;
        }
        (Concurrency::Replace, false) => {
            // Settled before it is removed: one that is only removed would be begun again.
            let why = "another run was triggered, and takes its place";
            let ended = |run: &Run| matches!(state.runs.get(&run.id), None | Some(Work::Going));
            let replaced = open.into_iter().filter(ended);
            let settle = |run| Action::Settle(run, Outcome::failed(REPLACED, why));
            into.actions.retain(|action| !matches!(action, Action::Start(_)));
            into.actions.extend(replaced.map(settle));
            into.wait = Some(Wait::Run);
            return;
        }
        (Concurrency::Allow, _) | (_, true) => {}
    }
    // First of all, or somebody who waits for it would take the run before for this one.
    if state.completed {
        into.actions.push(Action::Reopen);
    }
    let last = state.settled.iter().copied().chain([last]).max().unwrap_or(last).saturating_add(1);
    open.push(Run { id: last, trigger, at: now.to_owned() });
    let record = record(state, open, last);
    into.actions.push(Action::Record { record, strategy });
}

fn record(state: &State, open: Vec<Run>, last: u64) -> Record {
    let references = match state.follows_config {
        true => Some(remembered(state.record.references.as_ref(), &state.references)),
        false => state.record.references.clone(),
    };
    // What was once is not again.
    let once = state.record.once || open.iter().any(|run| run.trigger == Trigger::Once);
    Record { last, once, open, references }
}
