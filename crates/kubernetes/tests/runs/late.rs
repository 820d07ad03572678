//! A call that makes a Job is held up on its way, until another leader has carried the run out and removed its Job. Then
//! it takes effect: the same name is free again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, ListParams};
use serde_json::json;
use testkit::kubelet::JobAct;
use testkit::plane::ControlPlane;
use testkit::proxy::{Plan, Proxy};

use crate::objects::{sure, until};
use crate::place::Place;
use crate::seeds;
use crate::town::{Town, controller};
use crate::users::User;

/// The first pod ends at once; any further one goes on.
fn script() -> testkit::kubelet::JobScript {
    let begun = AtomicU32::new(0);
    Arc::new(move |job: &str| {
        let first = begun.fetch_add(1, Ordering::Relaxed) == 0;
        JobAct {
            begins: Duration::ZERO,
            lasts: if first { Duration::from_millis(30) } else { Duration::from_secs(600) },
            ends: Duration::ZERO,
            code: 0,
            output: json!({"job": job}).to_string(),
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_made_after_its_run_was_carried_out_goes_with_its_pod_and_nothing_is_kept_of_it()
 {
    seeds::log();
    let plane = ControlPlane::start(&kubernetes::definitions()).unwrap();
    let town = Town::new(&Place::of(&plane), "late", script()).await;
    let town = Arc::new(town);
    let user = User::who_tells(&town);
    let leases: Api<Lease> = Api::namespaced(town.client.clone(), &town.namespace);
    let jobs: Api<Job> = Api::namespaced(town.client.clone(), &town.namespace);
    let pods: Api<Pod> = Api::namespaced(town.client.clone(), &town.namespace);
    let all = ListParams::default();
    let slow = Proxy::start(town.client.clone(), Plan::calm()).await.unwrap();
    let first = controller(&town, &slow, "lease");
    let held = || async {
        let lease = sure(|| leases.list(&all)).await.items.pop()?;
        lease.spec?.holder_identity
    };
    let holder = until("a leader", held).await;
    slow.hold_up(|call| {
        call.contains("/leases/") || call.starts_with("POST ") && call.ends_with("/jobs")
    });
    user.create("once", false).await;
    let recorded = || async {
        let object = user.get().await;
        object.metadata.annotations.filter(|all| all.contains_key("manciple.dev/runs"))
    };
    until("recorded", recorded).await;
    let calm = Proxy::start(town.client.clone(), Plan::calm()).await.unwrap();
    let second = controller(&town, &calm, "lease");
    let ended = || async {
        let done = user.get().await.data["status"]["completed"] == true;
        (done && sure(|| jobs.list(&all)).await.items.is_empty()).then_some(())
    };
    until("carried out by another", ended).await;
    assert_ne!(held().await, Some(holder));
    slow.hold_up(|call| call.contains("/leases/"));
    // It comes, and goes, be it before its pod has begun.
    until("made again", || async { (town.attempts.most() > 1).then_some(()) }).await;
    let gone = || async {
        let left = sure(|| jobs.list(&all)).await.items.is_empty();
        let pods = sure(|| pods.list(&all)).await.items;
        let over = |pod: &Pod| {
            pod.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Succeeded"))
        };
        (left && pods.len() == 1 && pods.iter().all(over)).then_some(())
    };
    until("without what came late", gone).await;
    let object = user.get().await;
    assert_eq!(object.data["status"]["history"].as_array().map(Vec::len), Some(1), "{object:?}");
    let secrets: Api<Secret> = Api::namespaced(town.client.clone(), &town.namespace);
    let secrets = sure(|| secrets.list(&all)).await.items;
    let versions = secrets
        .iter()
        .filter(|it| it.metadata.name.as_ref().unwrap().starts_with("out-errand-0-v"));
    assert_eq!(versions.count(), 1);
    slow.die();
    calm.die();
    first.shutdown_background();
    second.shutdown_background();
}
