//! A node whose kubelet says nothing.

use engine::names::RunName;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::support::jobs::Jobs;
use super::support::wait;
use super::{PATIENCE, jobs, started, until_lost, until_said};

/// A node that nobody's kubelet stands for: its controller gives it up after 40 s.
#[tokio::test]
async fn a_node_that_is_not_heard_of_is_named() {
    let mut jobs = jobs().await;
    let node = Silent::new(&jobs).await;
    jobs.settings.pod.node_selector = Some(json!({"manciple.test/silent": node.name}));
    jobs.settings.pod.tolerations = vec![json!({"operator": "Exists"})];
    let (runner, run) = started(&jobs, "succeeds").await;
    node.run_pod(&jobs, &run.name).await;
    let nodes: Api<Node> = Api::all(jobs.cluster.client.clone());
    wait::until("nobody gives it up", PATIENCE, async || {
        if node.is_given_up(&nodes).await { Ok(()) } else { Err("not yet") }
    })
    .await;
    until_said(&*runner, &run.name, &format!("the node {} is not heard of", node.name)).await;
    // Who takes the pod away says that it is gone.
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    jobs.delete_pods_of(&run.name, &now).await;
    until_lost(&*runner, &run.name, "its pod was deleted").await;
    nodes.delete(&node.name, &DeleteParams::default()).await.unwrap();
}

struct Silent {
    name: String,
}

impl Silent {
    async fn new(jobs: &Jobs) -> Self {
        let nodes: Api<Node> = Api::all(jobs.cluster.client.clone());
        let name = format!("silent-{}", jobs.cluster.namespace);
        let now = now_as_text();
        let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        // The last two are a kubelet's: those that have none take no runs.
        let labels = json!({
            "manciple.test/silent": name,
            "kubernetes.io/arch": architecture, "kubernetes.io/os": "linux",
        });
        let node = json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": [{"key": "manciple.test/silent", "effect": "NoSchedule"}]},
            "status": {
                "capacity": {"cpu": "1", "memory": "1Gi", "pods": "9", "ephemeral-storage": "1Gi"},
                "allocatable": {"cpu": "1", "memory": "1Gi", "pods": "9", "ephemeral-storage": "1Gi"},
                "conditions": [{
                    "type": "Ready", "status": "True", "reason": "KubeletReady",
                    "lastHeartbeatTime": now, "lastTransitionTime": now,
                }],
            },
        });
        let node: Node = serde_json::from_value(node).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
        Self { name }
    }

    /// Says of the pod what a kubelet would.
    async fn run_pod(&self, jobs: &Jobs, run: &RunName) {
        let pod = wait::until("no node takes its pod", PATIENCE, async || {
            let pods = jobs.pods_of(run).await;
            let placed = pods
                .iter()
                .find(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()));
            placed.map(|pod| pod.metadata.name.clone().unwrap()).ok_or("none")
        })
        .await;
        let now = now_as_text();
        let condition = |type_| json!({"type": type_, "status": "True", "lastTransitionTime": now});
        let conditions = ["Initialized", "Ready", "ContainersReady", "PodScheduled"].map(condition);
        let status = json!({
            "phase": "Running",
            "conditions": conditions,
            "containerStatuses": [{
                "name": "broker", "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            }],
        });
        let patch = Patch::Merge(json!({"status": status}));
        jobs.pods().patch_status(&pod, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn is_given_up(&self, nodes: &Api<Node>) -> bool {
        let node = nodes.get(&self.name).await.unwrap();
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        conditions.iter().any(|it| it.type_ == "Ready" && it.status == "Unknown")
    }
}

fn now_as_text() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
