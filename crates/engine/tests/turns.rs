//! Runs that wait for their turn: as many are alive at once as may be.

#[path = "support/over.rs"]
mod over;
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use engine::ports::{Store, StoreError, Version};
use engine::record::Record;
use engine::testing::scripted_runner::Act;
use engine::testing::{MemoryStore, TestClock};
use engine::{Engine, Policy, Ports};
use osb::{Action, Backend, Call, OperationState, Output};
use over::{Otherwise, Over};
use serde_json::json;
use support::{Platform, World, asynchronous, id, operation, provision, query};

async fn platform(world: &World) -> Platform {
    Platform(world.engine().await)
}

async fn ordered(engine: &Engine, instance: &str) -> String {
    let reply = engine.provision(&asynchronous(), &id(instance), provision(json!({}))).await;
    operation(reply.unwrap())
}

async fn says(engine: &Engine, instance: &str, operation: &str) -> Option<String> {
    let call = Call::default();
    let last = engine.instance_last_operation(&call, &id(instance), query(operation)).await;
    last.unwrap().description
}

/// Whose runs began, in their order.
fn begun(world: &World) -> Vec<String> {
    world.runner.works().iter().map(|work| work.instance_id.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn no_more_runs_are_alive_than_allowed_and_all_come_to_their_end() {
    let mut world = World::default();
    world.policy.max_runs = 4;
    let engine = world.engine().await;
    for number in 0..50 {
        let instance = id(&format!("i{number}"));
        let reply = engine.provision(&asynchronous(), &instance, provision(json!({}))).await;
        operation(reply.unwrap());
    }
    let mut most = 0;
    while engine.in_progress() > 0 {
        most = most.max(world.runner.kept().len());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(most, 4);
    assert_eq!(world.runner.begun().len(), 50);
}

#[tokio::test(start_paused = true)]
async fn a_delete_of_what_waits_for_its_turn_starts_nothing() {
    let mut world = World::default();
    world.policy.max_runs = 1;
    let platform = platform(&world).await;
    world.runner.script(|_| Act::Hang);
    let other = id("other");
    platform.0.provision(&asynchronous(), &other, provision(json!({}))).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    operation(platform.provision(json!({})).await.unwrap());
    let delete = operation(platform.deprovision().await.unwrap());
    assert_eq!(platform.wait(&delete).await.state, OperationState::Succeeded);
    assert_eq!(world.runner.works().len(), 1, "only the other one's run began");
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_its_turn_says_so_within_seconds_of_nobody_coming_to_it() {
    let mut world = World::default();
    world.policy.max_runs = 2;
    let engine = world.engine().await;
    world.runner.script(|work| match work.action {
        Action::Provision => Act::Hang,
        _ => Act::End(Duration::ZERO, Ok(Output::default())),
    });
    ordered(&engine, "first").await;
    ordered(&engine, "second").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let waits = ordered(&engine, "waits").await;
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(says(&engine, "waits", &waits).await, None);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let said = says(&engine, "waits", &waits).await.unwrap();
    assert!(said.contains("at once (2, operations.max_runs)"), "{said}");
    // It goes on to wait, and comes to its turn.
    let reply = engine.deprovision(&asynchronous(), &id("first"), support::deprovision()).await;
    operation(reply.unwrap());
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(says(&engine, "waits", &waits).await, None, "it runs");
}

#[tokio::test(start_paused = true)]
async fn whoever_is_woken_while_it_waits_keeps_its_place() {
    let mut world = World::default();
    world.policy.max_runs = 1;
    let engine = world.engine().await;
    world.runner.script(|_| Act::End(Duration::from_secs(20), Ok(Output::default())));
    let instances: Vec<_> = (0..6).map(|number| format!("i{number}")).collect();
    for instance in &instances {
        ordered(&engine, instance).await;
    }
    let mut woken = instances.iter().cycle();
    while engine.in_progress() > 0 {
        // By a platform that asks once more, by another process that was heard of, and by one that looks at everything.
        let key = engine::record::Key::Instance(id(woken.next().unwrap()));
        let _ = engine.provision(&asynchronous(), &id("i1"), provision(json!({}))).await;
        engine.heard_of(&key, true);
        engine.told_again(&key, true);
        tokio::time::sleep(Duration::from_secs(7)).await;
    }
    assert_eq!(begun(&world), instances);
}

#[tokio::test(start_paused = true)]
async fn whoever_says_that_it_waits_keeps_its_place() {
    let mut world = World::default();
    world.policy.max_runs = 1;
    let engine = world.engine().await;
    world.runner.script(|_| Act::End(Duration::from_secs(30), Ok(Output::default())));
    let runs = ordered(&engine, "runs").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let first = ordered(&engine, "first").await;
    tokio::time::sleep(Duration::from_secs(9)).await;
    ordered(&engine, "second").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(says(&engine, "first", &first).await.unwrap().contains("waits for its turn"));
    assert_eq!(says(&engine, "runs", &runs).await, None);
    while engine.in_progress() > 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(begun(&world), ["runs", "first", "second"]);
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_moves_costs_those_who_wait_in_it_no_write() {
    let mut world = World::default();
    world.policy.max_runs = 4;
    let engine = world.engine().await;
    world.runner.script(|_| Act::End(Duration::from_secs(4), Ok(Output::default())));
    let mut orders = Vec::new();
    for number in 0..80 {
        let instance = format!("i{number}");
        orders.push((ordered(&engine, &instance).await, instance));
    }
    // The last one's turn is after 76 s; it waits in silence for a minute at most.
    for _ in 0..55 {
        for (operation, instance) in &orders {
            assert_eq!(says(&engine, instance, operation).await, None, "{instance}");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    tokio::time::sleep(Duration::from_secs(8)).await;
    let (operation, instance) = &orders[79];
    let said = says(&engine, instance, operation).await.unwrap();
    assert!(said.contains("waits for its turn"), "{said}");
    while engine.in_progress() > 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(world.runner.begun().len(), 80);
}

/// Lets no outcome of one instance in, and counts how often it was tried.
struct Refusing {
    inner: Arc<MemoryStore>,
    tried: Arc<AtomicUsize>,
}

#[async_trait]
impl Otherwise for Refusing {
    fn inner(&self) -> &MemoryStore {
        &self.inner
    }

    async fn write(
        &self,
        record: Arc<Record>,
        expected: Option<&Version>,
    ) -> Result<Version, StoreError> {
        if !record.is_busy() && record.key.instance().as_str() == "refused" {
            self.tried.fetch_add(1, Ordering::Relaxed);
            return Err(StoreError::Unavailable("a webhook denies it".to_owned()));
        }
        self.inner.write(record, expected).await
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_is_not_let_in_takes_no_place_from_others_and_is_tried_ever_less_often() {
    let world = World::default();
    let tried = Arc::<AtomicUsize>::default();
    let (inner, count) = (Arc::clone(&world.store), Arc::clone(&tried));
    let engine = Engine::new(
        Policy { max_runs: 1, ..Policy::default() },
        Ports {
            store: Arc::new(Over(Refusing { inner, tried: count })),
            runner: Arc::new(world.runner.clone()),
            clock: Arc::new(TestClock::default()),
            observer: Arc::new(()),
        },
    );
    engine.set_offer(support::offer()).await.unwrap();
    ordered(&engine, "refused").await;
    let other = ordered(&engine, "other").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let call = Call::default();
    let last = engine.instance_last_operation(&call, &id("other"), query(&other)).await.unwrap();
    assert_eq!(last.state, OperationState::Succeeded, "{last:?}");
    // After 0.5, 1.5, 3.5, 7.5 and 15.5 s, and then each 8.
    let tried = tried.load(Ordering::Relaxed);
    assert!((8..=12).contains(&tried), "it was tried {tried} times in a minute");
}
