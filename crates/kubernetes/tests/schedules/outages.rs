//! Outages at one moment: an API server that is killed, an etcd that stands still, a Lease that is taken
//! away, and one that nobody answers for.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, Patch, PatchParams};
use kubernetes::Lead;
use serde_json::json;
use testkit::number;
use testkit::plane::{self, ControlPlane};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::chaos::{Manner, schedule};
use crate::outage::{Outage, until_one_goes_on};
use crate::place::Place;
use crate::replica::{Character, Replica};
use crate::seeds;
use crate::world::{BROKER, World, well};

/// After this long a schedule is in the middle of its operations.
const MIDDLE: Duration = Duration::from_millis(1500);

fn runtime() -> Runtime {
    Builder::new_multi_thread().enable_all().build().unwrap()
}

fn plane() -> ControlPlane {
    ControlPlane::start(&kubernetes::definitions()).unwrap()
}

/// Three schedules in which nothing goes wrong but this.
fn survives(manner: fn(&Arc<Outage>, u64) -> Manner, away: impl FnOnce(&mut ControlPlane)) {
    seeds::log();
    let mut plane = plane();
    let place = Place::of(&plane);
    let runtime = runtime();
    let outage: Arc<Outage> = Arc::default();
    let begin = |seed| runtime.spawn(schedule(place.clone(), seed, manner(&outage, seed)));
    let running: Vec<_> = (1..4).map(begin).collect();
    std::thread::sleep(MIDDLE);
    until_one_goes_on(&plane, &running);
    outage.during(|| away(&mut plane));
    for schedule in running {
        let tally = runtime.block_on(schedule).unwrap();
        println!("{tally:?}");
        assert!(tally.operations > 0, "{tally:?}");
    }
}

#[test]
fn an_api_server_that_is_killed_in_mid_operation_loses_nothing() {
    survives(Manner::outage, |plane| {
        plane.kill_api_server().unwrap();
        std::thread::sleep(Duration::from_secs(1));
        plane.start_api_server().unwrap();
    });
}

/// Than a Lease, a call and a run may last; `MANCIPLE_OUTAGE=60` keeps it away for so many seconds.
#[test]
fn an_api_server_that_is_away_for_longer_than_a_lease_loses_nothing() {
    survives(Manner::long_outage, |plane| {
        plane.kill_api_server().unwrap();
        std::thread::sleep(Duration::from_secs(number("MANCIPLE_OUTAGE").unwrap_or(30)));
        plane.start_api_server().unwrap();
    });
}

#[test]
fn an_etcd_that_stands_still_for_longer_than_a_lease_loses_nothing() {
    survives(Manner::long_outage, |plane| {
        plane.pause_etcd().unwrap();
        std::thread::sleep(Duration::from_secs(30));
        plane.resume_etcd().unwrap();
    });
}

/// `MANCIPLE_ETCD_PAUSE=60` pauses it for so many seconds.
#[test]
fn an_etcd_that_stands_still_loses_nothing() {
    survives(Manner::outage, |plane| {
        plane.pause_etcd().unwrap();
        std::thread::sleep(Duration::from_secs(number("MANCIPLE_ETCD_PAUSE").unwrap_or(5)));
        plane.resume_etcd().unwrap();
    });
}

#[test]
fn one_whose_lease_is_taken_away_leads_no_more_until_it_is_free() {
    let plane = plane();
    let runtime = runtime();
    runtime.block_on(async {
        let world = World::new(&Place::of(&plane), "stolen", well(Duration::ZERO)).await;
        let character = Character::well(BROKER);
        let replica = Replica::open(&world, character).await.unwrap();
        let leads = |wanted: bool| {
            let engine = replica.engines.of("s").clone();
            timeout(Duration::from_secs(60), async move {
                while engine.drives() != wanted {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            })
        };
        leads(true).await.expect("it leads");
        let leases: Api<Lease> = Api::namespaced(world.client.clone(), &world.namespace);
        let found = leases.list(&Default::default()).await.unwrap();
        let name = found.items[0].metadata.name.clone().unwrap();
        let patch = Patch::Merge(json!({
            "spec": {"holderIdentity": "thief", "leaseDurationSeconds": 3},
        }));
        let stolen = Timestamp::now();
        leases.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        leads(false).await.expect("it leads no more");
        leads(true).await.expect("the thief says nothing, and it leads again");
        let taken = leases.get(&name).await.unwrap().spec.unwrap().acquire_time.unwrap().0;
        let left = Duration::try_from(taken.duration_since(stolen)).unwrap();
        assert!(left >= Duration::from_secs(3), "it was the thief's for {left:?}");
    });
}

#[test]
fn one_that_never_had_an_answer_does_not_lead() {
    runtime().block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        // Nobody listens there.
        std::fs::write(&path, plane::kubeconfig("http://127.0.0.1:9")).unwrap();
        let client = kubernetes::client(Some(&path)).await.unwrap();
        let lead =
            Arc::new(Lead::new(client, "nowhere", "b", "me").lasting(Duration::from_secs(3)));
        let mut held = lead.held();
        let keeps = tokio::spawn(async move { lead.keep().await });
        let ever = timeout(Duration::from_secs(2), held.wait_for(|held| *held)).await;
        assert!(ever.is_err(), "it leads, and nobody said so");
        keeps.abort();
    });
}
