//! A node whose kubelet is stopped under a run, as the real controller of nodes sees it, is named while it is waited for.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use testkit::kubelet::{JobAct, NODE, make_node};
use testkit::plane::ControlPlane;
use testkit::proxy::{Plan, Proxy};

use crate::objects::{sure, until};
use crate::place::Place;
use crate::seeds;
use crate::town::{Town, controller};
use crate::users::User;
use testkit::processor::Processor;

/// What Kubernetes knows is named within this time.
const SOON: Duration = Duration::from_secs(10);
/// What shows only by that nothing comes, after six seconds.
const LATER: Duration = Duration::from_secs(30);

/// Runs one whose pod begins after this time, on a node; its kubelet stops once it runs, and never if it does not. What is
/// said of it, and how long that took from when Kubernetes knew it.
async fn said(name: &str, begins: Duration, words: &str) {
    seeds::log();
    let plane = ControlPlane::start_with_nodes(&kubernetes::definitions()).unwrap();
    let script = move |_: &str| JobAct {
        begins,
        lasts: Duration::from_secs(600),
        ends: Duration::ZERO,
        code: 0,
        output: "{}".to_owned(),
    };
    let mut town = Town::new(&Place::of(&plane), name, Arc::new(script)).await;
    let proxy = Proxy::start(town.client.clone(), Plan::calm()).await.unwrap();
    let controller = controller(&town, &proxy, "lease");
    let pods: Api<Pod> = Api::namespaced(town.client.clone(), &town.namespace);
    let has_one = |is_so: fn(&Pod) -> bool| {
        let pods = pods.clone();
        async move {
            let all = ListParams::default();
            sure(|| pods.list(&all)).await.items.iter().any(is_so).then_some(())
        }
    };
    if begins.is_zero() {
        let shared = Arc::new(town);
        User::who_tells(&shared).create("once", false).await;
        let runs = |pod: &Pod| {
            pod.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Running"))
        };
        until("running", || has_one(runs)).await;
        town = Arc::into_inner(shared).unwrap();
        // Heard of until now: what is given up before its pods are ready does not show in them.
        make_node(&town.client).await.unwrap();
        town.stop_kubelet();
        let is_known = |pod: &Pod| {
            let conditions = pod.status.iter().flat_map(|it| it.conditions.iter().flatten());
            conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "False")
        };
        until("not ready", || has_one(is_known)).await;
    }
    let town = Arc::new(town);
    let user = User::who_tells(&town);
    if !begins.is_zero() {
        make_node(&town.client).await.unwrap();
        user.create("once", false).await;
        let is_placed = |pod: &Pod| pod.spec.as_ref().is_some_and(|it| it.node_name.is_some());
        until("on its node", || has_one(is_placed)).await;
    }
    let known = Processor::now();
    let is_said = || async {
        user.get().await.data["status"]["conditions"].to_string().contains(words).then_some(())
    };
    until("named", is_said).await;
    let within = if begins.is_zero() { SOON } else { LATER };
    assert!(known.elapsed() < within, "named only after {:?}", known.elapsed());
    proxy.die();
    controller.shutdown_background();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_that_stops_under_a_run_is_named_at_once() {
    let words = format!("the node {NODE} is not heard of: its kubelet is stopped, or cut off");
    said("stops", Duration::ZERO, &words).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_that_never_takes_a_pod_up_is_named() {
    let words = format!("its pod does not begin: the node {NODE} has not said a word of its pod");
    said("never", Duration::from_secs(600), &words).await;
}
