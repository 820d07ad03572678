//! What is left of what failed: state for later runs, and a record that says what a platform is to do.

mod support;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use engine::names::RunName;
use engine::ports::{
    Clock, Offer, Run, RunFailure, RunState, Runner, RunnerError, StartError, Store, StoreError,
};
use engine::record::{Key, Lifecycle, Phase, Reason};
use engine::testing::scripted_runner::{Act, fitting_output};
use engine::testing::store_contract::sample;
use engine::testing::{MemoryStore, TestClock};
use engine::{Engine, Policy, Ports};
use osb::{
    Action, Backend, Call, ErrorKind, Failure, FailureKind, OperationState, ProvisionRequest, Work,
};
use serde_json::json;
use support::{Platform, World, asynchronous, bind, binding_id, id, offer, operation, provision};

/// A run that fails, and leaves how far it came.
fn fails(kind: FailureKind, left: &str) -> Act {
    let mut failed = RunFailure::new(Reason::ExitStatus, Failure::new(kind, "words"));
    failed.state = Some(json!(left).into());
    Act::End(Duration::ZERO, Err(failed))
}

fn given(work: &Work) -> Option<&str> {
    work.state.as_ref().and_then(|state| state.expose().as_str())
}

#[tokio::test(start_paused = true)]
async fn what_a_run_left_that_failed_is_given_to_the_one_that_removes() {
    let world = World::default();
    let platform = Platform(world.engine().await);
    world.runner.script(|work| match work.action {
        Action::Provision => fails(FailureKind::Failed, "vm-7"),
        _ => Act::End(Duration::ZERO, Ok(fitting_output(work))),
    });
    let ordered = operation(platform.provision(json!({})).await.unwrap());
    assert_eq!(platform.wait(&ordered).await.state, OperationState::Failed);
    let removed = operation(platform.deprovision().await.unwrap());
    assert_eq!(platform.wait(&removed).await.state, OperationState::Succeeded);
    let works = world.runner.works();
    assert_eq!(works.iter().map(given).collect::<Vec<_>>(), [None, Some("vm-7")]);
}

#[tokio::test(start_paused = true)]
async fn what_an_attempt_left_is_given_to_the_next() {
    let world = World::default();
    let platform = Platform(world.engine().await);
    world.runner.script(|work| match work.attempt {
        1 => fails(FailureKind::Transient, "vm-7"),
        2 => Act::End(
            Duration::ZERO,
            Err(RunFailure::new(Reason::ExitStatus, Failure::new(FailureKind::Transient, "words"))),
        ),
        _ => Act::End(Duration::ZERO, Ok(fitting_output(work))),
    });
    let ordered = operation(platform.provision(json!({})).await.unwrap());
    assert_eq!(platform.wait(&ordered).await.state, OperationState::Succeeded);
    // One that leaves nothing leaves it as it is.
    let works = world.runner.works();
    assert_eq!(works.iter().map(given).collect::<Vec<_>>(), [None, Some("vm-7"), Some("vm-7")]);
}

/// An answer of 4xx says that there is nothing to remove.
#[tokio::test(start_paused = true)]
async fn a_held_bind_that_an_earlier_attempt_may_have_made_is_no_fault_of_the_platform() {
    for (attempts, expected, lifecycle) in
        [(1, ErrorKind::Conflict, Lifecycle::Deleted), (2, ErrorKind::Internal, Lifecycle::Broken)]
    {
        let world = World::default();
        let platform = Platform(world.engine().await);
        let ordered = operation(platform.provision(json!({})).await.unwrap());
        platform.wait(&ordered).await;
        world.runner.script(move |work| match work.attempt == attempts {
            true => fails(FailureKind::Conflict, ""),
            false => fails(FailureKind::Transient, ""),
        });
        let (call, binding) = (Call::default(), binding_id("b"));
        let bound = platform.0.bind(&call, &id("i"), &binding, bind(json!({}))).await;
        let error = bound.unwrap_err();
        assert_eq!(error.kind, expected, "{attempts}");
        let record = world.record(&Key::Binding(id("i"), binding_id("b"))).await.unwrap();
        assert_eq!(record.lifecycle, lifecycle, "{attempts}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_order_that_is_repeated_is_made_as_it_is_sent_then() {
    let world = World::default();
    let platform = Platform(world.engine().await);
    world.runner.script(|work| match &work.context {
        context if context.expose().contains_key("new") => {
            Act::End(Duration::ZERO, Ok(fitting_output(work)))
        }
        _ => fails(FailureKind::Failed, ""),
    });
    let in_context = async |context| {
        let order = ProvisionRequest { context: Some(context), ..provision(json!({})) };
        platform.0.provision(&asynchronous(), &id("i"), order).await
    };
    let first = operation(in_context(serde_json::from_value(json!({})).unwrap()).await.unwrap());
    assert_eq!(platform.wait(&first).await.state, OperationState::Failed);
    let again = serde_json::from_value(json!({"new": true})).unwrap();
    let second = operation(in_context(again).await.unwrap());
    assert_eq!(platform.wait(&second).await.state, OperationState::Succeeded);
}

/// As after a restore, where the runs that were made since are remembered.
#[tokio::test(start_paused = true)]
async fn a_record_as_it_once_was_gives_no_name_again() {
    let world = World::default();
    let platform = Platform(world.engine().await);
    let ordered = operation(platform.provision(json!({})).await.unwrap());
    platform.wait(&ordered).await;
    let key = Key::Instance(id("i"));
    let saved = world.record(&key).await.unwrap();
    let mut removals = Vec::new();
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let removed = operation(platform.deprovision().await.unwrap());
        platform.wait(&removed).await;
        removals.push(removed);
        let now = world.store.read(&key).await.unwrap().unwrap();
        world.store.write(Arc::clone(&saved), Some(&now.version)).await.unwrap();
    }
    assert_ne!(removals[0], removals[1]);
}

/// A runner that is ended between what a run is given and the run: nothing shows that there was one.
#[derive(Default)]
struct Hiding {
    given: Mutex<BTreeSet<RunName>>,
    released: AtomicUsize,
    is_over: AtomicBool,
}

#[async_trait]
impl Runner for Hiding {
    async fn start(&self, run: &Run) -> Result<(), StartError> {
        self.given.lock().unwrap().insert(run.name.clone());
        Err(StartError::Transient("a quota is used up".to_owned()))
    }

    async fn observe(&self, _: &RunName) -> Result<RunState, RunnerError> {
        Ok(RunState::Absent)
    }

    async fn changed(&self, _: &RunName) {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    async fn cancel(&self, _: &RunName) -> Result<(), RunnerError> {
        Ok(())
    }

    async fn release(&self, name: &RunName) -> Result<(), RunnerError> {
        if self.is_over.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.released.fetch_add(1, Ordering::Relaxed);
        self.given.lock().unwrap().remove(name);
        Ok(())
    }

    async fn unreleased(&self) -> Result<Vec<(RunName, Key)>, RunnerError> {
        Ok(Vec::new())
    }

    fn hides_leftovers(&self) -> bool {
        true
    }

    async fn log(&self, _: &RunName) -> Result<Option<String>, RunnerError> {
        Ok(None)
    }

    async fn offer(&self) -> Result<Offer, RunFailure> {
        Ok(offer())
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_run_was_given_that_nothing_shows_goes_with_the_first_sweep_of_the_next_process() {
    for (how, halts) in [("halted", true), ("never begun", false)] {
        let (store, runner) = (Arc::new(MemoryStore::default()), Arc::new(Hiding::default()));
        let clock: Arc<dyn Clock> = Arc::new(TestClock::default());
        let begin = async || {
            let ports = Ports {
                store: Arc::clone(&store) as _,
                runner: Arc::clone(&runner) as _,
                clock: Arc::clone(&clock),
                observer: Arc::new(()),
            };
            let engine = Engine::new(Policy::default(), ports);
            engine.set_offer(offer()).await.unwrap();
            engine
        };
        let platform = Platform(begin().await);
        let given = || runner.given.lock().unwrap().len();
        runner.is_over.store(true, Ordering::Relaxed);
        let ordered = operation(platform.provision(json!({})).await.unwrap());
        while given() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (last, expected) = match halts {
            true => (operation(platform.deprovision().await.unwrap()), OperationState::Succeeded),
            false => (ordered, OperationState::Failed),
        };
        assert_eq!(platform.wait(&last).await.state, expected, "{how}");
        assert_eq!(given(), 1, "{how}: the process was ended before");

        runner.is_over.store(false, Ordering::Relaxed);
        let next = begin().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        next.sweep_once().await.unwrap();
        assert_eq!(given(), 0, "{how}: it stays for ever");
        // One that is new is looked at twice, and then no more.
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_secs(10 * 60)).await;
            next.sweep_once().await.unwrap();
        }
        assert!(runner.released.load(Ordering::Relaxed) <= 2, "{how}: asked each time");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tombstone_that_cannot_be_removed_keeps_none_of_those_behind_it() {
    let mut world = World::default();
    world.policy.tombstones = Duration::ZERO;
    let engine = world.engine().await;
    let keys = ["a", "b", "c"].map(|id| {
        let mut record = sample(id);
        record.lifecycle = Lifecycle::Deleted;
        record.operation.phase = Phase::Succeeded;
        record
    });
    for record in &keys {
        world.store.write(Arc::new(record.clone()), None).await.unwrap();
    }
    world.store.hold(&keys[0].key);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let swept = engine.sweep_once().await;
    assert!(matches!(swept, Err(StoreError::Unavailable(_))), "{swept:?}");
    let mut left = Vec::new();
    for record in &keys {
        left.push(world.record(&record.key).await.is_some());
    }
    assert_eq!(left, [true, false, false]);
}
