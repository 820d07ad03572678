//! What is left of what failed: state for later runs, and a record that says what a platform is to do.

mod support;

use std::sync::Arc;
use std::time::Duration;

use engine::ports::{RunFailure, Store};
use engine::record::{Key, Lifecycle, Reason};
use engine::testing::scripted_runner::{Act, fitting_output};
use osb::{
    Action, Backend, Call, ErrorKind, Failure, FailureKind, OperationState, ProvisionRequest, Work,
};
use serde_json::json;
use support::{Platform, World, asynchronous, bind, binding_id, id, operation, provision};

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
