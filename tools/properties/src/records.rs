//! Input: a record in JSON, as the store reads it when it has been opened.

use std::time::Duration;

use engine::Policy;
use engine::decide::{Around, Parent, RefusedStart, STARTS, State, Step, decide};
use engine::policy::{OnBound, OnLost};
use engine::ports::{RunFailure, RunState};
use engine::record::{Key, Reason, Record, Timestamp};
use osb::{Failure, FailureKind, InstanceId, Output};

use crate::assert_kept;

/// The property that a record that can be read is written and read as itself, and that, whatever is then seen of its
/// run, there is a next step, and what that writes can be read too.
///
/// # Panics
/// If that does not hold.
pub fn records(input: &[u8]) {
    let Ok(record) = serde_json::from_slice::<Record>(input) else { return };
    assert_kept(&record);
    for run in runs() {
        assert_decided(&record, &run);
    }
}

fn assert_decided(record: &Record, run: &RunState) {
    for policy in policies() {
        for (around, refused_start, halted) in situations() {
            let (run, halted) = (run.clone(), halted.filter(|_| record.operation.halts.is_some()));
            let begun = run == RunState::Absent && record.is_busy();
            let queued = begun.then_some(16);
            let state = State { record, run, begun, halted, around, refused_start, queued };
            let created = record.operation.created_at;
            let soon = created.plus(Duration::from_secs(2));
            for now in [Timestamp(0), created, soon, Timestamp(u64::MAX)] {
                assert_next(&policy, &state, now);
            }
        }
    }
}

/// Asserts that there is a next step, and that what it writes can be read.
pub(crate) fn assert_next(policy: &Policy, state: &State<'_>, now: Timestamp) {
    let record = state.record;
    let step = decide(policy, state, now);
    assert_eq!(step == Step::Settled, !record.is_busy());
    if let Step::Write { record: next, .. } = &step {
        assert_eq!(next.key, record.key);
        assert_kept(&**next);
    }
}

fn policies() -> [Policy; 2] {
    let bold = Policy {
        lost: OnLost::Retry,
        bound: OnBound::Cascade,
        attempts: u32::MAX,
        external_timeout: Duration::MAX,
        backoff: Duration::MAX,
        ..Policy::default()
    };
    [Policy::default(), bold]
}

fn runs() -> Vec<RunState> {
    let failed = |kind| {
        let failure = Failure { retry_after: Some(u64::MAX), ..Failure::new(kind, "words") };
        RunState::Finished(Err(RunFailure::new(Reason::Reported, failure)))
    };
    let external = Output {
        external_operation: Some("task".to_owned()),
        retry_after: Some(u64::MAX),
        description: Some("half".to_owned()),
        ..Output::default()
    };
    vec![
        RunState::Absent,
        RunState::Running { progress: None },
        RunState::Running { progress: Some("half".to_owned()) },
        RunState::Lost { why: "killed".to_owned() },
        RunState::Finished(Ok(Output::default())),
        RunState::Finished(Ok(external)),
        failed(FailureKind::Failed),
        failed(FailureKind::Transient),
        failed(FailureKind::Invalid),
    ]
}

type Situation = (Around, Option<RefusedStart>, Option<RunState>);

fn situations() -> Vec<Situation> {
    let refused = |permanent, times| {
        let (why, until) = ("no memory".to_owned(), Timestamp(0));
        Some(RefusedStart { why, permanent, times, until })
    };
    let staying = vec![Key::Instance(InstanceId::new("i").unwrap())];
    let stuck = Some("said no".to_owned());
    let running = RunState::Running { progress: None };
    vec![
        (Around::Nothing, None, Some(RunState::Absent)),
        (Around::Nothing, refused(false, u32::MAX), Some(running)),
        (Around::Instance(Parent::Unusable), refused(true, 1), None),
        (Around::Instance(Parent::Updating), None, None),
        (Around::Instance(Parent::Replanned), None, None),
        (Around::Busy(true), None, None),
        (
            Around::Bindings { live: true, staying: staying.clone(), coming: true, stuck: None },
            None,
            None,
        ),
        (
            Around::Bindings { live: true, staying, coming: false, stuck },
            refused(false, STARTS),
            None,
        ),
    ]
}
