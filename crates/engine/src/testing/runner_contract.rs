//! What every [`Runner`] does, whatever it runs brokers on.
//!
//! An adapter gives a [`Harness`]: how to make a runner over a state that outlives it, with a broker that
//! does what [`BROKER`] does. [`runner_contract!`](crate::runner_contract) then makes a test of each
//! case.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use osb::jobs::contract::Capability;
use osb::{Action, InstanceId, Output, PlanId, ServiceId, Work};
use serde_json::json;

use crate::names::RunName;
use crate::ports::{Run, RunFailure, RunState, Runner};
use crate::record::{Key, Reason};

/// A broker that does what its plan says, for adapters whose brokers can be scripts. It appends a line to
/// the file `$LEDGER/<instance id>` first.
pub const BROKER: &str = r#"#!/bin/sh
action=$1; shift
while [ $# -gt 0 ]; do
    case $1 in
        --plan-id) plan=$2 ;;
        --instance-id) instance=$2 ;;
    esac
    shift 2
done
if [ "$action" = catalog ]; then
    echo '{"services": [], "jobs": {"version": 2, "capabilities": ["progress"]}}'
    exit
fi
echo "$action" >>"$LEDGER/$instance"
echo "$action of $instance" >&2
case $plan in
    succeeds) ;;
    fails) echo 'no disk left' >&2; exit 3 ;;
    junk) echo 'made it'; exit ;;
    slow) sleep 2 ;;
    sleeps) sleep 600 ;;
    stubborn) trap '' TERM; sleep 600 ;;
    reports) echo '{"description": "half way", "percent": 50}' >"$OSB_PROGRESS_FILE"; sleep 600 ;;
esac
echo '{"dashboard_url": "https://dashboard.example"}'
"#;

/// What the broker is to do: the id of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Prints an output with a `dashboard_url`.
    Succeeds,
    /// Says `no disk left` on stderr and exits with status 3.
    Fails,
    /// Prints what is not JSON.
    Junk,
    /// Succeeds after two seconds.
    Slow,
    /// Sleeps for ten minutes; ends on SIGTERM.
    Sleeps,
    /// Sleeps for ten minutes and does not end on SIGTERM.
    Stubborn,
    /// Says that it is `half way` and sleeps for ten minutes.
    Reports,
}

impl Behaviour {
    fn plan(self) -> &'static str {
        match self {
            Self::Succeeds => "succeeds",
            Self::Fails => "fails",
            Self::Junk => "junk",
            Self::Slow => "slow",
            Self::Sleeps => "sleeps",
            Self::Stubborn => "stubborn",
            Self::Reports => "reports",
        }
    }
}

/// What an adapter provides for its tests.
#[async_trait]
pub trait Harness: Send + Sync {
    /// A runner over the harness's state. Each call is a restart: the runners before it are not told.
    /// A broker that does not end on SIGTERM is ended after a second or two.
    async fn runner(&self) -> Arc<dyn Runner>;

    /// How often a broker was started for this instance.
    async fn effects(&self, instance: &InstanceId) -> usize;

    /// Ends whatever stands behind a run that goes on, so that it leaves no result.
    async fn lose(&self, run: &RunName);
}

/// Provisions an instance of its own, called as the run is.
pub fn run(behaviour: Behaviour, name: &str) -> Run {
    let (instance, service) = (InstanceId::new(name).unwrap(), ServiceId::new("service").unwrap());
    let work = Work {
        action: Action::Provision,
        service_id: service,
        plan_id: PlanId::new(behaviour.plan()).unwrap(),
        instance_id: instance,
        binding_id: None,
        operation_id: name.to_owned(),
        attempt: 1,
        deadline: None,
        parameters: osb::Object::new().into(),
        context: osb::Object::new().into(),
        previous_values: None,
        maintenance_info: None,
        bind_resource: None,
        predecessor_binding_id: None,
        originating_identity: None,
        state: None,
        external_operation: None,
        progress: osb::broker::Progress::default(),
    };
    Run {
        name: RunName::parse(name).unwrap(),
        work,
        timeout: Duration::from_secs(120),
        capabilities: vec![Capability::Progress],
    }
}

/// Waits for a state of a run, for a minute.
pub async fn until(
    runner: &dyn Runner,
    name: &RunName,
    what: impl Fn(&RunState) -> bool,
) -> RunState {
    let waited = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            let state = runner.observe(name).await.unwrap();
            if what(&state) {
                return state;
            }
            runner.changed(name).await;
        }
    });
    match waited.await {
        Ok(state) => state,
        Err(_) => panic!("{name} is still {:?}", runner.observe(name).await),
    }
}

/// Waits for the end of a run, for a minute.
pub async fn until_finished(runner: &dyn Runner, name: &RunName) -> Result<Output, RunFailure> {
    match until(runner, name, |state| !matches!(state, RunState::Running { .. })).await {
        RunState::Finished(result) => result,
        state => panic!("{name} is {state:?}"),
    }
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

async fn until_effect(harness: &dyn Harness, run: &Run) {
    for _ in 0..600 {
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
    let description = assert_failed(&result, Reason::ExitStatus);
    assert!(description.contains("status 3") && description.contains("no disk left"));
}

/// What is not JSON is told, without being repeated.
pub async fn a_run_that_prints_junk_fails(harness: &dyn Harness) {
    let (runner, run) = started(harness, Behaviour::Junk, "junk-1").await;
    let result = until_finished(&*runner, &run.name).await;
    assert!(!assert_failed(&result, Reason::NotJson).contains("made it"));
}

/// One after the other, at the same time, after the end, and by another runner: one effect.
pub async fn starting_twice_is_one_effect(harness: &dyn Harness) {
    let (first, second) = (harness.runner().await, harness.runner().await);
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
        let state = harness.runner().await.observe(&run.name).await.unwrap();
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
    let runner = harness.runner().await;
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
    drop(runner);
    let runner = harness.runner().await;
    assert_ne!(runner.observe(&run.name).await.unwrap(), RunState::Absent);
    runner.start(&run).await.unwrap();
    until_finished(&*runner, &run.name).await.unwrap();
    assert_eq!(harness.effects(&run.work.instance_id).await, 1);
}

/// An adopted run can be ended.
pub async fn an_adopted_run_can_be_cancelled(harness: &dyn Harness) {
    let (runner, run) = started(harness, Behaviour::Sleeps, "adopted-cancel-1").await;
    until_effect(harness, &run).await;
    drop(runner);
    let runner = harness.runner().await;
    runner.cancel(&run.name).await.unwrap();
    assert_failed(&until_finished(&*runner, &run.name).await, Reason::Halted);
}

/// The log can be read while the run goes on, when it has ended, and when it was released.
pub async fn a_log_is_kept_after_release(harness: &dyn Harness) {
    let (runner, run) = started(harness, Behaviour::Fails, "log-1").await;
    let _ = until_finished(&*runner, &run.name).await;
    for released in [false, true] {
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
        tokio::time::timeout(Duration::from_secs(15), runner.changed(name)).await.unwrap();
    }
    runner.cancel(&run.name).await.unwrap();
    let _ = until_finished(&*runner, &run.name).await;
    tokio::time::timeout(Duration::from_secs(15), runner.changed(&run.name)).await.unwrap();
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

/// The catalog comes without what is meant for us.
pub async fn the_offer_is_read(harness: &dyn Harness) {
    let offer = harness.runner().await.offer().await.unwrap();
    assert_eq!(offer.catalog, json!({"services": []}));
    assert_eq!(offer.capabilities, [Capability::Progress]);
}

/// Makes a test of each case; takes an expression that makes a [`Harness`] anew.
#[macro_export]
macro_rules! runner_contract {
    ($harness:expr) => {
        $crate::runner_contract! {
            @cases $harness;
            an_unknown_run_is_absent
            a_run_that_succeeds_gives_its_output
            a_run_that_fails_says_how
            a_run_that_prints_junk_fails
            starting_twice_is_one_effect
            a_result_is_kept_until_it_is_released
            a_cancelled_run_is_halted
            a_stubborn_run_is_halted_too
            cancelling_a_finished_run_changes_nothing
            a_run_over_its_time_is_ended
            an_unreleased_run_is_found_again
            a_run_that_vanished_is_lost
            a_run_survives_a_restart
            an_adopted_run_can_be_cancelled
            a_log_is_kept_after_release
            progress_is_seen
            releasing_a_run_that_goes_on_ends_it
            waiting_is_bounded_and_woken
            runs_are_apart
            the_offer_is_read
        }
    };
    (@cases $harness:expr; $($case:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::testing::runner_contract::$case(&$harness).await;
            }
        )*
    };
}
