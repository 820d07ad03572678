//! Decides the next step of an operation in progress: a pure function of its record and of what is seen of its run.
//!
//! ```text
//! Pending ──start──▶ Started ──result──▶ Succeeded | Failed
//!    ▲                  │  └─async──▶ External ──polls──▶ Succeeded | Failed
//!    └──── retry ───────┘
//! ```
//!
//! Nothing here depends on how the state was reached, so a start after a crash decides as the
//! process that died would have.

use std::time::Duration;

use osb::{Action, FailureKind, Output};

use crate::names::RunName;
use crate::policy::{OnBound, OnLost, Policy};
use crate::ports::{RunFailure, RunState, StartError};
use crate::record::{Key, OperationFailure, Phase, Reason, Record, Timestamp};
use crate::transition::{self, NOT_YET, UNASKED};

/// Everything that a decision rests on.
#[derive(Debug, Clone)]
pub struct State<'a> {
    /// The record of the operation.
    pub record: &'a Record,
    /// The state of the operation's current run.
    pub run: RunState,
    /// Whether the task that looks now has started the run itself, whatever is recorded.
    pub begun: bool,
    /// The state of the run that the operation halts; `None`: it halts none, or nothing more is to be learnt of it.
    pub halted: Option<RunState>,
    /// The other records that the operation has to agree with.
    pub around: Around,
    /// Why the run could not be started just now, and how often in a row.
    pub refused_start: Option<RefusedStart>,
    /// The number of runs that may go on at once, if the run has waited for its turn among them for long.
    pub queued: Option<usize>,
}

/// The other records that an operation has to agree with: a binding with its instance, an instance with its bindings.
///
/// Each side writes its own record before it looks at the other's, so of two that race at least one
/// sees the other, without a transaction over both. If both do, one gives way and the other waits: of two
/// that were accepted one is carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Around {
    /// No other record matters, or none matters any more.
    Nothing,
    /// The instance of a binding that is to be made or removed.
    Instance(Parent),
    /// Whether a binding of an instance that is to be updated is being made or removed.
    Busy(bool),
    /// The bindings of an instance that is to go.
    Bindings {
        /// Whether any is live.
        live: bool,
        /// The live bindings that no unbind removes yet.
        staying: Vec<Key>,
        /// Whether all of them are still being made, so that none may be left.
        coming: bool,
        /// Why one of them could not be removed since the deprovision was asked for.
        stuck: Option<String>,
    },
}

/// The state of a binding's instance, as far as it matters to the binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parent {
    /// The instance is there, and nothing is being done to it that stands in the way of a binding.
    Usable,
    /// The instance is being updated.
    Updating,
    /// The instance was updated to another plan than that of the binding that is to be made.
    Replanned,
    /// The instance is being made, or being removed, or gone.
    Unusable,
}

/// The shortest pause before an operation that waits for another record looks at it again; the longest is
/// `AROUND_MOST`.
const AROUND: Duration = Duration::from_millis(200);
const AROUND_MOST: Duration = Duration::from_secs(5);

/// A start that the runner refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedStart {
    /// The runner's reason.
    pub why: String,
    /// Whether the start cannot succeed until somebody mends something.
    pub permanent: bool,
    /// How many starts were refused in a row.
    pub times: u32,
    /// When the start is tried again.
    pub until: Timestamp,
}

impl RefusedStart {
    /// A start that was refused with this `error` just now; `before` is the refused start before it in a row.
    pub fn after(
        policy: &Policy,
        before: Option<&Self>,
        error: &StartError,
        now: Timestamp,
    ) -> Self {
        let before = before.map_or(0, |refused| refused.times);
        let times = match error {
            // Said from the second time on, as any, and no reason to give up.
            StartError::Unready(_) if before >= 2 => before,
            _ => before + 1,
        };
        let permanent = matches!(error, StartError::Permanent(_));
        let until = now.plus(policy.pause(times + 1));
        Self { why: error.to_string(), permanent, times, until }
    }
}

/// How many starts in a row may be refused before the operation fails.
pub const STARTS: u32 = 8;

/// The age of a record from which its running run is recorded as started. Most runs are over before, which saves a
/// write. The runner keeps what it has started (the promise of [`start`](crate::ports::Runner::start)); the record of
/// it guards against somebody who removes a run by hand while nobody looks.
pub const SHORT: Duration = Duration::from_secs(2);

/// The shortest time between two recorded reports of a run's progress: a broker may report many times a second, and
/// each recorded report is a write. The last report is recorded in the end.
pub const TOLD: Duration = Duration::from_secs(2);

/// The next step of an operation.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Start this run.
    Start {
        /// The name of the run.
        run: RunName,
        /// The name of the external work that the run asks after; `None`: the run does the work itself.
        poll: Option<String>,
    },
    /// End this run, then look again.
    Cancel(RunName),
    /// Unbind these bindings, then look again when they are gone.
    Unbind(Vec<Key>),
    /// Look again when this run's state changes.
    Wait(RunName),
    /// Look again at this time.
    WaitUntil(Timestamp),
    /// Write this record, then release these runs.
    Write {
        /// The record as it is to be.
        record: Box<Record>,
        /// Runs that are no longer needed.
        release: Vec<RunName>,
    },
    /// Nothing: the operation has ended.
    Settled,
}

/// Decides the next step of an operation from everything that is known of it.
pub fn decide(policy: &Policy, state: &State<'_>, now: Timestamp) -> Step {
    let record = state.record;
    if !record.is_busy() {
        return Step::Settled;
    }
    if let Some(step) = halt_first(state, now) {
        return step;
    }
    match &record.operation.phase {
        Phase::External { name, next, .. } => external(policy, state, name, *next, now),
        Phase::Pending { not_before: Some(when) } if !transition::is_due(policy, *when, now) => {
            Step::WaitUntil(*when)
        }
        _ => attempt(policy, state, now),
    }
}

/// The step of an operation that halts another before its own run: a delete during a create waits for the create's run
/// to be over, and keeps the state that this left, which may be all that says what is to be removed.
fn halt_first(state: &State<'_>, now: Timestamp) -> Option<Step> {
    let halt = state.record.operation.halts.as_ref()?;
    match &state.halted {
        Some(RunState::Running { .. }) => Some(Step::Cancel(halt.run.clone())),
        Some(RunState::Finished(result)) if !halt.kept => {
            let left = result.as_ref().map_or_else(|failed| &failed.state, |output| &output.state);
            let is_new = left.is_some() || halt.first;
            is_new.then(|| write(transition::halted(state.record, left.as_ref(), now), vec![]))
        }
        // That there was one is not forgotten when it is gone.
        Some(RunState::Lost { .. }) if halt.first => {
            Some(write(transition::halted(state.record, None, now), vec![]))
        }
        Some(RunState::Absent) if halt.first && matches!(state.run, RunState::Absent) => {
            let output = Output::default();
            let next = transition::succeeded(state.record, &output, now);
            // What it was to be given may be there all the same.
            Some(write(next, vec![halt.run.clone()]))
        }
        _ => None,
    }
}

fn attempt(policy: &Policy, state: &State<'_>, now: Timestamp) -> Step {
    let record = state.record;
    let run = transition::current_run(&record.operation);
    let was_started = matches!(record.operation.phase, Phase::Started { .. });
    match &state.run {
        RunState::Absent if was_started || state.begun => {
            lost(policy, state, "its run is gone: nothing is left of it", now)
        }
        RunState::Absent => start(policy, state, run, now),
        RunState::Running { .. } if !was_started => match now < record.updated_at.plus(SHORT) {
            true => Step::Wait(run),
            false => write(transition::started(record, now), vec![]),
        },
        RunState::Running { .. } if record.operation.waits.is_some() => {
            write(transition::gone_on(record, now), vec![])
        }
        RunState::Running { progress: Some(said) }
            if record.operation.progress.as_deref().unwrap_or_default() != said =>
        {
            let until = record.updated_at.plus(TOLD);
            // What is further off was put down by a clock that was wrong.
            let stands = now < until && now.until(until) <= TOLD;
            match record.operation.progress.is_some() && stands {
                true => Step::Wait(run),
                false => write(transition::progressed(record, said, now), vec![]),
            }
        }
        RunState::Running { .. } => Step::Wait(run),
        RunState::Lost { why } => lost(policy, state, why, now),
        RunState::Finished(Ok(output)) => collected(policy, state, output, now),
        RunState::Finished(Err(failure)) => broken(policy, state, failure, now),
    }
}

fn start(policy: &Policy, state: &State<'_>, run: RunName, now: Timestamp) -> Step {
    if let Some(step) = give_way(policy, state, now) {
        return step;
    }
    let record = state.record;
    match &state.refused_start {
        Some(refused) if refused.permanent || refused.times >= STARTS => {
            fail(state, Reason::NotStarted, &refused.why, record.operation.attempt == 1, now)
        }
        Some(refused) => {
            // Once may be a moment's trouble.
            let said = (refused.times > 1).then(|| say_first(record, &refused.why, now)).flatten();
            said.unwrap_or_else(|| again(policy, refused, run, None, now))
        }
        None => {
            let said = state.queued.and_then(|most| {
                let why = format!(
                    "as many go on as may at once ({most}, operations.max_runs); it waits for its turn"
                );
                say_first(record, &why, now)
            });
            said.unwrap_or(Step::Start { run, poll: None })
        }
    }
}

/// The write that records what a start waits for, unless the record says so already.
fn say_first(record: &Record, why: &str, now: Timestamp) -> Option<Step> {
    let waits = format!("{NOT_YET}{why}");
    let is_said = record.operation.waits.as_ref() == Some(&waits);
    (!is_said).then(|| write(transition::waiting(record, waits, now), vec![]))
}

/// The next start after a refused one: once its pause is over, however often the task looks meanwhile.
fn again(
    policy: &Policy,
    refused: &RefusedStart,
    run: RunName,
    poll: Option<&str>,
    now: Timestamp,
) -> Step {
    match transition::is_due(policy, refused.until, now) {
        true => Step::Start { run, poll: poll.map(str::to_owned) },
        false => Step::WaitUntil(refused.until),
    }
}

/// The step to take instead of a start because of operations on related records.
///
/// - A bind or unbind waits for an update, which fails for a binding that is busy: it can be asked for again
///   without harm, where an unbind may be all that removes a binding that nobody knows of.
/// - A bind fails for a deprovision, which waits for one that looked before.
///
/// Of a bind, an unbind and an update only the first attempt gives way. After it the other operation has seen this one,
/// which may have made something. A deprovision looks before each attempt.
///
/// What the operation waits for is recorded after [`AROUND_MOST`], once.
fn give_way(policy: &Policy, state: &State<'_>, now: Timestamp) -> Option<Step> {
    let operation = &state.record.operation;
    let first = operation.attempt == 1;
    match (&state.around, operation.action) {
        (Around::Instance(Parent::Unusable), Action::Bind) if first => {
            let words = "the instance is being deprovisioned; the binding was not made";
            Some(fail(state, Reason::Refused, words, true, now))
        }
        (Around::Instance(Parent::Replanned), Action::Bind) if first => {
            let words = "the instance was updated to another plan; the binding was not made";
            Some(fail(state, Reason::Refused, words, true, now))
        }
        (Around::Instance(Parent::Updating), _) if first => {
            let said = say_around(state, "the instance is being updated", now);
            Some(said.unwrap_or_else(|| Step::WaitUntil(look_around(state, now))))
        }
        (Around::Busy(true), Action::Update) if first => Some(unchanged(state, now)),
        (Around::Bindings { live: true, staying, coming, stuck }, _) => {
            Some(match (policy.bound, stuck) {
                (OnBound::Cascade, Some(why)) => fail(state, Reason::Refused, why, false, now),
                (OnBound::Cascade, None) => {
                    let said = say_around(state, "its bindings are being removed", now);
                    said.unwrap_or_else(|| Step::Unbind(staying.clone()))
                }
                (OnBound::Refuse, _) if *coming => {
                    let said = say_around(state, "a binding of it is being made", now);
                    said.unwrap_or_else(|| Step::WaitUntil(look_around(state, now)))
                }
                (OnBound::Refuse, _) => unremoved(state, now),
            })
        }
        _ => None,
    }
}

/// The write that records which related operation is waited for, once that has lasted [`AROUND_MOST`].
fn say_around(state: &State<'_>, why: &str, now: Timestamp) -> Option<Step> {
    let has_lasted = state.record.operation.created_at.until(now) >= AROUND_MOST;
    has_lasted.then(|| say_first(state.record, why, now)).flatten()
}

/// When to look again at the related records: after an eighth of the time that the operation has waited.
fn look_around(state: &State<'_>, now: Timestamp) -> Timestamp {
    let waited = state.record.operation.created_at.until(now);
    now.plus((waited / 8).clamp(AROUND, AROUND_MOST))
}

/// The failure of a deprovision whose run was not started because the instance has bindings.
fn unremoved(state: &State<'_>, now: Timestamp) -> Step {
    let words = "the instance has bindings; unbind them first";
    let failure = OperationFailure {
        instance_usable: Some(true),
        ..OperationFailure::new(Reason::Refused, words)
    };
    write(transition::failed(state.record, failure, true, now), ended_runs(state))
}

/// The failure of an update whose run was not started because a binding is being made or removed.
fn unchanged(state: &State<'_>, now: Timestamp) -> Step {
    let words =
        "a service binding of the instance is being made or removed; ask again when that has ended";
    let failure = OperationFailure {
        instance_usable: Some(true),
        update_repeatable: Some(true),
        ..OperationFailure::new(Reason::Busy, words)
    };
    write(transition::failed(state.record, failure, false, now), ended_runs(state))
}

fn external(
    policy: &Policy,
    state: &State<'_>,
    name: &str,
    next: Timestamp,
    now: Timestamp,
) -> Step {
    let record = state.record;
    if now >= record.operation.created_at.plus(policy.external_timeout) {
        let seconds = policy.external_timeout.as_secs();
        let words = format!("the external work did not end within {seconds} s");
        return fail(state, Reason::Timeout, &words, false, now);
    }
    if !transition::is_due(policy, next, now) {
        return Step::WaitUntil(next);
    }
    let run = transition::current_run(&record.operation);
    let later = |said: Output| transition::external(policy, record, name.to_owned(), &said, now);
    let ask_again = |said: Output| write(later(said), vec![run.clone()]);
    match &state.run {
        // Somebody else has asked, and let go of it.
        RunState::Absent if state.begun => ask_again(Output::default()),
        RunState::Absent => match &state.refused_start {
            // That nobody is there to ask says nothing of the work.
            Some(refused) if refused.permanent || refused.times >= STARTS => {
                let waits = format!("{UNASKED}{}", refused.why);
                write(transition::waiting(&later(Output::default()), waits, now), vec![run])
            }
            Some(refused) => again(policy, refused, run, Some(name), now),
            None => Step::Start { run, poll: Some(name.to_owned()) },
        },
        RunState::Running { .. } => Step::Wait(run),
        RunState::Lost { .. } => ask_again(Output::default()),
        RunState::Finished(Err(failure)) if is_unanswered(failure) => {
            let (retry_after, state) = (failure.failure.retry_after, failure.state.clone());
            ask_again(Output { retry_after, state, ..Output::default() })
        }
        RunState::Finished(Ok(output)) => collected(policy, state, output, now),
        RunState::Finished(Err(failed)) => {
            let record = transition::left(record, failed.state.as_ref(), now);
            let (failure, _) = transition::operation_failure(failed);
            write(transition::failed(&record, failure, false, now), vec![run])
        }
    }
}

/// Whether the failed run of a question after external work says nothing of the work: the fault passes, or the broker
/// did not come to answer.
fn is_unanswered(failed: &RunFailure) -> bool {
    let unheard =
        [Reason::Killed, Reason::Timeout, Reason::NotStarted, Reason::Halted, Reason::Lost];
    failed.failure.kind == FailureKind::Transient || unheard.contains(&failed.reason)
}

fn collected(policy: &Policy, state: &State<'_>, output: &Output, now: Timestamp) -> Step {
    let record = state.record;
    let release = ended_runs(state);
    if let Some(name) = &output.external_operation {
        return write(transition::external(policy, record, name.clone(), output, now), release);
    }
    write(transition::succeeded(record, output, now), release)
}

fn broken(policy: &Policy, state: &State<'_>, failed: &RunFailure, now: Timestamp) -> Step {
    let record = &transition::left(state.record, failed.state.as_ref(), now);
    let again =
        failed.failure.kind == FailureKind::Transient && record.operation.attempt < policy.attempts;
    if again {
        let next = transition::retried(policy, record, failed.failure.retry_after, now);
        return write(next, ended_runs(state));
    }
    let (failure, nothing_made) = transition::operation_failure(failed);
    let nothing_made = nothing_made && record.operation.attempt == 1;
    write(transition::failed(record, failure, nothing_made, now), ended_runs(state))
}

fn lost(policy: &Policy, state: &State<'_>, why: &str, now: Timestamp) -> Step {
    let record = state.record;
    if policy.lost == OnLost::Retry && record.operation.attempt < policy.attempts {
        return write(transition::retried(policy, record, None, now), ended_runs(state));
    }
    let words = format!("the run was lost: {why}");
    fail(state, Reason::Lost, &words, false, now)
}

fn fail(
    state: &State<'_>,
    reason: Reason,
    description: &str,
    nothing_made: bool,
    now: Timestamp,
) -> Step {
    let failure = OperationFailure::new(reason, description);
    write(transition::failed(state.record, failure, nothing_made, now), ended_runs(state))
}

/// The runs to release: the operation's current run, and the run that it halted.
fn ended_runs(state: &State<'_>) -> Vec<RunName> {
    let operation = &state.record.operation;
    let mut runs = vec![transition::current_run(operation)];
    runs.extend(operation.halts.iter().map(|halt| halt.run.clone()));
    runs
}

fn write(record: Record, release: Vec<RunName>) -> Step {
    Step::Write { record: Box::new(record), release }
}
