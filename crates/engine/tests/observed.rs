//! What an observer is told: how each operation ended, and why one does not get on; not how far it is.

#[path = "support/over.rs"]
mod over;
mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use engine::ports::{Offer, StartError, Store, StoreError, Version};
use engine::record::Record;
use engine::testing::scripted_runner::Act;
use engine::testing::{MemoryStore, TestClock};
use engine::{Engine, Observer, Policy, Ports};
use osb::jobs::contract::Capability;
use osb::{Backend, OperationState, Output};
use over::{Otherwise, Over};
use serde_json::json;
use support::{Platform, World, asynchronous, catalog, id, offer, operation, provision};

#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Told {
    fn say(&self, what: &str, record: &Record) {
        let why = record.operation.said().unwrap_or_default();
        self.0.lock().unwrap().push(format!("{what}: {why}"));
    }
}

impl Observer for Told {
    fn ended(&self, record: &Record) {
        self.say("ended", record);
    }

    fn stuck(&self, record: &Record) {
        self.say("stuck", record);
    }
}

fn engine(store: Arc<dyn Store>, world: &World, told: &Arc<Told>) -> Engine {
    let ports = Ports {
        store,
        runner: Arc::new(world.runner.clone()),
        clock: Arc::new(TestClock::default()),
        observer: Arc::clone(told) as _,
    };
    Engine::new(Policy::default(), ports)
}

/// A platform before an engine that has its catalog.
async fn platform(store: Arc<dyn Store>, world: &World, told: &Arc<Told>) -> Platform {
    let engine = engine(store, world, told);
    engine.set_offer(offer()).await.unwrap();
    Platform(engine)
}

#[tokio::test(start_paused = true)]
async fn why_an_operation_does_not_get_on_is_told_once_and_how_far_one_is_never() {
    let (tells, keeps_still) = (vec![Capability::Progress], Vec::new());
    let well = || Act::End(Duration::from_secs(1), Ok(Output::default()));
    let refused = "its run cannot be started yet: no node has room";
    for (case, capabilities, act, refusals, expected) in [
        ("it goes well", &tells, well(), 0, vec!["ended: "]),
        ("a broker says how far it is", &tells, Act::Say("half way"), 0, vec![]),
        ("a broker has the words for it that are ours", &tells, Act::Say(refused), 0, vec![]),
        (
            "a runner says what it waits for",
            &keeps_still,
            Act::Say("no node takes it"),
            0,
            vec!["stuck: no node takes it"],
        ),
        ("once may be a moment's trouble", &tells, well(), 1, vec!["ended: "]),
        (
            "it is not begun, again and again",
            &tells,
            well(),
            5,
            vec![&*format!("stuck: {refused}"), "ended: "],
        ),
        (
            "the same of a broker that keeps still",
            &keeps_still,
            well(),
            5,
            vec![&*format!("stuck: {refused}"), "ended: "],
        ),
    ] {
        let world = World::default();
        world.runner.script(move |_| act.clone());
        for _ in 0..refusals {
            world.runner.refuse_start(StartError::Transient("no node has room".into()));
        }
        let told = Arc::new(Told::default());
        let engine = engine(Arc::clone(&world.store) as _, &world, &told);
        let capabilities = capabilities.clone();
        engine
            .set_offer(Offer { catalog: catalog(), capabilities, ..Offer::default() })
            .await
            .unwrap();
        engine.provision(&asynchronous(), &id("i"), provision(json!({}))).await.unwrap();
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(*told.0.lock().unwrap(), expected, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_hinders_the_runner_is_said_while_it_lasts_and_ends_nothing() {
    let (world, told) = (World::default(), Arc::new(Told::default()));
    world.runner.script(|_| Act::End(Duration::from_secs(300), Ok(Output::default())));
    let platform = platform(Arc::clone(&world.store) as _, &world, &told).await;
    let ordered = operation(platform.provision(json!({})).await.unwrap());
    let said = async |after: u64| {
        tokio::time::sleep(Duration::from_secs(after)).await;
        platform.poll(&ordered).await.unwrap().description
    };
    assert_eq!(said(60).await, None);
    let because = |why: &str| Some(format!("its run cannot be looked at or ended: {why}"));
    world.runner.hinder(Some("no right to"));
    assert_eq!(said(1).await, None, "it may be a moment's trouble");
    assert_eq!(said(30).await, because("no right to"));
    world.runner.hinder(Some("no answer"));
    assert_eq!(said(5).await, because("no right to"), "no write for each new word");
    assert_eq!(said(60).await, because("no answer"));
    world.runner.hinder(None);
    assert_eq!(said(30).await, None);
    assert_eq!(platform.wait(&ordered).await.state, OperationState::Succeeded);
    let words = ["no right to", "no answer"].map(|why| format!("stuck: {}", because(why).unwrap()));
    let expected: Vec<_> = words.into_iter().chain(["ended: ".to_owned()]).collect();
    assert_eq!(*told.0.lock().unwrap(), expected);
}

/// A delete has to end what it halts.
#[tokio::test(start_paused = true)]
async fn a_run_that_cannot_be_ended_is_named_by_the_delete_that_waits_for_it() {
    let (world, told) = (World::default(), Arc::new(Told::default()));
    world.runner.script(|_| Act::End(Duration::from_secs(600), Ok(Output::default())));
    let platform = platform(Arc::clone(&world.store) as _, &world, &told).await;
    platform.provision(json!({})).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.runner.hinder(Some("no right to"));
    let removed = operation(platform.deprovision().await.unwrap());
    tokio::time::sleep(Duration::from_secs(30)).await;
    let said = platform.poll(&removed).await.unwrap();
    assert_eq!(said.state, OperationState::InProgress);
    assert!(said.description.unwrap().ends_with("no right to"));
    world.runner.hinder(None);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(platform.poll(&removed).await.unwrap().description, None, "its own run goes on");
}

/// The answers to writes of ends get lost.
struct Unheard(Arc<MemoryStore>);

#[async_trait]
impl Otherwise for Unheard {
    fn inner(&self) -> &MemoryStore {
        &self.0
    }

    async fn write(
        &self,
        record: Arc<Record>,
        expected: Option<&Version>,
    ) -> Result<Version, StoreError> {
        let ends = !record.is_busy();
        let written = self.0.write(record, expected).await?;
        match ends {
            true => Err(StoreError::Unavailable("no answer".into())),
            false => Ok(written),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_whose_write_was_not_answered_is_told_once_and_its_run_let_go_of_at_once() {
    let (world, told) = (World::default(), Arc::new(Told::default()));
    let store = Over(Unheard(Arc::clone(&world.store)));
    let platform = platform(Arc::new(store), &world, &told).await;
    let ordered = operation(platform.provision(json!({})).await.unwrap());
    assert_eq!(platform.wait(&ordered).await.state, OperationState::Succeeded);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(*told.0.lock().unwrap(), ["ended: "]);
    assert_eq!(world.runner.kept(), []);
}
