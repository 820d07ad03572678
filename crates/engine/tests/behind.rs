//! Stores that do not say how all stands. One's news is old: who begins to lead then knows an operation as it was recorded,
//! and not that another has carried it out since, by a run of which nothing is left. One has a binding that cannot be read, one
//! a catalog.

#[path = "support/over.rs"]
mod over;
mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use engine::policy::OnBound;
use engine::ports::{Kind, Query, Scanned, Store, StoreError, Stored, Unreadable, Version};
use engine::record::{Key, Record};
use engine::testing::{MemoryStore, TestClock};
use engine::{Engine, Policy, Ports};
use osb::{Backend, ErrorKind, OperationState};
use over::{Otherwise, Over};
use serde_json::{Value, json};
use support::{Platform, World, asynchronous, binding_id, id, offer, operation, provision};

/// What is known is what was recorded first, until it is read anew.
#[derive(Default)]
struct Behind {
    inner: Arc<MemoryStore>,
    known: Mutex<Option<Stored>>,
    /// What cannot be read of the bindings.
    torn: Option<Key>,
    /// How often a record was read as it is.
    reads: Mutex<usize>,
    /// How often it was looked at.
    glances: Mutex<usize>,
    /// The catalog was damaged.
    is_damaged: AtomicBool,
}

#[async_trait]
impl Otherwise for Behind {
    fn inner(&self) -> &MemoryStore {
        &self.inner
    }

    async fn read(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        *self.reads.lock().unwrap() += 1;
        let now = self.inner.read(key).await?;
        self.known.lock().unwrap().clone_from(&now);
        Ok(now)
    }

    async fn glance(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        *self.glances.lock().unwrap() += 1;
        Ok(self.known.lock().unwrap().clone().filter(|known| known.record.key == *key))
    }

    fn is_busy(&self, key: &Key) -> Option<bool> {
        let known = self.known.lock().unwrap();
        known.as_ref().filter(|known| known.record.key == *key).map(|known| known.record.is_busy())
    }

    fn lags(&self) -> bool {
        true
    }

    async fn write(
        &self,
        record: Arc<Record>,
        expected: Option<&Version>,
    ) -> Result<Version, StoreError> {
        let version = self.inner.write(Arc::clone(&record), expected).await?;
        *self.known.lock().unwrap() = Some(Stored { record, version: version.clone() });
        Ok(version)
    }

    async fn scan(&self, query: &Query) -> Result<Vec<Scanned>, StoreError> {
        let mut found = self.inner.scan(query).await?;
        let torn = self.torn.iter().filter(|_| query.kind == Kind::Bindings);
        found.extend(torn.map(|key| Err(Unreadable { key: key.clone(), why: "torn".into() })));
        Ok(found)
    }

    async fn busy(&self) -> Result<Vec<Key>, StoreError> {
        let known = self.known.lock().unwrap().clone();
        Ok(known.into_iter().map(|stored| stored.record.key.clone()).collect())
    }

    async fn catalog(&self) -> Result<Option<Value>, StoreError> {
        match self.is_damaged.load(Ordering::Relaxed) {
            true => Err(StoreError::Unreadable { key: "the catalog".into(), why: "torn".into() }),
            false => self.inner.catalog().await,
        }
    }

    async fn save_catalog(&self, catalog: &Value) -> Result<(), StoreError> {
        self.is_damaged.store(false, Ordering::Relaxed);
        self.inner.save_catalog(catalog).await
    }
}

async fn engine(
    world: &World,
    store: &Arc<Over<Behind>>,
    clock: Arc<TestClock>,
    policy: Policy,
) -> Engine {
    let ports = Ports {
        store: Arc::clone(store) as _,
        runner: Arc::new(world.runner.clone()),
        clock,
        observer: Arc::new(()),
    };
    let engine = Engine::new(policy, ports);
    engine.set_offer(offer()).await.unwrap();
    engine
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_cannot_be_read_ends_what_it_stands_in_the_way_of_and_holds_up_no_other() {
    let (world, clock) = (World::default(), Arc::new(TestClock::default()));
    let torn = Some(Key::Binding(id("i"), binding_id("b")));
    let behind = Behind { inner: Arc::clone(&world.store), torn, ..Behind::default() };
    let store = Arc::new(Over(behind));
    let policy = Policy { bound: OnBound::Cascade, max_runs: 1, ..Policy::default() };
    let platform = Platform(engine(&world, &store, clock, policy).await);
    platform.provisioned().await;
    let removal = operation(platform.deprovision().await.unwrap());
    let ended = platform.wait(&removal).await;
    assert_eq!(ended.state, OperationState::Failed);
    let said = ended.description.unwrap();
    assert!(said.contains("cannot be read") && said.contains("manciple purge"), "{said}");
    let change = platform.update(json!({"plan_id": "large"})).await;
    assert_eq!(change.unwrap_err().kind, ErrorKind::ConcurrencyError, "it may be busy");
    let other = platform.0.provision(&asynchronous(), &id("other"), provision(json!({}))).await;
    operation(other.unwrap());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!world.record(&Key::Instance(id("other"))).await.unwrap().is_busy());
}

#[tokio::test(start_paused = true)]
async fn a_catalog_that_was_damaged_is_as_none_and_the_next_is_saved_over_it() {
    let (world, clock) = (World::default(), Arc::new(TestClock::default()));
    let behind = Behind { inner: Arc::clone(&world.store), ..Behind::default() };
    let store = Arc::new(Over(behind));
    let engine = engine(&world, &store, clock, Policy::default()).await;
    store.0.is_damaged.store(true, Ordering::Relaxed);
    assert!(!engine.load_catalog().await.unwrap(), "a start does not fail of it");
    assert!(engine.catalog().is_some(), "what is in force stays");
    // The same as before is written, too.
    engine.set_offer(offer()).await.unwrap();
    assert!(!store.0.is_damaged.load(Ordering::Relaxed));
    assert!(engine.load_catalog().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn who_does_not_lead_looks_at_no_operation_that_goes_on_and_carries_it_out_once_it_does() {
    let (world, clock) = (World::default(), Arc::new(TestClock::default()));
    let behind = Behind { inner: Arc::clone(&world.store), ..Behind::default() };
    let store = Arc::new(Over(behind));
    let engine = engine(&world, &store, clock, Policy::default()).await;
    engine.set_driving(false);
    engine.provision(&asynchronous(), &id("i"), provision(json!({}))).await.unwrap();
    let looks = || (*store.0.glances.lock().unwrap(), *store.0.reads.lock().unwrap());
    let before = looks();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!((looks(), engine.in_progress()), (before, 1));
    engine.set_driving(true);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!world.record(&Key::Instance(id("i"))).await.unwrap().is_busy());
    assert_eq!(engine.in_progress(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_was_recorded_long_ago_is_read_once_more_before_its_first_run_and_what_is_new_is_not()
{
    for (case, later, done, begun, reads) in [
        ("it was just recorded", 0, false, 1, 0),
        ("it waits for long", 40, false, 1, 1),
        ("another has carried it out since", 120, true, 1, 2),
    ] {
        let (world, clock) = (World::default(), Arc::new(TestClock::default()));
        let another = world.engine().await;
        another.set_driving(done);
        another.provision(&asynchronous(), &id("i"), provision(json!({}))).await.unwrap();
        let key = Key::Instance(id("i"));
        let recorded = world.store.read(&key).await.unwrap();
        tokio::time::sleep(Duration::from_secs(later)).await;
        let over = !world.record(&key).await.unwrap().is_busy();
        assert_eq!(over, done, "{case}");
        another.set_driving(false);

        let store = Arc::new(Over(Behind {
            inner: Arc::clone(&world.store),
            known: Mutex::new(recorded),
            ..Behind::default()
        }));
        let engine = engine(&world, &store, clock, Policy::default()).await;
        engine.resume().await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(world.runner.works().len(), begun, "{case}");
        assert_eq!(*store.0.reads.lock().unwrap(), reads, "{case}");
        assert!(!world.record(&key).await.unwrap().is_busy(), "{case}");
    }
}
