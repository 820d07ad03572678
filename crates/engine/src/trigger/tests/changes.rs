//! What a job follows has changed.

use super::*;

#[test]
fn a_changed_configuration_is_a_trigger_once_it_is_settled() {
    let changed =
        |state: State| State { references: references(&[("secret/a", data("2"))]), ..state };
    assert_eq!(decide(&done(), NOW), Decision::default(), "it has not changed");
    let decision = decide(&changed(done()), NOW);
    let Some(Step::Record { record, strategy, .. }) = decision.steps.first() else {
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
fn what_is_never_quiet_counts_all_the_same() {
    for (name, unchanged, differs, waits) in [
        ("it has changed just now", 0, 0, true),
        ("it was quiet for long, and the record is new", 9000, 10, true),
        ("it is quiet", 1000, 1000, false),
        ("it changes again and again", 500, 9000, true),
        ("it goes on to", 500, 10_000, false),
    ] {
        let state = State {
            references: references(&[("secret/a", data("2"))]),
            unchanged: Duration::from_millis(unchanged),
            differs: Duration::from_millis(differs),
            ..done()
        };
        assert_eq!(decide(&state, NOW).wait, waits.then_some(Wait::Changes), "{name}");
    }
}

fn changed_during_a_run(concurrency: Concurrency) -> State {
    let mut state = State { concurrency, ..done() };
    state.record.last = 2;
    state.record.open = vec![run(2, Trigger::ConfigChange)];
    state.runs.insert(2, RunProgress::Going);
    state.references = references(&[("secret/a", data("2"))]);
    state
}

#[test]
fn a_change_during_a_run_does_as_the_spec_says_and_is_never_passed_over() {
    for (concurrency, beside, replaced, wait) in [
        (Concurrency::Allow, true, false, None),
        (Concurrency::Forbid, false, false, Some(Wait::Run)),
        (Concurrency::Queue, false, false, Some(Wait::Run)),
        (Concurrency::Replace, false, true, Some(Wait::Run)),
    ] {
        let mut state = changed_during_a_run(concurrency);
        let decision = decide(&state, NOW);
        let records = |steps: &[Step]| {
            steps.iter().any(|it| {
                let Step::Record { record, passed_over: None, .. } = it else { return false };
                record.open.last() == Some(&run(3, Trigger::ConfigChange))
            })
        };
        let settles = |it: &Step| matches!(it, Step::Settle(run, _) if run.id == 2);
        assert_eq!(records(&decision.steps), beside, "{concurrency:?}: {decision:?}");
        assert_eq!(decision.steps.iter().any(settles), replaced, "{concurrency:?}");
        assert_eq!(decision.wait, wait, "{concurrency:?}");
        state.settled.insert(2);
        state.runs.clear();
        assert!(records(&decide(&state, NOW).steps), "{concurrency:?}, and it has ended");
        let young = State { unchanged: Duration::ZERO, ..state };
        assert_eq!(decide(&young, NOW).wait, Some(Wait::Changes), "{concurrency:?}: a burst");
    }
}

#[test]
fn changes_count_from_the_first_look_at_one_that_never_ran() {
    let mut state = done();
    state.record = JobRecord::default();
    state.settled.clear();
    let steps = decide(&state, NOW).steps;
    let [Step::Record { record, strategy: Strategy::Done, .. }] = steps.as_slice() else {
        panic!("{steps:?}")
    };
    assert_eq!((record.last, record.open.len()), (0, 0));
    state.record = record.clone();
    assert_eq!(decide(&state, NOW), Decision::default());
}

#[test]
fn what_counts_as_a_change() {
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
        ("another of the same number", a(version(2)), a(made(2, "other", 9)), true),
        ("the same again", a(version(2)), a(made(2, "2", 9)), false),
        ("counted anew", a(version(2)), a(made(1, "other", 9)), true),
        ("what is left, made in the same second", a(made(2, "2", 9)), a(made(1, "1", 9)), false),
        ("counted anew, and the same", a(version(2)), a(made(1, "2", 9)), false),
    ] {
        let record = JobRecord { references: Some(before), ..JobRecord::default() };
        assert_eq!(record.differs(&now, &Versions::new()), expected, "{name}");
    }
}

/// A version, made in that second.
fn made(number: u64, data: &str, made: i64) -> Held {
    Held::Version(HeldVersion { number, data: data.to_owned(), made })
}

/// The same, each with data of its own, and made one after another.
fn version(number: u64) -> Held {
    made(number, &number.to_string(), i64::try_from(number).unwrap())
}

#[test]
fn what_is_removed_and_comes_back_as_it_was_is_no_change() {
    let mut state = done();
    state.references = references(&[("secret/a", Held::Nothing(()))]);
    assert_eq!(decide(&state, NOW), Decision::default());
    // A run meanwhile remembers it.
    state.strategy = Strategy::Now;
    let steps = decide(&state, NOW).steps;
    let Some(Step::Record { record, .. }) = steps.first() else { panic!("{steps:?}") };
    assert_eq!(record.references, Some(references(&[("secret/a", data("1"))])));
}

#[test]
fn what_is_older_than_the_record_is_no_change_and_is_not_recorded() {
    let one = |at: u64| Versions::from([("secret/a".to_owned(), at)]);
    let none = Versions::new;
    let nothing = || Held::Nothing(());
    for (name, before, was, now, is, differs, recorded, at) in [
        ("a change", data("1"), one(7), data("2"), one(9), true, data("2"), one(9)),
        ("a watch is behind", data("2"), one(9), data("1"), one(7), false, data("2"), one(9)),
        (
            "the same at the same time",
            data("1"),
            one(7),
            data("1"),
            one(7),
            false,
            data("1"),
            one(7),
        ),
        ("written anew as it was", data("1"), one(7), data("1"), one(9), false, data("1"), one(9)),
        ("changed back", data("2"), one(9), data("1"), one(11), true, data("1"), one(11)),
        ("a record of before", data("1"), none(), data("2"), one(9), true, data("2"), one(9)),
        ("it is gone", data("1"), one(7), nothing(), none(), false, data("1"), one(7)),
        ("an optional one comes", nothing(), none(), data("1"), one(7), true, data("1"), one(7)),
        ("versions, and behind", version(2), one(9), version(1), one(7), false, version(1), one(9)),
        (
            "what is left is marked",
            version(2),
            one(9),
            version(1),
            one(11),
            false,
            version(1),
            one(11),
        ),
        (
            "another of the same number, and behind",
            made(2, "other", 5),
            one(11),
            version(2),
            one(9),
            false,
            made(2, "other", 5),
            one(11),
        ),
        (
            "counted anew, and behind",
            made(1, "other", 5),
            one(11),
            version(2),
            one(9),
            false,
            version(2),
            one(11),
        ),
        (
            "the highest is removed",
            version(2),
            one(9),
            version(1),
            one(5),
            false,
            version(1),
            one(9),
        ),
    ] {
        let mut state = done();
        state.record.references = Some(references(&[("secret/a", before)]));
        (state.record.versions, state.versions) = (was, is);
        state.references = references(&[("secret/a", now)]);
        let ran = matches!(decide(&state, NOW).steps.first(), Some(Step::Record { .. }));
        assert_eq!(ran, differs, "{name}");
        // A run for whatever else records what is newest.
        state.strategy = Strategy::Now;
        let steps = decide(&state, NOW).steps;
        let Some(Step::Record { record, .. }) = steps.first() else { panic!("{steps:?}") };
        assert_eq!(record.references, Some(references(&[("secret/a", recorded)])), "{name}");
        assert_eq!(record.versions, at, "{name}");
    }
}

#[test]
fn a_reference_that_is_there_no_more_is_not_remembered() {
    let mut state = done();
    state.record.versions = Versions::from([("secret/a".to_owned(), 7)]);
    state.references = References::new();
    let steps = decide(&state, NOW).steps;
    let Some(Step::Record { record, .. }) = steps.first() else { panic!("{steps:?}") };
    assert_eq!((record.references.clone(), record.versions.len()), (Some(References::new()), 0));
}

#[test]
fn a_change_that_waits_is_not_forgotten_when_something_else_is_recorded() {
    let schedule = |is_due| Some(Schedule { of: "0 3 * * *".to_owned(), is_due });
    let known = || Some(Passed { of: "0 3 * * *".to_owned(), since: NOW.to_owned() });
    let mut met = State { schedule: schedule(true), ..changed_during_a_run(Concurrency::Forbid) };
    met.record.schedule = known();
    let new = State { schedule: schedule(false), ..changed_during_a_run(Concurrency::Forbid) };
    for (name, mut state) in [("a time is passed over", met), ("a schedule comes", new)] {
        let steps = decide(&state, NOW).steps;
        let [Step::Record { record, .. }] = steps.as_slice() else { panic!("{name}: {steps:?}") };
        assert_eq!((record.open.len(), record.schedule.clone()), (1, known()), "{name}");
        state.record = record.clone();
        state.schedule = schedule(false);
        assert_eq!(decide(&state, NOW).wait, Some(Wait::Run), "{name}: it waits on");
        state.settled.insert(2);
        state.runs.clear();
        let steps = decide(&state, NOW).steps;
        let [Step::Record { record, .. }] = steps.as_slice() else { panic!("{name}: {steps:?}") };
        assert_eq!(record.open, [run(3, Trigger::ConfigChange)], "{name}");
    }
}
