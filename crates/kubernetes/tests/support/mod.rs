//! A namespace of the test cluster for the length of a test.
#![allow(dead_code, reason = "not every test needs everything")]

pub(crate) mod jobs;
pub(crate) mod wait;

use std::sync::atomic::{AtomicU32, Ordering};

use data_encoding::BASE64;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::discovery::ApiResource;
use kube::{Client, ResourceExt};
use kubernetes::PackedAgent;
use kubernetes::resources::Kind;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
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

/// A client of an account that is made in the namespace, and that may do what this test gives it.
pub(crate) async fn account(cluster: &Cluster, name: &str) -> Client {
    let accounts: Api<ServiceAccount> = cluster.api();
    let account = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let asked: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}})).unwrap();
    let token = accounts.create_token_request(name, &PostParams::default(), &asked).await;
    let token = token.unwrap().status.unwrap().token;
    let shown = testkit::cluster::kubectl()
        .args(["config", "view", "--raw", "--minify", "-o", "json"])
        .output()
        .unwrap();
    let mut config: Value = serde_json::from_slice(&shown.stdout).unwrap();
    config["users"][0]["user"] = json!({"token": token});
    let kubeconfig = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(kubeconfig.path(), config.to_string()).unwrap();
    kubernetes::client(Some(kubeconfig.path())).await.unwrap()
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

/// Says by which text a definition was applied.
const APPLIED: &str = "manciple.dev/applied-by-a-test";

/// Installs the definitions of our kinds, and waits until they are served. Those that another test has installed are left
/// as they are: to apply one costs the API server more than all that most tests do.
async fn install(client: &Client) {
    let resource = ApiResource {
        group: "apiextensions.k8s.io".into(),
        version: "v1".into(),
        api_version: "apiextensions.k8s.io/v1".into(),
        kind: "CustomResourceDefinition".into(),
        plural: "customresourcedefinitions".into(),
    };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let is_served = |found: &DynamicObject| {
        let conditions = found.data.pointer("/status/conditions").and_then(Value::as_array);
        conditions
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
    };
    for mut definition in kubernetes::definitions() {
        let name = definition["metadata"]["name"].as_str().unwrap().to_owned();
        let text = BASE64.encode(digest(&SHA256, definition.to_string().as_bytes()).as_ref());
        let is_this = |found: &DynamicObject| found.annotations().get(APPLIED) == Some(&text);
        if api.get_opt(&name).await.unwrap().is_some_and(|it| is_this(&it) && is_served(&it)) {
            continue;
        }
        definition["metadata"]["annotations"][APPLIED] = text.clone().into();
        let apply = PatchParams::apply("test").force();
        api.patch(&name, &apply, &Patch::Apply(&definition)).await.unwrap();
        for _ in 0..100 {
            if is_served(&api.get(&name).await.unwrap()) {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
}
