//! What outlives replicas: an API server's namespace, its kubelet, and what is asked of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::Policy;
use engine::ports::Offer;
use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, PostParams};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt};
use osb::jobs::contract::Capability;
use serde_json::{Value, json};
use testkit::kubelet::{Kubelet, Script};
use testkit::plane::ControlPlane;
use tokio::task::JoinSet;

pub(crate) const BROKER: &str = "schedules";

/// A namespace with a kubelet, and a client that nothing goes wrong with.
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) kubelet: Kubelet,
    /// The runs whose pods somebody took away.
    taken: Mutex<BTreeSet<String>>,
    jobs: Jobs,
    folder: PathBuf,
    _tasks: JoinSet<()>,
}

/// The uids of the Jobs that were seen, by their names.
type Jobs = Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>;

impl World {
    pub(crate) async fn new(plane: &Place, name: &str, script: Script) -> Self {
        let client = kubernetes::client(Some(&plane.kubeconfig)).await.unwrap();
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        let namespaces = Api::<Namespace>::all(client.clone());
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let kubelet = Kubelet::start(client.clone(), name, catalog(), script);
        let jobs = Jobs::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(follow(Api::namespaced(client.clone(), name), Arc::clone(&jobs)));
        Self {
            client,
            namespace: name.to_owned(),
            kubelet,
            taken: Mutex::default(),
            jobs,
            folder: plane.folder.clone(),
            _tasks: tasks,
        }
    }

    /// Fails if a run had a Job after its Job: an attempt has one, whoever died and whatever was lost.
    pub(crate) fn assert_one_job_each(&self) {
        let jobs = self.jobs.lock().unwrap();
        assert!(!jobs.is_empty(), "no Job was seen");
        let again: Vec<_> = jobs.iter().filter(|(_, uids)| uids.len() > 1).collect();
        assert!(again.is_empty(), "made again: {again:?}");
    }

    /// The names of all Jobs that were seen: of each attempt.
    pub(crate) fn attempts(&self) -> BTreeSet<String> {
        self.jobs.lock().unwrap().keys().cloned().collect()
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

async fn follow(api: Api<Job>, jobs: Jobs) {
    let events = watcher(api, watcher::Config::default());
    pin_mut!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(job) | Event::InitApply(job)) => {
                let uid = job.metadata.uid.clone().unwrap_or_default();
                jobs.lock().unwrap().entry(job.name_any()).or_default().insert(uid);
            }
            Ok(_) => {}
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
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
