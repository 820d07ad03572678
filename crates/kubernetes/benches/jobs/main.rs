//! How long a provision through a Job takes, beside a bare Job that runs the same command, in turns.
//!
//! `cargo bench -p kubernetes --bench jobs`, with a cluster (`KUBECONFIG`, or `cargo xtask cluster up`) and
//! `cargo xtask images`. `JOBS_TURNS` (10) one at a time, `JOBS_AT_ONCE` (50) at once, `JOBS_ROUNDS` (1) of
//! these; `JOBS_INIT` set has an init container bring the agent. `JOBS_MAX_RUNS` may be alive at once, as
//! `operations.max_runs` says it to a server; where it is not set, as many as by default.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::panic, reason = "a bench")]

#[allow(unused_imports, reason = "shared with the tests")]
#[path = "../../tests/support/mod.rs"]
mod support;

mod machine;
mod phases;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Engine, Policy, Ports, SystemClock};
use futures_util::future::join_all;
use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kubernetes::{
    Bonds, Delivery, JobRunner, JobSettings, KubernetesStore, RecordChange, StoreSettings,
};
use osb::{Backend, Call, InstanceId, LastOperationQuery, OperationState, ProvisionRequest, Reply};
use serde_json::json;

use phases::Phases;
use support::Cluster;

const BROKER: &str = r#"#!/bin/sh
case $1 in
catalog) echo '{"services":[{"id":"s","name":"db","description":"d","bindable":true,
    "plans":[{"id":"p","name":"small","description":"d"}]}]}' ;;
*)
    cat /proc/uptime >"/ledger/${RUN:-$7}"
    echo '{}' ;;
esac
"#;

/// How long each took, and where its time went.
#[derive(Default)]
struct Runs {
    times: Vec<Duration>,
    steps: Vec<[f64; 6]>,
    /// Of the whole machine, until the last was over, in seconds.
    cpu: f64,
}

#[tokio::main]
async fn main() {
    let number = |name: &str, default: usize| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (turns, at_once) = (number("JOBS_TURNS", 10), number("JOBS_AT_ONCE", 50));
    let cluster = Cluster::new("bench").await;
    let ledger = tempfile::tempdir().unwrap();
    std::fs::set_permissions(ledger.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let bench = Bench {
        engine: engine(&cluster, ledger.path()).await,
        phases: Phases::watch(&cluster, ledger.path()),
        cluster,
        ledger,
    };
    for kind in Kind::ALL {
        bench.run(kind, vec![format!("warm-{}", kind.word())]).await;
    }
    bench.clear().await;
    let mut runs: [Runs; 3] = Default::default();
    for turn in 0..turns {
        for (kind, runs) in Kind::ALL.into_iter().zip(&mut runs) {
            runs.add(bench.run(kind, vec![format!("{}-{turn}", kind.word())]).await);
        }
    }
    report("one at a time", &mut runs);
    for round in 0..number("JOBS_ROUNDS", 1) {
        let mut runs: [Runs; 3] = Default::default();
        for turn in 0..Kind::ALL.len() {
            // Each is the first of some round.
            let turn = (turn + round) % Kind::ALL.len();
            let name = |n| format!("{}-{round}-{n}", Kind::ALL[turn].word());
            runs[turn] = bench.run(Kind::ALL[turn], (0..at_once).map(name).collect()).await;
            bench.clear().await;
        }
        report(&format!("{at_once} at once"), &mut runs);
    }
    bench.cluster.remove().await;
}

/// What is measured, in turns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// As somebody writes it who thinks of nothing else.
    Bare,
    /// The same, as restricted as ours: to set up a system call filter takes a runtime its time.
    Restricted,
    Provision,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Bare, Self::Restricted, Self::Provision];

    fn word(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Restricted => "restricted",
            Self::Provision => "provision",
        }
    }
}

/// Medians, and how they stand to those of a bare Job.
fn report(what: &str, runs: &mut [Runs; 3]) {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("{what}; load {}", load.split_whitespace().next().unwrap_or_default());
    let mut first = None;
    for (kind, runs) in Kind::ALL.iter().zip(runs.iter_mut()) {
        runs.times.sort();
        let median = runs.times.get(runs.times.len() / 2).copied().unwrap_or_default();
        let last = runs.times.last().copied().unwrap_or_default();
        let cpu = runs.cpu / runs.times.len() as f64;
        let (bare_median, bare_last, bare_cpu) = *first.get_or_insert((median, last, cpu));
        println!(
            "  {:10} median {median:.2?}, ratio {:.2}; last {last:.2?}, ratio {:.2}; CPU of the machine {cpu:.3} s each, \
             ratio {:.2}",
            kind.word(),
            median.as_secs_f64() / bare_median.as_secs_f64(),
            last.as_secs_f64() / bare_last.as_secs_f64(),
            cpu / bare_cpu,
        );
    }
    phases::print(&Kind::ALL.map(Kind::word), &[&runs[0].steps, &runs[1].steps, &runs[2].steps]);
}

impl Runs {
    fn add(&mut self, other: Self) {
        self.times.extend(other.times);
        self.steps.extend(other.steps);
        self.cpu += other.cpu;
    }
}

struct Bench {
    cluster: Cluster,
    engine: Engine,
    phases: Phases,
    ledger: tempfile::TempDir,
}

impl Bench {
    /// All of them at once.
    async fn run(&self, kind: Kind, names: Vec<String>) -> Runs {
        if kind == Kind::Provision {
            // So that asking takes no part of the machine that is worth mentioning.
            let pause = Duration::from_millis(5) * u32::try_from(names.len().min(30)).unwrap();
            return self.all(names, async |id| provision(&self.engine, id, pause).await).await;
        }
        self.all(names, async |name| {
            bare(&self.cluster, self.ledger.path(), name, kind == Kind::Restricted).await;
        })
        .await
    }

    /// Waits until nothing is left of what ran: a kubelet looks at every pod that it has whenever one changes,
    /// so who comes later would pay for those before.
    async fn clear(&self) {
        let (client, namespace) = (&self.cluster.client, &self.cluster.namespace);
        let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        jobs.delete_collection(&DeleteParams::background(), &ListParams::default()).await.unwrap();
        while !pods.list_metadata(&ListParams::default()).await.unwrap().items.is_empty() {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        // The sandboxes follow.
        tokio::time::sleep(Duration::from_secs(3)).await;
    }

    async fn all(&self, names: Vec<String>, one: impl AsyncFn(&str)) -> Runs {
        let runs = names.iter().map(async |name| {
            let begun = Instant::now();
            one(name).await;
            (name, begun, Instant::now())
        });
        let before = machine::busy();
        let ended = join_all(runs).await;
        let cpu = machine::busy() - before;
        // What was seen last may be told a moment after the outcome.
        tokio::time::sleep(Duration::from_millis(200)).await;
        Runs {
            cpu,
            times: ended.iter().map(|(_, begun, over)| *over - *begun).collect(),
            steps: ended
                .iter()
                .filter_map(|(name, begun, over)| self.phases.steps(name, *begun, *over))
                .collect(),
        }
    }
}

async fn engine(cluster: &Cluster, ledger: &Path) -> Engine {
    let script: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "script"}, "data": {"broker": BROKER},
    }))
    .unwrap();
    let config_maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    config_maps.create(&PostParams::default(), &script).await.unwrap();
    let settings =
        StoreSettings { namespace: cluster.namespace.clone(), broker: "bench".to_owned() };
    let store = KubernetesStore::open(cluster.client.clone(), settings).await.unwrap();
    let mut changes = store.changes().unwrap();
    let image = testkit::cluster::SHELL_IMAGE;
    let agent = match std::env::var_os("JOBS_INIT") {
        Some(_) => Delivery::from(testkit::cluster::AGENT_IMAGE),
        None => support::packed_agent().into(),
    };
    let mut jobs = JobSettings::new(&cluster.namespace, "bench", image, agent);
    jobs.pod = serde_json::from_value(json!({
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
    let ports = Ports {
        store: Arc::new(store),
        runner: Arc::new(
            JobRunner::open(cluster.client.clone(), jobs, Bonds::default()).await.unwrap(),
        ),
        clock: Arc::new(SystemClock),
        observer: Arc::new(()),
    };
    let max_runs = std::env::var("JOBS_MAX_RUNS").ok().and_then(|text| text.parse().ok());
    let max_runs = max_runs.unwrap_or(Policy::default().max_runs);
    let policy = Policy { max_runs, ..Policy::default() };
    let engine = Engine::new(policy, ports);
    engine.refresh_catalog().await.unwrap();
    let told = engine.clone();
    tokio::spawn(async move {
        while let Some(RecordChange { key, busy, .. }) = changes.recv().await {
            told.heard_of(&key, busy);
        }
    });
    engine
}

/// From the request until the outcome is visible.
async fn provision(engine: &Engine, id: &str, pause: Duration) {
    let call = Call { accepts_incomplete: true, ..Call::default() };
    let request: ProvisionRequest = serde_json::from_value(json!({
        "service_id": "s", "plan_id": "p", "organization_guid": "o", "space_guid": "s",
        "parameters": {"size": 1}, "context": {"platform": "bench"},
    }))
    .unwrap();
    let instance = InstanceId::new(id).unwrap();
    let reply = engine.provision(&call, &instance, request).await.unwrap();
    let Reply::Accepted { operation, .. } = reply else { panic!("{reply:?}") };
    let query = LastOperationQuery { operation: Some(operation), ..Default::default() };
    loop {
        let last = engine.instance_last_operation(&call, &instance, query.clone()).await.unwrap();
        match last.state {
            OperationState::InProgress => tokio::time::sleep(pause).await,
            OperationState::Succeeded => return,
            OperationState::Failed => panic!("{last:?}"),
        }
    }
}

/// From the request until the Job says that it is complete.
async fn bare(cluster: &Cluster, ledger: &Path, name: &str, restricted: bool) {
    let jobs: Api<Job> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let (pod, container) = match restricted {
        true => (
            json!({
                "runAsNonRoot": true,
                "runAsUser": 65532,
                "runAsGroup": 65532,
                "fsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            }),
            json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}),
        ),
        false => (json!({}), json!({})),
    };
    let job: Job = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": {"spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "securityContext": pod,
            "containers": [{
                "securityContext": container,
                "name": "broker",
                "image": testkit::cluster::SHELL_IMAGE,
                "command": ["/bin/broker", "provision"],
                "env": [{"name": "RUN", "value": name}],
                "volumeMounts": [
                    {"name": "script", "mountPath": "/bin/broker", "subPath": "broker"},
                    {"name": "ledger", "mountPath": "/ledger"},
                ],
            }],
            "volumes": [
                {"name": "script", "configMap": {"name": "script", "defaultMode": 0o555}},
                {"name": "ledger", "hostPath": {"path": ledger}},
            ],
        }}},
    }))
    .unwrap();
    let made = jobs.create(&PostParams::default(), &job).await.unwrap();
    let params = WatchParams::default().fields(&format!("metadata.name={name}"));
    let version = made.metadata.resource_version.unwrap();
    let events = jobs.watch(&params, &version).await.unwrap();
    pin_mut!(events);
    while let Some(event) = events.next().await {
        if let WatchEvent::Modified(job) = event.unwrap() {
            let done = job.status.is_some_and(|status| status.succeeded == Some(1));
            if done {
                return;
            }
        }
    }
    panic!("the watch of {name} ended")
}
