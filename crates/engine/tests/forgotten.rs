//! Brokers in a process, whose runs nobody knows of once it is gone.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use engine::in_process::InProcess;
use engine::testing::{MemoryStore, TestClock};
use engine::{Engine, Policy, Ports};
use osb::{Broker, Catalog, Failure, OperationState, Output, Work};
use serde_json::json;
use support::{Platform, offer, operation};

/// Makes something at once, and then takes its time.
#[derive(Clone, Default)]
struct Author {
    made: Arc<AtomicU32>,
    removed: Arc<AtomicU32>,
}

impl Broker for Author {
    async fn catalog(&self) -> Result<Catalog, Failure> {
        Ok(Catalog::default())
    }

    async fn provision(&self, _: Work) -> Result<Output, Failure> {
        self.made.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(600)).await;
        Ok(Output::default())
    }

    async fn deprovision(&self, _: Work) -> Result<Output, Failure> {
        self.removed.fetch_add(1, Ordering::Relaxed);
        Ok(Output::default())
    }
}

/// A process of its own: what another has begun it does not know.
async fn process(store: &Arc<MemoryStore>, author: &Author) -> Platform {
    let ports = Ports {
        store: Arc::clone(store) as _,
        runner: Arc::new(InProcess::new(author.clone())),
        clock: Arc::new(TestClock::default()),
        observer: Arc::new(()),
    };
    let engine = Engine::new(Policy::default(), ports);
    engine.set_offer(offer()).await.unwrap();
    Platform(engine)
}

#[tokio::test(start_paused = true)]
async fn a_delete_of_what_a_process_that_is_gone_may_have_made_asks_the_broker() {
    let (store, author) = (Arc::new(MemoryStore::default()), Author::default());
    let before = process(&store, &author).await;
    operation(before.provision(json!({})).await.unwrap());
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(author.made.load(Ordering::Relaxed), 1);
    // Before it was recorded that the run has begun.
    before.0.set_driving(false);
    drop(before);
    let after = process(&store, &author).await;
    let delete = operation(after.deprovision().await.unwrap());
    assert_eq!(after.wait(&delete).await.state, OperationState::Succeeded);
    assert_eq!(author.removed.load(Ordering::Relaxed), 1, "what was made stays");
}
