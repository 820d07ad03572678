//! Twenty with output on real pods, beside twenty bare Jobs.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::machine;
use crate::process::{Process, create, is_completed, load, resources, until_over};
use crate::support::Cluster;

const MANY: usize = 20;
const ROUNDS: usize = 4;

pub(crate) async fn bench() {
    let cluster = Cluster::new("quarks-bench").await;
    let labels = json!({"metadata": {"labels": {
        "quarks.cloudfoundry.org/monitored": cluster.namespace,
    }}});
    let namespaces = Api::<Namespace>::all(cluster.client.clone());
    let params = PatchParams::default();
    namespaces.patch(&cluster.namespace, &params, &Patch::Merge(labels)).await.unwrap();
    let kubeconfig = testkit::cluster::kubeconfig().unwrap();
    for sidecar in [false, true] {
        let home = &cluster.namespace;
        let process = Process::start_with(&kubeconfig, home, home, sidecar).await;
        quarks(&cluster, "warm", 1).await;
        clear(&cluster).await;
        let how = if sidecar { "each with a sidecar" } else { "wrapped" };
        println!("{MANY} on real pods, {how}, {ROUNDS} rounds; load {}", load());
        for round in 0..ROUNDS {
            beside_bare_ones(&cluster, round).await;
        }
        println!("  resident {:.1} MB", process.memory().0);
        drop(process);
    }
    cluster.remove().await;
}

/// Either is first in some round: what is left of pods when they are gone keeps a kubelet busy for a while.
async fn beside_bare_ones(cluster: &Cluster, round: usize) {
    let is_first = round.is_multiple_of(2);
    let mut spent = [(Duration::ZERO, 0.0); 2];
    for is_bare in [is_first, !is_first] {
        let begun = machine::busy();
        let stem = format!("{}-{round}", if is_bare { "bare" } else { "ours" });
        let took = match is_bare {
            true => bare(cluster, &stem, MANY).await,
            false => quarks(cluster, &stem, MANY).await,
        };
        spent[usize::from(!is_bare)] = (took, (machine::busy() - begun) / MANY as f64);
        clear(cluster).await;
    }
    let [(bare, bare_cpu), (ours, cpu)] = spent;
    let ratio = ours.as_secs_f64() / bare.as_secs_f64();
    println!(
        "  bare {bare:.1?}, with output {ours:.1?}: {ratio:.2} times; CPU of the machine {bare_cpu:.3}, {cpu:.3} s \
         each: {:.2} times; first: {}",
        cpu / bare_cpu,
        if is_first { "bare" } else { "with output" },
    );
}

fn pod() -> Value {
    let script = "echo '{\"k\": \"v\"}' > /mnt/quarks/o.json";
    json!({
        "restartPolicy": "Never",
        "containers": [{
            "name": "c", "image": testkit::cluster::SHELL_IMAGE, "command": ["/bin/sh", "-c", script],
            // As bare Jobs have it that are to write somewhere.
            "volumeMounts": [],
        }],
    })
}

async fn bare(cluster: &Cluster, stem: &str, count: usize) -> Duration {
    let mut pod = pod();
    pod["volumes"] = json!([{"name": "out", "emptyDir": {}}]);
    pod["containers"][0]["volumeMounts"] = json!([{"name": "out", "mountPath": "/mnt/quarks"}]);
    let begun = Instant::now();
    let make = |n: usize| {
        let job = json!({
            "metadata": {"name": format!("{stem}-{n}")}, "spec": {"template": {"spec": pod}},
        });
        let job: Job = serde_json::from_value(job).unwrap();
        async move {
            cluster.api::<Job>().create(&PostParams::default(), &job).await.unwrap();
        }
    };
    join_all((0..count).map(make)).await;
    let has_succeeded = |job: &Job| job.status.as_ref().and_then(|it| it.succeeded) == Some(1);
    until_over(&cluster.api::<Job>(), count, has_succeeded).await;
    begun.elapsed()
}

async fn quarks(cluster: &Cluster, stem: &str, count: usize) -> Duration {
    let begun = Instant::now();
    let (client, namespace) = (&cluster.client, &cluster.namespace);
    let make = |n: usize| {
        let name = format!("{stem}-{n}");
        let spec = json!({
            "trigger": {"strategy": "once"},
            "template": {"spec": {"template": {"spec": pod()}}},
            "output": {"outputMap": {"c": {"o.json": {"name": name}}}},
        });
        async move { create(client, namespace, &name, spec).await }
    };
    join_all((0..count).map(make)).await;
    until_over(&resources(client, namespace), count, is_completed).await;
    begun.elapsed()
}

/// Each finds the node empty.
async fn clear(cluster: &Cluster) {
    let (now, all) = (DeleteParams::background(), ListParams::default());
    let _ = resources(&cluster.client, &cluster.namespace).delete_collection(&now, &all).await;
    let _ = cluster.api::<Job>().delete_collection(&now, &all).await;
    let _ = cluster.api::<Pod>().delete_collection(&now, &all).await;
    let outputs =
        |secret: &&Secret| secret.data.as_ref().is_some_and(|data| data.contains_key("k"));
    let secrets = cluster.api::<Secret>();
    for secret in secrets.list(&all).await.unwrap().iter().filter(outputs) {
        let _ = secrets.delete(secret.metadata.name.as_deref().unwrap(), &now).await;
    }
    while !cluster.api::<Pod>().list(&all).await.unwrap().items.is_empty() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
}
