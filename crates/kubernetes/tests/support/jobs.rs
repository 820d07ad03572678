//! Runs of a script in a namespace of their own.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use engine::names::RunName;
use engine::ports::Runner;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kubernetes::{Bonds, JobRunner, JobSettings};
use osb::InstanceId;
use serde_json::json;

use super::Cluster;

/// A namespace with a broker whose executable comes by a ConfigMap, and whose ledger is a folder of the
/// machine that the node and this test share.
pub(crate) struct Jobs {
    pub(crate) cluster: Cluster,
    pub(crate) settings: JobSettings,
    ledger: PathBuf,
}

impl Jobs {
    /// With this as `/bin/broker`.
    pub(crate) async fn new(test: &str, broker: &str) -> Self {
        let cluster = Cluster::new(test).await;
        let ledger = tempfile::Builder::new().prefix("ledger-").tempdir().unwrap().keep();
        std::fs::set_permissions(&ledger, std::fs::Permissions::from_mode(0o777)).unwrap();
        let image = testkit::cluster::SHELL_IMAGE;
        let mut settings =
            JobSettings::new(&cluster.namespace, "contract", image, super::packed_agent());
        settings.grace = Duration::from_secs(1);
        settings.pod = serde_json::from_value(json!({
            "env": [{"name": "LEDGER", "value": "/ledger"}],
            "volumes": [
                {"name": "script", "configMap": {"name": "script", "defaultMode": 0o555}},
                {"name": "ledger", "hostPath": {"path": ledger}},
            ],
            "volumeMounts": [
                {"name": "script", "mountPath": "/bin/broker", "subPath": "broker"},
                {"name": "ledger", "mountPath": "/ledger"},
            ],
        }))
        .unwrap();
        let jobs = Self { cluster, settings, ledger };
        jobs.make_config_map("script", "broker", broker).await;
        jobs
    }

    pub(crate) async fn open(&self) -> Arc<dyn Runner> {
        let client = self.cluster.client.clone();
        Arc::new(JobRunner::open(client, self.settings.clone(), Bonds::default()).await.unwrap())
    }

    pub(crate) async fn make_config_map(&self, name: &str, key: &str, value: &str) {
        let data = BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let mut map = ConfigMap { data: Some(data), ..ConfigMap::default() };
        map.metadata.name = Some(name.to_owned());
        self.cluster.api::<ConfigMap>().create(&PostParams::default(), &map).await.unwrap();
    }

    /// How often a broker was started for this instance.
    pub(crate) fn effects(&self, instance: &InstanceId) -> usize {
        let lines = std::fs::read_to_string(self.ledger.join(instance.as_str()));
        lines.unwrap_or_default().lines().count()
    }

    /// Puts an empty file into the ledger, for a broker that waits for it.
    pub(crate) fn put(&self, name: &str) {
        std::fs::write(self.ledger.join(name), "").unwrap();
    }

    pub(crate) async fn pods_of(&self, run: &RunName) -> Vec<Pod> {
        let of = ListParams::default().labels(&format!("manciple.dev/run={run}"));
        self.cluster.api::<Pod>().list(&of).await.unwrap().items
    }

    pub(crate) async fn delete_pods_of(&self, run: &RunName, how: &DeleteParams) {
        for pod in self.pods_of(run).await {
            self.cluster.api::<Pod>().delete(&pod.metadata.name.unwrap(), how).await.unwrap();
        }
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        self.cluster.api()
    }
}

/// Not awaited: the test's runtime is ending.
impl Drop for Jobs {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.ledger);
        self.cluster.abandon();
    }
}
