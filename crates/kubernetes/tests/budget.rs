//! How many calls an operation costs, by name: what is written here is what is promised.

#[path = "support/calls.rs"]
mod calls;
#[path = "support/counted.rs"]
mod counted;
#[path = "support/gate.rs"]
mod gate;
#[path = "support/served.rs"]
mod served;
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::Engine;
use engine::record::Key;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, PostParams};
use osb::{
    Backend, BindingId, DeprovisionRequest, InstanceId, LastOperationQuery, PlanId,
    ProvisionRequest, ServiceId, UnbindRequest, UpdateRequest,
};
use serde_json::json;
use testkit::kubelet::{Act, Kubelet, Script};
use testkit::plane::ControlPlane;

use calls::Calls;
use counted::{
    BROKER, BROKER_TELLS, BROKER_UPDATES, BROKER_V2, Counted, bind_request, call, request, settled,
    settled_binding, token,
};
use served::{Tally, served};
use support::Cluster;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_as_promised() {
    let counted = Counted::new(BROKER).await;
    let engine = &counted.engine;
    let instance = InstanceId::new("i").unwrap();
    let binding = BindingId::new("b").unwrap();
    let (service_id, plan_id) = (ServiceId::new("s").unwrap(), PlanId::new("p").unwrap());
    counted.spent(0).await;

    let begun = counted.orders(engine.provision(&call(), &instance, request())).await;
    settled(engine, &instance, &token(begun)).await;
    assert_eq!(
        counted.spent(5).await,
        [
            "DELETE jobs",
            "PATCH serviceinstances/status",
            "POST jobs",
            "POST secrets",
            "POST serviceinstances",
        ],
        "provision: four writes until it is seen, one to clean up, no read"
    );

    engine.instance(&call(), &instance).await.unwrap();
    assert_eq!(counted.spent(0).await, [] as [&str; 0], "GET of an instance, and last_operation");

    let begun = counted.orders(engine.bind(&call(), &instance, &binding, bind_request())).await;
    settled_binding(engine, &instance, &binding, &token(begun)).await;
    let bound = counted.spent(7).await;
    engine.binding(&call(), &instance, &binding).await.unwrap();
    assert_eq!(counted.spent(0).await, [] as [&str; 0], "GET of a binding");
    assert_eq!(
        bound,
        [
            "DELETE jobs",
            "GET serviceinstances",
            "PATCH secrets",
            "PATCH servicebindings/status",
            "POST jobs",
            "POST secrets",
            "POST servicebindings",
        ],
        "bind: five writes, one to clean up; one read, whether the instance stays"
    );

    let unbind = UnbindRequest { service_id: service_id.clone(), plan_id: plan_id.clone() };
    let begun = engine.unbind(&call(), &instance, &binding, unbind).await.unwrap();
    settled_binding(engine, &instance, &binding, &token(begun)).await;
    assert_eq!(
        counted.spent(9).await,
        [
            "DELETE jobs",
            "DELETE secrets",
            "GET servicebindings",
            "GET serviceinstances",
            "GET serviceinstances",
            "PATCH servicebindings/status",
            "PATCH servicebindings/status",
            "POST jobs",
            "POST secrets",
        ],
        "unbind"
    );
    // As the controller does of what is gone, once it has heard of that.
    counted.store.bury(&Key::Binding(instance.clone(), binding)).await.unwrap();
    let buried = |kind: &str| {
        let of = |call: &str| format!("{call} {kind}");
        [of("DELETE"), of("GET"), of("PATCH"), "POST configmaps".to_owned()]
    };
    assert_eq!(counted.spent(4).await, buried("servicebindings"), "a tombstone in its place");
    let request = DeprovisionRequest { service_id, plan_id };
    let begun = engine.deprovision(&call(), &instance, request).await.unwrap();
    settled(engine, &instance, &token(begun)).await;
    assert_eq!(
        counted.spent(7).await,
        [
            "DELETE jobs",
            "GET servicebindings",
            "GET servicebindings",
            "GET serviceinstances",
            "PATCH serviceinstances/status",
            "PATCH serviceinstances/status",
            "POST jobs",
        ],
        "deprovision: it looks for bindings before it is recorded, and after"
    );
    counted.store.bury(&Key::Instance(instance)).await.unwrap();
    assert_eq!(counted.spent(4).await, buried("serviceinstances"), "a tombstone in its place");

    // Nothing is settled at the cost of calls.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(counted.calls.take(), [] as [&str; 0], "what is settled");
    drop(counted.store);
    counted.cluster.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_parameters_costs_a_secret_more() {
    let counted = Counted::new(BROKER_V2).await;
    counted.spent(0).await;
    let instance = InstanceId::new("i").unwrap();
    let begun = counted.orders(counted.engine.provision(&call(), &instance, request())).await;
    settled(&counted.engine, &instance, &token(begun)).await;
    assert_eq!(
        counted.spent(7).await,
        [
            "DELETE jobs",
            "DELETE secrets",
            "PATCH serviceinstances/status",
            "POST jobs",
            "POST secrets",
            "POST secrets",
            "POST serviceinstances",
        ],
        "provision: five writes until it is seen, two to clean up, no read"
    );
    drop(counted.store);
    counted.cluster.remove().await;
}

/// Costs one write more, whatever it is given.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_lasts_for_more_than_two_seconds_costs_a_write_more() {
    // Of these, `cleaned` after the outcome was written.
    for (broker, cleaned, expected) in [
        (
            BROKER,
            1,
            &[
                "DELETE jobs",
                "PATCH serviceinstances/status",
                "PATCH serviceinstances/status",
                "POST jobs",
                "POST secrets",
                "POST serviceinstances",
            ][..],
        ),
        (
            BROKER_V2,
            2,
            &[
                "DELETE jobs",
                "DELETE secrets",
                "PATCH serviceinstances/status",
                "PATCH serviceinstances/status",
                "POST jobs",
                "POST secrets",
                "POST secrets",
                "POST serviceinstances",
            ],
        ),
    ] {
        let counted = Counted::new(broker).await;
        counted.spent(0).await;
        let instance = InstanceId::new("i").unwrap();
        let request = ProvisionRequest { plan_id: PlanId::new("slow").unwrap(), ..request() };
        let begun = counted.orders(counted.engine.provision(&call(), &instance, request)).await;
        counted.last().await;
        let mut calls = counted.spent(expected.len() - cleaned - 1).await;
        counted.gate.open();
        settled(&counted.engine, &instance, &token(begun)).await;
        calls.extend(counted.spent(cleaned + 1).await);
        calls.sort();
        assert_eq!(calls, expected, "no read");
        drop(counted.store);
        counted.cluster.remove().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_broker_says_of_how_far_it_is_costs_a_write_and_its_log_is_followed() {
    let counted = Counted::new(BROKER_TELLS).await;
    counted.spent(0).await;
    let instance = InstanceId::new("i").unwrap();
    let begun = counted.orders(counted.engine.provision(&call(), &instance, request())).await;
    counted.last().await;
    let mut calls = counted.spent(6).await;
    counted.gate.open();
    settled(&counted.engine, &instance, &token(begun)).await;
    calls.extend(counted.spent(2).await);
    calls.sort();
    assert_eq!(
        calls,
        [
            "DELETE jobs",
            "GET pods/log",
            "PATCH serviceinstances/status",
            "PATCH serviceinstances/status",
            "PATCH serviceinstances/status",
            "POST jobs",
            "POST secrets",
            "POST serviceinstances",
        ],
        "that it was begun, what it said, and the outcome"
    );
    drop(counted.store);
    counted.cluster.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_costs_the_writes_of_a_bind_and_looks_for_bindings() {
    let counted = Counted::new(BROKER_UPDATES).await;
    let instance = InstanceId::new("i").unwrap();
    let made = counted.orders(counted.engine.provision(&call(), &instance, request())).await;
    settled(&counted.engine, &instance, &token(made)).await;
    counted.spent(5).await;
    let update: UpdateRequest =
        serde_json::from_value(json!({"service_id": "s", "parameters": {"size": 2}})).unwrap();
    let begun = counted.engine.update(&call(), &instance, update).await.unwrap();
    settled(&counted.engine, &instance, &token(begun)).await;
    assert_eq!(
        counted.spent(9).await,
        [
            "DELETE jobs",
            "GET servicebindings",
            "GET servicebindings",
            "GET serviceinstances",
            "PATCH secrets",
            "PATCH secrets",
            "PATCH serviceinstances/status",
            "PATCH serviceinstances/status",
            "POST jobs",
        ],
        "five writes until it is seen, one to clean up; it looks for bindings before it is recorded, and after"
    );
    drop(counted.store);
    counted.cluster.remove().await;
}

/// A replica that neither took an order nor carried it out hears of it by its watches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_replica_answers_by_what_it_has_heard() {
    let counted = Counted::new(BROKER).await;
    let (engine, other) = (&counted.engine, counted.replica().await);
    let mut heard = other.store.changes().unwrap();
    let (instance, binding) = (InstanceId::new("i").unwrap(), BindingId::new("b").unwrap());
    let made = token(engine.provision(&call(), &instance, request()).await.unwrap());
    settled(engine, &instance, &made).await;
    let bound = token(engine.bind(&call(), &instance, &binding, bind_request()).await.unwrap());
    settled_binding(engine, &instance, &binding, &bound).await;
    let mut busy = BTreeMap::from([
        (Key::Instance(instance.clone()), true),
        (Key::Binding(instance.clone(), binding.clone()), true),
    ]);
    while busy.values().any(|busy| *busy) {
        let change = heard.recv().await.unwrap();
        busy.insert(change.key, change.busy);
    }
    other.spent(0).await;

    let with = |token: &str| LastOperationQuery {
        operation: Some(token.to_owned()),
        ..LastOperationQuery::default()
    };
    let asked = async || {
        let engine = &other.engine;
        engine.instance_last_operation(&call(), &instance, with(&made)).await.unwrap();
        engine.instance(&call(), &instance).await.unwrap();
        let query = with(&bound);
        engine.binding_last_operation(&call(), &instance, &binding, query).await.unwrap();
        let body = engine.binding(&call(), &instance, &binding).await.unwrap().body;
        assert!(body.credentials.is_some(), "{body:?}");
    };
    asked().await;
    assert_eq!(other.spent(2).await, ["GET secrets", "GET secrets"], "one of each record, once");
    asked().await;
    assert_eq!(other.spent(0).await, [] as [&str; 0], "from then on");
    let without = LastOperationQuery::default();
    other.engine.instance_last_operation(&call(), &instance, without).await.unwrap();
    assert_eq!(
        other.spent(1).await,
        ["GET serviceinstances"],
        "without its token another may be meant, which was accepted elsewhere in this moment"
    );
    drop((other, counted.store));
    counted.cluster.remove().await;
}

/// An instance and a binding: made, asked for and removed.
async fn life(engine: &Engine) {
    let (instance, binding) = (InstanceId::new("i").unwrap(), BindingId::new("b").unwrap());
    let (service_id, plan_id) = (ServiceId::new("s").unwrap(), PlanId::new("p").unwrap());
    let begun = engine.provision(&call(), &instance, request()).await.unwrap();
    settled(engine, &instance, &token(begun)).await;
    engine.instance(&call(), &instance).await.unwrap();
    let begun = engine.bind(&call(), &instance, &binding, bind_request()).await.unwrap();
    settled_binding(engine, &instance, &binding, &token(begun)).await;
    engine.binding(&call(), &instance, &binding).await.unwrap();
    let unbind = UnbindRequest { service_id: service_id.clone(), plan_id: plan_id.clone() };
    let begun = engine.unbind(&call(), &instance, &binding, unbind).await.unwrap();
    settled_binding(engine, &instance, &binding, &token(begun)).await;
    let removal = DeprovisionRequest { service_id, plan_id };
    let begun = engine.deprovision(&call(), &instance, removal).await.unwrap();
    settled(engine, &instance, &token(begun)).await;
}

/// A control plane of the test's own on which nobody asks for anything yet, and a namespace.
async fn quiet() -> (ControlPlane, Cluster) {
    let plane = ControlPlane::start_without_collector(&kubernetes::definitions()).unwrap();
    let client = kubernetes::client(Some(&plane.kubeconfig())).await.unwrap();
    let namespace = "budget".to_owned();
    let object = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces.create(&PostParams::default(), &object).await.unwrap();
    let mut before = Tally::new();
    loop {
        let now = served(&client, &KINDS).await;
        if now == before {
            return (plane, Cluster { client, namespace });
        }
        before = now;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// What is asked for where nobody else asks.
const KINDS: [&str; 5] = ["jobs", "pods", "secrets", "servicebindings", "serviceinstances"];
/// But who makes the pods of Jobs, whose calls nobody counts but the API server.
const OTHERS: [&str; 3] = ["GET jobs", "POST pods", "PUT jobs/status"];

/// A call past the counting layer is in no snapshot, and costs as much.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_server_itself_counts_the_same_calls_and_reads() {
    let (_plane, cluster) = quiet().await;
    let client = cluster.client.clone();
    let before = served(&client, &KINDS).await;
    let of_kubelet = Calls::default();
    let catalog = json!({"services": [{
        "id": "s", "name": "db", "description": "d", "bindable": true,
        "instances_retrievable": true, "bindings_retrievable": true,
        "plans": [{"id": "p", "name": "small", "description": "d"}],
    }]});
    let well: Script = Arc::new(|_| Act::well(Duration::ZERO, Duration::ZERO));
    let namespace = &cluster.namespace;
    let _kubelet = Kubelet::start(of_kubelet.of(&client, namespace), namespace, catalog, well);
    let counted = Counted::on(cluster, BROKER).await;
    life(&counted.engine).await;

    let (mut called, mut counts) = (Tally::new(), Tally::new());
    // What is cleaned up after the last answer.
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        for call in counted.calls.take().into_iter().chain(of_kubelet.take()) {
            *called.entry(call).or_default() += 1;
        }
        called.retain(|call, _| is_ours(call));
        counts = served(&client, &KINDS).await;
        for (call, count) in &before {
            *counts.entry(call.clone()).or_default() -= count;
        }
        counts.retain(|call, count| *count > 0 && is_ours(call));
        if counts == called {
            break;
        }
    }
    assert_eq!(counts, called, "as the API server counts, and as is counted here");
    for read in ["GET serviceinstances", "GET servicebindings", "GET secrets"] {
        assert!(counts.contains_key(read), "{read}: {counts:?}");
    }
}

/// Whether nobody else can have called this.
fn is_ours(call: &str) -> bool {
    let kind = call.split([' ', '/']).nth(1).unwrap_or_default();
    KINDS.contains(&kind) && !OTHERS.contains(&call)
}
