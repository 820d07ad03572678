use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::*;

mod bounds;
mod changes;
mod meeting;
mod pods;

use self::pods::{follower, pods};

const NOW: &str = "2026-01-01T00:00:00Z";

fn run(id: u64, trigger: Trigger) -> Run {
    Run { id, trigger, at: NOW.to_owned(), inputs: Vec::new(), pod: None }
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
        record: JobRecord {
            last: 1,
            once: true,
            references: Some(references),
            ..JobRecord::default()
        },
        settled: BTreeSet::from([1]),
        unchanged: Duration::from_secs(9),
        differs: Duration::from_secs(9),
        settle: Duration::from_secs(1),
        ..State::default()
    }
}

/// One whose second run goes on.
fn busy(strategy: Strategy, concurrency: Concurrency) -> State {
    State {
        strategy,
        concurrency,
        record: JobRecord { last: 2, open: vec![run(2, Trigger::Now)], ..JobRecord::default() },
        settled: BTreeSet::from([1]),
        runs: BTreeMap::from([(2, RunProgress::Going)]),
        ..State::default()
    }
}

fn recorded(last: u64, open: Vec<Run>, strategy: Strategy) -> Step {
    let once = open.iter().any(|run| run.trigger == Trigger::Once);
    let record = JobRecord { last, once, open, ..JobRecord::default() };
    Step::Record { record, strategy, passed_over: None }
}

#[test]
fn a_trigger_is_consumed_and_its_run_recorded_in_one_write() {
    for (strategy, trigger, then) in [
        (Strategy::Now, Trigger::Now, Strategy::Manual),
        (Strategy::Once, Trigger::Once, Strategy::Done),
    ] {
        let state = State { strategy, ..State::default() };
        let steps = decide(&state, NOW).steps;
        assert_eq!(steps, [recorded(1, vec![run(1, trigger)], then)], "{strategy:?}");
    }
    for strategy in [Strategy::Manual, Strategy::Done] {
        let state = State { strategy, ..State::default() };
        assert_eq!(decide(&state, NOW), Decision::default(), "{strategy:?}");
    }
}

#[test]
fn a_run_that_has_no_number_waits_and_says_so() {
    let of = |strategy, last, settled: &[u64]| State {
        record: JobRecord { last, ..JobRecord::default() },
        settled: settled.iter().copied().collect(),
        ..State { strategy, ..State::default() }
    };
    for (last, settled) in [(MAX_RUN - 1, vec![]), (3, vec![MAX_RUN - 1])] {
        let decision = decide(&of(Strategy::Now, last, &settled), NOW);
        assert_eq!(decision, Decision { steps: vec![], wait: Some(Wait::Numbers) }, "{last}");
    }
    let last = run(MAX_RUN - 1, Trigger::Now);
    let steps = decide(&of(Strategy::Now, MAX_RUN - 2, &[]), NOW).steps;
    assert_eq!(steps, [recorded(MAX_RUN - 1, vec![last], Strategy::Manual)]);
}

#[test]
fn a_run_goes_from_step_to_step() {
    let outcome = Outcome { succeeded: true, ..Outcome::failed("Completed", "") };
    let second = || run(2, Trigger::Now);
    for (seen, expected) in [
        (None, vec![Step::Start(second())]),
        (Some(RunProgress::Going), vec![]),
        (Some(RunProgress::Ended), vec![Step::Keep(second())]),
        (Some(RunProgress::Kept(outcome.clone())), vec![Step::Settle(second(), outcome)]),
    ] {
        let mut state = busy(Strategy::Manual, Concurrency::Allow);
        state.runs = seen.clone().map(|work| (2, work)).into_iter().collect();
        assert_eq!(decide(&state, NOW).steps, expected, "{seen:?}");
    }
    let mut state = busy(Strategy::Manual, Concurrency::Allow);
    state.settled.insert(2);
    state.left.insert(2);
    assert_eq!(decide(&state, NOW).steps, [Step::Remove(2)]);
}

#[test]
fn what_is_taken_away_is_lost_and_not_begun_again() {
    let mut state = busy(Strategy::Manual, Concurrency::Allow);
    state.runs = BTreeMap::from([(2, RunProgress::Gone)]);
    let steps = decide(&state, NOW).steps;
    assert!(
        matches!(steps.as_slice(), [Step::Settle(run, outcome)] if run.id == 2 && outcome.reason == "Lost")
    );
}

#[test]
fn what_is_left_of_a_run_that_is_not_settled_stays() {
    let mut state = busy(Strategy::Manual, Concurrency::Allow);
    state.left.insert(2);
    assert_eq!(decide(&state, NOW).steps, []);
}

#[test]
fn completed_is_taken_back_before_the_trigger_is_consumed() {
    let state = State { strategy: Strategy::Now, completed: true, ..State::default() };
    let first = recorded(1, vec![run(1, Trigger::Now)], Strategy::Manual);
    assert_eq!(decide(&state, NOW).steps, [Step::Reopen, first]);
}

#[test]
fn what_was_taken_back_is_said_again_if_no_run_comes() {
    let (last, reopened) = (BTreeSet::from([1]), true);
    let record = JobRecord { last: 1, ..JobRecord::default() };
    let idle = State { record, settled: last, reopened, ..State::default() };
    let open = JobRecord { last: 2, open: vec![run(2, Trigger::Now)], ..JobRecord::default() };
    let missing = vec!["secret/late".to_owned()];
    for (name, state, closes) in [
        ("its trigger went", idle.clone(), true),
        ("its trigger waits", State { strategy: Strategy::Now, missing, ..idle.clone() }, true),
        ("its trigger is there", State { strategy: Strategy::Now, ..idle.clone() }, false),
        (
            "its trigger is there, and its run was refused",
            State { strategy: Strategy::Now, refused: true, ..idle.clone() },
            true,
        ),
        ("its run goes on", State { record: open.clone(), ..idle.clone() }, false),
        (
            "its run goes on, and another was refused",
            State { strategy: Strategy::Now, refused: true, record: open, ..idle.clone() },
            false,
        ),
        ("nobody took it back", State { reopened: false, ..idle }, false),
    ] {
        let steps = decide(&state, NOW).steps;
        assert_eq!(steps.contains(&Step::Close), closes, "{name}: {steps:?}");
        let records = steps.iter().any(|step| matches!(step, Step::Record { .. }));
        assert!(!(closes && records), "{name}: not both in one turn: {steps:?}");
    }
}

#[test]
fn where_no_run_may_be_made_what_was_taken_back_is_said_again_and_the_rest_is_done() {
    let comes = State {
        strategy: Strategy::Now,
        settled: BTreeSet::from([1]),
        left: BTreeSet::from([1]),
        record: JobRecord { last: 1, ..JobRecord::default() },
        ..State::default()
    };
    for (name, state, expected) in [
        ("it is completed", State { completed: true, ..comes.clone() }, vec![Step::Remove(1)]),
        (
            "that was taken back",
            State { reopened: true, ..comes },
            vec![Step::Remove(1), Step::Close],
        ),
        (
            "a run is to be replaced",
            State { reopened: true, ..busy(Strategy::Now, Concurrency::Replace) },
            vec![],
        ),
    ] {
        let mut decision = decide(&state, NOW);
        assert!(decision.makes_a_run(), "{name}");
        decision.withhold(&state);
        assert_eq!(decision.steps, expected, "{name}");
        assert!(!decision.makes_a_run(), "{name}");
    }
}

#[test]
fn a_trigger_waits_for_what_is_missing() {
    let missing = vec!["secret/late".to_owned()];
    for strategy in [Strategy::Now, Strategy::Once] {
        let state = State { strategy, missing: missing.clone(), ..State::default() };
        let decision = decide(&state, NOW);
        let wait = Some(Wait::References(missing.clone()));
        assert_eq!(decision, Decision { steps: vec![], wait }, "{strategy:?}");
    }
}

#[test]
fn what_comes_while_a_trigger_waits_counts_too() {
    let missing = vec!["secret/late".to_owned()];
    let of_schedule = |state| {
        let schedule = Some(Schedule { of: "0 3 * * *".to_owned(), is_due: false });
        State { schedule, ..state }
    };
    let of_pods =
        || State { strategy: Strategy::PodState, ..follower(false, Some(&[]), &[("b", true)]) };
    let queued = busy(Strategy::Now, Concurrency::Queue);
    let mut pods_queued = of_pods();
    pods_queued.concurrency = Concurrency::Queue;
    pods_queued.record.last = 1;
    pods_queued.record.open = vec![run(1, Trigger::PodState)];
    pods_queued.runs.insert(1, RunProgress::Going);
    // One was so and is not any more: to be so again is news, though the first waits.
    let known = pods(&[("a", true)]);
    pods_queued.record.pods.as_mut().unwrap().pods = known;
    pods_queued.pods.as_mut().unwrap().pods.extend(pods(&[("a", false)]));
    for (name, state) in [
        (
            "now, and a schedule",
            of_schedule(State {
                strategy: Strategy::Now,
                missing: missing.clone(),
                ..State::default()
            }),
        ),
        (
            "once, and a schedule",
            of_schedule(State { strategy: Strategy::Once, missing, ..State::default() }),
        ),
        ("a queue, and a schedule", of_schedule(queued)),
        ("a queue of pods", pods_queued),
    ] {
        let decision = decide(&state, NOW);
        let [Step::Record { record, strategy, passed_over: None }] = decision.steps.as_slice()
        else {
            panic!("{name}: {decision:?}")
        };
        assert_eq!((record.last, &record.open), (state.record.last, &state.record.open), "{name}");
        assert_eq!((*strategy, decision.wait.is_some()), (state.strategy, true), "{name}");
        // And that is all: it waits on.
        let again = State { record: record.clone(), ..state };
        let decision = decide(&again, NOW);
        assert_eq!((decision.steps.len(), decision.wait.is_some()), (0, true), "{name}");
    }
}

#[test]
fn one_whose_record_was_lost_goes_on_with_what_is_seen() {
    // Somebody replaced the resource: no record, a Job that goes on, a status that knows of two runs.
    let mut state = busy(Strategy::Manual, Concurrency::Allow);
    state.record = JobRecord::default();
    state.runs = BTreeMap::from([(3, RunProgress::Ended)]);
    state.settled = BTreeSet::from([1, 2]);
    state.begun = BTreeMap::from([(3, (Trigger::Once, NOW.to_owned()))]);
    let third = run(3, Trigger::Once);
    let recorded = recorded(3, vec![third.clone()], Strategy::Manual);
    assert_eq!(decide(&state, NOW).steps, [Step::Keep(third), recorded]);
    state.begun.clear();
    state.strategy = Strategy::Now;
    let steps = decide(&state, NOW).steps;
    let Some(Step::Record { record, .. }) = steps.last() else { panic!("{steps:?}") };
    assert_eq!(record.last, 4, "no number is used twice");
    // A Job that failed long ago and was kept is not one that goes on.
    state.runs = BTreeMap::from([(1, RunProgress::Ended)]);
    state.settled = BTreeSet::from([2, 3]);
    state.strategy = Strategy::Manual;
    assert_eq!(decide(&state, NOW), Decision::default());
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let held = [
        ("secret/a", data("1")),
        ("secret/v-v*", Held::Version(HeldVersion { number: 3, data: "3".to_owned(), made: 7 })),
        ("configmap/o", Held::Nothing(())),
    ];
    let record = JobRecord {
        last: 7,
        once: true,
        open: vec![run(7, Trigger::ConfigChange)],
        references: Some(references(&held)),
        versions: Versions::from([("secret/a".to_owned(), 7)]),
        schedule: Some(Passed { of: "0 3 * * *".to_owned(), since: NOW.to_owned() }),
        pods: Some(RecordedPods {
            of: "ready".to_owned(),
            pods: pods(&[("u", true)]),
            due: BTreeMap::from([("v".to_owned(), "pod-v".to_owned())]),
            newest: 7,
        }),
    };
    let written = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<JobRecord>(&written).unwrap(), record, "{written}");
}

#[test]
fn once_is_once_however_often_it_is_said() {
    let said_again = State { strategy: Strategy::Once, ..done() };
    assert_eq!(decide(&said_again, NOW), Decision::default());
    // It goes on to follow its configuration, which makes the word what it would be by now.
    let changed =
        State { references: references(&[("secret/a", data("2"))]), ..said_again.clone() };
    let never_compared =
        State { record: JobRecord { references: None, ..done().record }, ..said_again.clone() };
    for state in [changed, never_compared] {
        let steps = decide(&state, NOW).steps;
        assert!(
            matches!(steps.as_slice(), [Step::Record { strategy: Strategy::Done, .. }]),
            "{steps:?}"
        );
    }
    // And it is told to run by `now`.
    let told = State { strategy: Strategy::Now, ..said_again };
    assert!(matches!(decide(&told, NOW).steps.as_slice(), [Step::Record { .. }]));
}

/// One whose schedule was last looked at in that year.
fn scheduled(year: &str, is_due: bool) -> State {
    let of = "0 3 * * *".to_owned();
    let since = format!("{year}-01-01T00:00:00Z");
    State {
        strategy: Strategy::Manual,
        schedule: Some(Schedule { of: of.clone(), is_due }),
        record: JobRecord { schedule: Some(Passed { of, since }), ..JobRecord::default() },
        ..State::default()
    }
}

#[test]
fn a_time_that_has_come_is_a_trigger_and_is_behind_it_then() {
    assert_eq!(decide(&scheduled("2025", false), NOW), Decision::default());
    let state = scheduled("2025", true);
    let steps = decide(&state, NOW).steps;
    let [Step::Record { record, strategy: Strategy::Manual, passed_over: None }] = steps.as_slice()
    else {
        panic!("{steps:?}")
    };
    assert_eq!(record.open, [run(1, Trigger::Schedule)]);
    assert_eq!(record.schedule.as_ref().unwrap().since, NOW);
}

#[test]
fn times_count_from_when_a_schedule_was_first_seen() {
    for (name, record, expected) in [
        ("a new one", None, true),
        ("another one", Some("1 1 * * *"), true),
        ("the same", Some("0 3 * * *"), false),
    ] {
        let mut state = scheduled("2025", false);
        let passed =
            |of: &str| Passed { of: of.to_owned(), since: "2025-01-01T00:00:00Z".to_owned() };
        state.record.schedule = record.map(passed);
        // Whether one is due is said of what the record says, which is of another.
        state.schedule.as_mut().unwrap().is_due = expected;
        let steps = decide(&state, NOW).steps;
        match (expected, steps.as_slice()) {
            (true, [Step::Record { record, .. }]) => {
                assert_eq!((record.open.len(), record.last), (0, 0), "{name}");
                assert_eq!(record.schedule.as_ref().unwrap().since, NOW, "{name}");
            }
            (false, []) => {}
            (_, steps) => panic!("{name}: {steps:?}"),
        }
    }
    let removed = State { schedule: None, ..scheduled("2025", true) };
    let steps = decide(&removed, NOW).steps;
    let [Step::Record { record, .. }] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!(record.schedule, None, "the same schedule counts anew when it comes back");
}

#[test]
fn a_time_that_comes_during_a_run_does_as_the_spec_says() {
    let busy = |concurrency| {
        let mut state = scheduled("2025", true);
        state.concurrency = concurrency;
        state.record.last = 1;
        state.record.open = vec![run(1, Trigger::Schedule)];
        state.runs.insert(1, RunProgress::Going);
        state
    };
    let decision = decide(&busy(Concurrency::Queue), NOW);
    assert_eq!(decision, Decision { steps: vec![], wait: Some(Wait::Run) });
    let steps = decide(&busy(Concurrency::Allow), NOW).steps;
    let [Step::Record { record, .. }] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!(record.open.len(), 2);
    let steps = decide(&busy(Concurrency::Forbid), NOW).steps;
    let [Step::Record { record, passed_over, .. }] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!((record.open.len(), *passed_over), (1, Some(Trigger::Schedule)));
    assert_eq!(record.schedule.as_ref().unwrap().since, NOW, "it does not come back after the run");
}

#[test]
fn a_trigger_that_is_said_leaves_the_time_that_has_come_for_a_run_of_its_own() {
    let state = State { strategy: Strategy::Now, ..scheduled("2025", true) };
    let steps = decide(&state, NOW).steps;
    let [Step::Record { record, .. }] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!(record.open, [run(1, Trigger::Now)]);
    assert_eq!(record.schedule, state.record.schedule);
}

#[test]
fn what_a_run_is_told_is_recorded_with_it() {
    let inputs = vec![serde_json::json!({"name": "TABLE", "value": "users"})];
    let told = State { strategy: Strategy::Now, inputs: inputs.clone(), ..State::default() };
    let steps = decide(&told, NOW).steps;
    let [Step::Record { record, .. }] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!(record.open[0].inputs, inputs);
    // One that runs by itself is told nothing.
    let steps = decide(&State { inputs, ..scheduled("2025", true) }, NOW).steps;
    let [Step::Record { record, .. }] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!(record.open[0].inputs, Vec::<serde_json::Value>::new());
}
