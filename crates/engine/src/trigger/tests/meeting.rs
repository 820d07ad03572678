//! Triggers that meet a run, and runs whose output is kept one after the other.

use super::*;

#[test]
fn a_trigger_that_meets_a_run_does_as_the_spec_says() {
    let second = || run(2, Trigger::Now);
    let both = vec![second(), run(3, Trigger::Now)];
    let Step::Record { record, strategy, .. } = recorded(2, vec![second()], Strategy::Manual)
    else {
        unreachable!("it is a record")
    };
    let passed_over = Step::Record { record, strategy, passed_over: Some(Trigger::Now) };
    for (concurrency, steps, wait) in [
        (Concurrency::Allow, vec![recorded(3, both, Strategy::Manual)], None),
        (Concurrency::Forbid, vec![passed_over], None),
        (Concurrency::Queue, vec![], Some(Wait::Run)),
    ] {
        let decision = decide(&busy(Strategy::Now, concurrency), NOW);
        assert_eq!(decision, Decision { steps, wait }, "{concurrency:?}");
    }
    let steps = decide(&busy(Strategy::Now, Concurrency::Replace), NOW).steps;
    assert!(
        matches!(steps.as_slice(), [Step::Settle(run, outcome)] if run.id == 2 && outcome.reason == REPLACED)
    );
    for concurrency in [Concurrency::Queue, Concurrency::Replace, Concurrency::Forbid] {
        let state = State { strategy: Strategy::Now, concurrency, ..State::default() };
        let first = recorded(1, vec![run(1, Trigger::Now)], Strategy::Manual);
        assert_eq!(decide(&state, NOW).steps, [first], "{concurrency:?}, and nothing goes on");
    }
}

#[test]
fn where_runs_do_not_meet_the_next_waits_for_the_work_of_one_that_is_over() {
    let idle = |strategy, concurrency| State {
        record: JobRecord { last: 1, ..JobRecord::default() },
        settled: BTreeSet::from([1]),
        lasts: true,
        ..State { strategy, concurrency, ..State::default() }
    };
    let begins = recorded(2, vec![run(2, Trigger::Now)], Strategy::Manual);
    for (concurrency, steps, wait) in [
        (Concurrency::Allow, vec![begins.clone()], None),
        (Concurrency::Forbid, vec![], Some(Wait::Pods)),
        (Concurrency::Queue, vec![], Some(Wait::Pods)),
        (Concurrency::Replace, vec![], Some(Wait::Pods)),
    ] {
        let state = idle(Strategy::Now, concurrency);
        assert_eq!(decide(&state, NOW), Decision { steps, wait }, "{concurrency:?}");
        let quiet = decide(&idle(Strategy::Manual, concurrency), NOW);
        assert_eq!(quiet, Decision::default(), "{concurrency:?}: nothing waits");
        let ended = State { lasts: false, ..state };
        assert_eq!(
            decide(&ended, NOW).steps,
            std::slice::from_ref(&begins),
            "{concurrency:?}: they ended"
        );
    }
}

#[test]
fn one_that_is_replaced_is_not_begun_first() {
    let mut state = busy(Strategy::Now, Concurrency::Replace);
    state.runs.clear();
    let steps = decide(&state, NOW).steps;
    assert!(matches!(steps.as_slice(), [Step::Settle(..)]), "{steps:?}");
}

#[test]
fn what_cannot_be_kept_is_tried_again_and_takes_no_place_from_another_run() {
    let second = || run(2, Trigger::Now);
    let third = recorded(3, vec![second(), run(3, Trigger::Now)], Strategy::Manual);
    let why = "another run was triggered, and takes its place";
    let replaced = Step::Settle(second(), Outcome::failed(REPLACED, why));
    for (concurrency, work, next) in [
        (Concurrency::Allow, RunProgress::Ended, Some(third.clone())),
        (Concurrency::Allow, RunProgress::Unkept, Some(third)),
        (Concurrency::Queue, RunProgress::Unkept, None),
        (Concurrency::Replace, RunProgress::Ended, None),
        (Concurrency::Replace, RunProgress::Unkept, Some(replaced)),
    ] {
        let mut state = busy(Strategy::Now, concurrency);
        state.runs = BTreeMap::from([(2, work.clone())]);
        let expected: Vec<Step> = [Step::Keep(second())].into_iter().chain(next).collect();
        assert_eq!(decide(&state, NOW).steps, expected, "{concurrency:?}, {work:?}");
    }
}

#[test]
fn what_runs_have_left_is_kept_in_the_order_in_which_they_were_recorded() {
    let outcome = Outcome::completed();
    let (second, third) = (|| run(2, Trigger::Now), || run(3, Trigger::Now));
    let kept = || RunProgress::Kept(outcome.clone());
    let settled = |run| Step::Settle(run, outcome.clone());
    for (name, works, expected) in [
        ("both are over", [RunProgress::Ended, RunProgress::Ended], vec![Step::Keep(second())]),
        (
            "the older is not let in",
            [RunProgress::Unkept, RunProgress::Ended],
            vec![Step::Keep(second())],
        ),
        ("the older goes on", [RunProgress::Going, RunProgress::Ended], vec![Step::Keep(third())]),
        ("it is kept", [kept(), RunProgress::Ended], vec![settled(second()), Step::Keep(third())]),
        (
            "the newer was over first",
            [RunProgress::Ended, kept()],
            vec![Step::Keep(second()), settled(third())],
        ),
    ] {
        let mut state = busy(Strategy::Manual, Concurrency::Allow);
        state.record = JobRecord { last: 3, open: vec![second(), third()], ..JobRecord::default() };
        state.runs = [2, 3].into_iter().zip(works).collect();
        assert_eq!(decide(&state, NOW).steps, expected, "{name}");
    }
}

#[test]
fn where_some_cannot_be_kept_another_waits_though_runs_may_be_beside_each_other() {
    use RunProgress::{Ended, Going, Unkept};
    for (name, works, waits) in [
        ("they go on", vec![Going, Going, Going, Going], false),
        ("two are over", vec![Unkept, Ended, Going, Going], false),
        ("three are over", vec![Unkept, Ended, Ended], true),
        ("three are over, and nobody has said why yet", vec![Ended, Ended, Going, Ended], true),
    ] {
        let mut state = busy(Strategy::Now, Concurrency::Allow);
        let ids = 2..2 + u64::try_from(works.len()).unwrap();
        let open: Vec<Run> = ids.clone().map(|id| run(id, Trigger::Now)).collect();
        state.record = JobRecord { last: ids.end - 1, open, ..JobRecord::default() };
        state.runs = ids.zip(works).collect();
        let Decision { steps, wait } = decide(&state, NOW);
        let begins = steps.iter().any(|step| matches!(step, Step::Record { .. }));
        assert_eq!((begins, wait), (!waits, waits.then_some(Wait::Run)), "{name}");
    }
}

/// Nobody says `once` just then: it waits for whatever an operator has it wait for, and is told of when it may.
#[test]
fn once_that_is_owed_is_run_for_beside_runs_where_it_may_and_never_passed_over() {
    let missing = vec!["secret/late".to_owned()];
    let times = || Some(Schedule { of: "@hourly".to_owned(), is_due: false });
    let idle =
        |state: State| State { record: JobRecord { last: 1, ..JobRecord::default() }, ..state };
    let owes = State { owes_once: true, ..busy(Strategy::Done, Concurrency::Allow) };
    let with = |concurrency| State { concurrency, ..owes.clone() };
    let alone = idle(State { runs: BTreeMap::new(), ..owes.clone() });
    for (name, state, begins, wait) in [
        ("nothing goes on", alone.clone(), Some(2), None),
        ("beside another", owes.clone(), Some(3), None),
        ("it would be passed over", with(Concurrency::Forbid), None, Some(Wait::Run)),
        ("it is one after the other", with(Concurrency::Queue), None, Some(Wait::Run)),
        (
            "something is missing, and times begin to count",
            State { missing: missing.clone(), schedule: times(), ..alone.clone() },
            None,
            Some(Wait::References(missing)),
        ),
        ("nothing is owed", State { owes_once: false, ..alone }, None, None),
    ] {
        let Decision { steps, wait: found } = decide(&state, NOW);
        let begun = steps.iter().find_map(|step| match step {
            Step::Record { record, strategy, passed_over } => {
                let of = (*strategy, passed_over.is_none());
                assert_eq!(of, (Strategy::Done, true), "{name}: the spec says what it said");
                let new = record.open.iter().filter(|run| run.trigger == Trigger::Once);
                new.map(|run| run.id).next()
            }
            _ => None,
        });
        assert_eq!((begun, found), (begins, wait), "{name}");
    }
}
