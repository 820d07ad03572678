//! The cases of the runner's contract suite: what every runner promises.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::sync::Arc;
use std::time::Duration;

use osb::Output;
use serde_json::json;

use super::{Behaviour, Harness, run, until, until_finished};
use crate::names::RunName;
use crate::ports::{Run, RunFailure, RunState, Runner};
use crate::record::{Key, Reason};

/// Nothing is known of a run that was never started, and nothing done about it is an error.
pub async fn an_unknown_run_is_absent(harness: &dyn Harness) {
    let (runner, name) = (harness.runner().await, RunName::parse("unknown-1").unwrap());
    assert_eq!(runner.observe(&name).await.unwrap(), RunState::Absent);
    runner.cancel(&name).await.unwrap();
    runner.release(&name).await.unwrap();
    assert_eq!(runner.log(&name).await.unwrap(), None);
    assert_eq!(runner.observe(&name).await.unwrap(), RunState::Absent);
}

/// The output arrives as the broker printed it.
pub async fn a_run_that_succeeds_gives_its_output(harness: &dyn Harness) {
    let (runner, run) = started(harness, Behaviour::Succeeds, "succeeds-1").await;
    let output = until_finished(&*runner, &run.name).await.unwrap();
    assert_eq!(output.dashboard_url.as_deref(), Some("https://dashboard.example"));
    assert_eq!(harness.effects(&run.work.instance_id).await, 1);
}

/// A status other than 0 is told, with the log.
pub async fn a_run_that_fails_says_how(harness: &dyn Harness) {
    let (runner, run) = started(harness, Behaviour::Fails, "fails-1").await;
    let result = until_finished(&*runner, &run.name).await;
    if !harness.nature().prints {
        assert_eq!(assert_failed(&result, Reason::Reported), "no disk left");
        return;
    }
    let description = assert_failed(&result, Reason::ExitStatus);
    assert!(description.contains("status 3") && description.contains("no disk left"));
}

/// What is not JSON is told, without being repeated.
pub async fn a_run_that_prints_junk_fails(harness: &dyn Harness) {
    let (runner, run) = started(harness, Behaviour::Junk, "junk-1").await;
    let result = until_finished(&*runner, &run.name).await;
    let reason = if harness.nature().prints { Reason::NotJson } else { Reason::Killed };
    assert!(!assert_failed(&result, reason).contains("made it"));
}

/// One after the other, at the same time, after the end, and by another runner: one effect.
pub async fn starting_twice_is_one_effect(harness: &dyn Harness) {
    let first = harness.runner().await;
    let second = another(harness, &first).await;
    let run = run(Behaviour::Succeeds, "twice-1");
    let starts = [&first, &second, &first, &second].map(|runner| runner.start(&run));
    let [a, b, c, d] = starts;
    let (a, b, c, d) = tokio::join!(a, b, c, d);
    [a, b, c, d].into_iter().for_each(|started| started.unwrap());
    until_finished(&*first, &run.name).await.unwrap();
    second.start(&run).await.unwrap();
    until_finished(&*second, &run.name).await.unwrap();
    assert_eq!(harness.effects(&run.work.instance_id).await, 1);
}

/// Reading a result does not use it up; releasing does.
pub async fn a_result_is_kept_until_it_is_released(harness: &dyn Harness) {
    let (runner, run) = started(harness, Behaviour::Succeeds, "kept-1").await;
    let result = until_finished(&*runner, &run.name).await;
    for _ in 0..3 {
        let state = another(harness, &runner).await.observe(&run.name).await.unwrap();
        assert_eq!(state, RunState::Finished(result.clone()));
    }
    runner.release(&run.name).await.unwrap();
    assert_eq!(runner.observe(&run.name).await.unwrap(), RunState::Absent);
    runner.release(&run.name).await.unwrap();
    assert_eq!(harness.effects(&run.work.instance_id).await, 1);
}

/// A run that is asked to end does, and says that it was halted.
pub async fn a_cancelled_run_is_halted(harness: &dyn Harness) {
    let (runner, run) = started(harness, Behaviour::Sleeps, "cancelled-1").await;
    until_effect(harness, &run).await;
    runner.cancel(&run.name).await.unwrap();
    runner.cancel(&run.name).await.unwrap();
    assert_failed(&until_finished(&*runner, &run.name).await, Reason::Halted);
}

/// A run that does not listen is ended all the same.
pub async fn a_stubborn_run_is_halted_too(harness: &dyn Harness) {
    let (runner, run) = started(harness, Behaviour::Stubborn, "stubborn-1").await;
    until_effect(harness, &run).await;
    runner.cancel(&run.name).await.unwrap();
    assert_failed(&until_finished(&*runner, &run.name).await, Reason::Halted);
}

/// However a run is ended, nothing of it goes on.
pub async fn what_was_ended_has_no_effect_any_more(harness: &dyn Harness) {
    let runner = harness.runner().await;
    for how in ["cancelled", "released", "over-time"] {
        let mut run = run(Behaviour::Repeats, &format!("{how}-repeats-1"));
        if how == "over-time" {
            run.timeout = Duration::from_secs(1);
        }
        runner.start(&run).await.unwrap();
        until_effect(harness, &run).await;
        match how {
            "cancelled" => runner.cancel(&run.name).await.unwrap(),
            "released" => runner.release(&run.name).await.unwrap(),
            _ => {}
        }
        let goes_on = |state: &RunState| matches!(state, RunState::Running { .. });
        until(&*runner, &run.name, |state| !goes_on(state)).await;
        nothing_goes_on(harness, &run).await;
    }
}

/// A run that has ended cannot be cancelled any more.
pub async fn cancelling_a_finished_run_changes_nothing(harness: &dyn Harness) {
    let (runner, run) = started(harness, Behaviour::Succeeds, "late-cancel-1").await;
    until_finished(&*runner, &run.name).await.unwrap();
    runner.cancel(&run.name).await.unwrap();
    until_finished(&*runner, &run.name).await.unwrap();
}

/// A run is ended when its time is over, though nobody watches.
pub async fn a_run_over_its_time_is_ended(harness: &dyn Harness) {
    let runner = harness.runner().await;
    for behaviour in [Behaviour::Sleeps, Behaviour::Stubborn] {
        let name = format!("timeout-{}", behaviour.plan());
        let run = Run { timeout: Duration::from_secs(1), ..run(behaviour, &name) };
        runner.start(&run).await.unwrap();
        assert_failed(&until_finished(&*runner, &run.name).await, Reason::Timeout);
    }
}

/// A run that was not released is found again, with what it is for.
pub async fn an_unreleased_run_is_found_again(harness: &dyn Harness) {
    let (runner, done) = started(harness, Behaviour::Succeeds, "found-1").await;
    until_finished(&*runner, &done.name).await.unwrap();
    let sleeps = run(Behaviour::Sleeps, "found-2");
    runner.start(&sleeps).await.unwrap();
    let runner = another(harness, &runner).await;
    let mut found = runner.unreleased().await.unwrap();
    found.sort();
    let expected =
        [&done, &sleeps].map(|run| (run.name.clone(), Key::Instance(run.work.instance_id.clone())));
    assert_eq!(found, expected);
    for (run, _) in found {
        runner.release(&run).await.unwrap();
    }
    assert_eq!(runner.unreleased().await.unwrap(), []);
}

/// A run that vanished is lost, not absent: it may have had an effect.
pub async fn a_run_that_vanished_is_lost(harness: &dyn Harness) {
    let (runner, run) = started(harness, Behaviour::Sleeps, "lost-1").await;
    until_effect(harness, &run).await;
    if !harness.nature().survives {
        drop(runner);
        return assert_over(harness, &run).await;
    }
    harness.lose(&run.name).await;
    for runner in [runner, harness.runner().await] {
        let lost = |state: &RunState| matches!(state, RunState::Lost { .. });
        let RunState::Lost { why } = until(&*runner, &run.name, lost).await else { panic!() };
        assert!(!why.is_empty());
        runner.start(&run).await.unwrap();
    }
    assert_eq!(harness.effects(&run.work.instance_id).await, 1);
    let runner = harness.runner().await;
    runner.release(&run.name).await.unwrap();
    assert_eq!(runner.observe(&run.name).await.unwrap(), RunState::Absent);
}

/// A run outlives the runner that started it, and the next one takes it over.
pub async fn a_run_survives_a_restart(harness: &dyn Harness) {
    let (runner, run) = started(harness, Behaviour::Slow, "adopted-1").await;
    until_effect(harness, &run).await;
    drop(runner);
    if !harness.nature().survives {
        tokio::time::sleep(Duration::from_secs(3)).await;
        return assert_over(harness, &run).await;
    }
    let runner = harness.runner().await;
    assert_ne!(runner.observe(&run.name).await.unwrap(), RunState::Absent);
    runner.start(&run).await.unwrap();
    until_finished(&*runner, &run.name).await.unwrap();
    assert_eq!(harness.effects(&run.work.instance_id).await, 1);
}

/// An adopted run can be ended.
pub async fn an_adopted_run_can_be_cancelled(harness: &dyn Harness) {
    let (runner, run) = started(harness, Behaviour::Repeats, "adopted-cancel-1").await;
    until_effect(harness, &run).await;
    drop(runner);
    if !harness.nature().survives {
        return it_comes_to_rest(harness, &run).await;
    }
    let runner = harness.runner().await;
    runner.cancel(&run.name).await.unwrap();
    assert_failed(&until_finished(&*runner, &run.name).await, Reason::Halted);
}

/// The log can be read while the run goes on, when it has ended, and when it was released.
pub async fn a_log_is_kept_after_release(harness: &dyn Harness) {
    let (runner, run) = started(harness, Behaviour::Fails, "log-1").await;
    let _ = until_finished(&*runner, &run.name).await;
    for released in [false, true] {
        if !harness.nature().prints {
            assert_eq!(runner.log(&run.name).await.unwrap(), None, "released: {released}");
            runner.release(&run.name).await.unwrap();
            continue;
        }
        let log = runner.log(&run.name).await.unwrap().unwrap();
        assert!(log.contains("no disk left"), "released: {released}: {log}");
        runner.release(&run.name).await.unwrap();
    }
}

/// What a broker says of its progress is seen while it works.
pub async fn progress_is_seen(harness: &dyn Harness) {
    let (runner, run) = started(harness, Behaviour::Reports, "reports-1").await;
    let said = |state: &RunState| {
        let RunState::Running { progress } = state else { panic!("{state:?}") };
        progress.as_deref() == Some("half way (50%)")
    };
    until(&*runner, &run.name, said).await;
    runner.release(&run.name).await.unwrap();
}

/// To release a run that goes on is to end it.
pub async fn releasing_a_run_that_goes_on_ends_it(harness: &dyn Harness) {
    let (runner, run) = started(harness, Behaviour::Sleeps, "released-alive-1").await;
    until_effect(harness, &run).await;
    runner.release(&run.name).await.unwrap();
    assert_eq!(runner.observe(&run.name).await.unwrap(), RunState::Absent);
}

/// Whoever waits is woken by the end, and never waits for long.
pub async fn waiting_is_bounded_and_woken(harness: &dyn Harness) {
    let (runner, run) = started(harness, Behaviour::Sleeps, "waits-1").await;
    let unknown = RunName::parse("waits-unknown-1").unwrap();
    for name in [&run.name, &unknown] {
        tokio::time::timeout(Duration::from_secs(30), runner.changed(name)).await.unwrap();
    }
    runner.cancel(&run.name).await.unwrap();
    let _ = until_finished(&*runner, &run.name).await;
    tokio::time::timeout(Duration::from_secs(30), runner.changed(&run.name)).await.unwrap();
}

/// Runs do not disturb each other.
pub async fn runs_are_apart(harness: &dyn Harness) {
    let (runner, sleeps) = started(harness, Behaviour::Sleeps, "apart-1").await;
    let other = run(Behaviour::Succeeds, "apart-2");
    runner.start(&other).await.unwrap();
    until_finished(&*runner, &other.name).await.unwrap();
    runner.release(&other.name).await.unwrap();
    let state = runner.observe(&sleeps.name).await.unwrap();
    assert!(matches!(state, RunState::Running { .. }), "{state:?}");
    runner.release(&sleeps.name).await.unwrap();
}

/// The catalog comes without the key `jobs`, which is not meant for platforms.
pub async fn the_offer_is_read(harness: &dyn Harness) {
    let offer = harness.runner().await.offer().await.unwrap();
    assert_eq!(offer.catalog, json!({"services": []}));
    assert_eq!(offer.capabilities, harness.nature().capabilities);
}

async fn started(
    harness: &dyn Harness,
    behaviour: Behaviour,
    name: &str,
) -> (Arc<dyn Runner>, Run) {
    let runner = harness.runner().await;
    let run = run(behaviour, name);
    runner.start(&run).await.unwrap();
    (runner, run)
}

/// Another runner over the same runs: as after a restart, if runs survive that.
async fn another(harness: &dyn Harness, runner: &Arc<dyn Runner>) -> Arc<dyn Runner> {
    if harness.nature().survives { harness.runner().await } else { Arc::clone(runner) }
}

/// Asserts that a run does not go on after a restart that it does not survive, and is absent once it is
/// released.
async fn assert_over(harness: &dyn Harness, run: &Run) {
    let runner = harness.runner().await;
    for _ in 0..2 {
        let state = runner.observe(&run.name).await.unwrap();
        assert!(matches!(state, RunState::Absent | RunState::Lost { .. }), "{state:?}");
        runner.cancel(&run.name).await.unwrap();
    }
    runner.release(&run.name).await.unwrap();
    assert_eq!(runner.observe(&run.name).await.unwrap(), RunState::Absent);
    assert_eq!(runner.unreleased().await.unwrap(), []);
    assert_eq!(harness.effects(&run.work.instance_id).await, 1);
}

async fn nothing_goes_on(harness: &dyn Harness, run: &Run) {
    let then = harness.effects(&run.work.instance_id).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let now = harness.effects(&run.work.instance_id).await;
    assert_eq!(now, then, "{} has effects after its end", run.name);
}

/// Of a run that ends with its runner: whoever drops that does not wait for it.
async fn it_comes_to_rest(harness: &dyn Harness, run: &Run) {
    let mut then = harness.effects(&run.work.instance_id).await;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = harness.effects(&run.work.instance_id).await;
        if now == then {
            return;
        }
        then = now;
    }
    panic!("{} goes on without its runner", run.name);
}

async fn until_effect(harness: &dyn Harness, run: &Run) {
    for _ in 0..1800 {
        if harness.effects(&run.work.instance_id).await > 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the broker of {} was never started", run.name);
}

#[track_caller]
fn assert_failed(result: &Result<Output, RunFailure>, reason: Reason) -> &str {
    let failure = result.as_ref().unwrap_err();
    assert_eq!(failure.reason, reason, "{failure:?}");
    assert!(!failure.failure.description.is_empty());
    &failure.failure.description
}
