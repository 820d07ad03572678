//! What outlives replicas: an API server's namespace, its kubelet, and what is asked of them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::Policy;
use engine::ports::Offer;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use osb::jobs::contract::Capability;
use serde_json::{Value, json};
use testkit::attempts::Attempts;
use testkit::kubelet::{Kubelet, Offers, Script};
use testkit::proxy::Faults;

use crate::place::Place;

pub(crate) const BROKER: &str = "schedules";

/// A namespace with a kubelet, and a client that nothing goes wrong with.
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) kubelet: Kubelet,
    /// The runs whose pods somebody took away.
    taken: Mutex<BTreeSet<String>>,
    /// The operations that a platform saw end well.
    well: Mutex<BTreeSet<String>>,
    pub(crate) attempts: Attempts,
    /// What goes wrong between replicas and the API server.
    pub(crate) faults: Arc<Mutex<Faults>>,
    pub(crate) sells: Sells,
    folder: PathBuf,
}

/// Whose runs there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sells {
    /// Brokers that leave work to others, and have state.
    pub(crate) extended: bool,
    /// Brokers that tell how far they are while their runs go on.
    pub(crate) progress: bool,
    /// Those of `Broker` resources.
    pub(crate) several: bool,
    /// Each of these by itself, and not as one catalog.
    pub(crate) apart: bool,
}

impl Sells {
    fn capabilities(self) -> Vec<Capability> {
        use Capability::{LastOperation, Progress, RequestFile, State, Update};
        let mut all = vec![Update, RequestFile];
        all.extend(self.extended.then_some([State, LastOperation]).into_iter().flatten());
        all.extend(self.progress.then_some(Progress));
        all
    }

    /// What keeps the records of a service, which has the name of its broker where there are several.
    pub(crate) fn group(self, service: &str) -> String {
        match self.apart {
            true => format!("{BROKER}/{service}"),
            false => BROKER.to_owned(),
        }
    }

    /// What the one broker offers.
    pub(crate) fn offer(self) -> Offer {
        Offer { catalog: catalog(), capabilities: self.capabilities(), ..Offer::default() }
    }

    /// Of several brokers the one that changes is as all are that know the first contract alone.
    fn offers(self) -> Offers {
        Arc::new(move |image| match self.several {
            true if image.starts_with("changes") => {
                offer_of(image, Sells::default().capabilities())
            }
            true => offer_of(image, self.capabilities()),
            false => self.offer(),
        })
    }
}

impl World {
    pub(crate) async fn new(plane: &Place, name: &str, script: Script) -> Self {
        Self::selling(plane, name, Sells::default(), script).await
    }

    pub(crate) async fn selling(plane: &Place, name: &str, sells: Sells, script: Script) -> Self {
        let client = kubernetes::client(Some(&plane.kubeconfig)).await.unwrap();
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        let namespaces = Api::<Namespace>::all(client.clone());
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let kubelet = Kubelet::start_offering(client.clone(), name, sells.offers(), script);
        let attempts = Attempts::watch(&client, name);
        Self {
            client,
            namespace: name.to_owned(),
            kubelet,
            taken: Mutex::default(),
            attempts,
            faults: Arc::default(),
            sells,
            well: Mutex::default(),
            folder: plane.folder.clone(),
        }
    }

    pub(crate) fn taken(&self) -> BTreeSet<String> {
        self.taken.lock().unwrap().clone()
    }

    pub(crate) fn well(&self) -> BTreeSet<String> {
        self.well.lock().unwrap().clone()
    }

    pub(crate) fn ended_well(&self, operation: &str) {
        self.well.lock().unwrap().insert(operation.to_owned());
    }

    /// Somebody is about to take its pod away.
    pub(crate) fn take(&self, run: Option<&String>) {
        self.taken.lock().unwrap().extend(run.cloned());
    }

    /// As if the time of its holder was over.
    pub(crate) async fn free_lease(&self) {
        let leases = Api::<Lease>::namespaced(self.client.clone(), &self.namespace);
        leases.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
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

/// What is in an image: `changes:2` is the second of the broker `changes`.
fn offer_of(image: &str, capabilities: Vec<Capability>) -> Offer {
    let (name, version) = image.split_once(':').unwrap_or((image, "2"));
    let plans = ["small", "large"].into_iter().filter(|&plan| version == "2" || plan == "small");
    let plans: Vec<Value> = plans
        .map(|plan| json!({"id": format!("{name}-{plan}"), "name": plan, "description": "d"}))
        .collect();
    let catalog = json!({"services": [{
        "id": name, "name": format!("{name}-name"), "description": "a database", "bindable": true,
        "plan_updateable": true, "plans": plans,
    }]});
    Offer { catalog, capabilities, ..Offer::default() }
}

fn catalog() -> Value {
    json!({ "services": [{
        "id": "s", "name": "db", "description": "a database", "bindable": true,
        "plan_updateable": true,
        "plans": [
            { "id": "small", "name": "small", "description": "small" },
            { "id": "large", "name": "large", "description": "large" },
        ],
    }]})
}

/// A script that is well for all.
#[allow(dead_code, reason = "not every test needs it")]
pub(crate) fn well(lasts: Duration) -> Script {
    use testkit::kubelet::Act;
    Arc::new(move |_| Act::well(Duration::from_millis(20), lasts))
}
