//! A monitored namespace, a controller, and what a test asks of both.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kubernetes::quarks::{Controller, Counts, Dialect, Monitored, Settings, WORKERS};
use kubernetes::{Client, Lead};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::gate::Gate;
use super::support::{Cluster, packed_agent, wait};

/// The longest that anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

pub(crate) struct Town {
    pub(crate) cluster: Cluster,
    pub(crate) settings: Settings,
    /// What is created and asked for.
    pub(crate) dialect: Dialect,
    controller: Option<(Arc<Controller>, JoinSet<()>)>,
}

impl Town {
    /// With a controller that runs.
    pub(crate) async fn new(test: &str) -> Self {
        let mut town = Self::still(test).await;
        town.start().await;
        town
    }

    /// Without one.
    pub(crate) async fn still(test: &str) -> Self {
        let cluster = Cluster::new(test).await;
        let id = cluster.namespace.clone();
        let labels = json!({"metadata": {"labels": {
            "quarks.cloudfoundry.org/monitored": id,
            "quarks.cloudfoundry.org/qjob-service-account": "default",
        }}});
        let namespaces = Api::<Namespace>::all(cluster.client.clone());
        let params = PatchParams::default();
        namespaces.patch(&id, &params, &Patch::Merge(labels)).await.unwrap();
        let settings = Settings {
            namespace: id.clone(),
            name: "quarks".to_owned(),
            monitored: Monitored::Labelled(id),
            delivery: packed_agent().into(),
            settle: Duration::from_millis(500),
            workers: WORKERS,
            key_rotation: Duration::from_secs(3600),
            wraps: true,
            strict: false,
            verbatim_prefixes: false,
            immutable_versions: true,
            mends_definitions: false,
            agent_resources: None,
        };
        Self { cluster, settings, dialect: Dialect::QuarksJob, controller: None }
    }

    /// Without one yet, which has the agent around commands or beside them.
    pub(crate) async fn either_way(test: &str, wraps: bool) -> Self {
        let test = if wraps { test.to_owned() } else { format!("{test}-sidecar") };
        let mut town = Self::still(&test).await;
        town.settings.wraps = wraps;
        town
    }

    pub(crate) async fn start(&mut self) {
        let client = self.cluster.client.clone();
        self.start_with(client).await;
    }

    pub(crate) async fn start_with(&mut self, client: Client) {
        let namespace = &self.cluster.namespace;
        let lead = Arc::new(Lead::new(self.cluster.client.clone(), namespace, "quarks", "test"));
        let controller = Controller::open(client, self.settings.clone()).await.unwrap();
        let mut tasks = JoinSet::new();
        let keeps = Arc::clone(&lead);
        tasks.spawn(async move { keeps.keep().await });
        tasks.spawn(Arc::clone(&controller).run(lead));
        self.controller = Some((controller, tasks));
    }

    /// As a process that is killed: what it has not done is not done.
    pub(crate) fn kill(&mut self) {
        self.controller = None;
    }

    /// What the controller that runs has counted.
    pub(crate) fn counts(&self) -> Counts {
        self.controller.as_ref().unwrap().0.counts()
    }

    pub(crate) fn jobs(&self) -> Api<DynamicObject> {
        let resource = self.dialect.resource();
        Api::namespaced_with(self.cluster.client.clone(), &self.cluster.namespace, &resource)
    }

    /// Creates one with this spec.
    pub(crate) async fn create(&self, name: &str, spec: Value) {
        let object = json!({
            "apiVersion": self.dialect.api_version(), "kind": self.dialect.kind(),
            "metadata": {"name": name}, "spec": spec,
        });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        self.jobs().create(&PostParams::default(), &object).await.unwrap();
    }

    pub(crate) async fn patch(&self, name: &str, patch: Value) {
        self.jobs().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// `kubectl patch` of the strategy.
    pub(crate) async fn trigger(&self, name: &str, strategy: &str) {
        self.patch(name, json!({"spec": {"trigger": {"strategy": strategy}}})).await;
    }

    pub(crate) async fn get(&self, name: &str) -> Value {
        self.jobs().get(name).await.unwrap().data
    }

    /// Waits until it is so.
    pub(crate) async fn until(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Value {
        wait::until(&format!("{name} is never {what}"), PATIENCE, async || {
            let object = self.get(name).await;
            if holds(&object) { Ok(object) } else { Err(object) }
        })
        .await
    }

    /// Waits until the run of this number has ended; how.
    pub(crate) async fn ended(&self, name: &str, run: u64) -> Value {
        let of = |object: &Value| {
            let history = object["status"]["history"].as_array();
            history.into_iter().flatten().find(|it| it["id"] == run).cloned()
        };
        let object = self.until(name, "that far", |object| of(object).is_some()).await;
        of(&object).unwrap()
    }

    /// The number of the last run that was begun, whether it goes on or has ended.
    pub(crate) async fn runs(&self, name: &str) -> u64 {
        let object = self.jobs().get(name).await.unwrap();
        let annotations = object.metadata.annotations.unwrap_or_default();
        let record = annotations.get("manciple.dev/runs").map_or("{}", String::as_str);
        let record: Value = serde_json::from_str(record).unwrap();
        // One that was copied has the record of another, and has had no runs.
        let is_its = record["uid"] == object.metadata.uid.unwrap();
        let begun = record["last"].as_u64().filter(|_| is_its);
        // The newest first: it has them, too, where somebody has removed the record.
        let ended = object.data["status"]["history"][0]["id"].as_u64();
        begun.max(ended).unwrap_or_default()
    }

    /// How many runs have ended.
    pub(crate) async fn ended_runs(&self, name: &str) -> usize {
        self.get(name).await["status"]["history"].as_array().map_or(0, Vec::len)
    }

    pub(crate) async fn list<K>(&self) -> Vec<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + serde::de::DeserializeOwned
            + std::fmt::Debug,
    {
        self.cluster.api::<K>().list(&ListParams::default()).await.unwrap().items
    }

    pub(crate) async fn batch_jobs(&self) -> Vec<Job> {
        self.list().await
    }

    /// Waits until no Job is there.
    pub(crate) async fn no_jobs(&self) {
        wait::until("Jobs stay", PATIENCE, async || {
            let jobs = self.batch_jobs().await;
            if jobs.is_empty() { Ok(()) } else { Err(jobs) }
        })
        .await;
    }

    pub(crate) async fn pods(&self) -> Vec<Pod> {
        self.list().await
    }

    /// Waits until there is a pod.
    pub(crate) async fn has_a_pod(&self) {
        wait::until("there is no pod", PATIENCE, async || {
            self.pods().await.pop().map(drop).ok_or("not one")
        })
        .await;
    }

    /// Waits until a pod of this one runs.
    pub(crate) async fn one_runs(&self, name: &str) {
        let of = ListParams::default().labels(&format!("quarks.cloudfoundry.org/qjob-name={name}"));
        let runs = |pod: &Pod| {
            pod.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Running"))
        };
        wait::until(&format!("{name} never runs"), PATIENCE, async || {
            let pods = self.cluster.api::<Pod>().list(&of).await.unwrap().items;
            if pods.iter().any(runs) { Ok(()) } else { Err(pods) }
        })
        .await;
    }

    /// Waits until every pod was asked to go, or is gone, and none of its containers runs. A kubelet of 1.20
    /// removes a pod only when it has tidied up, some tens of seconds after its containers have ended.
    pub(crate) async fn nothing_runs(&self) {
        wait::until("it goes on after its run", PATIENCE, async || {
            let pods = self.pods().await;
            if pods.iter().all(has_stopped) { Ok(()) } else { Err(pods) }
        })
        .await;
    }

    pub(crate) async fn secret(&self, name: &str) -> Option<Secret> {
        self.cluster.api::<Secret>().get_opt(name).await.unwrap()
    }

    /// The data of a Secret, as text.
    pub(crate) async fn data(&self, name: &str) -> BTreeMap<String, String> {
        let secret = self.secret(name).await.unwrap_or_else(|| panic!("no Secret {name}"));
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        secret.data.unwrap_or_default().into_iter().map(|(key, it)| (key, text(it.0))).collect()
    }

    pub(crate) async fn config_map(&self, name: &str, value: &str) {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name}, "data": {"key": value},
        });
        let map: ConfigMap = serde_json::from_value(map).unwrap();
        self.apply(name, &map).await;
    }

    pub(crate) async fn make_secret(&self, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let secret: Secret = serde_json::from_value(object).unwrap();
        self.apply(&name, &secret).await;
    }

    async fn apply<K>(&self, name: &str, object: &K)
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + serde::Serialize
            + serde::de::DeserializeOwned
            + std::fmt::Debug,
    {
        let params = PatchParams::apply("test").force();
        self.cluster.api::<K>().patch(name, &params, &Patch::Apply(object)).await.unwrap();
    }
}

impl Drop for Town {
    fn drop(&mut self) {
        self.controller = None;
        self.cluster.abandon();
    }
}

/// Whether a pod is to be deleted and is over: its kubelet has said that no container of it runs.
fn has_stopped(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_over = matches!(phase, Some("Failed" | "Succeeded"));
    is_over && pod.metadata.deletion_timestamp.is_some()
}

/// A pod whose one container runs this.
pub(crate) fn pod(script: &str) -> Value {
    json!({
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [{
            "name": "c",
            "image": testkit::cluster::SHELL_IMAGE,
            "command": ["/bin/sh"],
            "args": ["-c", script],
        }],
    })
}

/// This, and its one container has this gate to wait at.
pub(crate) fn before(gate: &Gate, mut pod: Value) -> Value {
    pod["volumes"] = json!([gate.volume()]);
    pod["containers"][0]["volumeMounts"] = json!([Gate::mount()]);
    pod
}

/// A spec whose Job runs this pod, once for each trigger.
pub(crate) fn spec(strategy: &str, pod: &Value) -> Value {
    json!({
        "trigger": {"strategy": strategy},
        // Where the official examples have it, and where it belongs.
        "template": {"backoffLimit": 2, "spec": {"backoffLimit": 0, "template": {"spec": pod}}},
    })
}
