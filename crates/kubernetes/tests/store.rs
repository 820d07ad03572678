//! The store over a real API server.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use data_encoding::BASE64;
use engine::ports::{Store, StoreError};
use engine::record::{Lifecycle, Phase};
use engine::testing::store_contract::{self, Place, sample};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams,
};
use kube::client::Body;
use kubernetes::{KubernetesStore, StoreSettings, names};
use osb::Sensitive;
use serde_json::{Value, json};

use support::Cluster;
use support::wait::until;

/// The longest that anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// A broker of its own in a namespace that all share.
struct Broker {
    client: kube::Client,
    settings: StoreSettings,
}

#[async_trait]
impl Place for Broker {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(KubernetesStore::open(self.client.clone(), self.settings.clone()).await.unwrap())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_keeps_its_contract() {
    let cluster = Cluster::new("store-contract").await;
    let count = AtomicU32::new(0);
    store_contract::run(|| Broker {
        client: cluster.client.clone(),
        settings: StoreSettings {
            namespace: cluster.namespace.clone(),
            broker: format!("broker-{}", count.fetch_add(1, Ordering::Relaxed)),
        },
    })
    .await;
    cluster.remove().await;
}

/// State that takes so many bytes.
fn state(bytes: usize) -> Option<Sensitive<Value>> {
    Some(Sensitive::new(json!("x".repeat(bytes))))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_no_secret_holds_is_refused_and_what_killed_writers_left_makes_room() {
    let cluster = Cluster::new("store-large").await;
    let settings = StoreSettings { namespace: cluster.namespace.clone(), broker: "b".to_owned() };
    let store = KubernetesStore::open(cluster.client.clone(), settings).await.unwrap();
    let with = |state| {
        let mut record = sample("large");
        record.made.state = state;
        Arc::new(record)
    };
    let refused = store.write(with(state(600_000)), None).await;
    assert!(
        matches!(&refused, Err(StoreError::TooLarge(why)) if why.contains("524288")),
        "{refused:?}"
    );
    let mut long = sample("large");
    long.made.dashboard_url = Some(format!("https://x/{}", "x".repeat(300_000)));
    let refused = store.write(Arc::new(long), None).await;
    assert!(matches!(refused, Err(StoreError::TooLarge(_))), "{refused:?}");
    assert!(store.read(&sample("large").key).await.unwrap().is_none(), "nothing was written");

    // As large as it may be, again and again.
    let mut version = store.write(with(state(500_000)), None).await.unwrap();
    for bytes in [510_000, 200_000, 300_000] {
        version = store.write(with(state(bytes)), Some(&version)).await.unwrap();
    }
    // A writer that was killed has left what nobody will ever read.
    let secrets = cluster.api::<Secret>();
    let name = secrets.list(&ListParams::default()).await.unwrap().items;
    let name = name.into_iter().filter_map(|secret| secret.metadata.name);
    let name = name.into_iter().find(|name| name.starts_with("instance-")).unwrap();
    let left = BASE64.encode("y".repeat(500_000).as_bytes());
    let patch = Patch::Merge(json!({"data": {"rest-left": left}}));
    secrets.patch(&name, &PatchParams::default(), &patch).await.unwrap();
    let conflict = store.write(with(state(400_000)), Some(&version)).await;
    assert!(matches!(conflict, Err(StoreError::Conflict)), "{conflict:?}");
    let found = store.read(&sample("large").key).await.unwrap().unwrap();
    assert_eq!(found.record.made.state, state(300_000), "nothing was lost");
    // The next look, as soon as the watch has brought what it made of the resource.
    let mut found = found;
    while let Err(error) = store.write(with(state(400_000)), Some(&found.version)).await {
        assert!(matches!(error, StoreError::Conflict), "{error:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
        found = store.read(&sample("large").key).await.unwrap().unwrap();
    }
    let found = store.read(&sample("large").key).await.unwrap().unwrap();
    assert_eq!(found.record.made.state, state(400_000));
    cluster.remove().await;
}

/// Whoever tries again and again has each time kept what is confidential before, and it is the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_kept_for_a_write_that_comes_to_nothing_is_kept_once_however_often_it_is_tried() {
    let cluster = Cluster::new("store-refused").await;
    for (name, code, lands) in [
        ("refused", 403, false),
        ("overloaded", 429, false),
        ("unknown", 500, false),
        ("not answered, and carried out", 500, true),
    ] {
        let fails = Arc::new(AtomicBool::new(false));
        let (base, answers) = (cluster.client.clone(), Arc::clone(&fails));
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let is_status =
                request.method() == "PATCH" && request.uri().path().ends_with("/status");
            let fails = is_status && answers.load(Ordering::Relaxed);
            let base = base.clone();
            async move {
                if !fails || lands {
                    let answer = base.send(request).await;
                    if !fails {
                        return answer;
                    }
                }
                let answer = json!({"kind": "Status", "status": "Failure", "code": code});
                let body = Body::from(answer.to_string().into_bytes());
                Ok(http::Response::builder().status(code).body(body).unwrap())
            }
        });
        let client = kube::Client::new(service, cluster.namespace.clone());
        let settings =
            StoreSettings { namespace: cluster.namespace.clone(), broker: name.to_owned() };
        let store = KubernetesStore::open(client, settings).await.unwrap();
        let with = |bytes| {
            let mut record = sample("i");
            record.made.state = state(bytes);
            Arc::new(record)
        };
        let key = sample("i").key;
        let resource = names::resource(name, &key);
        let kept = async || {
            let secret = cluster.api::<Secret>().get(&resource).await.unwrap();
            secret.data.unwrap().into_keys().filter(|key| key.starts_with("rest-")).count()
        };
        let version = store.write(with(10), None).await.unwrap();
        assert_eq!(kept().await, 1, "{name}");
        fails.store(true, Ordering::Relaxed);
        for bytes in [20, 20, 20, 30, 30] {
            let refused = store.write(with(bytes), Some(&version)).await;
            assert!(refused.is_err(), "{name}: {refused:?}");
        }
        let copies = kept().await;
        assert!(copies <= 3, "{name}: {copies} of three contents");
        fails.store(false, Ordering::Relaxed);
        for bytes in [30, 40, 50] {
            // As soon as the watch has brought what was carried out.
            loop {
                let found = store.read(&key).await.unwrap().unwrap();
                match store.write(with(bytes), Some(&found.version)).await {
                    Err(StoreError::Conflict) => {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    written => break drop(written.unwrap()),
                }
            }
            let found = store.read(&key).await.unwrap().unwrap();
            assert_eq!(found.record.made.state, state(bytes), "{name}: nothing was lost");
        }
        // What the last write has replaced goes with the next.
        assert_eq!(kept().await, 2, "{name}: all was written");
    }
    cluster.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_made_outlives_a_secret_of_a_former_life_that_is_about_to_be_collected() {
    let cluster = Cluster::new("store-again").await;
    let settings = StoreSettings { namespace: cluster.namespace.clone(), broker: "b".to_owned() };
    let open = async || KubernetesStore::open(cluster.client.clone(), settings.clone()).await;
    let store = open().await.unwrap();
    // Ordered with nothing that is confidential.
    let mut record = sample("again");
    (record.ordered.parameters, record.ordered.context) = Default::default();
    (record.operation.originating_identity, record.made.state) = (None, None);
    let version = store.write(Arc::new(record.clone()), None).await.unwrap();
    let resource = instances(&cluster).list(&ListParams::default()).await.unwrap().items.remove(0);
    let (name, uid) = (resource.metadata.name.unwrap(), resource.metadata.uid.unwrap());
    let secrets = cluster.api::<Secret>();
    assert!(secrets.get_opt(&name).await.unwrap().is_none(), "nothing is confidential");
    let former = json!({
        "name": name,
        "ownerReferences": [{
            "apiVersion": "manciple.dev/v1alpha1", "kind": "ServiceInstance", "name": name,
            "uid": "00000000-0000-4000-8000-000000000000",
        }],
    });
    // What goes when the collector has looked.
    let beside: ConfigMap = serde_json::from_value(json!({"metadata": former})).unwrap();
    let former: Secret = serde_json::from_value(json!({"metadata": former})).unwrap();
    secrets.create(&PostParams::default(), &former).await.unwrap();
    record.made.state = state(10);
    store.write(Arc::new(record), Some(&version)).await.unwrap();
    let owners = secrets.get(&name).await.unwrap().metadata.owner_references.unwrap();
    assert_eq!(owners.iter().map(|owner| &owner.uid).collect::<Vec<_>>(), [&uid]);
    let maps = cluster.api::<ConfigMap>();
    maps.create(&PostParams::default(), &beside).await.unwrap();
    until("it is not collected", PATIENCE, async || {
        maps.get_opt(&name).await.unwrap().map_or(Ok(()), Err)
    })
    .await;
    let found = open().await.unwrap().read(&sample("again").key).await.unwrap().unwrap();
    assert_eq!(found.record.made.state, state(10));
    cluster.remove().await;
}

/// The resources of all instances.
fn instances(cluster: &Cluster) -> Api<DynamicObject> {
    let kind = kubernetes::resources::Kind::ServiceInstance.resource();
    Api::namespaced_with(cluster.client.clone(), &cluster.namespace, &kind)
}

/// Puts a record there, as one that is ready; says how its resource is called.
async fn kept(store: &KubernetesStore, resources: &Api<DynamicObject>, id: &str) -> String {
    let mut record = sample(id);
    record.operation.phase = Phase::Succeeded;
    record.lifecycle = Lifecycle::Ready;
    let version = store.write(Arc::new(record.clone()), None).await.unwrap();
    // As every record has been that was ordered and made: its status has it too.
    store.write(Arc::new(record), Some(&version)).await.unwrap();
    let all = resources.list(&ListParams::default()).await.unwrap().items;
    let of = |it: &DynamicObject| it.data["spec"]["instanceID"] == id;
    all.into_iter().find(of).and_then(|it| it.metadata.name).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_people_do_to_resources_is_not_done_to_what_they_do_not_name() {
    let cluster = Cluster::new("store-people").await;
    let settings = StoreSettings { namespace: cluster.namespace.clone(), broker: "b".to_owned() };
    let store = KubernetesStore::open(cluster.client.clone(), settings).await.unwrap();
    let resources = instances(&cluster);

    // A copy under another name, which is deleted.
    let name = kept(&store, &resources, "copied").await;
    let whole = resources.get(&name).await.unwrap();
    let mut copy = whole.clone();
    copy.metadata = ObjectMeta {
        name: Some("a-copy".to_owned()),
        labels: whole.metadata.labels.clone(),
        annotations: whole.metadata.annotations.clone(),
        finalizers: whole.metadata.finalizers.clone(),
        ..ObjectMeta::default()
    };
    resources.create(&PostParams::default(), &copy).await.unwrap();
    resources.delete("a-copy", &DeleteParams::default()).await.unwrap();

    // Labels that are taken away, which watches and lists need: what is brought of it comes after the copy.
    for (instance, labels) in [("bare", Value::Null), ("half", json!({names::INSTANCE: null}))] {
        let name = kept(&store, &resources, instance).await;
        let bare = Patch::Merge(json!({"metadata": {"labels": labels}}));
        resources.patch(&name, &PatchParams::default(), &bare).await.unwrap();
        until("its labels are not put back", PATIENCE, async || {
            let labels = resources.get(&name).await.unwrap().metadata.labels.unwrap_or_default();
            let ours = [names::BROKER, names::INSTANCE];
            let are_there = ours.iter().all(|label| labels.contains_key(*label));
            if are_there { Ok(()) } else { Err(labels) }
        })
        .await;
        // It is heard of again.
        resources.delete(&name, &DeleteParams::default()).await.unwrap();
        until("nobody hears that it was deleted", PATIENCE, async || {
            let all = store.outstanding();
            let is_heard = all.iter().any(|it| it.key == sample(instance).key && it.unwanted);
            if is_heard { Ok(()) } else { Err(all) }
        })
        .await;
    }
    let copied = sample("copied").key;
    assert!(store.outstanding().iter().all(|it| it.key != copied), "{:?}", store.outstanding());
    assert!(store.read(&copied).await.unwrap().is_some());

    // A record that is nonsense is forgotten, as one whose Secret was lost, and one in which another's was put.
    let name = names::resource("b", &copied);
    let another = resources.get(&name).await.unwrap().data["status"]["record"].clone();
    for (instance, record) in [("damaged", json!("nonsense")), ("another", another)] {
        let name = kept(&store, &resources, instance).await;
        let damaged = Patch::Merge(json!({"status": {"record": record}}));
        resources.patch_status(&name, &PatchParams::default(), &damaged).await.unwrap();
        let key = sample(instance).key;
        let read = store.read(&key).await;
        assert!(matches!(read, Err(StoreError::Unreadable { .. })), "{instance}: {read:?}");
        store.discard(&key).await.unwrap();
        assert!(store.read(&key).await.unwrap().is_none());
        assert!(resources.get_opt(&name).await.unwrap().is_none());
    }
    let readable = store.discard(&copied).await;
    assert!(matches!(readable, Err(StoreError::Conflict)), "{readable:?}");
    cluster.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_namespace_that_is_deleted_what_is_over_goes_without_a_tombstone() {
    let cluster = Cluster::new("store-goes").await;
    let settings = StoreSettings { namespace: cluster.namespace.clone(), broker: "b".to_owned() };
    let store = KubernetesStore::open(cluster.client.clone(), settings).await.unwrap();
    let resources = instances(&cluster);
    let name = kept(&store, &resources, "i").await;
    let key = sample("i").key;
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(cluster.client.clone());
    namespaces.delete(&cluster.namespace, &DeleteParams::background()).await.unwrap();
    until("it does not begin to go", PATIENCE, async || {
        let namespace = namespaces.get(&cluster.namespace).await.unwrap();
        if namespace.metadata.deletion_timestamp.is_some() { Ok(()) } else { Err(namespace) }
    })
    .await;
    // Kubernetes deletes it in between.
    until("it holds its namespace", PATIENCE, async || {
        if let Some(found) = store.read(&key).await.unwrap() {
            let mut over = (*found.record).clone();
            over.lifecycle = Lifecycle::Deleted;
            let _ = store.write(Arc::new(over), Some(&found.version)).await;
        }
        store.bury(&key).await.unwrap();
        resources.get_opt(&name).await.unwrap().map_or(Ok(()), Err)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_that_were_taken_away_while_nobody_watched_are_put_back() {
    let cluster = Cluster::new("store-bare").await;
    let settings = StoreSettings { namespace: cluster.namespace.clone(), broker: "b".to_owned() };
    let open = async || KubernetesStore::open(cluster.client.clone(), settings.clone()).await;
    let resources = instances(&cluster);
    let store = open().await.unwrap();
    let name = kept(&store, &resources, "i").await;
    drop(store);
    let bare = Patch::Merge(json!({"metadata": {"labels": null}}));
    resources.patch(&name, &PatchParams::default(), &bare).await.unwrap();
    // It has a record, and is not one of ours.
    let mut copy = resources.get(&name).await.unwrap();
    let annotations = copy.metadata.annotations.take();
    copy.metadata =
        ObjectMeta { name: Some("a-copy".to_owned()), annotations, ..ObjectMeta::default() };
    resources.create(&PostParams::default(), &copy).await.unwrap();

    let store = open().await.unwrap();
    until("it is in no list", PATIENCE, async || {
        let all = store.plans_in_use().await.unwrap();
        if all.is_empty() { Err(all) } else { Ok(()) }
    })
    .await;
    assert!(resources.get("a-copy").await.unwrap().metadata.labels.is_none());
    cluster.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_of_dashboard_clients_are_in_the_secret_of_the_catalog_alone() {
    let cluster = Cluster::new("store-catalog").await;
    let settings = StoreSettings { namespace: cluster.namespace.clone(), broker: "b".to_owned() };
    let open = async || KubernetesStore::open(cluster.client.clone(), settings.clone()).await;
    let (store, other) = (open().await.unwrap(), open().await.unwrap());
    let with = |client: Value| json!({"services": [{"id": "s", "dashboard_client": client}]});
    let of_secret = |secret: &str| with(json!({"id": "c", "secret": secret}));
    let shown = async || {
        let all = cluster.api::<ConfigMap>().list(&ListParams::default()).await.unwrap();
        serde_json::to_string(&all).unwrap()
    };
    let secrets = cluster.api::<Secret>();
    let all = ListParams::default().labels("manciple.dev/keeps=catalog");

    store.save_catalog(&of_secret("planted-one")).await.unwrap();
    assert!(!shown().await.contains("planted"), "{}", shown().await);
    assert_eq!(other.catalog().await.unwrap(), Some(of_secret("planted-one")));
    // Whoever has read it is told of the next, though nothing else is new.
    store.save_catalog(&of_secret("planted-two")).await.unwrap();
    tokio::time::timeout(Duration::from_secs(30), other.catalog_changed()).await.unwrap();
    assert_eq!(other.catalog().await.unwrap(), Some(of_secret("planted-two")));

    // Taken away, it takes nothing else along, and comes back with the next answer of the broker.
    secrets.delete_collection(&DeleteParams::default(), &all).await.unwrap();
    assert_eq!(other.catalog().await.unwrap(), Some(with(json!({"id": "c"}))));
    other.save_catalog(&of_secret("planted-two")).await.unwrap();
    assert_eq!(store.catalog().await.unwrap(), Some(of_secret("planted-two")));

    // A build before has kept it in clear: that is not served, so what a broker says next is saved over it.
    let clear = json!({"data": {"catalog.json": of_secret("planted-before").to_string(), "revision": null}});
    let maps = cluster.api::<ConfigMap>();
    let name = maps.list(&all).await.unwrap().items.remove(0).metadata.name.unwrap();
    maps.patch(&name, &PatchParams::default(), &Patch::Merge(clear)).await.unwrap();
    assert!(shown().await.contains("planted-before"));
    assert_eq!(other.catalog().await.unwrap(), Some(with(json!({"id": "c"}))));
    other.save_catalog(&of_secret("planted-before")).await.unwrap();
    assert!(!shown().await.contains("planted"), "{}", shown().await);

    // Nothing is left of what nobody has any more.
    let open_one = with(json!({"id": "c"}));
    store.save_catalog(&open_one).await.unwrap();
    assert_eq!(other.catalog().await.unwrap(), Some(open_one));
    assert!(secrets.list(&all).await.unwrap().items.is_empty());
    cluster.remove().await;
}
