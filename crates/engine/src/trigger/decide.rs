//! The rules by which the next steps of a triggered job are decided.

use super::{
    Concurrency, JobRecord, MAX_OPEN, MAX_RUN, Outcome, Passed, PodRef, References, Run,
    RunProgress, State, Strategy, Trigger, Versions,
};

/// The reason of a run that was ended because another replaces it.
pub const REPLACED: &str = "Replaced";
/// The reason of a run whose work somebody else removed.
pub const LOST: &str = "Lost";

/// The multiple of [`State::settle`] after which a change counts although more changes come.
const SETTLES: u32 = 10;
/// How many ended runs may wait for their outputs to be kept before further runs wait for them: each stands in the
/// record.
const BEHIND: usize = 3;

/// One step of a job: one call to the API server, but for outputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Set the status to not completed: another run comes, or goes on.
    Reopen,
    /// Set the status back to how the last run ended: none goes on, and the trigger is not there any more.
    Close,
    /// Write this record, and this strategy if it is another, in one write: this write makes the run.
    Record {
        /// The record from now on.
        record: JobRecord,
        /// The strategy in the spec from now on.
        strategy: Strategy,
        /// A trigger that leads to no run, because one goes on and the spec says that it is passed over then.
        passed_over: Option<Trigger>,
    },
    /// Begin the work of a run.
    Start(Run),
    /// Keep the outputs of a run.
    Keep(Run),
    /// Publish the outcome of a run.
    Settle(Run, Outcome),
    /// Remove what is left of a settled run.
    Remove(u64),
}

/// Why a trigger has to wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// These things that the job refers to are missing.
    References(Vec<String>),
    /// A run goes on.
    Run,
    /// A run is over, but its pods have not ended yet.
    Pods,
    /// The configuration has changed, and may go on changing.
    Changes,
    /// There is no number left for another run, because somebody has overwritten that of the last.
    Numbers,
}

/// The steps to take, and what a trigger waits for. After the steps everything is looked at again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// The steps, in the order in which they are taken.
    pub steps: Vec<Step>,
    /// The reason why a trigger waits; `None`: no trigger waits.
    pub wait: Option<Wait>,
}

impl Step {
    /// Whether the step makes a run, or a part of that: it takes a trigger, or ends a run that another replaces.
    fn makes_a_run(&self) -> bool {
        match self {
            Self::Reopen | Self::Record { .. } => true,
            Self::Settle(_, outcome) => outcome.reason == REPLACED,
            Self::Start(_) | Self::Keep(_) | Self::Remove(_) | Self::Close => false,
        }
    }
}

impl Decision {
    /// Whether a trigger is to be taken, or a run ended that another replaces.
    pub fn makes_a_run(&self) -> bool {
        self.steps.iter().any(Step::makes_a_run)
    }

    /// Leaves out what makes a run, for it may not be made now; `state` is what was decided by.
    pub fn withhold(&mut self, state: &State) {
        self.steps.retain(|step| !step.makes_a_run());
        close(state, &mut self.steps);
    }
}

/// Decides the next steps of a job. `now`, RFC 3339, becomes the time of a run that is recorded.
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
    // What was refused may be refused for long. Before it is tried again the status is closed.
    match state.refused && state.reopened && open.is_empty() {
        true => decision.withhold(state),
        false => close(state, &mut decision.steps),
    }
    decision
}

/// Adds the step that closes the status, if it says that another run comes, and none is recorded: whoever said so may have
/// found no trigger for it then, or not have lived to record it.
fn close(state: &State, steps: &mut Vec<Step>) {
    let comes = steps.iter().any(|step| matches!(step, Step::Record { .. } | Step::Close));
    if state.reopened && !comes && open(state).is_empty() {
        steps.push(Step::Close);
    }
}

/// The runs that are not settled; runs whose record was lost are found by their work.
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

/// Whether the job runs for changes of its configuration: only with the strategies `once` and `done`.
fn follows(state: &State) -> bool {
    state.follows_config && matches!(state.strategy, Strategy::Once | Strategy::Done)
}

fn has_no_baseline(state: &State) -> bool {
    !counts_from_somewhere(state) || (follows(state) && state.record.references.is_none())
}

/// Whether the record says from which time on the job's schedule counts, and from which state its pods do.
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

/// The fate of a trigger that may come while runs, or work of runs that are over, go on.
enum Meeting {
    Begins,
    PassedOver,
    Waits(Wait),
    /// The trigger waits, and the open runs are ended for it.
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

/// Ends the runs that another replaces. They are settled before they are removed: a run that is only removed would be
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

/// Whether another run has to wait: [`MAX_OPEN`] runs are open, or [`BEHIND`] have ended whose outputs are not kept.
fn is_behind(state: &State, open: &[Run]) -> bool {
    let is_over = |run: &&Run| {
        matches!(state.runs.get(&run.id), Some(RunProgress::Ended | RunProgress::Unkept))
    };
    open.len() >= MAX_OPEN || open.iter().filter(is_over).count() >= BEHIND
}

/// The strategy of the next write: `once`, set again on a job that has run for it, becomes `done`.
fn spent(state: &State) -> Strategy {
    match state.strategy {
        Strategy::Once if state.record.once => Strategy::Done,
        as_it_is => as_it_is,
    }
}

/// The references and versions that are recorded with a new run, which sees them.
fn seen(state: &State) -> (Option<References>, Versions) {
    let (seen, at) = (&state.references, &state.versions);
    match state.record.before().filter(|_| state.follows_config) {
        Some(before) => (Some(before.remembered(seen, at)), before.newest(seen, at)),
        None => known(state),
    }
}

/// The references and versions that are recorded without a new run: those before stay, or a change that waits for a run
/// would be forgotten.
fn known(state: &State) -> (Option<References>, Versions) {
    match (state.follows_config, &state.record.references) {
        (true, None) => (Some(state.references.clone()), state.versions.clone()),
        (_, known) => (known.clone(), state.record.versions.clone()),
    }
}

/// The record to write when the trigger `taken` is consumed, or none is.
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
