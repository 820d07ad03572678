//! `Broker` resources in a schedule: several brokers are served as one catalog while somebody creates, changes and deletes
//! them. At the end each sells what its image offers, says so, and had the runs of its own services alone.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testkit::kubelet::Ledger;
use testkit::random::Random;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::replica::Replica;
use crate::stage::Stage;
use crate::world::World;

/// Stays as it is; gets another image now and then, and with it another plan; is deleted now and then.
pub(crate) const NAMES: [&str; 3] = ["stays", "changes", "goes"];
/// How long it may take until all sell what their `Broker`s offer, once all is well: one that did not answer is asked
/// again after a minute at most, and on a busy machine may not answer in time once more.
const SOLD: Duration = Duration::from_secs(300);

fn api(world: &World) -> Api<DynamicObject> {
    let kind = kubernetes::brokers::resource();
    Api::namespaced_with(world.client.clone(), &world.namespace, &kind)
}

async fn create(world: &World, name: &str) {
    let broker = serde_json::from_value(json!({
        "apiVersion": "manciple.dev/v1alpha1", "kind": "Broker", "metadata": {"name": name},
        "spec": {"image": format!("{name}:2"), "grace": "1s"},
    }));
    let broker = broker.unwrap();
    surely(409, || async { api(world).create(&PostParams::default(), &broker).await.map(drop) })
        .await;
}

/// Before anybody is there.
pub(crate) async fn create_all(world: &World) {
    for name in NAMES {
        create(world, name).await;
    }
}

async fn delete(world: &World, name: &str) {
    let params = DeleteParams::default();
    surely(404, || async { api(world).delete(name, &params).await.map(drop) }).await;
}

/// Until the API server has answered; `done`: what it says if it was done before.
async fn surely<F: Future<Output = kube::Result<()>>>(done: u16, call: impl Fn() -> F) {
    loop {
        match call().await {
            Ok(()) => return,
            Err(kube::Error::Api(said)) if said.code == done => return,
            Err(_) => sleep(Duration::from_millis(200)).await,
        }
    }
}

async fn change(world: &World, name: &str, spec: Value) {
    let patch = Patch::Merge(json!({"spec": spec}));
    let params = PatchParams::default();
    surely(0, || async { api(world).patch(name, &params, &patch).await.map(drop) }).await;
}

/// Changes them until all is to be well, and leaves them as they were. Says how often.
pub(crate) async fn operate(
    world: Arc<World>,
    mut random: Random,
    mut stage: watch::Receiver<Stage>,
) -> u64 {
    let mut is_there = true;
    let mut changes = 0;
    loop {
        let pause = Duration::from_millis(200 + random.below(1300));
        let calm = stage.wait_for(|stage| *stage >= Stage::Calm);
        if tokio::time::timeout(pause, calm).await.is_ok() {
            break;
        }
        changes += 1;
        match random.below(4) {
            0 => change(&world, "stays", json!({"deadline": format!("{}s", 100 + changes)})).await,
            1 => {
                let image = format!("changes:{}", 1 + random.below(2));
                change(&world, "changes", json!({"image": image})).await;
            }
            _ if is_there => {
                delete(&world, "goes").await;
                is_there = false;
            }
            _ => {
                create(&world, "goes").await;
                is_there = true;
            }
        }
    }
    change(&world, "changes", json!({"image": "changes:2"})).await;
    if !is_there {
        create(&world, "goes").await;
    }
    changes
}

/// Fails unless each sells what its image offers, and says so, and one that is deleted sells nothing any more.
pub(crate) async fn check(world: &World, replica: &Replica) {
    sells(world, replica, &NAMES).await;
    delete(world, "goes").await;
    sells(world, replica, &NAMES[..2]).await;
}

async fn sells(world: &World, replica: &Replica, names: &[&str]) {
    let mut expected: Vec<String> =
        names.iter().flat_map(|name| ["small", "large"].map(|it| format!("{name}-{it}"))).collect();
    expected.sort_unstable();
    let begun = Instant::now();
    loop {
        let sold = sold(replica);
        let mut said = api(world).list(&Default::default()).await.unwrap().items;
        said.sort_by_key(|broker| broker.metadata.name.clone());
        let serving = said.iter().all(|broker| {
            let name = broker.metadata.name.as_deref().unwrap_or_default();
            let status = &broker.data["status"];
            let ready = &status["conditions"][0];
            let has = json!([{"id": name, "name": format!("{name}-name"), "sold": true}]);
            ready["reason"] == "Serving" && status["services"] == has
        });
        if sold == expected && serving && said.len() == names.len() {
            return;
        }
        assert!(
            begun.elapsed() < SOLD,
            "in {} is sold: {sold:?}, and said: {:#?}",
            world.namespace,
            said.iter().map(|broker| &broker.data["status"]).collect::<Vec<_>>()
        );
        sleep(Duration::from_millis(250)).await;
    }
}

/// The ids of the plans that a replica sells.
fn sold(replica: &Replica) -> Vec<String> {
    let catalogs = replica.engines.all().filter_map(osb::Backend::catalog);
    let mut plans = Vec::new();
    for catalog in catalogs {
        let services = catalog.catalog().services.iter();
        plans.extend(services.flat_map(|service| &service.plans).map(|plan| plan.id.to_string()));
    }
    plans.sort_unstable();
    plans
}

/// Fails if a run was another broker's than that whose service it was for.
pub(crate) fn check_owners(ledger: &Ledger) {
    for (run, entry) in ledger {
        let Some(order) = entry.order.as_ref().filter(|order| order.action.is_some()) else {
            continue;
        };
        let service = order.work.get("service_id").and_then(Value::as_str).unwrap_or_default();
        let its = entry.image.split(':').next() == Some(service);
        assert!(its, "{run} of {service} was begun in {}", entry.image);
    }
}
