//! How long a provision through a Job takes, beside a bare Job that runs the same command, in turns.
//!
//! `cargo bench -p kubernetes --bench jobs`, with a cluster (`KUBECONFIG`, or `cargo xtask cluster up`) and
//! `cargo xtask images`. `JOBS_TURNS` (10) one at a time, `JOBS_AT_ONCE` (50) at once.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::panic, reason = "a bench")]

#[allow(unused_imports, reason = "shared with the tests")]
#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Engine, Policy, Ports, SystemClock};
use futures_util::future::join_all;
use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams, WatchEvent, WatchParams};
use kubernetes::{Change, JobRunner, JobSettings, KubernetesStore, Settings};
use osb::{Backend, Call, InstanceId, LastOperationQuery, OperationState, ProvisionRequest, Reply};
use serde_json::json;

use support::Cluster;

const BROKER: &str = r#"#!/bin/sh
case $1 in
catalog) echo '{"services":[{"id":"s","name":"db","description":"d","bindable":true,
    "plans":[{"id":"p","name":"small","description":"d"}]}]}' ;;
*) echo '{}' ;;
esac
"#;

#[tokio::main]
async fn main() {
    let number = |name: &str, default: usize| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (turns, at_once) = (number("JOBS_TURNS", 10), number("JOBS_AT_ONCE", 50));
    let cluster = Cluster::new("bench").await;
    let engine = engine(&cluster).await;
    bare(&cluster, "warm").await;
    provision(&engine, "warm").await;
    let (mut bare_times, mut ours) = (Vec::new(), Vec::new());
    for turn in 0..turns {
        bare_times.push(bare(&cluster, &format!("bare-{turn}")).await);
        ours.push(provision(&engine, &format!("i-{turn}")).await);
    }
    report("one at a time", &mut bare_times, &mut ours);
    let names: Vec<String> = (0..at_once).map(|n| format!("many-{n}")).collect();
    let begun = Instant::now();
    let mut bare_times = join_all(names.iter().map(|name| bare(&cluster, name))).await;
    let bare_all = begun.elapsed();
    let begun = Instant::now();
    let mut ours = join_all(names.iter().map(|name| provision(&engine, name))).await;
    let ours_all = begun.elapsed();
    report(&format!("{at_once} at once"), &mut bare_times, &mut ours);
    let ratio = ours_all.as_secs_f64() / bare_all.as_secs_f64();
    println!("all of them: bare {bare_all:.1?}, provisions {ours_all:.1?}, ratio {ratio:.2}");
    cluster.remove().await;
}

fn report(what: &str, bare: &mut [Duration], ours: &mut [Duration]) {
    bare.sort();
    ours.sort();
    let (bare, ours) = (bare[bare.len() / 2], ours[ours.len() / 2]);
    let ratio = ours.as_secs_f64() / bare.as_secs_f64();
    println!(
        "{what}: median of a bare Job {bare:.2?}, of a provision {ours:.2?}, ratio {ratio:.2}"
    );
}

async fn engine(cluster: &Cluster) -> Engine {
    let script: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "script"}, "data": {"broker": BROKER},
    }))
    .unwrap();
    let config_maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    config_maps.create(&PostParams::default(), &script).await.unwrap();
    let settings = Settings { namespace: cluster.namespace.clone(), broker: "bench".to_owned() };
    let store = KubernetesStore::open(cluster.client.clone(), settings).await.unwrap();
    let mut changes = store.changes().unwrap();
    let image = testkit::cluster::SHELL_IMAGE;
    let agent = testkit::cluster::AGENT_IMAGE;
    let mut jobs = JobSettings::new(&cluster.namespace, "bench", image, agent);
    jobs.pod = serde_json::from_value(json!({
        "volumes": [{"name": "script", "configMap": {"name": "script", "defaultMode": 0o555}}],
        "volumeMounts": [{"name": "script", "mountPath": "/bin/broker", "subPath": "broker"}],
    }))
    .unwrap();
    let ports = Ports {
        store: Arc::new(store),
        runner: Arc::new(JobRunner::open(cluster.client.clone(), jobs).await.unwrap()),
        clock: Arc::new(SystemClock),
        observer: Arc::new(()),
    };
    let policy = Policy { max_runs: 1000, ..Policy::default() };
    let engine = Engine::new(policy, ports);
    engine.refresh_catalog().await.unwrap();
    let told = engine.clone();
    tokio::spawn(async move {
        while let Some(Change { key, busy, .. }) = changes.recv().await {
            told.heard_of(&key, busy);
        }
    });
    engine
}

/// From the request until the outcome is visible.
async fn provision(engine: &Engine, id: &str) -> Duration {
    let call = Call { accepts_incomplete: true, ..Call::default() };
    let request: ProvisionRequest = serde_json::from_value(json!({
        "service_id": "s", "plan_id": "p", "organization_guid": "o", "space_guid": "s",
    }))
    .unwrap();
    let instance = InstanceId::new(id).unwrap();
    let begun = Instant::now();
    let reply = engine.provision(&call, &instance, request).await.unwrap();
    let Reply::Accepted { operation, .. } = reply else { panic!("{reply:?}") };
    let query = LastOperationQuery { operation: Some(operation), ..Default::default() };
    loop {
        let last = engine.instance_last_operation(&call, &instance, query.clone()).await.unwrap();
        match last.state {
            OperationState::InProgress => tokio::time::sleep(Duration::from_millis(5)).await,
            OperationState::Succeeded => return begun.elapsed(),
            OperationState::Failed => panic!("{last:?}"),
        }
    }
}

/// From the request until the Job says that it is complete.
async fn bare(cluster: &Cluster, name: &str) -> Duration {
    let jobs: Api<Job> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let job: Job = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": {"spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "broker",
                "image": testkit::cluster::SHELL_IMAGE,
                "command": ["/bin/broker", "provision"],
                "volumeMounts": [
                    {"name": "script", "mountPath": "/bin/broker", "subPath": "broker"},
                ],
            }],
            "volumes": [{"name": "script", "configMap": {"name": "script", "defaultMode": 0o555}}],
        }}},
    }))
    .unwrap();
    let begun = Instant::now();
    let made = jobs.create(&PostParams::default(), &job).await.unwrap();
    let params = WatchParams::default().fields(&format!("metadata.name={name}"));
    let version = made.metadata.resource_version.unwrap();
    let events = jobs.watch(&params, &version).await.unwrap();
    pin_mut!(events);
    while let Some(event) = events.next().await {
        if let WatchEvent::Modified(job) = event.unwrap() {
            let done = job.status.is_some_and(|status| status.succeeded == Some(1));
            if done {
                return begun.elapsed();
            }
        }
    }
    panic!("the watch of {name} ended")
}
