//! What outlives replicas: an API server's namespace, its kubelet, and what is asked of them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::Policy;
use engine::ports::Offer;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, PostParams};
use osb::jobs::contract::Capability;
use serde_json::{Value, json};
use testkit::kubelet::{Kubelet, Script};
use testkit::plane::ControlPlane;

use crate::attempts::Attempts;

pub(crate) const BROKER: &str = "schedules";

/// A namespace with a kubelet, and a client that nothing goes wrong with.
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) kubelet: Kubelet,
    /// The runs whose pods somebody took away.
    taken: Mutex<BTreeSet<String>>,
    pub(crate) attempts: Attempts,
    folder: PathBuf,
}

impl World {
    pub(crate) async fn new(plane: &Place, name: &str, script: Script) -> Self {
        let client = kubernetes::client(Some(&plane.kubeconfig)).await.unwrap();
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        let namespaces = Api::<Namespace>::all(client.clone());
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let kubelet = Kubelet::start(client.clone(), name, catalog(), script);
        let attempts = Attempts::watch(&client, name);
        Self {
            client,
            namespace: name.to_owned(),
            kubelet,
            taken: Mutex::default(),
            attempts,
            folder: plane.folder.clone(),
        }
    }

    pub(crate) fn taken(&self) -> BTreeSet<String> {
        self.taken.lock().unwrap().clone()
    }

    /// Somebody is about to take its pod away.
    pub(crate) fn take(&self, run: Option<&String>) {
        self.taken.lock().unwrap().extend(run.cloned());
    }

    /// Writes a file that nobody else has.
    pub(crate) fn file(&self, content: &str) -> PathBuf {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("replica-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let path = self.folder.join(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

/// Where a control plane is.
#[derive(Clone)]
pub(crate) struct Place {
    kubeconfig: PathBuf,
    folder: PathBuf,
}

impl Place {
    pub(crate) fn of(plane: &ControlPlane) -> Self {
        Self { kubeconfig: plane.kubeconfig(), folder: plane.folder().to_owned() }
    }
}

/// Small pauses, for not much is to be waited for.
pub(crate) fn policy() -> Policy {
    Policy {
        broker: BROKER.to_owned(),
        backoff: Duration::from_millis(50),
        backoff_max: Duration::from_secs(2),
        timeouts: engine::policy::PerAction::all(Duration::from_secs(120)),
        ..Policy::default()
    }
}

pub(crate) fn catalog() -> Value {
    json!({ "services": [{
        "id": "s", "name": "db", "description": "a database", "bindable": true,
        "plan_updateable": true,
        "plans": [
            { "id": "small", "name": "small", "description": "small" },
            { "id": "large", "name": "large", "description": "large" },
        ],
    }]})
}

pub(crate) fn offer() -> Offer {
    let capabilities = vec![Capability::Update, Capability::RequestFile];
    Offer { catalog: catalog(), capabilities, ..Offer::default() }
}

/// A script that is well for all.
#[allow(dead_code, reason = "not every test needs it")]
pub(crate) fn well(lasts: Duration) -> Script {
    use testkit::kubelet::{Act, End};
    Arc::new(move |_| Act { begins: Duration::from_millis(20), lasts, end: End::Well })
}
