//! What happens between a look and the write that it led to.

mod support;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use engine::ports::{Query, Store, StoreError, Stored, Version};
use engine::record::{Key, Lifecycle, Record};
use engine::testing::{MemoryStore, TestClock};
use engine::{Engine, Policy, Ports};
use osb::{Backend, PlanId, ServiceId};
use serde_json::{Value, json};
use support::{World, asynchronous, bind, binding_id, id, provision};

type Meanwhile = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A store in which something else happens just before the next write.
struct Interposed {
    inner: Arc<MemoryStore>,
    meanwhile: Mutex<Option<Meanwhile>>,
}

#[async_trait]
impl Store for Interposed {
    async fn read(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        self.inner.read(key).await
    }

    async fn write(
        &self,
        record: Arc<Record>,
        expected: Option<&Version>,
    ) -> Result<Version, StoreError> {
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile.await;
        }
        self.inner.write(record, expected).await
    }

    async fn remove(&self, key: &Key, expected: &Version) -> Result<(), StoreError> {
        self.inner.remove(key, expected).await
    }

    async fn list(&self, query: &Query) -> Result<Vec<Stored>, StoreError> {
        self.inner.list(query).await
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
    let interposed =
        Interposed { inner: Arc::clone(&world.store), meanwhile: Mutex::new(Some(meanwhile)) };
    let operator = Engine::new(
        Policy::default(),
        Ports {
            store: Arc::new(interposed),
            runner: Arc::new(world.runner.clone()),
            clock: Arc::new(TestClock::default()),
            observer: Arc::new(()),
        },
    );
    operator.purge(&Key::Instance(id("i"))).await.unwrap();
    rest(&platform).await;
    for key in [Key::Instance(id("i")), Key::Binding(id("i"), binding_id("late"))] {
        let record = world.record(&key).await.unwrap();
        assert_eq!(record.lifecycle, Lifecycle::Deleted, "{key}");
    }
    assert_eq!(world.runner.kept(), []);
}
