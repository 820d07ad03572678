//! Runs as Jobs, in real pods.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use engine::names::RunName;
use engine::ports::Runner;
use engine::testing::runner_contract::{BROKER, Harness};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kubernetes::{JobRunner, JobSettings};
use osb::InstanceId;
use serde_json::json;

use support::Cluster;

/// A namespace with a broker whose executable comes by a ConfigMap, and whose ledger is a folder of the
/// machine that the node and this test share.
struct Jobs {
    cluster: Cluster,
    settings: JobSettings,
    ledger: PathBuf,
}

impl Jobs {
    async fn new() -> Self {
        let cluster = Cluster::new("runner").await;
        let ledger = tempfile::Builder::new().prefix("ledger-").tempdir().unwrap().keep();
        std::fs::set_permissions(&ledger, std::fs::Permissions::from_mode(0o777)).unwrap();
        let script: ConfigMap = serde_json::from_value(json!({
            "metadata": {"name": "script"}, "data": {"broker": BROKER},
        }))
        .unwrap();
        let config_maps: Api<ConfigMap> =
            Api::namespaced(cluster.client.clone(), &cluster.namespace);
        config_maps.create(&PostParams::default(), &script).await.unwrap();
        let image = testkit::cluster::SHELL_IMAGE;
        let mut settings =
            JobSettings::new(&cluster.namespace, "contract", image, testkit::cluster::AGENT_IMAGE);
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
        Self { cluster, settings, ledger }
    }
}

/// Not awaited: the test's runtime is ending.
impl Drop for Jobs {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.ledger);
        self.cluster.abandon();
    }
}

#[async_trait]
impl Harness for Jobs {
    async fn runner(&self) -> Arc<dyn Runner> {
        let client = self.cluster.client.clone();
        Arc::new(JobRunner::open(client, self.settings.clone()).await.unwrap())
    }

    async fn effects(&self, instance: &InstanceId) -> usize {
        let lines = std::fs::read_to_string(self.ledger.join(instance.as_str()));
        lines.unwrap_or_default().lines().count()
    }

    async fn lose(&self, run: &RunName) {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client.clone(), &self.cluster.namespace);
        let of = ListParams::default().labels(&format!("manciple.dev/run={run}"));
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        for pod in pods.list(&of).await.unwrap() {
            pods.delete(&pod.metadata.name.unwrap(), &now).await.unwrap();
        }
    }
}

engine::runner_contract!(Jobs::new().await);
