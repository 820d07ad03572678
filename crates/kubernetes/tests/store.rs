//! The store over a real API server.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use engine::ports::Store;
use engine::testing::store_contract::{self, Place};
use kubernetes::{KubernetesStore, Settings};

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
