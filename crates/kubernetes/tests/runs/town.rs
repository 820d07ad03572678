//! A namespace with a kubelet, and its controllers.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, PostParams};
use kubernetes::quarks::{Controller, Monitored, Settings};
use kubernetes::{Delivery, Lead, PackedAgent};
use serde_json::json;
use testkit::attempts::Attempts;
use testkit::kubelet::{JobScript, Kubelet, Ledger};
use testkit::proxy::{Faults, Proxy};
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

use crate::objects::sure;
use crate::place::Place;
use crate::skewed::Skewed;
use crate::witness::Witness;

/// How long a Lease lasts, so that not much is waited for.
const LEASE: Duration = Duration::from_secs(2);

/// A namespace with a kubelet, and a client that nothing goes wrong with.
pub(crate) struct Town {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    kubelet: Kubelet,
    pub(crate) attempts: Attempts,
    pub(crate) witness: Witness,
    /// What goes wrong between controllers and the API server.
    pub(crate) faults: Arc<Mutex<Faults>>,
    /// How the agent comes into pods.
    delivery: Delivery,
    folder: PathBuf,
}

impl Town {
    pub(crate) async fn new(place: &Place, name: &str, script: JobScript) -> Self {
        let client = kubernetes::client(Some(&place.kubeconfig)).await.unwrap();
        let labels = json!({
            "quarks.cloudfoundry.org/monitored": name,
            "quarks.cloudfoundry.org/qjob-service-account": "default",
        });
        let namespace = json!({"metadata": {"name": name, "labels": labels}});
        let namespace: Namespace = serde_json::from_value(namespace).unwrap();
        let namespaces = Api::<Namespace>::all(client.clone());
        let params = PostParams::default();
        // A server that 24 schedules begin at may not answer at once.
        sure(|| async {
            match namespaces.create(&params, &namespace).await {
                Err(kube::Error::Api(said)) if said.is_already_exists() => Ok(()),
                made => made.map(drop),
            }
        })
        .await;
        let kubelet = Kubelet::start_jobs(client.clone(), name, script);
        let attempts = Attempts::watch(&client, name);
        let witness = Witness::watch(&client, name);
        let (namespace, folder) = (name.to_owned(), place.folder.clone());
        let (delivery, faults) = ("agent".into(), Arc::default());
        Self { client, namespace, kubelet, attempts, witness, faults, delivery, folder }
    }

    /// The same, where pods mount the agent from a ConfigMap, for which they wait.
    pub(crate) fn mounting_the_agent(self) -> Self {
        let path = self.folder.join(format!("agent-of-{}", self.namespace));
        std::fs::write(&path, b"\x7FELF").unwrap();
        Self { delivery: PackedAgent::read(&path).unwrap().into(), ..self }
    }

    /// The kubelet says nothing any more.
    pub(crate) fn stop_kubelet(&mut self) {
        self.kubelet.stop();
    }

    /// How many pods have begun.
    pub(crate) fn begun(&self) -> usize {
        self.ledger().values().map(|run| run.begun.len()).sum()
    }

    /// What became of pods, by the names of their Jobs.
    pub(crate) fn ledger(&self) -> Ledger {
        self.kubelet.ledger()
    }
}

/// A controller in a runtime of its own, so that it can be ended at once.
pub(crate) fn controller(town: &Town, proxy: &Proxy, lease: &str) -> Runtime {
    controller_whose_clock_is(0, town, proxy, lease)
}

/// The same, whose clock is ahead by so many milliseconds, or behind.
pub(crate) fn controller_whose_clock_is(
    skew: i64,
    town: &Town,
    proxy: &Proxy,
    lease: &str,
) -> Runtime {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let kubeconfig = town.folder.join(format!("controller-{count}"));
    std::fs::write(&kubeconfig, proxy.kubeconfig()).unwrap();
    let (namespace, lease) = (town.namespace.clone(), lease.to_owned());
    let delivery = town.delivery.clone();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.spawn(async move {
        let client = kubernetes::client(Some(&kubeconfig)).await.unwrap();
        let settings = Settings {
            namespace: namespace.clone(),
            name: "runs".to_owned(),
            monitored: Monitored::Labelled(namespace.clone()),
            delivery: delivery.clone(),
            // Watches are behind each other by more.
            settle: Duration::from_millis(100),
            workers: 4,
            key_rotation: Duration::from_secs(3600),
            wraps: true,
            strict: false,
            verbatim_prefixes: false,
            immutable_versions: true,
            mends_definitions: false,
            agent_resources: None,
        };
        let controller = loop {
            let clock = Arc::new(Skewed(skew));
            match Controller::open_by(clock, client.clone(), settings.clone()).await {
                Ok(controller) => break controller,
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        };
        let identity = format!("controller-{count}");
        let lead = Lead::new(client, &namespace, &lease, &identity).lasting(LEASE);
        let lead = Arc::new(lead);
        let keeps = Arc::clone(&lead);
        tokio::spawn(async move { keeps.keep().await });
        controller.run(lead).await;
    });
    runtime
}
