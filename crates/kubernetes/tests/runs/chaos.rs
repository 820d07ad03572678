//! One schedule: what goes wrong, and for how long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kube::api::Api;
use testkit::kubelet::{JobAct, JobScript};
use testkit::proxy::{Plan, Proxy};
use testkit::random::Random;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::led::until_led;
use crate::outage::Outage;
use crate::place::Place;
use crate::shape::output_of;
use crate::stage::{Stage, until_over};
use crate::thief::thief;
use crate::town::{Town, controller_whose_clock_is};
use crate::truth::{Conditions, Tally, check};
use crate::users::{EXTENDED, HANGING, User, leads_twice};

/// For how long things go wrong, from when somebody leads.
const WRONG: Duration = Duration::from_secs(6);
const REPLICAS: usize = 2;
/// How many go on for ever at most.
const HUNG: u64 = 2;
/// How far a clock is wrong at most, in milliseconds, either way.
const SKEW: u64 = 3_600_000;

/// What pods do, by the seed: one in nine fails, but of ExtendedJobs, which Kubernetes would try again for a minute.
/// One in five goes on for longer, for triggers to meet it, or for ever, for one to replace it: not many of these, for a
/// status shows no more than ten runs. One in three takes its time to end when it is told to.
fn script(seed: u64) -> JobScript {
    let hung = AtomicU64::default();
    Arc::new(move |job: &str| {
        let add = |sum: u64, byte: u8| sum.wrapping_mul(31).wrapping_add(u64::from(byte));
        let turn = job.bytes().fold(seed, add);
        let fails = turn.is_multiple_of(9) && !job.starts_with(EXTENDED);
        let lasts = match turn.is_multiple_of(5) {
            true if job.contains(HANGING) && hung.fetch_add(1, Ordering::Relaxed) < HUNG => 600_000,
            true => turn % 1500,
            false => turn % 400,
        };
        JobAct {
            begins: Duration::from_millis(turn % 60),
            lasts: Duration::from_millis(lasts),
            ends: Duration::from_millis(if turn.is_multiple_of(3) { turn % 700 } else { 0 }),
            code: i32::from(fails),
            output: output_of(job),
        }
    })
}

pub(crate) async fn schedule(place: Place, seed: u64, outage: Option<Arc<Outage>>) -> Tally {
    let random = Random::new(seed);
    let town = Town::new(&place, &format!("runs-{seed}"), script(seed)).await;
    let town = Arc::new(match random.part(9).below(2) {
        0 => town,
        _ => town.mounting_the_agent(),
    });
    let stage = watch::Sender::new(Stage::Wrong);
    let mut slots = JoinSet::new();
    let (two_lead, is_skewed) = (leads_twice(seed), seed % 6 == 1);
    for number in 0..REPLICAS {
        let mut part = random.part(100 + number as u64);
        let skew = match is_skewed {
            true => i64::try_from(part.below(2 * SKEW)).unwrap() - i64::try_from(SKEW).unwrap(),
            false => 0,
        };
        let slot = Slot {
            town: Arc::clone(&town),
            stage: stage.subscribe(),
            random: part,
            lease: if two_lead { format!("lease-{number}") } else { "lease".to_owned() },
            skew,
            seed,
        };
        slots.spawn(slot.keep());
    }
    let mut chaos = JoinSet::new();
    let stolen: Arc<AtomicU64> = Arc::default();
    if [2, 5].contains(&(seed % 7)) {
        let leases = Api::namespaced(town.client.clone(), &town.namespace);
        chaos.spawn(thief(leases, random.part(8), Arc::clone(&stolen)));
    }
    let mut users = JoinSet::new();
    for user in User::all(&town, &random, seed) {
        users.spawn(user.run());
    }
    let mut ended = Vec::new();
    let calm = async {
        until_led(&town.client, &town.namespace).await;
        sleep(WRONG).await;
    };
    tokio::pin!(calm);
    loop {
        tokio::select! {
            () = &mut calm, if *stage.borrow() == Stage::Wrong => {
                chaos.abort_all();
                stage.send_replace(Stage::Calm);
            }
            user = users.join_next() => match user {
                Some(Ok(user)) => ended.push(user),
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                None => break,
            },
        }
    }
    chaos.shutdown().await;
    stage.send_replace(Stage::Calm);
    let mut tally = Tally::default();
    tally.stolen = stolen.load(Ordering::Relaxed);
    tally.skewed = usize::from(is_skewed);
    tally.two_lead = usize::from(two_lead);
    let conditions = Conditions { outage: outage.as_deref(), two_lead };
    check(&town, &ended, conditions, &mut tally).await;
    stage.send_replace(Stage::Over);
    while let Some(slot) = slots.join_next().await {
        let (deaths, calls) = slot.unwrap();
        tally.deaths += deaths;
        tally.calls += calls;
    }
    tally.faults = town.faults.lock().unwrap().clone();
    tally
}

/// A place for a controller: while things go wrong they die in it, one after another.
struct Slot {
    town: Arc<Town>,
    stage: watch::Receiver<Stage>,
    random: Random,
    lease: String,
    skew: i64,
    seed: u64,
}

impl Slot {
    /// Until all is over: how many died, and how many calls there were.
    async fn keep(mut self) -> (u64, u64) {
        let (mut deaths, mut calls) = (0, 0);
        loop {
            let stage = *self.stage.borrow();
            let plan = match stage {
                Stage::Over => return (deaths, calls),
                Stage::Calm => Plan::calm(),
                Stage::Wrong => self.plan(),
            };
            let proxy = Arc::new(Proxy::start(self.town.client.clone(), plan).await.unwrap());
            let runtime = controller_whose_clock_is(self.skew, &self.town, &proxy, &self.lease);
            tokio::select! {
                () = proxy.died() => deaths += 1,
                () = until_over(&mut self.stage, || proxy.calm()) => {}
            }
            calls += proxy.calls();
            proxy.die();
            runtime.shutdown_background();
        }
    }

    /// Each kind of failure alone, and then together.
    fn plan(&mut self) -> Plan {
        let of = |kinds: &[u64]| kinds.contains(&(self.seed % 8));
        let (failing, delay, watches, lag) =
            (of(&[1, 6, 7]), of(&[2, 7]), of(&[3, 7]), of(&[4, 6]));
        let deaths = !of(&[1, 2]);
        let death = deaths.then(|| 1 + self.random.below(90));
        Plan {
            random: self.random.part(death.unwrap_or_default()),
            failing: if failing { 60 } else { 0 },
            delay: if delay { 300 } else { 0 },
            watches: if watches { 1500 } else { 0 },
            lag: if lag { 500 } else { 0 },
            death,
            effect: None,
            faults: Arc::clone(&self.town.faults),
        }
    }
}
