//! A node whose kubelet is stopped, as the real controller of nodes sees it: it is named while it is waited for, and
//! in the end, and its run is neither a success nor one that took too long.

#[path = "support/place.rs"]
mod place;
#[allow(dead_code, reason = "shared with the schedules")]
#[path = "schedules/world.rs"]
mod world;

use std::sync::Arc;
use std::time::Duration;

use engine::policy::{OnLost, PerAction};
use engine::{Engine, Policy, Ports, SystemClock};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kubernetes::{Bonds, JobRunner, JobSettings, KubernetesStore, RecordChange, StoreSettings};
use osb::{
    Backend, Call, InstanceId, LastOperation, LastOperationQuery, OperationState, ProvisionRequest,
    Reply,
};
use serde_json::{Value, json};
use testkit::kubelet::{Act, NODE, Script, make_node};
use testkit::plane::ControlPlane;
use tokio::time::{Instant, sleep};

use place::Place;
use testkit::processor::Processor;
use world::{BROKER, Sells, World};

/// What Kubernetes knows is named within this time.
const SOON: Duration = Duration::from_secs(10);
/// The longest that anything here takes on a busy machine: on an idle one it is two minutes until Kubernetes gives up.
const PATIENCE: Duration = Duration::from_secs(360);
/// How long a run may take.
const TIMEOUT: Duration = Duration::from_secs(8);

/// Who carries operations out, alone.
async fn engine(world: &World) -> Engine {
    let settings = StoreSettings { namespace: world.namespace.clone(), broker: BROKER.to_owned() };
    let store = Arc::new(KubernetesStore::open(world.client.clone(), settings).await.unwrap());
    let mut jobs = JobSettings::new(&world.namespace, BROKER, "broker", "agent");
    jobs.start_timeout = Duration::from_secs(10);
    jobs.grace = Duration::from_secs(1);
    let bonds = Bonds { store: Some(Arc::clone(&store)), lead: None };
    let runner = JobRunner::open(world.client.clone(), jobs, bonds).await.unwrap();
    let ports = Ports {
        store: Arc::clone(&store) as _,
        runner: Arc::new(runner),
        clock: Arc::new(SystemClock),
        observer: Arc::new(()),
    };
    let mut policy = Policy { broker: BROKER.to_owned(), ..Policy::default() };
    policy.timeouts = PerAction::all(TIMEOUT);
    policy.lost = OnLost::Fail;
    let engine = Engine::new(policy, ports);
    engine.set_offer(Sells::default().offer()).await.unwrap();
    let (mut changes, told) = (store.changes().unwrap(), engine.clone());
    tokio::spawn(async move {
        while let Some(RecordChange { key, busy, .. }) = changes.recv().await {
            told.heard_of(&key, busy);
        }
    });
    engine
}

fn call() -> Call {
    Call { accepts_incomplete: true, ..Call::default() }
}

/// Orders an instance, and says by which token it is asked for.
async fn ordered(engine: &Engine, instance: &InstanceId) -> String {
    let request: ProvisionRequest = serde_json::from_value(json!({
        "service_id": "s", "plan_id": "small", "organization_guid": "o", "space_guid": "s",
    }))
    .unwrap();
    match engine.provision(&call(), instance, request).await.unwrap() {
        Reply::Accepted { operation, .. } => operation,
        other => panic!("{other:?}"),
    }
}

/// Waits until the last operation is so; never is it a success, and never a timeout.
async fn until(
    engine: &Engine,
    instance: &InstanceId,
    operation: &str,
    is_so: impl Fn(&LastOperation) -> bool,
) -> String {
    let begun = Instant::now();
    let query = LastOperationQuery { operation: Some(operation.to_owned()), ..Default::default() };
    loop {
        let last = engine.instance_last_operation(&call(), instance, query.clone()).await.unwrap();
        assert_ne!(last.state, OperationState::Succeeded);
        let said = last.description.clone().unwrap_or_default();
        assert!(
            last.state == OperationState::InProgress || !said.contains("its time was up"),
            "{said}"
        );
        if is_so(&last) {
            return said;
        }
        assert!(begun.elapsed() < PATIENCE, "never so: {last:?}");
        sleep(Duration::from_millis(100)).await;
    }
}

fn says(words: &str) -> impl Fn(&LastOperation) -> bool {
    move |last| last.description.as_deref().is_some_and(|said| said.contains(words))
}

/// Waits until the pods of this namespace are so.
async fn until_pods(world: &World, is_so: impl Fn(&Value) -> bool) {
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), &world.namespace);
    let begun = Instant::now();
    loop {
        let all = pods.list(&ListParams::default()).await.unwrap();
        let status = |pod: Pod| serde_json::to_value(pod.status).unwrap();
        if all.items.len() == 1 && all.into_iter().map(status).all(|status| is_so(&status)) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "the pod is never so");
        sleep(Duration::from_millis(50)).await;
    }
}

fn lasting(begins: Duration) -> Script {
    Arc::new(move |_| Act::well(begins, Duration::from_secs(600)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_that_stops_under_a_run_is_named_at_once_and_in_the_end() {
    let plane = ControlPlane::start_with_nodes(&kubernetes::definitions()).unwrap();
    let mut world = World::new(&Place::of(&plane), "stops", lasting(Duration::ZERO)).await;
    let engine = engine(&world).await;
    let instance = InstanceId::new("i").unwrap();
    let operation = ordered(&engine, &instance).await;
    until_pods(&world, |status| status["phase"] == "Running").await;
    // Heard of until now: what is given up before its pods are ready does not show in them.
    make_node(&world.client).await.unwrap();
    world.kubelet.stop();
    let is_not_ready = |status: &Value| {
        let conditions = status["conditions"].as_array().unwrap();
        conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "False")
    };
    until_pods(&world, is_not_ready).await;
    let known = Processor::now();
    let words = format!("the node {NODE} is not heard of: its kubelet is stopped, or cut off");
    until(&engine, &instance, &operation, says(&words)).await;
    assert!(known.elapsed() < SOON, "named only after {:?}", known.elapsed());
    let said =
        until(&engine, &instance, &operation, |last| last.state == OperationState::Failed).await;
    assert!(said.contains(&words), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_that_never_took_a_pod_up_is_named_and_the_run_did_not_begin() {
    let plane = ControlPlane::start_with_nodes(&kubernetes::definitions()).unwrap();
    // It binds the pod to its node, and says no more.
    let world = World::new(&Place::of(&plane), "never", lasting(Duration::from_secs(600))).await;
    make_node(&world.client).await.unwrap();
    let engine = engine(&world).await;
    let instance = InstanceId::new("i").unwrap();
    let operation = ordered(&engine, &instance).await;
    let words = format!("the node {NODE} has not said a word of its pod");
    let is_placed = |status: &Value| {
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        conditions.any(|it| it["type"] == "PodScheduled" && it["status"] == "True")
    };
    until_pods(&world, is_placed).await;
    let known = Processor::now();
    until(&engine, &instance, &operation, says(&words)).await;
    assert!(known.elapsed() < SOON, "named only after {:?}", known.elapsed());
    let said =
        until(&engine, &instance, &operation, |last| last.state == OperationState::Failed).await;
    assert!(said.contains("its pod did not begin within 10 s") && said.contains(&words), "{said}");
}
