//! The contract suite of runners: what every [`Runner`] does, whatever it runs brokers on.
//!
//! An adapter gives a [`Harness`]: how to make a runner over a state that outlives it, with a broker that
//! does what [`BROKER`] does. [`runner_contract!`](crate::runner_contract) then makes a test of each
//! case.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod cases;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use osb::jobs::contract::Capability;
use osb::{Action, InstanceId, Output, PlanId, ServiceId, Work};

pub use cases::*;

use crate::names::RunName;
use crate::ports::{Run, RunFailure, RunState, Runner};

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
    repeats) while :; do echo again >>"$LEDGER/$instance"; sleep 0.1; done ;;
    reports) echo '{"description": "half way", "percent": 50}' >"$OSB_PROGRESS_FILE"; sleep 600 ;;
esac
echo '{"dashboard_url": "https://dashboard.example"}'
"#;

/// The behaviour of the broker, which is the id of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Prints an output with a `dashboard_url`.
    Succeeds,
    /// Says `no disk left` on stderr and exits with status 3.
    Fails,
    /// Prints what is not JSON; panics, where brokers do not print.
    Junk,
    /// Succeeds after two seconds.
    Slow,
    /// Sleeps for ten minutes; ends on SIGTERM.
    Sleeps,
    /// Sleeps for ten minutes and does not end on SIGTERM.
    Stubborn,
    /// Has an effect again and again, until it is ended.
    Repeats,
    /// Says that it is `half way (50%)` and sleeps for ten minutes.
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
            Self::Repeats => "repeats",
            Self::Reports => "reports",
        }
    }
}

/// The limits of a kind of runner. The cases check what it promises instead.
#[derive(Debug, Clone, Copy)]
pub struct Nature {
    /// Whether runs outlive the process that started them. Otherwise they are absent or lost after a restart, and
    /// nothing of them goes on.
    pub survives: bool,
    /// Whether brokers are programs, which print and log. Otherwise they report a failure themselves and have no log.
    pub prints: bool,
    /// The capabilities of the broker.
    pub capabilities: &'static [Capability],
}

impl Default for Nature {
    fn default() -> Self {
        Self { survives: true, prints: true, capabilities: &[Capability::Progress] }
    }
}

/// The harness that an adapter provides for its tests.
#[async_trait]
pub trait Harness: Send + Sync {
    /// Makes a runner over the harness's state. Each call is a restart, of which the runners before it are not told.
    /// A broker that does not end on SIGTERM is killed after a second or two.
    async fn runner(&self) -> Arc<dyn Runner>;

    /// The limits of its runners.
    fn nature(&self) -> Nature {
        Nature::default()
    }

    /// How many times a broker was started for this instance.
    async fn effects(&self, instance: &InstanceId) -> usize;

    /// Ends the processes of a running run, so that it leaves no result. Called only if runs survive a restart;
    /// otherwise the end of the runner itself does it.
    async fn lose(&self, run: &RunName);
}

/// A run that provisions an instance of its own, whose id is the run's name.
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
        removes: None,
    }
}

/// Waits for a state of a run, for three minutes: a busy machine takes its time.
pub async fn until(
    runner: &dyn Runner,
    name: &RunName,
    what: impl Fn(&RunState) -> bool,
) -> RunState {
    let waited = tokio::time::timeout(Duration::from_secs(180), async {
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

/// Waits for the end of a run, for three minutes.
pub async fn until_finished(runner: &dyn Runner, name: &RunName) -> Result<Output, RunFailure> {
    match until(runner, name, |state| !matches!(state, RunState::Running { .. })).await {
        RunState::Finished(result) => result,
        state => panic!("{name} is {state:?}"),
    }
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
            what_was_ended_has_no_effect_any_more
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
