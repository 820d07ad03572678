//! A replica dies at each of its calls, before the call takes effect or after it, while an instance is made,
//! updated, bound, unbound and removed; and while three are made of which one fails, and two are removed meanwhile.
//! Another carries on: each operation ends by its first attempt as its broker's run did, each attempt has had one
//! Job and one pod, and nothing is left behind. `MANCIPLE_CALLS=1` has it die at each both before and after.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use agent::Order;
use futures_util::StreamExt as _;
use futures_util::stream::iter;
use osb::{Action, InstanceId};
use serde_json::Value;
use testkit::kubelet::{Act, End, Ledger, Script};
use testkit::plane::ControlPlane;
use testkit::proxy::Plan;
use testkit::random::Random;

use crate::chaos::check;
use crate::deaths_at::{Point, assert_most, points};
use crate::place::Place;
use crate::platform::{Fleet, User};
use crate::replica::{Character, LONG_LEASE, Replica, Unopened};
use crate::seeds;
use crate::world::{BROKER, World, policy, well};

/// So many lives go on beside each other.
const LIVES_AT_ONCE: usize = 16;
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

/// A life in which the first replica dies there, if anywhere; how many calls it made until then, or until all was done,
/// and whether it died.
async fn live(place: Place, life: Life, death: Option<Point>) -> (u64, bool) {
    let when = match death {
        None => "never".to_owned(),
        Some((call, effect)) => format!("{call}-{}", if effect { "after" } else { "before" }),
    };
    let name = format!("death-{life:?}-{when}").to_lowercase();
    let (call, effect) = death.unzip();
    let world = Arc::new(World::new(&place, &name, life.script()).await);
    let fleet = Fleet::default();
    let of_world = (Arc::clone(&world), fleet.clone());
    let user = move |instance: &str| User {
        world: Arc::clone(&of_world.0),
        fleet: of_world.1.clone(),
        random: Random::new(call.unwrap_or_default()),
        instance: InstanceId::new(instance).unwrap(),
        acknowledged: Vec::new(),
        by_hand: false,
        service: "s",
        told: BTreeSet::new(),
    };
    let mut lives = tokio::spawn(life.run(user));
    let open = async |plan| {
        let (lasts, linger) = (LONG_LEASE, Duration::from_secs(1));
        Replica::open(&world, Character { plan, lasts, linger, ..Character::well(BROKER) }).await
    };
    let plan = Plan { death: call, effect, ..Plan::calm() };
    let mut calls = call.unwrap_or_default();
    let ended = match open(plan).await {
        Ok(replica) => {
            fleet.set(0, Some(replica.answers()));
            let ended = tokio::select! {
                () = replica.proxy.died() => None,
                ended = &mut lives => Some(ended),
            };
            fleet.set(0, None);
            calls = replica.proxy.calls();
            ended
        }
        Err(Unopened::Died) => None,
        Err(Unopened::GaveUp) => panic!("{name}: nothing was refused, and yet it gave up"),
    };
    let died = ended.is_none();
    let users = match ended {
        Some(ended) => ended,
        None => {
            world.free_lease().await;
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
    (calls, died)
}

/// A life in which nobody dies, which makes so many calls at least, and then those in which somebody does at one of them.
fn sweep(life: Life, least: u64) {
    seeds::log();
    let plane = ControlPlane::start(&kubernetes::definitions()).unwrap();
    let place = Place::of(&plane);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let begin = |death| runtime.spawn(live(place.clone(), life, death));
    let (calls, _) = runtime.block_on(begin(None)).unwrap();
    assert!(calls >= least, "{life:?}: only {calls} calls");
    let name = format!("{life:?}");
    let lives = iter(points(&name, calls)).map(|death| begin(Some(death)));
    let lives = runtime.block_on(lives.buffer_unordered(LIVES_AT_ONCE).collect::<Vec<_>>());
    let died = lives.iter().filter(|life| life.as_ref().unwrap().1).count();
    assert_most(&name, died, lives.len());
}

#[test]
fn whoever_dies_at_any_call_is_followed_by_one_who_ends_each_operation_by_its_first_attempt() {
    sweep(Life::Whole, 50);
}

#[test]
fn whoever_dies_while_operations_fail_and_are_halted_is_followed_by_one_who_says_so() {
    sweep(Life::Troubled, 30);
}
