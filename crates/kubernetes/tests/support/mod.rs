//! A namespace of the test cluster for the length of a test.
#![allow(dead_code, reason = "not every test needs everything")]

pub(crate) mod jobs;

use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::discovery::ApiResource;
use kubernetes::PackedAgent;
use kubernetes::resources::{self, Kind};
use serde_json::json;
use testkit::proxy::{Plan, Proxy};

/// The agent, as runs get it by default.
pub(crate) fn packed_agent() -> PackedAgent {
    let path = testkit::cluster::packed_agent().unwrap_or_else(|why| panic!("{why}"));
    PackedAgent::read(&path).unwrap()
}

/// A client whose calls this goes wrong with.
pub(crate) async fn proxied(cluster: &Cluster, plan: Plan) -> (Proxy, kube::Client) {
    let proxy = Proxy::start(cluster.client.clone(), plan).await.unwrap();
    let kubeconfig = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(kubeconfig.path(), proxy.kubeconfig()).unwrap();
    let client = kubernetes::client(Some(kubeconfig.path())).await.unwrap();
    (proxy, client)
}

/// A client, and a namespace that is removed when the test is over.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

impl Cluster {
    /// Connects, installs our kinds and makes a namespace.
    pub(crate) async fn new(test: &str) -> Self {
        let kubeconfig = testkit::cluster::kubeconfig().unwrap_or_else(|why| panic!("{why}"));
        let client = kubernetes::client(Some(&kubeconfig)).await.unwrap();
        install(&client).await;
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("{test}-{}-{count}", std::process::id());
        let object: Namespace =
            serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        Api::<Namespace>::all(client.clone())
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
        Self { client, namespace }
    }

    /// What is of a kind in the namespace.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// As [`Self::remove`], where nothing of ours holds the namespace and nobody waits.
    pub(crate) fn abandon(&self) {
        let kubeconfig = testkit::cluster::kubeconfig();
        let namespace = self.namespace.clone();
        let removal = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let client = kubernetes::client(Some(&kubeconfig.unwrap())).await.unwrap();
                let namespaces = Api::<Namespace>::all(client);
                let _ = namespaces.delete(&namespace, &DeleteParams::background()).await;
            });
        });
        let _ = removal.join();
    }

    /// Removes the namespace, and what would hold it.
    pub(crate) async fn remove(self) {
        for kind in Kind::ALL {
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.client.clone(), &self.namespace, &kind.resource());
            for object in api.list(&Default::default()).await.unwrap() {
                let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                let name = object.metadata.name.unwrap();
                let _ = api.patch(&name, &PatchParams::default(), &patch).await;
            }
        }
        let namespaces = Api::<Namespace>::all(self.client);
        namespaces.delete(&self.namespace, &DeleteParams::background()).await.unwrap();
    }
}

/// Installs the definitions of our kinds, and waits until they are served.
async fn install(client: &Client) {
    let resource = ApiResource {
        group: "apiextensions.k8s.io".into(),
        version: "v1".into(),
        api_version: "apiextensions.k8s.io/v1".into(),
        kind: "CustomResourceDefinition".into(),
        plural: "customresourcedefinitions".into(),
    };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    for definition in resources::definitions() {
        let name = definition["metadata"]["name"].as_str().unwrap().to_owned();
        let apply = PatchParams::apply("test").force();
        api.patch(&name, &apply, &Patch::Apply(&definition)).await.unwrap();
        for _ in 0..100 {
            let found = api.get(&name).await.unwrap();
            let conditions = found.data.pointer("/status/conditions").cloned().unwrap_or_default();
            let established = conditions.as_array().into_iter().flatten().any(|condition| {
                condition["type"] == "Established" && condition["status"] == "True"
            });
            if established {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
}
