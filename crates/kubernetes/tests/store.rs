//! The store over a real API server.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use data_encoding::BASE64;
use engine::ports::{Store, StoreError};
use engine::testing::store_contract::{self, Place, sample};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, Patch, PatchParams};
use kubernetes::{KubernetesStore, Settings};
use osb::Sensitive;
use serde_json::{Value, json};

use support::Cluster;

/// A broker of its own in a namespace that all share.
struct Broker {
    client: kube::Client,
    settings: Settings,
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
        settings: Settings {
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
    let settings = Settings { namespace: cluster.namespace.clone(), broker: "b".to_owned() };
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
