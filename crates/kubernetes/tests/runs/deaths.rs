//! A controller dies at each of its calls, before the call takes effect or after it, while jobs of each kind run. Another
//! carries on: each trigger has had one run, each run one Job, by its uid, and one pod, and what it has left is kept as it
//! was asked for, and nothing beside it.
//!
//! `MANCIPLE_CALLS=1` has it die at each both before and after. `MANCIPLE_ROUNDS=6` has users say more, and so controllers
//! make more calls to die at.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::iter;
use kubernetes::quarks::Dialect;
use testkit::kubelet::{JobAct, JobScript};
use testkit::number;
use testkit::plane::ControlPlane;
use testkit::proxy::{Plan, Proxy};
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use crate::deaths_at::{Point, assert_most, points};
use crate::place::Place;
use crate::seeds::log;
use crate::shape::{Kept, Policy, Shape, output_of};
use crate::town::{Town, controller};
use crate::truth::{Conditions, Tally, check};
use crate::users::{Manner, User};

/// So many lives go on beside each other.
const LIVES_AT_ONCE: usize = 28;

/// What is lived through.
#[derive(Debug)]
struct Life {
    name: &'static str,
    /// The jobs, and what their users do.
    jobs: &'static [(Manner, Shape)],
    /// How often each says something.
    rounds: u64,
    /// What pods do.
    pods: Pods,
    /// A controller makes so many calls at least.
    calls: u64,
}

/// What pods do.
#[derive(Debug, Clone, Copy)]
enum Pods {
    EndWell,
    Fail,
    /// The first ends well, the second fails, and so on.
    FailInTurn,
    /// Each goes on but the last.
    GoOn,
}

const WRAPPED: Shape = Shape::usual();
const QUEUED: Shape = Shape { policy: Policy::Queue, ..WRAPPED };

const VERSIONS: Life = Life {
    name: "versions",
    jobs: &[(Manner::Follower, WRAPPED)],
    rounds: 4,
    pods: Pods::EndWell,
    calls: 30,
};
/// Of runs that fail none is kept: a sidecar has to be told of their end all the same.
const FAILURES: Life = Life {
    name: "failures",
    jobs: &[(Manner::Follower, Shape { sidecar: true, ..WRAPPED })],
    pods: Pods::Fail,
    ..VERSIONS
};
const EXTENDED: Life = Life {
    name: "extended",
    jobs: &[(
        Manner::Errand,
        Shape {
            dialect: Dialect::ExtendedJob,
            kept: Kept::Secret { owned: false },
            two: true,
            dash: true,
            ..QUEUED
        },
    )],
    rounds: 2,
    calls: 20,
    ..VERSIONS
};
const PLAIN: Life = Life {
    name: "plain",
    jobs: &[
        (Manner::Errand, Shape { kept: Kept::Secret { owned: false }, ..QUEUED }),
        (Manner::Errand, Shape { kept: Kept::ConfigMap { owned: true }, ..QUEUED }),
    ],
    rounds: 2,
    calls: 20,
    ..VERSIONS
};
const REPLACED: Life = Life {
    name: "replaced",
    jobs: &[(Manner::Restless, Shape { policy: Policy::Replace, ..WRAPPED })],
    rounds: 3,
    pods: Pods::GoOn,
    calls: 20,
};
/// One version is kept, one Job that succeeded and one that failed: of each there are two.
const RETENTION: Life = Life {
    name: "retention",
    jobs: &[(Manner::Follower, Shape { limit: Some(1), ..QUEUED })],
    pods: Pods::FailInTurn,
    ..VERSIONS
};
const FANNED_OUT: Life = Life {
    name: "fanned-out",
    jobs: &[(
        Manner::Errand,
        Shape { kept: Kept::FannedOut { versioned: false }, two: true, ..QUEUED },
    )],
    rounds: 2,
    calls: 20,
    ..VERSIONS
};

/// A run for each pod that becomes ready.
const OF_PODS: Life = Life {
    name: "of-pods",
    jobs: &[(Manner::OfPods, Shape { dialect: Dialect::ExtendedJob, ..QUEUED })],
    rounds: 2,
    calls: 15,
    ..VERSIONS
};

impl Pods {
    fn script(self, rounds: u64) -> JobScript {
        let count = AtomicU64::default();
        Arc::new(move |job: &str| {
            let place = 1 + count.fetch_add(1, Ordering::Relaxed);
            let fails = match self {
                Self::EndWell | Self::GoOn => false,
                Self::Fail => true,
                Self::FailInTurn => place.is_multiple_of(2),
            };
            let goes_on = matches!(self, Self::GoOn) && place < rounds;
            JobAct {
                begins: Duration::from_millis(10),
                lasts: Duration::from_millis(if goes_on { 600_000 } else { 30 }),
                ends: Duration::ZERO,
                code: i32::from(fails),
                output: output_of(job),
            }
        })
    }
}

/// Where a controller dies, if it does.
type Death = Option<Point>;

/// A life in which the first controller dies there; how many calls it made until then, or until all was done, and
/// whether it died.
async fn live(place: Place, life: &'static Life, death: Death) -> (u64, bool) {
    let rounds = number("MANCIPLE_ROUNDS").unwrap_or(life.rounds);
    let when = match death {
        None => "never".to_owned(),
        Some((call, effect)) => format!("{call}-{}", if effect { "after" } else { "before" }),
    };
    let name = format!("death-{}-{when}", life.name);
    let town = Arc::new(Town::new(&place, &name, life.pods.script(rounds)).await);
    let (call, effect) = death.unzip();
    let seed = call.unwrap_or_default();
    let mut users = JoinSet::new();
    for (number, job) in (0..).zip(life.jobs) {
        users.spawn(User::of_rounds(&town, seed, rounds, *job, number).run());
    }
    let lives = tokio::spawn(users.join_all());
    tokio::pin!(lives);
    let plan = Plan { death: call, effect, ..Plan::calm() };
    let mortal = Proxy::start(town.client.clone(), plan).await.unwrap();
    let first = controller(&town, &mortal, "lease");
    let ended = tokio::select! {
        () = mortal.died() => None,
        ended = &mut lives => Some(ended),
    };
    let calls = mortal.calls();
    mortal.die();
    first.shutdown_background();
    let died = ended.is_none();
    let calm = Proxy::start(town.client.clone(), Plan::calm()).await.unwrap();
    let second = controller(&town, &calm, "lease");
    let users = match ended {
        Some(ended) => ended,
        None => lives.await,
    };
    let mut tally = Tally::default();
    check(&town, &users.unwrap(), Conditions::default(), &mut tally).await;
    calm.die();
    second.shutdown_background();
    assert_eq!(town.attempts.names().len(), tally.runs, "{name}: a Job for each run");
    if matches!(life.pods, Pods::GoOn) {
        assert_eq!(tally.replaced as u64, rounds - 1, "{name}: {tally:?}");
    }
    (calls, died)
}

/// One in which nobody dies, and then those in which somebody does at one of its calls.
fn sweep(life: &'static Life) {
    log();
    let plane = ControlPlane::start(&kubernetes::definitions()).unwrap();
    let place = Place::of(&plane);
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    let begin = |death| runtime.spawn(live(place.clone(), life, death));
    let (calls, _) = runtime.block_on(begin(None)).unwrap();
    assert!(calls >= life.calls, "{}: only {calls} calls", life.name);
    let lives = iter(points(life.name, calls)).map(|death| {
        let life = begin(Some(death));
        async move { (death, life.await) }
    });
    let lives = runtime.block_on(lives.buffer_unordered(LIVES_AT_ONCE).collect::<Vec<_>>());
    let failed: Vec<&Point> =
        lives.iter().filter(|(_, life)| life.is_err()).map(|(death, _)| death).collect();
    let died = lives.iter().filter(|(_, life)| matches!(life, Ok((_, true)))).count();
    assert!(failed.is_empty(), "{}: not as it is to be after {failed:?}", life.name);
    assert_most(life.name, died, lives.len());
}

#[test]
fn whoever_dies_at_any_call_is_followed_by_one_who_ends_each_run_and_begins_none_again() {
    sweep(&VERSIONS);
}

#[test]
fn whoever_dies_while_runs_fail_is_followed_by_one_who_says_so_of_each_and_tries_none_again() {
    sweep(&FAILURES);
}

#[test]
fn whoever_dies_while_extended_jobs_run_is_followed_by_one_who_keeps_what_each_container_printed() {
    sweep(&EXTENDED);
}

#[test]
fn whoever_dies_while_what_was_kept_is_written_over_is_followed_by_one_who_leaves_the_last() {
    sweep(&PLAIN);
}

#[test]
fn whoever_dies_while_runs_are_replaced_is_followed_by_one_who_has_one_at_a_time() {
    sweep(&REPLACED);
}

#[test]
fn whoever_dies_while_old_versions_and_jobs_go_is_followed_by_one_who_leaves_as_many_as_are_asked_for()
 {
    sweep(&RETENTION);
}

#[test]
fn whoever_dies_while_files_fan_out_is_followed_by_one_who_keeps_each_key_of_each_container() {
    sweep(&FANNED_OUT);
}

#[test]
fn whoever_dies_while_pods_become_ready_is_followed_by_one_who_has_run_once_for_each() {
    sweep(&OF_PODS);
}
