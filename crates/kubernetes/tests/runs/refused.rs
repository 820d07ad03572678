//! What a run has left cannot be kept, for a quota says no: no other run waits for that, but where its policy says so.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use testkit::kubelet::JobAct;
use testkit::plane::ControlPlane;
use testkit::proxy::{Plan, Proxy};

use crate::objects::{history, recorded, sure, until};
use crate::place::Place;
use crate::seeds;
use crate::shape::{Policy, Shape};
use crate::town::{Town, controller};
use crate::users::{Manner, User};

/// Makes no Secret be let in. Who plays the quota controller is we.
async fn refuse(quotas: &Api<ResourceQuota>) {
    let none = json!({"count/secrets": "0"});
    let quota = json!({"metadata": {"name": "none"}, "spec": {"hard": none}});
    let quota: ResourceQuota = serde_json::from_value(quota).unwrap();
    let params = PostParams::default();
    sure(|| quotas.create(&params, &quota)).await;
    let status = Patch::Merge(json!({"status": {"hard": none, "used": none}}));
    let params = PatchParams::default();
    sure(|| quotas.patch_status("none", &params, &status)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_output_is_refused_keeps_no_other_from_beginning_and_ending() {
    seeds::log();
    let plane = ControlPlane::start(&kubernetes::definitions()).unwrap();
    let script = Arc::new(|job: &str| JobAct {
        begins: Duration::ZERO,
        lasts: Duration::from_millis(30),
        ends: Duration::ZERO,
        code: 0,
        output: json!({"job": job}).to_string(),
    });
    let town = Arc::new(Town::new(&Place::of(&plane), "refused", script).await);
    let calm = Proxy::start(town.client.clone(), Plan::calm()).await.unwrap();
    let leader = controller(&town, &calm, "lease");
    let of = |number, policy| {
        let shape = Shape { sidecar: true, policy, ..Shape::usual() };
        User::of_rounds(&town, 0, 1, (Manner::Errand, shape), number)
    };
    let users = [of(0, Policy::Allow), of(1, Policy::Replace)];
    let first = of(2, Policy::Allow);
    first.create("once", false).await;
    until("kept", || async { history(&first.get().await).pop() }).await;
    let quotas: Api<ResourceQuota> = Api::namespaced(town.client.clone(), &town.namespace);
    refuse(&quotas).await;
    for user in &users {
        user.create("once", false).await;
        let is_refused = || async {
            let object = user.get().await;
            object.data["status"].to_string().contains("exceeded quota").then_some(())
        };
        until("refused", is_refused).await;
        let now = Patch::Merge(json!({"spec": {"trigger": {"strategy": "now"}}}));
        let (resources, params) = (user.resources(), PatchParams::default());
        sure(|| resources.patch(&user.name, &params, &now)).await;
        let again = || async { (recorded(&user.get().await) == 2).then_some(()) };
        until("run again", again).await;
    }
    // Its sidecar is told, though the outcome of the one before is not known.
    let pods: Api<Pod> = Api::namespaced(town.client.clone(), &town.namespace);
    let all = ListParams::default();
    let over = || async {
        let pods = sure(|| pods.list(&all)).await.items;
        let phase = |pod: &Pod| pod.status.as_ref()?.phase.clone();
        let over = pods.iter().filter(|pod| phase(pod).as_deref() == Some("Succeeded")).count();
        // One of the first, two of the one and one of the other, whose run that was replaced may have taken its own along.
        (over >= 4 && over == pods.len()).then_some(())
    };
    until("over", over).await;
    let replaced = history(&users[1].get().await);
    assert_eq!((replaced.len(), &replaced[0]["reason"]), (1, &json!("Replaced")), "{replaced:#?}");
    sure(|| async { quotas.delete("none", &DeleteParams::default()).await.map(drop) }).await;
    for (user, good) in [(&users[0], 2), (&users[1], 1)] {
        let all = || async {
            let runs = history(&user.get().await);
            let kept = runs.iter().filter(|run| run["succeeded"] == true).count();
            (kept == good && runs.len() == 2).then_some(())
        };
        until("kept", all).await;
    }
    calm.die();
    leader.shutdown_background();
}
