use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::*;

const NOW: &str = "2026-01-01T00:00:00Z";

fn run(id: u64, trigger: Trigger) -> Run {
    Run { id, trigger, at: NOW.to_owned() }
}

fn references(held: &[(&str, Held)]) -> References {
    held.iter().map(|(name, held)| ((*name).to_owned(), held.clone())).collect()
}

fn data(digest: &str) -> Held {
    Held::Data(digest.to_owned())
}

/// One that has run once and follows its configuration.
fn done() -> State {
    let references = references(&[("secret/a", data("1"))]);
    State {
        strategy: Strategy::Done,
        follows_config: true,
        references: references.clone(),
        record: Record { last: 1, once: true, open: Vec::new(), references: Some(references) },
        settled: BTreeSet::from([1]),
        unchanged: Duration::from_secs(9),
        settle: Duration::from_secs(1),
        ..State::default()
    }
}

/// One whose second run goes on.
fn busy(strategy: Strategy, concurrency: Concurrency) -> State {
    State {
        strategy,
        concurrency,
        record: Record { last: 2, open: vec![run(2, Trigger::Now)], ..Record::default() },
        settled: BTreeSet::from([1]),
        runs: BTreeMap::from([(2, Work::Going)]),
        ..State::default()
    }
}

fn recorded(last: u64, open: Vec<Run>, strategy: Strategy) -> Action {
    let once = open.iter().any(|run| run.trigger == Trigger::Once);
    Action::Record { record: Record { last, once, open, references: None }, strategy }
}

#[test]
fn a_trigger_is_consumed_and_its_run_recorded_in_one_write() {
    for (strategy, trigger, then) in [
        (Strategy::Now, Trigger::Now, Strategy::Manual),
        (Strategy::Once, Trigger::Once, Strategy::Done),
    ] {
        let state = State { strategy, ..State::default() };
        let actions = decide(&state, NOW).actions;
        assert_eq!(actions, [recorded(1, vec![run(1, trigger)], then)], "{strategy:?}");
    }
    for strategy in [Strategy::Manual, Strategy::Done] {
        let state = State { strategy, ..State::default() };
        assert_eq!(decide(&state, NOW), Decision::default(), "{strategy:?}");
    }
}

#[test]
fn a_run_goes_from_step_to_step() {
    let outcome = Outcome { succeeded: true, ..Outcome::failed("Completed", "") };
    let second = || run(2, Trigger::Now);
    for (seen, expected) in [
        (None, vec![Action::Start(second())]),
        (Some(Work::Going), vec![]),
        (Some(Work::Ended), vec![Action::Keep(second())]),
        (Some(Work::Kept(outcome.clone())), vec![Action::Settle(second(), outcome)]),
    ] {
        let mut state = busy(Strategy::Manual, Concurrency::Allow);
        state.runs = seen.clone().map(|work| (2, work)).into_iter().collect();
        assert_eq!(decide(&state, NOW).actions, expected, "{seen:?}");
    }
    let mut state = busy(Strategy::Manual, Concurrency::Allow);
    state.settled.insert(2);
    state.left.insert(2);
    assert_eq!(decide(&state, NOW).actions, [Action::Remove(2)]);
}

#[test]
fn what_is_taken_away_is_lost_and_not_begun_again() {
    let mut state = busy(Strategy::Manual, Concurrency::Allow);
    state.runs = BTreeMap::from([(2, Work::Gone)]);
    let actions = decide(&state, NOW).actions;
    assert!(
        matches!(actions.as_slice(), [Action::Settle(run, outcome)] if run.id == 2 && outcome.reason == "Lost")
    );
}

#[test]
fn what_is_left_of_a_run_that_is_not_settled_stays() {
    let mut state = busy(Strategy::Manual, Concurrency::Allow);
    state.left.insert(2);
    assert_eq!(decide(&state, NOW).actions, []);
}

#[test]
fn a_trigger_that_meets_a_run_does_as_the_spec_says() {
    let second = || run(2, Trigger::Now);
    let both = vec![second(), run(3, Trigger::Now)];
    for (concurrency, actions, wait) in [
        (Concurrency::Allow, vec![recorded(3, both, Strategy::Manual)], None),
        (Concurrency::Forbid, vec![recorded(2, vec![second()], Strategy::Manual)], None),
        (Concurrency::Queue, vec![], Some(Wait::Run)),
    ] {
        let decision = decide(&busy(Strategy::Now, concurrency), NOW);
        assert_eq!(decision, Decision { actions, wait }, "{concurrency:?}");
    }
    let actions = decide(&busy(Strategy::Now, Concurrency::Replace), NOW).actions;
    assert!(
        matches!(actions.as_slice(), [Action::Settle(run, outcome)] if run.id == 2 && outcome.reason == REPLACED)
    );
    for concurrency in [Concurrency::Queue, Concurrency::Replace, Concurrency::Forbid] {
        let state = State { strategy: Strategy::Now, concurrency, ..State::default() };
        let first = recorded(1, vec![run(1, Trigger::Now)], Strategy::Manual);
        assert_eq!(decide(&state, NOW).actions, [first], "{concurrency:?}, and nothing goes on");
    }
}

#[test]
fn one_that_is_replaced_is_not_begun_first() {
    let mut state = busy(Strategy::Now, Concurrency::Replace);
    state.runs.clear();
    let actions = decide(&state, NOW).actions;
    assert!(matches!(actions.as_slice(), [Action::Settle(..)]), "{actions:?}");
}

#[test]
fn completed_is_taken_back_before_the_trigger_is_consumed() {
    let state = State { strategy: Strategy::Now, completed: true, ..State::default() };
    let first = recorded(1, vec![run(1, Trigger::Now)], Strategy::Manual);
    assert_eq!(decide(&state, NOW).actions, [Action::Reopen, first]);
}

#[test]
fn a_trigger_waits_for_what_is_missing() {
    let missing = vec!["secret/late".to_owned()];
    for strategy in [Strategy::Now, Strategy::Once] {
        let state = State { strategy, missing: missing.clone(), ..State::default() };
        let decision = decide(&state, NOW);
        let wait = Some(Wait::References(missing.clone()));
        assert_eq!(decision, Decision { actions: vec![], wait }, "{strategy:?}");
    }
}

#[test]
fn a_changed_configuration_is_a_trigger_once_it_is_settled() {
    let changed =
        |state: State| State { references: references(&[("secret/a", data("2"))]), ..state };
    assert_eq!(decide(&done(), NOW), Decision::default(), "it has not changed");
    let decision = decide(&changed(done()), NOW);
    let Some(Action::Record { record, strategy }) = decision.actions.first() else {
        panic!("{decision:?}")
    };
    assert_eq!(record.open, [run(2, Trigger::ConfigChange)]);
    assert_eq!(record.references, Some(references(&[("secret/a", data("2"))])));
    assert_eq!(*strategy, Strategy::Done);

    let young = State { unchanged: Duration::from_millis(10), ..changed(done()) };
    assert_eq!(decide(&young, NOW).wait, Some(Wait::Changes));
    let deaf = State { follows_config: false, ..changed(done()) };
    assert_eq!(decide(&deaf, NOW), Decision::default());
    let errand = State { strategy: Strategy::Manual, ..changed(done()) };
    assert_eq!(decide(&errand, NOW), Decision::default(), "errands run when they are told to");
}

#[test]
fn changes_during_a_run_make_one_more_after_it() {
    let mut state = done();
    state.record.last = 2;
    state.record.open = vec![run(2, Trigger::ConfigChange)];
    state.runs.insert(2, Work::Going);
    state.references = references(&[("secret/a", data("2"))]);
    assert_eq!(decide(&state, NOW), Decision { actions: vec![], wait: Some(Wait::Run) });
    state.settled.insert(2);
    state.runs.clear();
    assert!(matches!(decide(&state, NOW).actions.as_slice(), [Action::Record { .. }]));
}

#[test]
fn changes_count_from_the_first_look_at_one_that_never_ran() {
    let mut state = done();
    state.record = Record::default();
    state.settled.clear();
    let actions = decide(&state, NOW).actions;
    let [Action::Record { record, strategy: Strategy::Done }] = actions.as_slice() else {
        panic!("{actions:?}")
    };
    assert_eq!((record.last, record.open.len()), (0, 0));
    state.record = record.clone();
    assert_eq!(decide(&state, NOW), Decision::default());
}

#[test]
fn what_counts_as_a_change() {
    let version = Held::Version;
    let a = |held: Held| references(&[("secret/a", held)]);
    for (name, before, now, expected) in [
        ("nothing", a(data("1")), a(data("1")), false),
        ("data", a(data("1")), a(data("2")), true),
        ("a higher version", a(version(1)), a(version(2)), true),
        ("a lower version", a(version(2)), a(version(1)), false),
        ("removed", a(data("1")), a(Held::Nothing(())), false),
        ("an optional one comes", a(Held::Nothing(())), a(data("1")), true),
        ("a further one", References::new(), a(data("1")), true),
        ("one less", a(data("1")), References::new(), true),
        ("versions instead of one", a(data("1")), a(version(1)), true),
    ] {
        assert_eq!(differ(&before, &now), expected, "{name}");
    }
}

#[test]
fn what_is_removed_and_comes_back_as_it_was_is_no_change() {
    let mut state = done();
    state.references = references(&[("secret/a", Held::Nothing(()))]);
    assert_eq!(decide(&state, NOW), Decision::default());
    // A run meanwhile remembers it.
    state.strategy = Strategy::Now;
    let actions = decide(&state, NOW).actions;
    let Some(Action::Record { record, .. }) = actions.first() else { panic!("{actions:?}") };
    assert_eq!(record.references, Some(references(&[("secret/a", data("1"))])));
}

#[test]
fn one_whose_record_was_lost_goes_on_with_what_is_seen() {
    // Somebody replaced the resource: no record, a Job that goes on, a status that knows of two runs.
    let mut state = busy(Strategy::Manual, Concurrency::Allow);
    state.record = Record::default();
    state.runs = BTreeMap::from([(3, Work::Ended)]);
    state.settled = BTreeSet::from([1, 2]);
    let actions = decide(&state, NOW).actions;
    assert!(matches!(actions.as_slice(), [Action::Keep(run)] if run.id == 3), "{actions:?}");
    state.strategy = Strategy::Now;
    let actions = decide(&state, NOW).actions;
    let Some(Action::Record { record, .. }) = actions.last() else { panic!("{actions:?}") };
    assert_eq!(record.last, 4, "no number is used twice");
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let held = [
        ("secret/a", data("1")),
        ("secret/v", Held::Version(3)),
        ("configmap/o", Held::Nothing(())),
    ];
    let record = Record {
        last: 7,
        once: true,
        open: vec![run(7, Trigger::ConfigChange)],
        references: Some(references(&held)),
    };
    let written = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<Record>(&written).unwrap(), record, "{written}");
}

#[test]
fn once_is_once_however_often_it_is_said() {
    let said_again = State { strategy: Strategy::Once, ..done() };
    assert_eq!(decide(&said_again, NOW), Decision::default());
    // It goes on to follow its configuration, and is told to run by `now`.
    let changed =
        State { references: references(&[("secret/a", data("2"))]), ..said_again.clone() };
    let actions = decide(&changed, NOW).actions;
    assert!(
        matches!(actions.as_slice(), [Action::Record { strategy: Strategy::Once, .. }]),
        "{actions:?}"
    );
    let told = State { strategy: Strategy::Now, ..said_again };
    assert!(matches!(decide(&told, NOW).actions.as_slice(), [Action::Record { .. }]));
}
