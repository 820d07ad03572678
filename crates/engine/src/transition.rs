//! Transitions: every change of a record by its operation, and nothing else.

use std::time::Duration;

use osb::model::Permission;
use osb::{Action, FailureKind, Output, Sensitive, ServiceId};
use serde_json::Value;

use crate::names::{self, RunName};
use crate::policy::Policy;
use crate::ports::RunFailure;
use crate::record::{
    Halt, Key, Lifecycle, Made, Operation, OperationFailure, Ordered, PAST_OPERATIONS,
    PastOperation, Phase, Reason, Record, Shown, Timestamp,
};

/// The longest pause that a broker is granted, whatever it asks for: a broker that asks for 10^19 seconds
/// would leave its operation in progress for ever.
pub(crate) const MAX_ASKED_PAUSE: Duration = Duration::from_secs(60 * 60);

/// The beginning of the reason why an operation waits whose run is refused for now.
pub(crate) const NOT_YET: &str = "its run cannot be started yet: ";

/// The beginning of the reason why an operation waits whose external work goes on, and whose broker cannot be asked.
pub(crate) const UNASKED: &str = "its work goes on, and cannot be asked after: ";

/// The beginning of the message that says what keeps the runner from doing what is asked of it.
pub(crate) const HINDERED: &str = "its run cannot be looked at or ended: ";

/// The values with which a new operation begins.
#[derive(Debug, Clone)]
pub(crate) struct Intent {
    pub(crate) action: Action,
    pub(crate) request_hash: String,
    pub(crate) ordered: Option<Ordered>,
    pub(crate) previous_values: Option<osb::PreviousValues>,
    pub(crate) originating_identity: Option<osb::OriginatingIdentity>,
    /// The reason of the operation, where no platform asked for it.
    pub(crate) why: Option<String>,
}

impl Intent {
    pub(crate) fn new(action: Action) -> Self {
        Self {
            action,
            request_hash: String::new(),
            ordered: None,
            previous_values: None,
            originating_identity: None,
            why: None,
        }
    }
}

/// Makes a new record, or the one that follows a tombstone, with its creation in progress.
pub(crate) fn create(
    policy: &Policy,
    key: &Key,
    tombstone: Option<&Record>,
    ordered: Ordered,
    intent: Intent,
    now: Timestamp,
) -> Record {
    // Not from 1: a tombstone may be gone by now, or not be known of, and names are not to come back.
    let sequence = following(tombstone, now);
    Record {
        key: key.clone(),
        lifecycle: Lifecycle::Creating,
        ordered,
        made: Made::default(),
        operation: operation(policy, key, intent, sequence, now),
        past: tombstone.map(past_with_last).unwrap_or_default(),
        sequence,
        created_at: now,
        updated_at: now,
    }
}

/// The number of a record's next operation. It is never one that was given before, even if the record was restored from
/// a backup: the operation's runs would have the names of runs that are over.
fn following(record: Option<&Record>, now: Timestamp) -> u64 {
    record.map_or(now.0, |record| record.sequence.max(now.0)).saturating_add(1)
}

/// Begins a further operation on a record. An operation that is in progress is halted: it goes
/// to the past as failed, and its run is ended before the new operation's starts.
pub(crate) fn begin(policy: &Policy, record: &Record, intent: Intent, now: Timestamp) -> Record {
    let mut next = record.clone();
    next.sequence = following(Some(record), now);
    let halts = record.is_busy().then(|| Halt {
        run: current_run(&record.operation),
        first: record.operation.attempt == 1
            && matches!(record.operation.phase, Phase::Pending { .. })
            && is_first(record),
        kept: false,
    });
    if record.is_busy() {
        let mut words = format!("halted by a later {}", intent.action);
        words.extend(intent.why.iter().map(|why| format!(" ({why})")));
        words.extend(record.operation.said().map(|told| format!("; until then: {told}")));
        next.operation.phase = Phase::Failed(OperationFailure::new(Reason::Halted, words));
        next.operation.ended_at = Some(now);
        if next.lifecycle == Lifecycle::Creating {
            next.lifecycle = Lifecycle::Broken;
        }
    }
    if intent.action == Action::Provision || intent.action == Action::Bind {
        next.lifecycle = Lifecycle::Creating;
    }
    next.past = past_with_last(&next);
    next.operation = operation(policy, &record.key, intent, next.sequence, now);
    next.operation.halts = halts;
    next.updated_at = now;
    next
}

fn operation(
    policy: &Policy,
    key: &Key,
    intent: Intent,
    sequence: u64,
    now: Timestamp,
) -> Operation {
    Operation {
        id: names::operation_id(&policy.broker, key, intent.action, sequence),
        action: intent.action,
        request_hash: intent.request_hash,
        phase: Phase::Pending { not_before: None },
        attempt: 1,
        target: intent.ordered,
        previous_values: intent.previous_values,
        originating_identity: intent.originating_identity,
        halts: None,
        created_at: now,
        ended_at: None,
        progress: None,
        waits: None,
        shown: Shown::default(),
        held: false,
    }
}

fn past_with_last(record: &Record) -> Vec<PastOperation> {
    let mut past = record.past.clone();
    let operation = &record.operation;
    past.push(PastOperation {
        id: operation.id.clone(),
        action: operation.action,
        attempts: operation.attempt,
        failure: match &operation.phase {
            Phase::Failed(failure) => Some(failure.clone()),
            _ => None,
        },
        created_at: operation.created_at,
        ended_at: operation.ended_at.unwrap_or(record.updated_at),
    });
    if past.len() > PAST_OPERATIONS {
        past.remove(0);
    }
    past
}

/// The name of the operation's current run.
pub(crate) fn current_run(operation: &Operation) -> RunName {
    match &operation.phase {
        Phase::External { polls, .. } => {
            RunName::poll(&operation.id, operation.attempt, polls.saturating_add(1))
        }
        _ => RunName::attempt(&operation.id, operation.attempt),
    }
}

/// Records that the operation waits for nothing any more.
pub(crate) fn gone_on(record: &Record, now: Timestamp) -> Record {
    let mut next = record.clone();
    goes_on(&mut next.operation);
    next.updated_at = now;
    next
}

/// Records that the run is known to have been started.
pub(crate) fn started(record: &Record, now: Timestamp) -> Record {
    let mut next = record.clone();
    next.operation.phase = Phase::Started { at: now };
    goes_on(&mut next.operation);
    next.updated_at = now;
    next
}

/// The record to write for `next`: itself, or the failure of a bind whose result the specification forbids and which
/// must not be published (a drain without `syslog_drain`, an endpoint without ports, a bad timestamp).
pub(crate) fn published(
    before: &Record,
    next: Record,
    requires: impl FnOnce(&ServiceId) -> Vec<Permission>,
) -> Record {
    let is_bound = before.is_busy()
        && before.operation.action == Action::Bind
        && next.operation.phase == Phase::Succeeded;
    if !is_bound {
        return next;
    }
    let body = next.made.binding.clone().unwrap_or_default();
    let requires = requires(&next.ordered.service_id);
    let Err(why) = osb::catalog::check_binding(&body, &requires) else { return next };
    let words = format!("the broker answered a binding that may not be published: {why}");
    let failure = OperationFailure::new(Reason::WrongShape, words);
    failed(before, failure, false, next.updated_at)
}

/// Records that the operation does not get on, and what it waits for.
pub(crate) fn waiting(record: &Record, waits: String, now: Timestamp) -> Record {
    let mut next = record.clone();
    next.operation.waits = Some(waits);
    next.updated_at = now;
    next
}

/// Removes what the operation waited for. Builds before this one kept that in `progress`.
fn goes_on(operation: &mut Operation) {
    operation.waits = None;
    let is_ours = |said: &String| said.starts_with(NOT_YET) || said.starts_with(UNASKED);
    let _ = operation.progress.take_if(|said| is_ours(said));
}

/// Records the progress that a run reported; an empty text removes the one before.
pub(crate) fn progressed(record: &Record, progress: &str, now: Timestamp) -> Record {
    let mut next = record.clone();
    next.operation.progress = Some(progress.to_owned()).filter(|said| !said.is_empty());
    next.updated_at = now;
    next
}

/// Records that the run ended and left external work, or that the external work was asked after and still goes on.
pub(crate) fn external(
    policy: &Policy,
    record: &Record,
    name: String,
    output: &Output,
    now: Timestamp,
) -> Record {
    let mut next = record.clone();
    let polls = match record.operation.phase {
        Phase::External { polls, .. } => polls.saturating_add(1),
        _ => 0,
    };
    match record.operation.action {
        // It may fail yet: what is shown of the instance stays as it was.
        Action::Update => show_later(&mut next, output),
        _ => keep_output(&mut next, output),
    }
    goes_on(&mut next.operation);
    if output.description.is_some() {
        next.operation.progress.clone_from(&output.description);
    }
    let pause = asked_for(output.retry_after).max(policy.pause(polls.saturating_add(2)));
    // When its time is up it has failed, however long a pause it asked for.
    let up = record.operation.created_at.plus(policy.external_timeout);
    next.operation.phase = Phase::External { name, polls, next: now.plus(pause).min(up) };
    // As with a further attempt.
    next.operation.halts = None;
    next.updated_at = now;
    next
}

/// Records that the operation ended well.
pub(crate) fn succeeded(record: &Record, output: &Output, now: Timestamp) -> Record {
    let mut next = record.clone();
    match record.operation.action {
        Action::Provision | Action::Bind => next.lifecycle = Lifecycle::Ready,
        Action::Update => {
            next.lifecycle = Lifecycle::Ready;
            if let Some(target) = next.operation.target.take() {
                next.ordered = target;
            }
        }
        Action::Deprovision | Action::Unbind => return buried(record, Phase::Succeeded, now),
    }
    let Shown { dashboard_url, metadata } = std::mem::take(&mut next.operation.shown);
    keep_output(&mut next, &Output { dashboard_url, metadata, ..Output::default() });
    keep_output(&mut next, output);
    end(&mut next, Phase::Succeeded, now);
    next
}

fn keep_output(record: &mut Record, output: &Output) {
    let made = &mut record.made;
    if output.dashboard_url.is_some() {
        made.dashboard_url.clone_from(&output.dashboard_url);
    }
    if output.metadata.is_some() {
        made.metadata.clone_from(&output.metadata);
    }
    if output.binding.is_some() {
        made.binding.clone_from(&output.binding);
    }
    if output.state.is_some() {
        made.state.clone_from(&output.state);
    }
}

/// Keeps the output of an update with external work: the state at once, however the update ends, and what is shown of
/// the instance once it has succeeded.
fn show_later(record: &mut Record, output: &Output) {
    let shown = &mut record.operation.shown;
    if output.dashboard_url.is_some() {
        shown.dashboard_url.clone_from(&output.dashboard_url);
    }
    if output.metadata.is_some() {
        shown.metadata.clone_from(&output.metadata);
    }
    if output.state.is_some() {
        record.made.state.clone_from(&output.state);
    }
}

/// Records the state that a run left for later ones, however it ended.
pub(crate) fn left(record: &Record, state: Option<&Sensitive<Value>>, now: Timestamp) -> Record {
    let mut next = record.clone();
    if state.is_some() {
        next.made.state = state.cloned();
        next.updated_at = now;
    }
    next
}

/// Records that the halted run was begun and is over, with the state that it left.
pub(crate) fn halted(record: &Record, state: Option<&Sensitive<Value>>, now: Timestamp) -> Record {
    let mut next = gone_on(&left(record, state, now), now);
    if let Some(halt) = &mut next.operation.halts {
        (halt.kept, halt.first) = (true, false);
    }
    next
}

/// Records that the operation failed. A creation that says that nothing was made leaves a tombstone.
pub(crate) fn failed(
    record: &Record,
    failure: OperationFailure,
    nothing_made: bool,
    now: Timestamp,
) -> Record {
    let creating = record.lifecycle == Lifecycle::Creating;
    if creating && nothing_made && is_first(record) {
        return buried(record, Phase::Failed(failure), now);
    }
    let mut next = record.clone();
    if creating {
        next.lifecycle = Lifecycle::Broken;
    }
    end(&mut next, Phase::Failed(failure), now);
    next
}

/// Whether the last operation is the first since the id was ordered: otherwise one before it may have made something.
fn is_first(record: &Record) -> bool {
    record.past.iter().all(|past| past.created_at < record.created_at)
}

/// Makes a tombstone of the record: it says that the resource was there, and how its last operation ended; nothing
/// secret remains.
pub(crate) fn buried(record: &Record, phase: Phase, now: Timestamp) -> Record {
    let mut next = record.clone();
    next.lifecycle = Lifecycle::Deleted;
    next.made = Made::default();
    let Ordered { service_id, plan_id, .. } = &record.ordered;
    next.ordered = Ordered::bare(service_id.clone(), plan_id.clone());
    next.operation.request_hash = String::new();
    next.operation.target = None;
    next.operation.previous_values = None;
    next.operation.originating_identity = None;
    end(&mut next, phase, now);
    next
}

fn end(record: &mut Record, phase: Phase, now: Timestamp) {
    record.operation.phase = phase;
    record.operation.halts = None;
    record.operation.progress = None;
    record.operation.waits = None;
    record.operation.shown = Shown::default();
    record.operation.held = false;
    record.operation.ended_at = Some(now);
    record.updated_at = now;
}

/// Records a further attempt of the same operation, after a pause.
pub(crate) fn retried(
    policy: &Policy,
    record: &Record,
    wait: Option<u64>,
    now: Timestamp,
) -> Record {
    let mut next = record.clone();
    next.operation.attempt = record.operation.attempt.saturating_add(1);
    let pause = asked_for(wait).max(policy.pause(next.operation.attempt));
    next.operation.phase = Phase::Pending { not_before: Some(now.plus(pause)) };
    // It is over and let go of: that there is no such run says nothing any more.
    next.operation.halts = None;
    goes_on(&mut next.operation);
    next.updated_at = now;
    next
}

/// Whether the time `then` has come. A time further off than any pause was recorded by a clock that was wrong, and
/// counts as come: otherwise the wait would be as long as the clock was wrong.
pub(crate) fn is_due(policy: &Policy, then: Timestamp, now: Timestamp) -> bool {
    then <= now || now.until(then) > policy.backoff_max.max(MAX_ASKED_PAUSE)
}

/// The pause that a broker asks for, as far as it is granted.
fn asked_for(seconds: Option<u64>) -> Duration {
    Duration::from_secs(seconds.unwrap_or_default()).min(MAX_ASKED_PAUSE)
}

/// The failure of an operation after that of its run, and whether the run's failure says that nothing was made.
pub(crate) fn operation_failure(failed: &RunFailure) -> (OperationFailure, bool) {
    let (reason, nothing_made) = match failed.failure.kind {
        FailureKind::Failed | FailureKind::Gone | FailureKind::Transient => (failed.reason, false),
        FailureKind::Unsupported => (Reason::Unsupported, true),
        FailureKind::Invalid => (Reason::Invalid, true),
        FailureKind::Conflict => (Reason::Conflict, true),
        FailureKind::Busy => (Reason::Busy, true),
    };
    let passes = matches!(failed.failure.kind, FailureKind::Transient | FailureKind::Busy);
    let asked = failed.failure.retry_after.filter(|_| passes);
    let failure = OperationFailure {
        reason,
        description: failed.failure.description.clone(),
        instance_usable: failed.failure.instance_usable,
        update_repeatable: failed.failure.update_repeatable,
        retry_after: asked.map(|seconds| seconds.min(MAX_ASKED_PAUSE.as_secs())),
    };
    (failure, nothing_made)
}
