//! Sidecars whose run nobody waits for any more: the pod stays when its Job was taken away, or its resource is deleted and
//! held. Kubernetes takes it away some time, and nobody else would end its sidecar.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use testkit::kubelet::JobAct;
use testkit::plane::ControlPlane;
use testkit::proxy::{Plan, Proxy};
use tokio::runtime::Runtime;

use crate::objects::{history, sure, until};
use crate::place::Place;
use crate::seeds;
use crate::shape::Shape;
use crate::town::{Town, controller};
use crate::users::User;

/// What has to end before it goes away.
struct Stray {
    town: Arc<Town>,
    user: User,
    calm: Proxy,
    leader: Runtime,
}

impl Stray {
    /// A run that has begun, whose pod has a sidecar.
    async fn begun(plane: &ControlPlane, name: &str) -> Self {
        let act = JobAct {
            begins: Duration::ZERO,
            lasts: Duration::from_secs(8),
            ends: Duration::ZERO,
            code: 0,
            output: "{}".to_owned(),
        };
        let script = Arc::new(move |_: &str| act.clone());
        let town = Arc::new(Town::new(&Place::of(plane), name, script).await);
        let user = User::who_tells(&town).of_one_like(Shape { sidecar: true, ..Shape::usual() });
        let calm = Proxy::start(town.client.clone(), Plan::calm()).await.unwrap();
        let leader = controller(&town, &calm, "lease");
        user.create("once", false).await;
        until("begun", || async { (town.begun() == 1).then_some(()) }).await;
        Self { town, user, calm, leader }
    }

    /// Its pod ends, and not before the other container has.
    async fn ends(self) {
        let pods: Api<Pod> = Api::namespaced(self.town.client.clone(), &self.town.namespace);
        let all = ListParams::default();
        let over = || async {
            let pods = sure(|| pods.list(&all)).await.items;
            let phase = |pod: &Pod| pod.status.as_ref()?.phase.clone();
            (pods.len() == 1 && phase(&pods[0]).as_deref() == Some("Succeeded")).then_some(())
        };
        until("over", over).await;
        let ledger = self.town.ledger();
        assert!(ledger.values().all(|entry| !entry.told_early), "{ledger:?}");
        self.calm.die();
        self.leader.shutdown_background();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_ends_with_the_others_though_its_job_was_taken_away() {
    seeds::log();
    let definitions = kubernetes::definitions();
    let plane = ControlPlane::start_without_collector(&definitions).unwrap();
    let stray = Stray::begun(&plane, "strays").await;
    let jobs: Api<Job> = Api::namespaced(stray.town.client.clone(), &stray.town.namespace);
    let all = ListParams::default();
    let job = sure(|| jobs.list(&all)).await.items.pop().unwrap().metadata.name.unwrap();
    let background = DeleteParams::background();
    sure(|| async { jobs.delete(&job, &background).await.map(drop) }).await;
    let ended = || async { history(&stray.user.get().await).pop() };
    let run = until("ended", ended).await;
    assert_eq!(run["reason"], "Lost", "{run:#}");
    stray.ends().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_ends_with_the_others_though_its_resource_is_deleted_and_held_by_another() {
    seeds::log();
    let plane = ControlPlane::start(&kubernetes::definitions()).unwrap();
    let stray = Stray::begun(&plane, "held").await;
    let (resources, object) = (stray.user.resources(), stray.user.get().await);
    let name = object.metadata.name.unwrap();
    let held = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/held"]}}));
    sure(|| async { resources.patch(&name, &PatchParams::default(), &held).await.map(drop) }).await;
    let background = DeleteParams::background();
    sure(|| async { resources.delete(&name, &background).await.map(drop) }).await;
    stray.ends().await;
}
