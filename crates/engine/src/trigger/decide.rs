//! The rules.

use super::{
    Concurrency, JobRecord, MAX_OPEN, MAX_RUN, Outcome, Passed, PodRef, References, Run,
    RunProgress, State, Strategy, Trigger, Versions,
};

/// Why a run was ended whose place another takes.
pub const REPLACED: &str = "Replaced";
/// Why a run has ended whose work somebody else took away.
pub const LOST: &str = "Lost";

/// After so many times what a change has to be quiet for, it counts though more come.
const SETTLES: u32 = 10;
/// So many runs that are over may wait to be kept before others wait for them, too: each stands in the record.
const BEHIND: usize = 3;

/// One thing to do: one call, but for outputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Say that it is not completed: another run comes, or goes on.
    Reopen,
    /// Say again how the last run ended: none goes on, and what was to be run for is not there any more.
    Close,
    /// Write this record, and this strategy if it is another, in one write: it is what makes the run.
    Record {
        /// What is recorded from now on.
        record: JobRecord,
        /// What the spec says from now on.
        strategy: Strategy,
        /// A trigger that has no run: it met one, and the spec says that it is passed over then.
        passed_over: Option<Trigger>,
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
    /// A run is over, and its work goes on: it takes its time to end.
    Pods,
    /// Whether more changes come.
    Changes,
    /// There is no number for another run: somebody has written that of the last.
    Numbers,
}

/// What to do, in this order, and what is waited for. After it has been done everything is looked at again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// In this order.
    pub steps: Vec<Step>,
    /// `None`: no trigger waits.
    pub wait: Option<Wait>,
}

/// Decides. `now` is what a run that is recorded has as its time, RFC 3339.
pub fn decide(state: &State, now: &str) -> Decision {
    let mut decision = Decision::default();
    let open = open(state);
    // One at a time, the oldest first: what is kept last is what is there, and another failure may keep one waiting.
    let mut keeps = false;
    for run in &open {
        decision.steps.extend(match state.runs.get(&run.id) {
            None => Some(Step::Start(run.clone())),
            Some(RunProgress::Going) => None,
            Some(RunProgress::Ended | RunProgress::Unkept) if keeps => None,
            Some(RunProgress::Ended | RunProgress::Unkept) => {
                keeps = true;
                Some(Step::Keep(run.clone()))
            }
            Some(RunProgress::Kept(outcome)) => Some(Step::Settle(run.clone(), outcome.clone())),
            Some(RunProgress::Gone) => {
                let why = "its Job was deleted by somebody else before it ended";
                Some(Step::Settle(run.clone(), Outcome::failed(LOST, why)))
            }
        });
    }
    let left = state.left.iter().filter(|id| open.iter().all(|run| run.id != **id));
    decision.steps.extend(left.map(|id| Step::Remove(*id)));
    let is_idle = open.is_empty();
    match triggered(state, &open) {
        Some(Triggered::By(trigger)) => begin(state, &open, trigger, now, &mut decision),
        Some(Triggered::Baseline) => decision.steps.push(baseline(state, &open, now)),
        Some(Triggered::Not(wait)) => decision.wait = Some(wait),
        None => {}
    }
    // What comes while a trigger waits counts, too.
    if decision.wait.is_some() && !counts_from_somewhere(state) {
        decision.steps.push(baseline(state, &open, now));
    }
    // Whoever said that another run comes may have found no trigger for it then, or not have lived to record it.
    let comes = decision.steps.iter().any(|step| matches!(step, Step::Record { .. }));
    if state.reopened && is_idle && !comes {
        decision.steps.push(Step::Close);
    }
    decision
}

/// The runs that are not settled, and who lost the record of them finds them by their work.
fn open(state: &State) -> Vec<Run> {
    let oldest = state.settled.first().copied().unwrap_or_default();
    let mut open: Vec<Run> =
        state.record.open.iter().filter(|run| !state.settled.contains(&run.id)).cloned().collect();
    for id in state.runs.keys() {
        // The rest have higher numbers, and are found when some of these are settled.
        if open.len() >= MAX_OPEN {
            break;
        }
        let known = state.settled.contains(id) || open.iter().any(|run| run.id == *id);
        // Numbers below these that are not open were settled so long ago that nobody remembers.
        if !known && *id > state.record.last.max(oldest) {
            let unknown = || (Trigger::Now, String::new());
            let (trigger, at) = state.begun.get(id).cloned().unwrap_or_else(unknown);
            open.push(Run { id: *id, trigger, at, inputs: Vec::new(), pod: None });
        }
    }
    open
}

enum Triggered {
    By(Trigger),
    /// Nothing is to run: changes, or the times of a schedule, count from here; or the record does not name a run
    /// that goes on.
    Baseline,
    Not(Wait),
}

fn triggered(state: &State, open: &[Run]) -> Option<Triggered> {
    let trigger = told(state).or_else(|| scheduled(state)).or_else(|| changed(state));
    let of_pod = || next_pod(state).map(|_| Trigger::PodState);
    let Some(trigger) = trigger.or_else(of_pod) else {
        let is_named = |run: &Run| state.record.open.iter().any(|known| known.id == run.id);
        let is_whole = open.iter().all(is_named) && !has_no_baseline(state);
        return (!is_whole).then_some(Triggered::Baseline);
    };
    if !state.missing.is_empty() {
        return Some(Triggered::Not(Wait::References(state.missing.clone())));
    }
    if trigger == Trigger::ConfigChange {
        // Where one watch is behind another there is a difference for a moment; and what is never quiet counts, too.
        let quiet = state.unchanged.min(state.differs);
        if quiet < state.settle && state.differs < state.settle.saturating_mul(SETTLES) {
            return Some(Triggered::Not(Wait::Changes));
        }
        // A change is a difference that stays: it is run for as soon as it may be, and never passed over.
        if !open.is_empty() && state.concurrency == Concurrency::Forbid {
            return Some(Triggered::Not(Wait::Run));
        }
    }
    // Nobody says it just now, so it is not passed over either: it would be owed again.
    let is_owed = trigger == Trigger::Once && state.strategy == Strategy::Done;
    if is_owed && !open.is_empty() && state.concurrency == Concurrency::Forbid {
        return Some(Triggered::Not(Wait::Run));
    }
    Some(Triggered::By(trigger))
}

fn told(state: &State) -> Option<Trigger> {
    match state.strategy {
        Strategy::Now => Some(Trigger::Now),
        Strategy::Once => (!state.record.once).then_some(Trigger::Once),
        Strategy::Done if state.owes_once => Some(Trigger::Once),
        Strategy::Manual | Strategy::Done | Strategy::PodState => None,
    }
}

fn next_pod(state: &State) -> Option<PodRef> {
    let (pods, recorded) = (state.pods.as_ref()?, state.record.pods.as_ref()?);
    (pods.of == recorded.of).then(|| pods.next(recorded))?
}

fn scheduled(state: &State) -> Option<Trigger> {
    let (schedule, passed) = (state.schedule.as_ref()?, state.record.schedule.as_ref()?);
    (schedule.of == passed.of && schedule.is_due).then_some(Trigger::Schedule)
}

fn changed(state: &State) -> Option<Trigger> {
    let differs = follows(state) && state.record.differs(&state.references, &state.versions);
    differs.then_some(Trigger::ConfigChange)
}

/// Errands run when they are told to.
fn follows(state: &State) -> bool {
    state.follows_config && matches!(state.strategy, Strategy::Once | Strategy::Done)
}

fn has_no_baseline(state: &State) -> bool {
    !counts_from_somewhere(state) || (follows(state) && state.record.references.is_none())
}

/// Whether it is recorded from where the times of its schedule and the pods that it follows count.
fn counts_from_somewhere(state: &State) -> bool {
    let of_schedule = state.schedule.as_ref().map(|schedule| &schedule.of);
    let of_record = state.record.schedule.as_ref().map(|passed| &passed.of);
    let pods = state.pods.as_ref();
    of_schedule == of_record && !pods.is_some_and(|pods| pods.is_news(state.record.pods.as_ref()))
}

fn baseline(state: &State, open: &[Run], now: &str) -> Step {
    let last = open.iter().map(|run| run.id).chain([state.record.last]).max();
    let record = record(state, open.to_vec(), last.unwrap_or_default(), None, now);
    Step::Record { record, strategy: spent(state), passed_over: None }
}

/// What becomes of a trigger that may meet runs, or work of runs that are over.
enum Meeting {
    Begins,
    PassedOver,
    Waits(Wait),
    /// It waits, and those that it meets end for it.
    Replaces,
}

fn meeting(state: &State, open: &[Run]) -> Meeting {
    match (state.concurrency, open.is_empty()) {
        (Concurrency::Forbid, false) => Meeting::PassedOver,
        (Concurrency::Allow, false) if is_behind(state, open) => Meeting::Waits(Wait::Run),
        (Concurrency::Queue, false) => Meeting::Waits(Wait::Run),
        (Concurrency::Replace, false) => Meeting::Replaces,
        (Concurrency::Forbid | Concurrency::Queue | Concurrency::Replace, true) if state.lasts => {
            Meeting::Waits(Wait::Pods)
        }
        (Concurrency::Allow, _) | (_, true) => Meeting::Begins,
    }
}

fn begin(state: &State, open: &[Run], trigger: Trigger, now: &str, into: &mut Decision) {
    let strategy = match (trigger, state.strategy) {
        (Trigger::Now, _) => Strategy::Manual,
        (Trigger::Once, _) => Strategy::Done,
        (Trigger::ConfigChange | Trigger::Schedule | Trigger::PodState, _) => spent(state),
    };
    let last = open.iter().map(|run| run.id).chain([state.record.last]).max().unwrap_or(0);
    match meeting(state, open) {
        Meeting::Begins => {}
        Meeting::PassedOver => {
            let record = record(state, open.to_vec(), last, Some(trigger), now);
            let passed_over = Some(trigger);
            into.steps.push(Step::Record { record, strategy, passed_over });
            return;
        }
        Meeting::Waits(wait) => {
            into.wait = Some(wait);
            return;
        }
        Meeting::Replaces => {
            replace(state, open, into);
            into.wait = Some(Wait::Run);
            return;
        }
    }
    let number =
        state.settled.iter().copied().chain([last]).max().unwrap_or(last).saturating_add(1);
    if number >= MAX_RUN {
        into.wait = Some(Wait::Numbers);
        return;
    }
    // First of all, or somebody who waits for it would take the run before for this one.
    if state.completed {
        into.steps.push(Step::Reopen);
    }
    let inputs = if told(state) == Some(trigger) { state.inputs.clone() } else { Vec::new() };
    let pod = if trigger == Trigger::PodState { next_pod(state) } else { None };
    let mut open = open.to_vec();
    open.push(Run { id: number, trigger, at: now.to_owned(), inputs, pod });
    let (references, versions) = seen(state);
    let record =
        JobRecord { references, versions, ..record(state, open, number, Some(trigger), now) };
    into.steps.push(Step::Record { record, strategy, passed_over: None });
}

/// Ends the runs whose place another takes. They are settled before they are removed: one that is only removed would be
/// begun again.
fn replace(state: &State, open: &[Run], into: &mut Decision) {
    let why = "another run was triggered, and takes its place";
    // One that has ended has its outcome in a moment, unless what it left cannot be kept.
    let goes = |run: &Run| {
        matches!(state.runs.get(&run.id), None | Some(RunProgress::Going | RunProgress::Unkept))
    };
    let replaced = open.iter().filter(|run| goes(run)).cloned();
    let settle = |run| Step::Settle(run, Outcome::failed(REPLACED, why));
    into.steps.retain(|step| !matches!(step, Step::Start(_)));
    into.steps.extend(replaced.map(settle));
}

/// Whether so many runs go on, or are over and not kept, that another has to wait.
fn is_behind(state: &State, open: &[Run]) -> bool {
    let is_over = |run: &&Run| {
        matches!(state.runs.get(&run.id), Some(RunProgress::Ended | RunProgress::Unkept))
    };
    open.len() >= MAX_OPEN || open.iter().filter(is_over).count() >= BEHIND
}

/// What the spec says with the next write: somebody who says `once` again, of one that has run, finds it done.
fn spent(state: &State) -> Strategy {
    match state.strategy {
        Strategy::Once if state.record.once => Strategy::Done,
        as_it_is => as_it_is,
    }
}

/// What a run that is begun sees of what there is.
fn seen(state: &State) -> (Option<References>, Versions) {
    let (seen, at) = (&state.references, &state.versions);
    match state.record.before().filter(|_| state.follows_config) {
        Some(before) => (Some(before.remembered(seen, at)), before.newest(seen, at)),
        None => known(state),
    }
}

/// What is recorded of it where none is begun: a change that waits for a run would be forgotten otherwise.
fn known(state: &State) -> (Option<References>, Versions) {
    match (state.follows_config, &state.record.references) {
        (true, None) => (Some(state.references.clone()), state.versions.clone()),
        (_, known) => (known.clone(), state.record.versions.clone()),
    }
}

/// What is recorded when this trigger is taken, or none.
fn record(
    state: &State,
    open: Vec<Run>,
    last: u64,
    taken: Option<Trigger>,
    now: &str,
) -> JobRecord {
    let (references, versions) = known(state);
    // What was once is not again.
    let once = state.record.once || open.iter().any(|run| run.trigger == Trigger::Once);
    let passed = |of: &String| Passed { of: of.clone(), since: now.to_owned() };
    let schedule = state.schedule.as_ref().map(|schedule| {
        let before = state.record.schedule.as_ref().filter(|before| before.of == schedule.of);
        let kept = before.filter(|_| taken != Some(Trigger::Schedule)).cloned();
        kept.unwrap_or_else(|| passed(&schedule.of))
    });
    let taken = if taken == Some(Trigger::PodState) { next_pod(state) } else { None };
    let before = state.record.pods.as_ref();
    let pods = state.pods.as_ref().map(|pods| pods.recorded(before, taken.as_ref()));
    let pods = pods.or_else(|| before.filter(|_| state.strategy == Strategy::PodState).cloned());
    JobRecord { last, once, open, references, versions, schedule, pods }
}
