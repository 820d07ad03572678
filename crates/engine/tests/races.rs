//! What happens between a look and the write that it led to.

mod support;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use engine::ports::{Query, RunFailure, Scanned, Store, StoreError, Stored, Version};
use engine::record::{Key, Lifecycle, Phase, Reason, Record};
use engine::testing::scripted_runner::{Act, fitting_output};
use engine::testing::{MemoryStore, TestClock};
use engine::{Engine, Policy, Ports};
use osb::{Action, Backend, Failure, FailureKind, PlanId, ServiceId};
use serde_json::{Value, json};
use support::{
    Random, World, asynchronous, bind, binding_id, id, offer, provision, unbind, update,
};
use tokio::time::Instant;

type Meanwhile = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A call of the store.
#[derive(Clone, Copy, PartialEq)]
enum At {
    Look,
    Write,
}

/// A store in which something else happens just before a call.
struct Interposed {
    inner: Arc<MemoryStore>,
    before: Box<dyn Fn(At) -> Option<Meanwhile> + Send + Sync>,
}

impl Interposed {
    async fn pass(&self, at: At) {
        if let Some(meanwhile) = (self.before)(at) {
            meanwhile.await;
        }
    }
}

#[async_trait]
impl Store for Interposed {
    async fn read(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        self.pass(At::Look).await;
        self.inner.read(key).await
    }

    async fn write(
        &self,
        record: Arc<Record>,
        expected: Option<&Version>,
    ) -> Result<Version, StoreError> {
        self.pass(At::Write).await;
        self.inner.write(record, expected).await
    }

    async fn remove(&self, key: &Key, expected: &Version) -> Result<(), StoreError> {
        self.inner.remove(key, expected).await
    }

    async fn scan(&self, query: &Query) -> Result<Vec<Scanned>, StoreError> {
        self.pass(At::Look).await;
        self.inner.scan(query).await
    }

    async fn discard(&self, key: &Key) -> Result<(), StoreError> {
        self.inner.discard(key).await
    }

    async fn busy(&self) -> Result<Vec<Key>, StoreError> {
        self.inner.busy().await
    }

    async fn plans_in_use(&self) -> Result<Vec<(ServiceId, PlanId)>, StoreError> {
        self.inner.plans_in_use().await
    }

    async fn catalog(&self) -> Result<Option<Value>, StoreError> {
        self.inner.catalog().await
    }

    async fn save_catalog(&self, catalog: &Value) -> Result<(), StoreError> {
        self.inner.save_catalog(catalog).await
    }
}

async fn rest(engine: &Engine) {
    while engine.in_progress() > 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// A further process on the same store and runs.
fn beside(
    world: &World,
    before: impl Fn(At) -> Option<Meanwhile> + Send + Sync + 'static,
) -> Engine {
    let store = Interposed { inner: Arc::clone(&world.store), before: Box::new(before) };
    Engine::new(
        Policy::default(),
        Ports {
            store: Arc::new(store),
            runner: Arc::new(world.runner.clone()),
            clock: Arc::new(TestClock::default()),
            observer: Arc::new(()),
        },
    )
}

#[tokio::test(start_paused = true)]
async fn a_purged_instance_leaves_no_binding_that_came_in_between() {
    let world = World::default();
    let platform = world.engine().await;
    let order = provision(json!({}));
    platform.provision(&asynchronous(), &id("i"), order).await.unwrap();
    rest(&platform).await;

    let binder = platform.clone();
    let meanwhile: Meanwhile = Box::pin(async move {
        let (instance, binding) = (id("i"), binding_id("late"));
        binder.bind(&asynchronous(), &instance, &binding, bind(json!({}))).await.unwrap();
        rest(&binder).await;
    });
    let meanwhile = Mutex::new(Some(meanwhile));
    let once = move |at| if at == At::Write { meanwhile.lock().unwrap().take() } else { None };
    let operator = beside(&world, once);
    operator.purge(&Key::Instance(id("i"))).await.unwrap();
    rest(&platform).await;
    for key in [Key::Instance(id("i")), Key::Binding(id("i"), binding_id("late"))] {
        let record = world.record(&key).await.unwrap();
        assert_eq!(record.lifecycle, Lifecycle::Deleted, "{key}");
    }
    assert_eq!(world.runner.kept(), []);
}

/// The runs of a world: what each does, from when to when.
type Spans = Arc<Mutex<Vec<(Action, Instant, Instant)>>>;

/// Orders an update, a bind and an unbind of one instance at once, over a store that is now quick and
/// now slow. Returns what ran, and what each of the three came to.
async fn update_beside_bindings(seed: u64) -> (Spans, Vec<(Action, bool)>) {
    let world = World::default();
    let (spans, mut random) = (Spans::default(), Random::new(seed));
    let seen = Arc::clone(&spans);
    world.runner.script(move |work| {
        let last = Duration::from_millis(20);
        seen.lock().unwrap().push((work.action, Instant::now(), Instant::now() + last));
        let fails = seed.is_multiple_of(3) && work.attempt == 1;
        let failure = Failure::new(FailureKind::Transient, "not yet");
        let failed = RunFailure { reason: Reason::Reported, failure };
        Act::End(last, if fails { Err(failed) } else { Ok(fitting_output(work)) })
    });
    let delays = Mutex::new(Random::new(seed));
    let engine = beside(&world, move |_| {
        let delay = Duration::from_millis(delays.lock().unwrap().below(8));
        Some(Box::pin(tokio::time::sleep(delay)))
    });
    engine.set_offer(offer()).await.unwrap();
    let order = provision(json!({}));
    engine.provision(&asynchronous(), &id("i"), order).await.unwrap();
    rest(&engine).await;
    engine.bind(&asynchronous(), &id("i"), &binding_id("old"), bind(json!({}))).await.unwrap();
    rest(&engine).await;
    spans.lock().unwrap().clear();

    let mut late = || tokio::time::sleep(Duration::from_millis(random.below(30)));
    let (update_at, bind_at, unbind_at) = (late(), late(), late());
    let (instance, call) = (id("i"), asynchronous());
    let (new, old) = (binding_id("new"), binding_id("old"));
    let updating = async {
        update_at.await;
        engine.update(&call, &instance, update(json!({"parameters": {"size": 2}}))).await.is_ok()
    };
    let binding = async {
        bind_at.await;
        engine.bind(&call, &instance, &new, bind(json!({}))).await.is_ok()
    };
    let unbinding = async {
        unbind_at.await;
        engine.unbind(&call, &instance, &old, unbind()).await.is_ok()
    };
    let (updated, bound, unbound) = tokio::join!(updating, binding, unbinding);
    rest(&engine).await;

    let mut outcomes = Vec::new();
    for (action, admitted, key) in [
        (Action::Update, updated, Key::Instance(id("i"))),
        (Action::Bind, bound, Key::Binding(id("i"), new)),
        (Action::Unbind, unbound, Key::Binding(id("i"), old)),
    ] {
        if admitted {
            let record = world.record(&key).await.unwrap();
            assert_eq!(record.operation.action, action, "seed {seed}");
            assert!(!record.is_busy(), "seed {seed}: {action} is stuck");
            let done = record.operation.phase == Phase::Succeeded;
            let gone = record.lifecycle == Lifecycle::Deleted;
            assert!(action != Action::Bind || done != gone, "seed {seed}: {record:?}");
            outcomes.push((action, done));
        }
    }
    (spans, outcomes)
}

#[tokio::test(start_paused = true)]
async fn an_update_never_runs_beside_a_bind_or_an_unbind() {
    let mut ways = BTreeMap::new();
    for seed in 1..=400 {
        let (spans, outcomes) = update_beside_bindings(seed).await;
        let spans = spans.lock().unwrap();
        for (_, from, to) in spans.iter().filter(|(action, ..)| *action == Action::Update) {
            for (action, began, ended) in spans.iter() {
                let apart = *action == Action::Update || ended <= from || to <= began;
                assert!(apart, "seed {seed}: {action} beside an update: {spans:?}");
            }
        }
        for (action, done) in outcomes {
            assert!(done || action != Action::Unbind, "seed {seed}: an unbind failed");
            *ways.entry(format!("{action} {done}")).or_insert(0) += 1;
        }
    }
    // Of those that were admitted, an update and a bind each gave way now and then.
    for way in ["update true", "update false", "bind true", "bind false", "unbind true"] {
        assert!(ways.contains_key(way), "{way} never came about: {ways:?}");
    }
}
