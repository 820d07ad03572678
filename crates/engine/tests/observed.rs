//! What an observer is told: how each operation ended, and why one does not get on; not how far it is.

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::ports::{Offer, StartError};
use engine::record::Record;
use engine::testing::TestClock;
use engine::testing::scripted_runner::Act;
use engine::{Engine, Observer, Policy, Ports};
use osb::jobs::contract::Capability;
use osb::{Backend, Output};
use serde_json::json;
use support::{World, asynchronous, catalog, id, provision};

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
        let engine = Engine::new(
            Policy::default(),
            Ports {
                store: Arc::clone(&world.store) as _,
                runner: Arc::new(world.runner.clone()),
                clock: Arc::new(TestClock::default()),
                observer: Arc::clone(&told) as _,
            },
        );
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
