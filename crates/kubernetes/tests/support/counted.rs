//! An engine whose calls are counted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use engine::ports::Clock;
use engine::record::Timestamp;
use engine::{Engine, Policy, Ports, SystemClock};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, ListParams, PostParams};
use kubernetes::{Bonds, JobRunner, JobSettings, KubernetesStore, RecordChange, StoreSettings};
use osb::{
    Backend, BindRequest, BindingId, Call, InstanceId, LastOperationQuery, OperationState,
    ProvisionRequest, Reply,
};
use serde_json::json;

use crate::calls::{Calls, LOOK};
use crate::gate::Gate;
use crate::support::{self, Cluster, wait};

/// The longest that an operation takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);
/// What a pod mounts is not looked for before it is so old.
const LATE: Duration = Duration::from_secs(5);
/// Nor sooner again.
const OFTEN: Duration = Duration::from_secs(3);
/// A first write that took longer is confirmed by one more: others may have taken it for half made.
const SURE: Duration = Duration::from_secs(1);

pub(crate) const BROKER: &str = r#"#!/bin/sh
case $1 in
catalog) echo '{"services":[{"id":"s","name":"db","description":"d","bindable":true,
    "instances_retrievable":true,"bindings_retrievable":true,
    "plans":[{"id":"p","name":"small","description":"d"},{"id":"slow","name":"slow","description":"d"}]}]}' ;;
bind) echo '{"credentials":{"password":"planted"}}' ;;
*) case "$*" in *slow*) touch /gate/begun; until [ -e /gate/open ]; do sleep 0.1; done ;; esac; echo '{}' ;;
esac
"#;

/// Given its parameters in a file: a Secret more, which goes with its Job.
pub(crate) const BROKER_V2: &str = r#"#!/bin/sh
case $1 in
catalog) echo '{"services":[{"id":"s","name":"db","description":"d","bindable":true,
    "plans":[{"id":"p","name":"small","description":"d"},{"id":"slow","name":"slow","description":"d"}]}],
    "jobs":{"version":2,"capabilities":["request-file"]}}' ;;
*) case "$*" in *slow*) touch /gate/begun; until [ -e /gate/open ]; do sleep 0.1; done ;; esac
    grep -q size "$OSB_REQUEST_FILE" && echo '{}' ;;
esac
"#;

/// Says how far it is, and is at it until it was heard.
pub(crate) const BROKER_TELLS: &str = r#"#!/bin/sh
case $1 in
catalog) echo '{"services":[{"id":"s","name":"db","description":"d","bindable":true,
    "plans":[{"id":"p","name":"small","description":"d"}]}],
    "jobs":{"version":2,"capabilities":["progress"]}}' ;;
*) echo half >"$OSB_PROGRESS_FILE"; touch /gate/begun; until [ -e /gate/open ]; do sleep 0.1; done; echo '{}' ;;
esac
"#;

/// Knows updates.
pub(crate) const BROKER_UPDATES: &str = r#"#!/bin/sh
case $1 in
catalog) echo '{"services":[{"id":"s","name":"db","description":"d","bindable":true,"plan_updateable":true,
    "plans":[{"id":"p","name":"small","description":"d"}]}],
    "jobs":{"version":2,"capabilities":["update"]}}' ;;
*) echo '{}' ;;
esac
"#;

/// On a busy machine a run takes longer than the two seconds after which its start is recorded, by one more
/// write: here no time passes but what a test lets pass, in milliseconds since 1970.
pub(crate) struct Still(pub(crate) AtomicU64);

#[async_trait]
impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

pub(crate) struct Counted {
    pub(crate) engine: Engine,
    pub(crate) store: Arc<KubernetesStore>,
    pub(crate) calls: Calls,
    pub(crate) clock: Arc<Still>,
    pub(crate) cluster: Cluster,
    /// Brokers that take their time wait at it.
    pub(crate) gate: Gate,
    /// A first write took so long that it may have been confirmed by another.
    confirmed: AtomicBool,
    /// When it was last asked what was spent.
    since: Mutex<Instant>,
}

impl Counted {
    pub(crate) async fn new(broker: &str) -> Self {
        Self::on(Cluster::new("budget").await, broker).await
    }

    pub(crate) async fn on(cluster: Cluster, broker: &str) -> Self {
        let script: ConfigMap = serde_json::from_value(json!({
            "metadata": {"name": "script"}, "data": {"broker": broker},
        }))
        .unwrap();
        let config_maps: Api<ConfigMap> =
            Api::namespaced(cluster.client.clone(), &cluster.namespace);
        config_maps.create(&PostParams::default(), &script).await.unwrap();
        let counted = Self::open(cluster).await;
        counted.engine.refresh_catalog().await.unwrap();
        // As the controller does.
        let (mut changes, told) = (counted.store.changes().unwrap(), counted.engine.clone());
        tokio::spawn(async move {
            while let Some(RecordChange { key, busy, .. }) = changes.recv().await {
                told.heard_of(&key, busy);
            }
        });
        counted
    }

    /// Another, which carries nothing out.
    pub(crate) async fn replica(&self) -> Self {
        let (client, namespace) = (self.cluster.client.clone(), self.cluster.namespace.clone());
        Self::open(Cluster { client, namespace }).await
    }

    pub(crate) async fn open(cluster: Cluster) -> Self {
        let calls = Calls::default();
        let client = calls.of(&cluster.client, &cluster.namespace);
        let settings =
            StoreSettings { namespace: cluster.namespace.clone(), broker: "budget".to_owned() };
        let store = Arc::new(KubernetesStore::open(client.clone(), settings).await.unwrap());
        let image = testkit::cluster::SHELL_IMAGE;
        let mut jobs =
            JobSettings::new(&cluster.namespace, "budget", image, support::packed_agent());
        // Else it comes a minute later.
        jobs.linger = Duration::ZERO;
        let gate = Gate::new();
        jobs.pod = serde_json::from_value(json!({
            "volumes": [
                {"name": "script", "configMap": {"name": "script", "defaultMode": 0o555}},
                gate.volume(),
            ],
            "volumeMounts": [
                {"name": "script", "mountPath": "/bin/broker", "subPath": "broker"},
                Gate::mount(),
            ],
        }))
        .unwrap();
        let bonds = Bonds { store: Some(Arc::clone(&store)), lead: None };
        let runner = JobRunner::open(client, jobs, bonds).await.unwrap();
        let clock = Arc::new(Still(AtomicU64::new(SystemClock.now().0)));
        let ports = Ports {
            store: Arc::clone(&store) as _,
            runner: Arc::new(runner),
            clock: Arc::clone(&clock) as _,
            observer: Arc::new(()),
        };
        let engine =
            Engine::new(Policy { broker: "budget".to_owned(), ..Policy::default() }, ports);
        let (confirmed, since) = (AtomicBool::new(false), Mutex::new(Instant::now()));
        Self { engine, store, calls, clock, cluster, gate, confirmed, since }
    }

    /// Lets more than the two seconds pass after which it is written that a run has begun, once a broker has: while its
    /// pod waits to, why it does may be written too (decision 0025).
    pub(crate) async fn last(&self) {
        let runs = |pod: &Pod| {
            pod.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Running"))
        };
        wait::until("no broker begins", PATIENCE, async || {
            let pods = self.cluster.api::<Pod>().list(&ListParams::default()).await.unwrap().items;
            if self.gate.is_met() && pods.iter().any(runs) { Ok(()) } else { Err(pods) }
        })
        .await;
        self.clock.0.fetch_add(3000, Ordering::Relaxed);
    }

    /// Does this, with which something is ordered.
    pub(crate) async fn orders<T>(&self, order: impl Future<Output = Result<T, osb::Error>>) -> T {
        let begun = Instant::now();
        let made = order.await.unwrap();
        self.confirmed.fetch_or(begun.elapsed() >= SURE, Ordering::Relaxed);
        made
    }

    /// What was called since, so much or more, in the order of names: calls that go at once come in any order.
    pub(crate) async fn spent(&self, expected: usize) -> Vec<String> {
        // What is cleaned up after the answer, too.
        let mut calls = self.calls.settled(expected).await;
        let since = std::mem::replace(&mut *self.since.lock().unwrap(), Instant::now());
        // On a busy machine a pod does not begin for so long that what it mounts is looked for (decision 0025): two
        // ConfigMaps, each as often.
        let looked = calls.iter().filter(|call| *call == LOOK).count();
        let late = since.elapsed().checked_sub(LATE);
        let may_be = late.map_or(0, |late| 2 * (1 + late.as_secs() / OFTEN.as_secs()));
        if u64::try_from(looked).unwrap() <= may_be {
            calls.retain(|call| call != LOOK);
        }
        let is_confirmed = self.confirmed.swap(false, Ordering::Relaxed) && calls.len() > expected;
        let status = |call: &String| call.starts_with("PATCH service") && call.ends_with("/status");
        if let Some(place) = calls.iter().position(status).filter(|_| is_confirmed) {
            calls.remove(place);
        }
        calls.sort();
        calls
    }
}

pub(crate) fn call() -> Call {
    Call { accepts_incomplete: true, ..Call::default() }
}

/// Waits until an operation has ended, which it is to do well.
pub(crate) async fn settled(engine: &Engine, instance: &InstanceId, operation: &str) {
    let query = LastOperationQuery { operation: Some(operation.to_owned()), ..Default::default() };
    let last = wait::until(&format!("{operation} never ends"), PATIENCE, async || {
        let last = engine.instance_last_operation(&call(), instance, query.clone()).await.unwrap();
        if last.state == OperationState::InProgress { Err(last) } else { Ok(last) }
    })
    .await;
    assert_eq!(last.state, OperationState::Succeeded, "{last:?}");
}

/// As [`settled`], of a binding.
pub(crate) async fn settled_binding(
    engine: &Engine,
    instance: &InstanceId,
    binding: &BindingId,
    operation: &str,
) {
    let query = LastOperationQuery { operation: Some(operation.to_owned()), ..Default::default() };
    let last = wait::until(&format!("{operation} never ends"), PATIENCE, async || {
        let last =
            engine.binding_last_operation(&call(), instance, binding, query.clone()).await.unwrap();
        if last.state == OperationState::InProgress { Err(last) } else { Ok(last) }
    })
    .await;
    assert_eq!(last.state, OperationState::Succeeded, "{last:?}");
}

pub(crate) fn token<T: std::fmt::Debug>(reply: Reply<T>) -> String {
    match reply {
        Reply::Accepted { operation, .. } => operation,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn request() -> ProvisionRequest {
    serde_json::from_value(json!({
        "service_id": "s", "plan_id": "p", "organization_guid": "o", "space_guid": "s",
        "parameters": {"size": 1}, "context": {"platform": "test"},
    }))
    .unwrap()
}

pub(crate) fn bind_request() -> BindRequest {
    serde_json::from_value(json!({
        "service_id": "s", "plan_id": "p", "context": {"platform": "test"},
    }))
    .unwrap()
}
