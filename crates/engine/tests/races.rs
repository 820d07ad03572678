//! What happens between a look and the write that it led to.

#[path = "support/over.rs"]
mod over;
mod support;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use engine::ports::{Query, RunFailure, Scanned, Store, StoreError, Stored, Version};
use engine::record::{Key, Lifecycle, Phase, Reason, Record};
use engine::testing::scripted_runner::{Act, fitting_output};
use engine::testing::{MemoryStore, TestClock};
use engine::{Engine, Policy, Ports};
use osb::{Action, Backend, Call, ErrorKind, Failure, FailureKind};
use over::{Otherwise, Over};
use serde_json::{Value, json};
use support::{
    World, asynchronous, bind, binding_id, deprovision, id, offer, provision, unbind, update,
};
use testkit::random::Random;
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
impl Otherwise for Interposed {
    fn inner(&self) -> &MemoryStore {
        &self.inner
    }

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

    async fn scan(&self, query: &Query) -> Result<Vec<Scanned>, StoreError> {
        self.pass(At::Look).await;
        self.inner.scan(query).await
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
            store: Arc::new(Over(store)),
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

/// An instance with a binding, over a store that is now quick and now slow.
struct Raced {
    world: World,
    engine: Engine,
    spans: Spans,
}

impl Raced {
    async fn new(seed: u64) -> Self {
        let (world, spans) = (World::default(), Spans::default());
        let seen = Arc::clone(&spans);
        world.runner.script(move |work| {
            let last = Duration::from_millis(20);
            seen.lock().unwrap().push((work.action, Instant::now(), Instant::now() + last));
            let fails = seed.is_multiple_of(3) && work.attempt == 1;
            let failure = Failure::new(FailureKind::Transient, "not yet");
            let failed = RunFailure::new(Reason::Reported, failure);
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
        Self { world, engine, spans }
    }

    async fn bind(&self, name: &str) -> bool {
        let (call, order) = (asynchronous(), bind(json!({})));
        self.engine.bind(&call, &id("i"), &binding_id(name), order).await.is_ok()
    }

    async fn unbind(&self, name: &str) -> bool {
        self.engine.unbind(&asynchronous(), &id("i"), &binding_id(name), unbind()).await.is_ok()
    }

    async fn update(&self, to: Value) -> bool {
        self.engine.update(&asynchronous(), &id("i"), update(to)).await.is_ok()
    }

    async fn deprovision(&self) -> bool {
        self.engine.deprovision(&asynchronous(), &id("i"), deprovision()).await.is_ok()
    }

    /// Whether what was admitted succeeded; `None` for what was not.
    async fn came_to(&self, action: Action, key: Key, admitted: bool) -> Option<bool> {
        admitted.then_some(())?;
        let record = self.world.record(&key).await.unwrap();
        assert_eq!(record.operation.action, action);
        assert!(!record.is_busy(), "{action} is stuck");
        let done = record.operation.phase == Phase::Succeeded;
        let gone = record.lifecycle == Lifecycle::Deleted;
        assert!(action != Action::Bind || done != gone, "{record:?}");
        Some(done)
    }

    /// None of this action ran while another did.
    fn assert_apart(&self, action: Action) {
        let spans = self.spans.lock().unwrap();
        for (_, from, to) in spans.iter().filter(|(of, ..)| *of == action) {
            for (other, began, ended) in spans.iter() {
                let apart = *other == action || ended <= from || to <= began;
                assert!(apart, "{other} beside {action}: {spans:?}");
            }
        }
    }
}

/// Now or in a moment.
fn late(random: &mut Random) -> impl Future<Output = ()> + use<> {
    tokio::time::sleep(Duration::from_millis(random.below(30)))
}

/// How often each thing came to what.
type Ways = BTreeMap<String, u32>;

fn count(ways: &mut Ways, action: Action, came_to: Option<bool>) {
    let word = came_to.map_or("refused", |done| if done { "succeeded" } else { "failed" });
    *ways.entry(format!("{action} {word}")).or_default() += 1;
}

/// Orders an update, a bind and an unbind of one instance at once.
async fn update_beside_bindings(seed: u64, ways: &mut Ways) {
    let (raced, mut random) = (Raced::new(seed).await, Random::new(seed));
    raced.bind("old").await;
    rest(&raced.engine).await;
    raced.spans.lock().unwrap().clear();

    let at = [late(&mut random), late(&mut random), late(&mut random)];
    let [update_at, bind_at, unbind_at] = at;
    let updating = async {
        update_at.await;
        raced.update(json!({"parameters": {"size": 2}})).await
    };
    let binding = async {
        bind_at.await;
        raced.bind("new").await
    };
    let unbinding = async {
        unbind_at.await;
        raced.unbind("old").await
    };
    let (updated, bound, unbound) = tokio::join!(updating, binding, unbinding);
    rest(&raced.engine).await;

    raced.assert_apart(Action::Update);
    let of = |name: &str| Key::Binding(id("i"), binding_id(name));
    let bound = raced.came_to(Action::Bind, of("new"), bound).await;
    let unbound = raced.came_to(Action::Unbind, of("old"), unbound).await;
    assert!(bound != Some(false) && unbound != Some(false), "what waits for an update failed");
    count(ways, Action::Bind, bound);
    let updated = raced.came_to(Action::Update, Key::Instance(id("i")), updated).await;
    count(ways, Action::Update, updated);
}

#[tokio::test(start_paused = true)]
async fn an_update_never_runs_beside_a_bind_or_an_unbind() {
    let mut ways = Ways::new();
    for seed in 1..=400 {
        println!("seed {seed}");
        update_beside_bindings(seed, &mut ways).await;
    }
    for way in ["update succeeded", "update failed", "bind succeeded"] {
        assert!(ways.contains_key(way), "{way} never came about: {ways:?}");
    }
}

/// Orders an update to another plan and a bind at once.
async fn replan_beside_bind(seed: u64, ways: &mut Ways) {
    let (raced, mut random) = (Raced::new(seed).await, Random::new(seed));
    let (update_at, bind_at) = (late(&mut random), late(&mut random));
    let updating = async {
        update_at.await;
        raced.update(json!({"plan_id": "large"})).await
    };
    let binding = async {
        bind_at.await;
        raced.bind("new").await
    };
    let (updated, bound) = tokio::join!(updating, binding);
    rest(&raced.engine).await;

    raced.assert_apart(Action::Update);
    let updated = raced.came_to(Action::Update, Key::Instance(id("i")), updated).await;
    let key = Key::Binding(id("i"), binding_id("new"));
    let bound = raced.came_to(Action::Bind, key, bound).await;
    assert!(updated == Some(true) || bound == Some(true), "{updated:?} {bound:?}");
    count(ways, Action::Bind, bound);
}

#[tokio::test(start_paused = true)]
async fn of_an_update_to_another_plan_and_a_bind_one_is_carried_out() {
    let mut ways = Ways::new();
    for seed in 1..=400 {
        println!("seed {seed}");
        replan_beside_bind(seed, &mut ways).await;
    }
    for way in ["bind succeeded", "bind failed"] {
        assert!(ways.contains_key(way), "{way} never came about: {ways:?}");
    }
}

/// Orders the end of an instance and a binding of it at once.
async fn deprovision_beside_bind(seed: u64, ways: &mut Ways) {
    let (raced, mut random) = (Raced::new(seed).await, Random::new(seed));
    let (delete_at, bind_at) = (late(&mut random), late(&mut random));
    let deleting = async {
        delete_at.await;
        raced.deprovision().await
    };
    let binding = async {
        bind_at.await;
        raced.bind("new").await
    };
    let (deleted, bound) = tokio::join!(deleting, binding);
    rest(&raced.engine).await;

    raced.assert_apart(Action::Deprovision);
    let deleted = raced.came_to(Action::Deprovision, Key::Instance(id("i")), deleted).await;
    let key = Key::Binding(id("i"), binding_id("new"));
    let bound = raced.came_to(Action::Bind, key, bound).await;
    assert!((deleted == Some(true)) != (bound == Some(true)), "{deleted:?} {bound:?}");
    count(ways, Action::Deprovision, deleted);
    count(ways, Action::Bind, bound);
}

#[tokio::test(start_paused = true)]
async fn of_a_deprovision_and_a_bind_one_is_carried_out() {
    let mut ways = Ways::new();
    for seed in 1..=400 {
        println!("seed {seed}");
        deprovision_beside_bind(seed, &mut ways).await;
    }
    for way in ["deprovision succeeded", "deprovision failed", "bind succeeded", "bind failed"] {
        assert!(ways.contains_key(way), "{way} never came about: {ways:?}");
    }
}

/// A store that has too much to do, from when it is said so, for who wants to know how something stands now.
struct Busy(Arc<MemoryStore>, Arc<AtomicBool>);

#[async_trait]
impl Otherwise for Busy {
    fn inner(&self) -> &MemoryStore {
        &self.0
    }

    async fn read(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        match self.1.load(Ordering::Relaxed) {
            true => Err(StoreError::Overloaded),
            false => self.0.read(key).await,
        }
    }

    async fn glance(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        self.0.glance(key).await
    }
}

/// Who is told that nothing was recorded looks after nothing.
#[tokio::test(start_paused = true)]
async fn what_was_recorded_is_not_said_to_have_been_too_much() {
    let (world, busy) = (World::default(), Arc::new(AtomicBool::new(false)));
    let engine = Engine::new(
        Policy::default(),
        Ports {
            store: Arc::new(Over(Busy(Arc::clone(&world.store), Arc::clone(&busy)))),
            runner: Arc::new(world.runner.clone()),
            clock: Arc::new(TestClock::default()),
            observer: Arc::new(()),
        },
    );
    engine.set_offer(offer()).await.unwrap();
    engine.provision(&asynchronous(), &id("i"), provision(json!({}))).await.unwrap();
    rest(&engine).await;
    let begins = Arc::clone(&busy);
    world.runner.script(move |work| {
        begins.store(true, Ordering::Relaxed);
        Act::End(Duration::ZERO, Ok(fitting_output(work)))
    });
    let held = engine.bind(&Call::default(), &id("i"), &binding_id("b"), bind(json!({}))).await;
    let error = held.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error:?}");
    busy.store(false, Ordering::Relaxed);
    let key = Key::Binding(id("i"), binding_id("b"));
    assert_eq!(world.record(&key).await.unwrap().lifecycle, Lifecycle::Ready, "it was carried out");
}

/// How far it is may be written in the moment in which a request gives it up.
#[tokio::test(start_paused = true)]
async fn a_held_bind_that_runs_over_is_undone_though_something_is_written_of_it_meanwhile() {
    let world = World::default();
    let (store, key) = (Arc::clone(&world.store), Key::Binding(id("i"), binding_id("b")));
    let (begun, once) = (Instant::now(), AtomicBool::new(true));
    let written = key.clone();
    let engine = beside(&world, move |at| {
        let is_late = begun.elapsed() >= Duration::from_secs(50);
        if at != At::Write || !is_late || !once.swap(false, Ordering::Relaxed) {
            return None;
        }
        let (store, key) = (Arc::clone(&store), written.clone());
        Some(Box::pin(async move {
            let now = store.read(&key).await.unwrap().unwrap();
            let mut next = (*now.record).clone();
            next.operation.progress = Some("half of it".to_owned());
            store.write(Arc::new(next), Some(&now.version)).await.unwrap();
        }))
    });
    engine.set_offer(offer()).await.unwrap();
    engine.provision(&asynchronous(), &id("i"), provision(json!({}))).await.unwrap();
    rest(&engine).await;
    world.runner.script(|work| match work.action {
        Action::Bind => Act::Hang,
        _ => Act::End(Duration::ZERO, Ok(fitting_output(work))),
    });
    let held = engine.bind(&Call::default(), &id("i"), &binding_id("b"), bind(json!({}))).await;
    assert_eq!(held.unwrap_err().kind, ErrorKind::Timeout);
    rest(&engine).await;
    assert_eq!(world.record(&key).await.unwrap().lifecycle, Lifecycle::Deleted, "it goes on");
}
