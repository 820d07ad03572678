//! A replica dies at each of its calls, before the call takes effect and after it, while an instance is made,
//! updated, bound, unbound and removed. Another carries on: each operation succeeds by its first attempt, each
//! attempt has had one Job and one pod, and nothing is left behind.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use osb::InstanceId;
use testkit::kubelet::End;
use testkit::plane::ControlPlane;
use testkit::proxy::Plan;
use testkit::random::Random;

use crate::chaos::check;
use crate::platform::{Fleet, User};
use crate::replica::{Character, Replica, Unopened};
use crate::seeds;
use crate::world::{BROKER, Place, World, policy, well};

/// So many calls are tried beside each other.
const CALLS_AT_ONCE: u64 = 8;
/// Provision, update, bind, unbind, deprovision.
const OPERATIONS: usize = 5;

/// A life of an instance, in which the first replica dies at this call; whether it came so far.
async fn dies_at(place: Place, call: u64, effect: bool) -> bool {
    let name = format!("death-{call}-{}", if effect { "after" } else { "before" });
    let world = Arc::new(World::new(&place, &name, well(Duration::from_millis(20))).await);
    let fleet = Fleet::default();
    let user = User {
        world: Arc::clone(&world),
        fleet: fleet.clone(),
        random: Random::new(call),
        instance: InstanceId::new("i").unwrap(),
        acknowledged: Vec::new(),
        by_hand: false,
    };
    let mut lives = tokio::spawn(user.run_whole());
    let open = async |plan| {
        let lease = BROKER.to_owned();
        Replica::open(&world, Character { plan, skew: 0, lease, policy: policy() }).await
    };
    let plan = Plan { death: Some(call), effect: Some(effect), ..Plan::calm() };
    let ended = match open(plan).await {
        Ok(replica) => {
            fleet.set(0, Some((replica.engine.clone(), replica.handle())));
            let ended = tokio::select! {
                () = replica.proxy.died() => None,
                ended = &mut lives => Some(ended),
            };
            fleet.set(0, None);
            ended
        }
        Err(Unopened::Died) => None,
        Err(Unopened::GaveUp) => panic!("{name}: nothing was refused, and yet it gave up"),
    };
    let died = ended.is_none();
    let user = match ended {
        Some(ended) => ended,
        None => {
            let other = open(Plan::calm()).await.expect("another replica");
            fleet.set(0, Some((other.engine.clone(), other.handle())));
            let ended = lives.await;
            fleet.set(0, None);
            ended
        }
    };
    check(&world, &fleet, vec![user.unwrap()], policy()).await;
    world.attempts.assert_one_job_each(|_| true);
    let attempts = world.attempts.names();
    assert_eq!(attempts.len(), OPERATIONS, "{name}: {attempts:?}");
    for (run, entry) in world.kubelet.ledger() {
        assert_eq!((entry.begun.len(), &entry.end), (1, &Some(End::Well)), "{name}: {run}");
    }
    died
}

#[test]
fn whoever_dies_at_any_call_is_followed_by_one_who_ends_each_operation_by_its_first_attempt() {
    seeds::log();
    let plane = ControlPlane::start(&kubernetes::resources::definitions()).unwrap();
    let place = Place::of(&plane);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut deaths = 0;
    for first in (1..).step_by(usize::try_from(CALLS_AT_ONCE).unwrap()) {
        let calls = (first..first + CALLS_AT_ONCE).flat_map(|call| [(call, false), (call, true)]);
        let lives = calls.map(|(call, effect)| runtime.spawn(dies_at(place.clone(), call, effect)));
        let died =
            runtime.block_on(join_all(lives)).into_iter().filter(|died| *died.as_ref().unwrap());
        let died = died.count();
        println!("calls from {first}: {died} died");
        deaths += died;
        if died == 0 {
            break;
        }
    }
    println!("{deaths} deaths");
    assert!(deaths > 100, "a life is more calls than {deaths} deaths say");
}
