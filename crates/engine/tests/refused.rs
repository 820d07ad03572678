//! Starts that a runner refuses, over an in-memory world: they are repeated after a pause, or fail what they are of.

mod support;

use std::time::Duration;

use engine::decide::STARTS;
use engine::ports::{RunFailure, StartError};
use engine::record::{Key, Lifecycle, Reason};
use engine::testing::scripted_runner::{Act, fitting_output};
use osb::{Action, Failure, FailureKind, OperationState, Work};
use serde_json::json;
use support::{Platform, World, binding_id, id, operation};

async fn platform(world: &World) -> Platform {
    Platform(world.engine().await)
}

/// What is said of an operation, as soon as anything is.
async fn said(platform: &Platform, operation: &str) -> String {
    loop {
        if let Some(said) = platform.poll(operation).await.unwrap().description {
            return said;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_refused_for_now_is_repeated_and_one_refused_for_good_fails() {
    let world = World::default();
    let platform = platform(&world).await;
    world.runner.refuse_start(StartError::Transient("no processes left".into()));
    world.runner.refuse_start(StartError::Transient("no processes left".into()));
    let ordered = operation(platform.provision(json!({})).await.unwrap());
    let words = "its run cannot be started yet: no processes left";
    assert_eq!(said(&platform, &ordered).await, words);
    platform.wait(&ordered).await;
    world.runner.refuse_start(StartError::Permanent("/bin/broker: no such file".into()));
    let operation = operation(platform.bind(json!({})).await.unwrap());
    let answer = platform.wait_binding(&operation).await;
    assert_eq!(answer.description.as_deref(), Some("/bin/broker: no such file"));
    let key = Key::Binding(id("i"), binding_id("b"));
    let record = world.record(&key).await.unwrap();
    assert_eq!(record.lifecycle, Lifecycle::Deleted, "nothing was made, so nothing is left");
}

#[tokio::test(start_paused = true)]
async fn a_start_that_whoever_leads_knows_nothing_of_yet_is_waited_for_and_fails_nothing() {
    let world = World::default();
    let platform = platform(&world).await;
    // Refused, it would have failed long before.
    for _ in 0..4 * STARTS {
        world.runner.refuse_start(StartError::Unready("the catalogs are being read".into()));
    }
    let ordered = operation(platform.provision(json!({})).await.unwrap());
    let words = "its run cannot be started yet: the catalogs are being read";
    assert_eq!(said(&platform, &ordered).await, words);
    platform.wait(&ordered).await;
    assert_eq!(world.runner.works().len(), 1);
    // What is refused since begins to count only then.
    for _ in 1..STARTS {
        world.runner.refuse_start(StartError::Transient("no processes left".into()));
    }
    let ordered = operation(platform.bind(json!({})).await.unwrap());
    let last = platform.wait_binding(&ordered).await;
    assert_eq!(last.state, OperationState::Succeeded, "{last:?}");
}

/// What was refused to a bind is not held against the unbind that comes while it waits.
#[tokio::test(start_paused = true)]
async fn starts_that_were_refused_count_for_their_own_operation_alone() {
    let world = World::default();
    let platform = platform(&world).await;
    platform.provisioned().await;
    world.runner.script(|work: &Work| match work.action {
        Action::Bind => {
            let failure = Failure::new(FailureKind::Transient, "try later");
            Act::End(Duration::ZERO, Err(RunFailure::new(Reason::Reported, failure)))
        }
        _ => Act::End(Duration::ZERO, Ok(fitting_output(work))),
    });
    let bind = operation(platform.bind(json!({})).await.unwrap());
    while world.runner.works().iter().all(|work| work.action != Action::Bind) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // All but one that it may be refused, and then those that do not count.
    for _ in 1..STARTS {
        world.runner.refuse_start(StartError::Transient("a quota is used up".into()));
    }
    for _ in 0..40 {
        world.runner.refuse_start(StartError::Unready("the catalogs are being read".into()));
    }
    world.runner.refuse_start(StartError::Transient("a quota is used up".into()));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(platform.poll_binding(&bind).await.unwrap().state, OperationState::InProgress);
    let unbind = operation(platform.unbind().await.unwrap());
    let last = platform.wait_binding(&unbind).await;
    assert_eq!(last.state, OperationState::Succeeded, "{last:?}");
}

/// Whoever asks again, and every change that is heard of, has the record looked at.
#[tokio::test(start_paused = true)]
async fn a_pause_between_starts_is_not_cut_short_by_those_who_look() {
    let world = World::default();
    let platform = platform(&world).await;
    for _ in 1..STARTS {
        world.runner.refuse_start(StartError::Transient("a quota is used up".into()));
    }
    let begun = tokio::time::Instant::now();
    let ordered = operation(platform.provision(json!({})).await.unwrap());
    while platform.poll(&ordered).await.unwrap().state == OperationState::InProgress {
        platform.provision(json!({})).await.unwrap();
        platform.0.heard_of(&Key::Instance(id("i")), true);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let pauses = (1..STARTS).map(|times| world.policy.pause(times + 1)).sum::<Duration>();
    assert!(begun.elapsed() >= pauses, "{:?} of {pauses:?}", begun.elapsed());
    assert_eq!(platform.poll(&ordered).await.unwrap().state, OperationState::Succeeded);
}
