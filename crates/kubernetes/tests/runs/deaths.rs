//! A controller dies at each of its calls, before the call takes effect and after it, while a QuarksJob runs and what it
//! refers to changes. Another carries on: each trigger has had one run, each run one Job, by its uid, and one pod, and
//! each its version of the Secret.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use testkit::kubelet::JobAct;
use testkit::plane::ControlPlane;
use testkit::proxy::{Plan, Proxy};
use testkit::random::Random;
use tokio::runtime::Builder;

use crate::seeds;
use crate::shape::Shape;
use crate::town::{Place, Town, controller};
use crate::truth::{Conditions, Tally, check};
use crate::users::User;

/// So many calls are tried beside each other.
const CALLS_AT_ONCE: u64 = 12;

/// Four runs of a QuarksJob that end with this code, of whose controllers the first dies at this call; whether it
/// came so far.
async fn dies_at(place: Place, code: i32, call: u64, effect: bool) -> bool {
    let name = format!("run-death-{code}-{call}-{}", if effect { "after" } else { "before" });
    let script = move |job: &str| JobAct {
        begins: Duration::from_millis(10),
        lasts: Duration::from_millis(30),
        code,
        output: json!({"job": job}).to_string(),
    };
    let town = Arc::new(Town::new(&place, &name, Arc::new(script)).await);
    // Of runs that fail none is kept: a sidecar has to be told of their end all the same.
    let shape = Shape { sidecar: code != 0, ..Shape::usual() };
    let user = User::who_changes_things(&town, Random::new(call)).of_one_like(shape);
    let mut lives = tokio::spawn(user.run());
    let plan = Plan { death: Some(call), effect: Some(effect), ..Plan::calm() };
    let mortal = Proxy::start(town.client.clone(), plan).await.unwrap();
    let first = controller(&town, &mortal, "lease");
    let ended = tokio::select! {
        () = mortal.died() => None,
        ended = &mut lives => Some(ended),
    };
    mortal.die();
    first.shutdown_background();
    let died = ended.is_none();
    let calm = Proxy::start(town.client.clone(), Plan::calm()).await.unwrap();
    let second = controller(&town, &calm, "lease");
    let user = match ended {
        Some(ended) => ended,
        None => lives.await,
    };
    let mut tally = Tally::default();
    check(&town, &[user.unwrap()], Conditions::default(), &mut tally).await;
    calm.die();
    second.shutdown_background();
    assert_eq!(town.attempts.names().len(), tally.runs, "{name}: a Job for each run");
    died
}

/// At each of the calls, from the first on, until there are no more.
fn sweep(code: i32) {
    seeds::log();
    let plane = ControlPlane::start(&kubernetes::resources::definitions()).unwrap();
    let place = Place::of(&plane);
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    let mut deaths = 0;
    for first in (1..).step_by(usize::try_from(CALLS_AT_ONCE).unwrap()) {
        let calls = (first..first + CALLS_AT_ONCE).flat_map(|call| [(call, false), (call, true)]);
        let lives =
            calls.map(|(call, effect)| runtime.spawn(dies_at(place.clone(), code, call, effect)));
        let died = runtime.block_on(join_all(lives));
        let died = died.into_iter().filter(|died| *died.as_ref().unwrap()).count();
        println!("calls from {first}: {died} died");
        deaths += died;
        if died == 0 {
            break;
        }
    }
    println!("{deaths} deaths");
    assert!(deaths > 50, "four runs are more calls than {deaths} deaths say");
}

#[test]
fn whoever_dies_at_any_call_is_followed_by_one_who_ends_each_run_and_begins_none_again() {
    sweep(0);
}

#[test]
fn whoever_dies_while_runs_fail_is_followed_by_one_who_says_so_of_each_and_tries_none_again() {
    sweep(1);
}
