//! How many runs go on at once.

use super::*;

/// So many runs go on.
fn going(count: usize) -> BTreeMap<u64, RunProgress> {
    (1..).take(count).map(|id| (id, RunProgress::Going)).collect()
}

/// What is recorded of this, if anything is.
fn written(state: &State) -> Option<JobRecord> {
    decide(state, NOW).steps.into_iter().find_map(|step| match step {
        Step::Record { record, .. } => Some(record),
        _ => None,
    })
}

#[test]
fn a_trigger_waits_where_as_many_runs_go_on_as_a_record_may_name() {
    for (name, count, concurrency, waits, begins) in [
        ("one less", MAX_OPEN - 1, Concurrency::Allow, None, true),
        ("as many", MAX_OPEN, Concurrency::Allow, Some(Wait::Run), false),
        ("more, as it was once", MAX_OPEN + 1, Concurrency::Allow, Some(Wait::Run), false),
        ("one after the other", MAX_OPEN - 1, Concurrency::Queue, Some(Wait::Run), false),
    ] {
        let runs = going(count);
        let open = runs.keys().map(|id| run(*id, Trigger::Now)).collect();
        let record = JobRecord { last: runs.len() as u64, open, ..JobRecord::default() };
        let state =
            State { strategy: Strategy::Now, concurrency, record, runs, ..State::default() };
        assert_eq!(decide(&state, NOW).wait, waits, "{name}");
        assert_eq!(written(&state).map(|it| it.open.len()), begins.then_some(MAX_OPEN), "{name}");
    }
}

#[test]
fn of_runs_that_no_record_names_as_many_are_taken_as_one_may_and_the_rest_after_them() {
    let mut state = State { runs: going(MAX_OPEN + 2), ..State::default() };
    let first = written(&state).unwrap();
    assert_eq!((first.open.len(), first.last), (MAX_OPEN, MAX_OPEN as u64));
    state.settled = first.open.iter().map(|run| run.id).collect();
    state.record = first;
    let rest = written(&state).unwrap();
    let ids: Vec<u64> = rest.open.iter().map(|run| run.id).collect();
    assert_eq!(ids, [MAX_OPEN as u64 + 1, MAX_OPEN as u64 + 2]);
}
