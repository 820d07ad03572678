//! A replica dies at each of its calls, before the call takes effect and after it, while an instance is made,
//! updated, bound, unbound and removed; and while three are made of which one fails, and two are removed meanwhile.
//! Another carries on: each operation ends by its first attempt as its broker's run did, each attempt has had one
//! Job and one pod, and nothing is left behind.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use agent::Order;
use futures_util::future::join_all;
use osb::{Action, InstanceId};
use serde_json::Value;
use testkit::kubelet::{Act, End, Ledger, Script};
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
/// What is lived through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// Provision, update, bind, unbind, deprovision.
    Whole,
    /// One provision fails, two are halted.
    Troubled,
}

impl Life {
    fn script(self) -> Script {
        if self == Self::Whole {
            return well(Duration::from_millis(20));
        }
        Arc::new(|order: &Order| {
            let of = order.work.get("instance_id").and_then(Value::as_str).unwrap_or_default();
            let (lasts, end) = match (order.action, of) {
                (Some(Action::Provision), "fails") => (20, End::Fails("no disk left".to_owned())),
                (Some(Action::Provision), _) => (60_000, End::Well),
                _ => (20, End::Well),
            };
            let begins = Duration::from_millis(20);
            Act { begins, lasts: Duration::from_millis(lasts), end, again: None }
        })
    }

    async fn run(self, user: impl Fn(&str) -> User) -> Vec<User> {
        match self {
            Self::Whole => vec![user("i").run_whole().await],
            Self::Troubled => {
                let (fails, halted, deleted) = futures_util::join!(
                    user("fails").run_failing(),
                    user("halted").run_halted(false),
                    user("deleted").run_halted(true)
                );
                vec![fails, halted, deleted]
            }
        }
    }

    /// That each attempt has begun once is held elsewhere.
    fn check(self, name: &str, attempts: &BTreeSet<String>, ledger: &Ledger) {
        for (run, entry) in ledger {
            assert!(entry.begun.len() <= 1, "{name}: {run} began {} times", entry.begun.len());
        }
        if self == Self::Whole {
            assert_eq!(attempts.len(), 5, "{name}: {attempts:?}");
            for (run, entry) in ledger {
                assert_eq!(entry.end, Some(End::Well), "{name}: {run}");
            }
        } else {
            let ends = |wanted: fn(&End) -> bool| {
                ledger.values().filter(|entry| entry.end.as_ref().is_some_and(wanted)).count()
            };
            assert_eq!(ends(|end| matches!(end, End::Fails(_))), 1, "{name}: {ledger:?}");
            // Of what was halted before it began there is nothing to remove.
            assert!((1..=3).contains(&ends(|end| *end == End::Well)), "{name}: {ledger:?}");
        }
    }
}

/// A life in which the first replica dies at this call; whether it came so far.
async fn dies_at(place: Place, life: Life, call: u64, effect: bool) -> bool {
    let when = if effect { "after" } else { "before" };
    let name = format!("death-{life:?}-{call}-{when}").to_lowercase();
    let world = Arc::new(World::new(&place, &name, life.script()).await);
    let fleet = Fleet::default();
    let of_world = (Arc::clone(&world), fleet.clone());
    let user = move |instance: &str| User {
        world: Arc::clone(&of_world.0),
        fleet: of_world.1.clone(),
        random: Random::new(call),
        instance: InstanceId::new(instance).unwrap(),
        acknowledged: Vec::new(),
        by_hand: false,
        service: "s",
        told: BTreeSet::new(),
    };
    let mut lives = tokio::spawn(life.run(user));
    let open = async |plan| {
        let linger = Duration::from_secs(1);
        Replica::open(&world, Character { plan, linger, ..Character::well(BROKER) }).await
    };
    let plan = Plan { death: Some(call), effect: Some(effect), ..Plan::calm() };
    let ended = match open(plan).await {
        Ok(replica) => {
            fleet.set(0, Some(replica.answers()));
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
    let users = match ended {
        Some(ended) => ended,
        None => {
            let other = open(Plan::calm()).await.expect("another replica");
            fleet.set(0, Some(other.answers()));
            let ended = lives.await;
            fleet.set(0, None);
            ended
        }
    };
    check(&world, &fleet, users.unwrap(), policy()).await;
    world.attempts.assert_one_job_each(|_| true);
    life.check(&name, &world.attempts.names(), &world.kubelet.ledger());
    died
}

/// Dies at each call of a life, until there are no more.
fn die(life: Life) -> usize {
    seeds::log();
    let plane = ControlPlane::start(&kubernetes::resources::definitions()).unwrap();
    let place = Place::of(&plane);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut deaths = 0;
    for first in (1..).step_by(usize::try_from(CALLS_AT_ONCE).unwrap()) {
        let calls = (first..first + CALLS_AT_ONCE).flat_map(|call| [(call, false), (call, true)]);
        let lives =
            calls.map(|(call, effect)| runtime.spawn(dies_at(place.clone(), life, call, effect)));
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
    deaths
}

#[test]
fn whoever_dies_at_any_call_is_followed_by_one_who_ends_each_operation_by_its_first_attempt() {
    let deaths = die(Life::Whole);
    assert!(deaths > 100, "a life is more calls than {deaths} deaths say");
}

#[test]
fn whoever_dies_while_operations_fail_and_are_halted_is_followed_by_one_who_says_so() {
    let deaths = die(Life::Troubled);
    assert!(deaths > 60, "these lives are more calls than {deaths} deaths say");
}
