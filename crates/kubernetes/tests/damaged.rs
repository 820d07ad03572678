//! Records that cannot be read, of a release that knew more or written to by hand, on a real API server: they are there
//! all the same, are named, and can be purged.

#[path = "support/wait.rs"]
mod wait;

use std::sync::Arc;
use std::time::Duration;

use engine::ports::{Filter, Kind as Records, Query, Scanned, Store, StoreError, Stored};
use engine::record::{Key, Lifecycle, Record};
use engine::testing::store_contract::{sample, sample_binding};
use engine::{Engine, Policy, Ports, SystemClock};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kubernetes::resources::Kind;
use kubernetes::{
    Bonds, JobRunner, JobSettings, KubernetesStore, StoreSettings, definitions, names,
};
use osb::ErrorKind;
use serde_json::{Value, json};
use testkit::plane::ControlPlane;

use wait::until;

const PLACE: &str = "n";
const BROKER: &str = "b";
const PATIENCE: Duration = Duration::from_secs(180);
/// As a later release may write it.
const LATER: &str = r#"{"record": {"lifecycle": "asleep"}, "write": "w"}"#;

/// An API server with two stores: one that knew a record before it was damaged, and one that comes later.
struct Town {
    _plane: ControlPlane,
    client: Client,
    before: Arc<KubernetesStore>,
}

impl Town {
    async fn new() -> Self {
        let plane = ControlPlane::start(&definitions()).unwrap();
        let client = kubernetes::client(Some(&plane.kubeconfig())).await.unwrap();
        let namespace = serde_json::from_value(json!({"metadata": {"name": PLACE}})).unwrap();
        let namespaces = Api::<Namespace>::all(client.clone());
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let before = open(&client).await;
        Self { _plane: plane, client, before }
    }

    /// Makes it, and writes it a second time.
    async fn write(&self, record: Record) -> Key {
        let record = Arc::new(record);
        let version = self.before.write(Arc::clone(&record), None).await.unwrap();
        self.before.write(Arc::clone(&record), Some(&version)).await.unwrap();
        record.key.clone()
    }

    fn all(&self, key: &Key) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), PLACE, &Kind::of(key).resource())
    }

    async fn patch(&self, key: &Key, patch: &Value) {
        let name = names::resource(BROKER, key);
        self.all(key).patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn damage(&self, key: &Key) {
        let (name, patch) = (names::resource(BROKER, key), json!({"status": {"record": LATER}}));
        let all = self.all(key);
        all.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    async fn engine(&self, store: &Arc<KubernetesStore>) -> Engine {
        let jobs = JobSettings::new(PLACE, BROKER, "broker", "agent");
        let runner = JobRunner::open(self.client.clone(), jobs, Bonds::default()).await.unwrap();
        let ports = Ports {
            store: Arc::clone(store) as _,
            runner: Arc::new(runner),
            clock: Arc::new(SystemClock),
            observer: Arc::new(()),
        };
        Engine::new(Policy { broker: BROKER.to_owned(), ..Policy::default() }, ports)
    }
}

async fn open(client: &Client) -> Arc<KubernetesStore> {
    let settings = StoreSettings { namespace: PLACE.to_owned(), broker: BROKER.to_owned() };
    Arc::new(KubernetesStore::open(client.clone(), settings).await.unwrap())
}

fn bindings(of: Option<&Key>, filter: Filter) -> Query {
    let instance = of.map(|key| key.instance().clone());
    Query { kind: Records::Bindings, instance, filter, after: None, limit: 10 }
}

/// The keys of those that cannot be read, and how many can be.
fn told(page: &[Scanned]) -> (Vec<Key>, usize) {
    let (read, unread): (Vec<_>, Vec<_>) = page.iter().partition(|found| found.is_ok());
    (unread.into_iter().map(|found| Stored::key_of(found).clone()).collect(), read.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_cannot_be_read_is_listed_stands_in_the_way_and_can_be_purged() {
    let town = Town::new().await;
    let instance = town.write(sample("i")).await;
    let binding = town.write(sample_binding("i", "damaged")).await;
    let good = town.write(sample_binding("i", "good")).await;
    town.damage(&binding).await;
    let after = open(&town.client).await;
    for store in [&town.before, &after] {
        let read = store.read(&binding).await;
        assert!(matches!(&read, Err(StoreError::Unreadable { .. })), "{read:?}");
        let page = store.scan(&bindings(Some(&instance), Filter::Live)).await.unwrap();
        assert_eq!(told(&page), (vec![binding.clone()], 1), "as what an instance has");
        let page = store.scan(&bindings(Some(&instance), Filter::Busy)).await.unwrap();
        assert_eq!(told(&page), (vec![], 0), "its last operation had ended");
        let page = store.scan(&bindings(None, Filter::All)).await.unwrap();
        assert_eq!(told(&page), (vec![binding.clone()], 1), "of all");
        let plans = store.plans_in_use().await.unwrap();
        assert_eq!(plans.len(), 1, "{plans:?}");
    }
    let good = town.before.read(&good).await.unwrap().unwrap();
    town.before.remove(&good.record.key, &good.version).await.unwrap();

    // Somebody who deletes it is told why it stays.
    let name = names::resource(BROKER, &binding);
    town.all(&binding).delete(&name, &DeleteParams::default()).await.unwrap();
    until("that it was deleted is not known", PATIENCE, async || {
        let all = after.outstanding();
        let is_known = all.iter().any(|change| change.unwanted && change.key == binding);
        if is_known { Ok(()) } else { Err(all) }
    })
    .await;
    let engine = town.engine(&after).await;
    let stays = engine.remove(&binding, "why").await.unwrap_err().to_string();
    assert!(stays.contains("manciple purge"), "{stays}");
    let refused = engine.purge(&instance).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unprocessable, "it has a binding: {refused}");

    engine.purge(&binding).await.unwrap();
    until("its resource stays", PATIENCE, async || {
        town.all(&binding).get_opt(&name).await.unwrap().map_or(Ok(()), Err)
    })
    .await;
    assert!(after.read(&binding).await.unwrap().is_none());
    engine.purge(&instance).await.unwrap();
    until("the other does not hear of it", PATIENCE, async || {
        let page = town.before.scan(&bindings(None, Filter::All)).await.unwrap();
        if page.is_empty() { Ok(()) } else { Err(page) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_does_not_say_which_it_is_is_named_by_its_resource_and_forgotten_when_that_goes() {
    let town = Town::new().await;
    let instance = town.write(sample("i")).await;
    let binding = town.write(sample_binding("i", "b")).await;
    town.patch(&binding, &json!({"spec": {"bindingID": "another"}})).await;
    town.damage(&binding).await;
    let name = names::resource(BROKER, &binding);
    let after = open(&town.client).await;
    for store in [&town.before, &after] {
        match store.scan(&bindings(Some(&instance), Filter::Live)).await {
            Err(StoreError::Unreadable { key, why }) => {
                assert!(key.contains(&name) && why.contains("status.record"), "{key}: {why}");
            }
            other => panic!("{other:?}"),
        }
    }
    let engine = town.engine(&town.before).await;
    let refused = engine.purge(&instance).await.unwrap_err().to_string();
    assert!(refused.contains("manciple purge"), "{refused}");

    // One that knew it by what it was goes on to, until it goes.
    let page = town.before.scan(&bindings(None, Filter::All)).await.unwrap();
    assert_eq!(page.len(), 1, "{page:?}");
    town.patch(&binding, &json!({"metadata": {"finalizers": null}})).await;
    town.all(&binding).delete(&name, &DeleteParams::default()).await.unwrap();
    until("it is never forgotten", PATIENCE, async || {
        let page = town.before.scan(&bindings(None, Filter::All)).await.unwrap();
        if page.is_empty() { Ok(()) } else { Err(page) }
    })
    .await;
    engine.purge(&instance).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tombstone_that_cannot_be_read_can_be_discarded() {
    let town = Town::new().await;
    let gone = Arc::new(Record { lifecycle: Lifecycle::Deleted, ..sample("gone") });
    town.before.write(Arc::clone(&gone), None).await.unwrap();
    let tombs: Api<ConfigMap> = Api::namespaced(town.client.clone(), PLACE);
    let (name, patch) = (names::resource(BROKER, &gone.key), json!({"data": {"record": LATER}}));
    tombs.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    let read = town.before.read(&gone.key).await;
    assert!(matches!(&read, Err(StoreError::Unreadable { .. })), "{read:?}");
    town.before.discard(&gone.key).await.unwrap();
    assert!(town.before.read(&gone.key).await.unwrap().is_none());
    assert!(tombs.get_opt(&name).await.unwrap().is_none());
    town.before.write(Arc::new(sample("gone")), None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_map_in_the_place_of_a_tombstone_is_named_and_what_waits_for_it_goes_on() {
    let town = Town::new().await;
    let key = town.write(sample("i")).await;
    let name = names::resource(BROKER, &key);
    let tombs: Api<ConfigMap> = Api::namespaced(town.client.clone(), PLACE);
    let planted = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    tombs.create(&PostParams::default(), &planted).await.unwrap();
    let there = town.before.read(&key).await.unwrap().unwrap();
    let gone = Record { lifecycle: Lifecycle::Deleted, ..sample("i") };
    town.before.write(Arc::new(gone), Some(&there.version)).await.unwrap();
    let buried = town.before.bury(&key).await;
    assert!(matches!(&buried, Err(StoreError::Held(why)) if why.contains(&name)), "{buried:?}");
    let now = town.before.read(&key).await.unwrap().unwrap();
    let anew = town.before.write(Arc::new(sample("i")), Some(&now.version)).await;
    assert!(matches!(&anew, Err(StoreError::Held(_))), "{anew:?}");
    tombs.delete(&name, &DeleteParams::default()).await.unwrap();
    town.before.bury(&key).await.unwrap();
    assert!(town.all(&key).get_opt(&name).await.unwrap().is_none());
}
