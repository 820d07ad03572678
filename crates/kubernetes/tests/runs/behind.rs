//! Leaders of whom one is behind the other: a call that keeps what a run has left is held up on its way, until another
//! has kept it, and what a later run has left; and what one has kept, and not said so, is found by the next.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use testkit::kubelet::{JobAct, JobScript};
use testkit::plane::ControlPlane;
use testkit::proxy::{Plan, Proxy};
use tokio::time::sleep;

use crate::objects::{history, sure, until};
use crate::place::Place;
use crate::seeds;
use crate::shape::{Kept, Shape};
use crate::town::{Town, controller};
use crate::users::User;

/// In which whoever was held up would write.
const QUIET: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_behind_does_not_write_over_what_a_later_run_has_left() {
    seeds::log();
    let plane = ControlPlane::start(&kubernetes::definitions()).unwrap();
    let town = Arc::new(Town::new(&Place::of(&plane), "behind", script()).await);
    let shape = Shape { kept: Kept::Secret { owned: false }, ..Shape::usual() };
    let user = User::who_tells(&town).of_one_like(shape);
    let slow = Proxy::start(town.client.clone(), Plan::calm()).await.unwrap();
    let first = controller(&town, &slow, "lease");
    // It makes Secrets of its own before it leads.
    until("a leader", || holder(&town)).await;
    slow.made();
    slow.hold_up(is_output);
    user.create("once", false).await;
    // It keeps nothing that it does not lead for.
    until_it_keeps(&slow).await;
    slow.hold_up(|call| call.contains("/leases/") || is_output(call));
    let calm = Proxy::start(town.client.clone(), Plan::calm()).await.unwrap();
    let second = controller(&town, &calm, "lease");
    let ended = |runs: usize| {
        let user = &user;
        move || async move { (history(&user.get().await).len() == runs).then_some(()) }
    };
    until("kept by another", ended(1)).await;
    let now = Patch::Merge(json!({"spec": {"trigger": {"strategy": "now"}}}));
    sure(|| async { user.resources().patch(&user.name, &PatchParams::default(), &now).await })
        .await;
    until("run again", ended(2)).await;
    slow.hold_up(|call| call.contains("/leases/"));
    sleep(QUIET).await;
    let secrets: Api<Secret> = Api::namespaced(town.client.clone(), &town.namespace);
    let secret = sure(|| secrets.get("out-errand-0")).await;
    let kept = String::from_utf8(secret.data.unwrap()["job"].0.clone()).unwrap();
    let runs = history(&user.get().await);
    assert_eq!(kept, runs[0]["job"].as_str().unwrap(), "{runs:#?}");
    slow.die();
    calm.die();
    first.shutdown_background();
    second.shutdown_background();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_kept_before_its_pod_was_taken_is_not_lost_to_whoever_comes_after() {
    seeds::log();
    let plane = ControlPlane::start(&kubernetes::definitions()).unwrap();
    let town = Arc::new(Town::new(&Place::of(&plane), "kept", script()).await);
    let user = User::who_tells(&town);
    let slow = Proxy::start(town.client.clone(), Plan::calm()).await.unwrap();
    let first = controller(&town, &slow, "lease");
    slow.hold_up(|call| call.ends_with("/status"));
    user.create("once", false).await;
    let secrets: Api<Secret> = Api::namespaced(town.client.clone(), &town.namespace);
    let is_kept = || async { sure(|| secrets.get_opt("out-errand-0-v1")).await };
    until("kept", is_kept).await;
    slow.die();
    first.shutdown_background();
    let pods: Api<Pod> = Api::namespaced(town.client.clone(), &town.namespace);
    let now = DeleteParams::default().grace_period(0);
    let all = ListParams::default();
    for pod in sure(|| pods.list(&all)).await {
        let name = pod.metadata.name.unwrap();
        sure(|| async { pods.delete(&name, &now).await.map(drop) }).await;
    }
    let calm = Proxy::start(town.client.clone(), Plan::calm()).await.unwrap();
    let second = controller(&town, &calm, "lease");
    let ended = || async { history(&user.get().await).pop() };
    let run = until("ended", ended).await;
    assert_eq!(run["reason"], "Completed", "{run:#}");
    assert_eq!(run["made"], json!(["out-errand-0-v1"]));
    calm.die();
    second.shutdown_background();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_kept_of_one_that_was_deleted_is_no_run_of_another_that_was_made_anew() {
    seeds::log();
    let plane = ControlPlane::start(&kubernetes::definitions()).unwrap();
    let town = Arc::new(Town::new(&Place::of(&plane), "anew", script()).await);
    let user = User::who_tells(&town);
    let slow = Proxy::start(town.client.clone(), Plan::calm()).await.unwrap();
    let leader = controller(&town, &slow, "lease");
    // It makes Secrets of its own before it leads.
    until("a leader", || holder(&town)).await;
    slow.made();
    slow.hold_up(is_output);
    user.create("once", false).await;
    until_it_keeps(&slow).await;
    let background = DeleteParams::background();
    sure(|| async { user.resources().delete(&user.name, &background).await.map(drop) }).await;
    let resources = user.resources();
    let is_gone = || async {
        let found = sure(|| resources.get_opt(&user.name)).await;
        found.is_none().then_some(())
    };
    until("gone", is_gone).await;
    user.create("once", false).await;
    // It has heard of both by then.
    sleep(QUIET).await;
    slow.hold_up(|_| false);
    let is_done =
        || async { (user.get().await.data["spec"]["trigger"]["strategy"] == "done").then_some(()) };
    until("run", is_done).await;
    until("ended", || async { (!history(&user.get().await).is_empty()).then_some(()) }).await;
    let runs = history(&user.get().await);
    assert_eq!((runs.len(), &runs[0]["trigger"]), (1, &json!("once")), "{runs:#?}");
    assert_eq!(town.begun(), 2);
    slow.die();
    leader.shutdown_background();
}

/// Who leads, if somebody does.
async fn holder(town: &Town) -> Option<String> {
    let leases: Api<Lease> = Api::namespaced(town.client.clone(), &town.namespace);
    let all = ListParams::default();
    let lease = sure(|| leases.list(&all)).await.items.pop()?;
    lease.spec?.holder_identity
}

/// Waits for the call that keeps what a run has left.
async fn until_it_keeps(proxy: &Proxy) {
    let keeps = || async { proxy.made().iter().any(|call| is_output(call)).then_some(()) };
    until("to be kept", keeps).await;
}

/// Each pod ends at once.
fn script() -> JobScript {
    Arc::new(|job: &str| JobAct {
        begins: Duration::ZERO,
        lasts: Duration::from_millis(30),
        ends: Duration::ZERO,
        code: 0,
        output: json!({"job": job}).to_string(),
    })
}

fn is_output(call: &str) -> bool {
    call.starts_with("POST ") && call.ends_with("/secrets")
}
