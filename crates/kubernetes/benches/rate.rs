//! How many provisions a second an API server allows, beside plain creates and bare Jobs: no pods run, the
//! bench plays the kubelet and patches their status.
//!
//! `cargo bench -p kubernetes --bench rate`, with the programs of `cargo xtask cluster up`: the API server is
//! the bench's own. `RATE_ORDERS` (1,000) provisions at once, of a broker as the seed has it and of one that takes its
//! parameters in a file, which costs a Secret more; as many Jobs that are no more than created and
//! deleted when they are complete, and four plain creates for each.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::panic, reason = "a bench")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent::{KeyPair, ORDER_VARIABLE, Order};
use engine::policy::PerAction;
use engine::ports::Offer;
use engine::{Engine, Policy, Ports, SystemClock};
use futures_util::future::join_all;
use futures_util::{StreamExt, pin_mut, stream};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::watcher::{Config, Event, watcher};
use kubernetes::{Bonds, JobRunner, JobSettings, KubernetesStore, RecordChange, StoreSettings};
use osb::jobs::contract::Capability;
use osb::{Backend, Call, InstanceId, LastOperationQuery, OperationState, ProvisionRequest, Reply};
use serde_json::json;
use testkit::kubelet::{Act, Kubelet};
use testkit::plane::ControlPlane;
use tokio::task::JoinHandle;

const NAMESPACE: &str = "rate";
/// How many plain creates are under way at once.
const AT_ONCE: usize = 64;
/// What a provision writes until its outcome is seen.
const WRITES: usize = 4;

#[tokio::main]
async fn main() {
    let count = std::env::var("RATE_ORDERS").ok().and_then(|text| text.parse().ok());
    let count: usize = count.unwrap_or(1000);
    let plane = ControlPlane::start(&kubernetes::definitions()).unwrap();
    let client = kubernetes::client(Some(&plane.kubeconfig())).await.unwrap();
    let namespace: Namespace =
        serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let catalog = json!({"services": [{
        "id": "s", "name": "db", "description": "d", "bindable": true,
        "plans": [{"id": "p", "name": "small", "description": "d"}],
    }]});
    let well = |_: &_| Act::well(Duration::ZERO, Duration::ZERO);
    let _kubelet = Kubelet::start(client.clone(), NAMESPACE, catalog.clone(), Arc::new(well));
    let engine = engine(&client).await;
    plain(&client, "warm", 200).await;
    for round in 0..3 {
        let creates = plain(&client, &format!("plain-{round}"), count * WRITES).await;
        let jobs = bare(&client, round, count).await;
        let rate = |many: usize, took: Duration| many as f64 / took.as_secs_f64();
        let (creates, jobs) = (rate(count * WRITES, creates), rate(count, jobs));
        for (broker, capabilities) in
            [("of version 1", vec![]), ("with a request file", vec![Capability::RequestFile])]
        {
            let offer = Offer { catalog: catalog.clone(), capabilities, ..Offer::default() };
            engine.set_offer(offer).await.unwrap();
            let prefix = format!("{}-{round}", broker.replace(' ', "-"));
            let (accepted, done) = provisions(&engine, &prefix, count).await;
            let done = rate(count, done);
            println!(
                "{count} provisions of a broker {broker}: 202 at {:.0}/s, carried out at {done:.1}/s; bare Jobs \
                 {jobs:.1}/s, ratio {:.2}; plain creates {creates:.0}/s",
                rate(count, accepted),
                done / jobs,
            );
        }
    }
}

/// Creates Secrets, as small as a run's.
async fn plain(client: &Client, prefix: &str, count: usize) -> Duration {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let begun = Instant::now();
    let creates = stream::iter(0..count).map(|n| {
        let secret = json!({
            "metadata": {"name": format!("{prefix}-{n}")},
            "stringData": {"order": "x".repeat(300)},
        });
        let secret: Secret = serde_json::from_value(secret).unwrap();
        let secrets = secrets.clone();
        async move { secrets.create(&PostParams::default(), &secret).await.unwrap() }
    });
    creates.buffer_unordered(AT_ONCE).for_each(|_| async {}).await;
    begun.elapsed()
}

/// Creates Jobs, and deletes each when it is complete: until the last is.
async fn bare(client: &Client, round: usize, count: usize) -> Duration {
    let jobs: Api<Job> = Api::namespaced(client.clone(), NAMESPACE);
    let key = KeyPair::generate();
    let job = |name: &str| {
        let order = Order::catalog(name, Duration::from_secs(60), key.public().clone());
        let order = json!({"name": ORDER_VARIABLE, "value": order.to_variable().unwrap()});
        let container = json!({"name": "broker", "image": "none", "env": [order]});
        let labels = json!({"manciple.dev/run": name});
        let job = json!({
            "metadata": {"name": name, "labels": {"rate": format!("{round}")}},
            "spec": {"backoffLimit": 0, "template": {
                "metadata": {"labels": labels},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            }},
        });
        serde_json::from_value::<Job>(job).unwrap()
    };
    let begun = Instant::now();
    let created = stream::iter(0..count).map(|n| {
        let (jobs, job) = (jobs.clone(), job(&format!("bare-{round}-{n}")));
        tokio::spawn(async move { jobs.create(&PostParams::default(), &job).await.unwrap() })
    });
    let created = created.buffer_unordered(AT_ONCE).for_each(|_| async {});
    let complete = async {
        let events = watcher(jobs.clone(), Config::default().labels(&format!("rate={round}")));
        pin_mut!(events);
        let mut removals: HashMap<String, JoinHandle<()>> = HashMap::new();
        while removals.len() < count {
            let Some(Ok(Event::Apply(job) | Event::InitApply(job))) = events.next().await else {
                continue;
            };
            if job.status.as_ref().is_some_and(|status| status.succeeded == Some(1)) {
                let (jobs, name) = (jobs.clone(), job.metadata.name.unwrap());
                removals.entry(name.clone()).or_insert_with(|| {
                    tokio::spawn(async move {
                        jobs.delete(&name, &DeleteParams::background()).await.unwrap();
                    })
                });
            }
        }
        join_all(removals.into_values()).await;
    };
    tokio::join!(created, complete);
    begun.elapsed()
}

/// All at once: until the last was accepted, and until the last was carried out.
async fn provisions(engine: &Engine, prefix: &str, count: usize) -> (Duration, Duration) {
    let call = Call { accepts_incomplete: true, ..Call::default() };
    let begun = Instant::now();
    let accepted = join_all((0..count).map(|n| {
        let (engine, call) = (engine.clone(), call.clone());
        let id = InstanceId::new(format!("{prefix}-{n}")).unwrap();
        tokio::spawn(async move {
            let order: ProvisionRequest = serde_json::from_value(json!({
                "service_id": "s", "plan_id": "p", "organization_guid": "o", "space_guid": "s",
                "parameters": {"size": n},
            }))
            .unwrap();
            match engine.provision(&call, &id, order).await.unwrap() {
                Reply::Accepted { operation, .. } => Some((id, operation)),
                // Carried out before it could be accepted.
                Reply::Done(_) => None,
                other => panic!("{other:?}"),
            }
        })
    }))
    .await;
    let accepted_after = begun.elapsed();
    for (id, operation) in accepted.into_iter().filter_map(Result::unwrap) {
        let query = LastOperationQuery { operation: Some(operation), ..Default::default() };
        loop {
            let last = engine.instance_last_operation(&call, &id, query.clone()).await.unwrap();
            match last.state {
                OperationState::InProgress => tokio::time::sleep(Duration::from_millis(20)).await,
                OperationState::Succeeded => break,
                OperationState::Failed => panic!("{last:?}"),
            }
        }
    }
    (accepted_after, begun.elapsed())
}

async fn engine(client: &Client) -> Engine {
    let settings = StoreSettings { namespace: NAMESPACE.to_owned(), broker: "rate".to_owned() };
    let store = Arc::new(KubernetesStore::open(client.clone(), settings).await.unwrap());
    let jobs = JobSettings::new(NAMESPACE, "rate", "manciple.test/none:1", "manciple.test/none:1");
    let bonds = Bonds { store: Some(Arc::clone(&store)), lead: None };
    let runner = JobRunner::open(client.clone(), jobs, bonds).await.unwrap();
    let policy = Policy {
        broker: "rate".to_owned(),
        timeouts: PerAction::all(Duration::from_secs(600)),
        max_runs: 10_000,
        ..Policy::default()
    };
    let ports = Ports {
        store: Arc::clone(&store) as _,
        runner: Arc::new(runner),
        clock: Arc::new(SystemClock),
        observer: Arc::new(()),
    };
    let engine = Engine::new(policy, ports);
    engine.refresh_catalog().await.unwrap();
    let (mut changes, told) = (store.changes().unwrap(), engine.clone());
    tokio::spawn(async move {
        while let Some(RecordChange { key, busy, .. }) = changes.recv().await {
            told.heard_of(&key, busy);
        }
    });
    engine
}
