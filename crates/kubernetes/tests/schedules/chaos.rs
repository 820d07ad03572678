//! One schedule: what goes wrong, and what has to hold at the end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::Policy;
use engine::policy::{OnLost, PerAction};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use kubernetes::names;
use kubernetes::resources::Kind;
use osb::InstanceId;
use testkit::kubelet::{End, Entry};
use testkit::proxy::{Faults, Plan};
use testkit::random::Random;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::brokers;
use crate::kept;
use crate::led::until_led;
use crate::outage::Outage;
use crate::pauses;
use crate::place::Place;
use crate::platform::{Fleet, User};
use crate::replica::{BEGIN, BEGIN_LATE, Character, Replica, Unopened, delivery};
use crate::script::{question, script};
use crate::stage::{Stage, until_over};
use crate::thief::thief;
use crate::world::{BROKER, Sells, World, policy};

use crate::seeds::Sum;

/// For how long things go wrong, from when somebody leads.
const WRONG: Duration = Duration::from_secs(6);
/// How long what is left over may take to go, once all is well. A question for a catalog that nobody waits for any more
/// goes after its time, and the garbage collector takes its pod: a minute later where the API server was away. What was
/// deleted by hand, and failed three times, is tried again after ten minutes.
const CLEAN: Duration = Duration::from_secs(900);
/// How long a run may take.
const TIMEOUT: Duration = Duration::from_secs(120);
const REPLICAS: usize = 2;
const USERS: u64 = 3;

/// What happened.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    deaths: u64,
    pub(crate) calls: u64,
    pub(crate) faults: Faults,
    pub(crate) runs: usize,
    pub(crate) operations: usize,
    pub(crate) pods_taken: usize,
    pub(crate) leases_stolen: u64,
    /// Schedules in which clocks differ, and in which two lead all the time.
    pub(crate) skewed: usize,
    pub(crate) two_lead: usize,
    /// Attempts whose work went on elsewhere, and questions after it.
    pub(crate) elsewhere: usize,
    pub(crate) questions: usize,
    /// Runs that were given the state that another had left.
    pub(crate) states: usize,
    /// Operations of which a platform heard how far they were.
    pub(crate) told: usize,
    /// Pauses that brokers had asked for.
    pub(crate) pauses: usize,
    /// What was done to `Broker` resources, those of one catalog, and those that are served apart.
    pub(crate) brokers_changed: u64,
    pub(crate) changed_apart: u64,
}

impl Sum for Tally {
    fn add(&mut self, other: &Self) {
        self.deaths += other.deaths;
        self.calls += other.calls;
        self.faults.add(&other.faults);
        self.runs += other.runs;
        self.operations += other.operations;
        self.pods_taken += other.pods_taken;
        self.leases_stolen += other.leases_stolen;
        self.skewed += other.skewed;
        self.two_lead += other.two_lead;
        self.elsewhere += other.elsewhere;
        self.questions += other.questions;
        self.states += other.states;
        self.told += other.told;
        self.pauses += other.pauses;
        self.brokers_changed += other.brokers_changed;
        self.changed_apart += other.changed_apart;
    }

    fn is_of_everything(&self, _: usize) -> bool {
        let seen = [
            self.pods_taken,
            self.skewed,
            self.two_lead,
            self.elsewhere,
            self.questions,
            self.states,
            self.told,
            self.pauses,
        ];
        let counted = [self.leases_stolen, self.brokers_changed, self.changed_apart];
        let is_of_all = seen.iter().all(|&count| count > 0) && self.faults.are_of_all_kinds();
        is_of_all && counted.iter().all(|&count| count > 0)
    }

    fn deaths(&self) -> u64 {
        self.deaths
    }
}

/// What a seed makes go wrong. Each kind of failure alone, and then together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Manner {
    failing: u64,
    delay: u64,
    watches: u64,
    lag: u64,
    deaths: bool,
    two_leaders: bool,
    thief: bool,
    hand: bool,
    skew: bool,
    by_hand: bool,
    /// The agent comes by a ConfigMap, as by default.
    by_config_map: bool,
    keep_failed: Duration,
    /// Longer than any call is late, where a second may lead.
    linger: Duration,
    /// When nobody has answers, whoever makes pods of Jobs among them.
    outage: Option<Arc<Outage>>,
    sells: Sells,
    /// How long a run may take.
    timeout: Duration,
}

impl Manner {
    /// Nothing goes wrong but that nobody has answers for a while; of every third seed replicas die, too.
    pub(crate) fn outage(outage: &Arc<Outage>, seed: u64) -> Self {
        let sells = Sells { extended: true, progress: true, ..Sells::default() };
        let deaths = seed.is_multiple_of(3);
        let outage = Some(Arc::clone(outage));
        Self { outage, deaths, sells, timeout: TIMEOUT, ..Self::default() }
    }

    /// The same for longer than a run may take; of every other seed there are several brokers.
    pub(crate) fn long_outage(outage: &Arc<Outage>, seed: u64) -> Self {
        let usual = Self::outage(outage, seed);
        let sells = Sells { several: seed.is_multiple_of(2), ..usual.sells };
        Self { sells, timeout: Duration::from_secs(15), ..usual }
    }

    pub(crate) fn of(seed: u64) -> Self {
        let one_of = |numbers: &[u64]| numbers.contains(&(seed % 10));
        let two_leaders = one_of(&[4, 9]) || seed % 7 == 3;
        let thief = one_of(&[5, 9]);
        Self {
            failing: if one_of(&[1, 6]) {
                100
            } else if one_of(&[7, 8, 9]) {
                30
            } else {
                0
            },
            delay: if one_of(&[2, 7, 9]) { 400 } else { 0 },
            watches: if one_of(&[3, 8, 9]) { 1500 } else { 0 },
            lag: if one_of(&[2, 8, 9]) { 500 } else { 0 },
            deaths: !one_of(&[1, 2, 3, 4]),
            two_leaders,
            thief,
            linger: Duration::from_secs(if two_leaders || thief { 3 } else { seed % 2 }),
            hand: seed.is_multiple_of(3),
            skew: seed % 5 == 2,
            by_hand: seed % 4 == 1,
            by_config_map: (seed / 10).is_multiple_of(2),
            keep_failed: Duration::from_secs(u64::from(seed % 7 == 2)),
            outage: None,
            sells: Sells {
                extended: (seed / 2) % 3 == 1,
                progress: seed % 5 < 3,
                several: seed % 7 == 5,
                apart: seed % 14 == 12,
            },
            timeout: TIMEOUT,
        }
    }
}

pub(crate) async fn schedule(place: Place, seed: u64, manner: Manner) -> Tally {
    let random = Random::new(seed);
    let script = script(seed, if manner.hand { 2 } else { seed % 2 });
    let name = format!("schedule-{seed}");
    let world = Arc::new(World::selling(&place, &name, manner.sells, script).await);
    if manner.sells.several {
        brokers::create_all(&world).await;
    }
    let fleet = Fleet::default();
    let stage = watch::Sender::new(Stage::Wrong);
    let mut policy = policy();
    policy.timeouts = PerAction::all(manner.timeout);
    policy.lost = if seed.is_multiple_of(4) { OnLost::Retry } else { OnLost::Fail };

    let mut slots = JoinSet::new();
    for slot in 0..REPLICAS {
        let lease = if manner.two_leaders { format!("lease-{slot}") } else { BROKER.to_owned() };
        let mut part = random.part(100 + slot as u64);
        let skew = match manner.skew {
            true => i64::try_from(part.below(6000)).unwrap() - 3000,
            false => 0,
        };
        let slot = Slot {
            world: Arc::clone(&world),
            fleet: fleet.clone(),
            stage: stage.subscribe(),
            number: slot,
            random: part,
            failing: manner.failing,
            delay: manner.delay,
            watches: manner.watches,
            lag: manner.lag,
            deaths: manner.deaths,
            character: Character {
                skew,
                policy: policy.clone(),
                start_timeout: if manner.outage.is_some() { BEGIN_LATE } else { BEGIN },
                delivery: delivery(manner.by_config_map),
                keep_failed: manner.keep_failed,
                linger: manner.linger,
                ..Character::well(&lease)
            },
        };
        slots.spawn(slot.keep());
    }
    let mut chaos = JoinSet::new();
    let stolen: Arc<AtomicU64> = Arc::default();
    if manner.hand {
        chaos.spawn(hand(Arc::clone(&world), random.part(7)));
    }
    if manner.thief {
        let leases = Api::namespaced(world.client.clone(), &world.namespace);
        chaos.spawn(thief(leases, random.part(8), Arc::clone(&stolen)));
    }
    let operator = manner.sells.several.then(|| {
        let operate = brokers::operate(Arc::clone(&world), random.part(9), stage.subscribe());
        tokio::spawn(operate)
    });
    let mut users = users(&world, &fleet, &random, manner.by_hand);
    let mut ended = Vec::new();
    let calm = async {
        until_led(&world.client, &world.namespace).await;
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
                Some(user) => ended.push(user.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))),
                None => break,
            },
        }
    }
    chaos.shutdown().await;
    stage.send_replace(Stage::Over);
    let mut tally = Tally::default();
    while let Some(slot) = slots.join_next().await {
        let (deaths, calls) = slot.unwrap();
        tally.deaths += deaths;
        tally.calls += calls;
    }
    if let Some(operator) = operator {
        let changes = operator.await.unwrap();
        match manner.sells.apart {
            true => tally.changed_apart = changes,
            false => tally.brokers_changed = changes,
        }
    }
    tally.faults = world.faults.lock().unwrap().clone();
    let taken = world.taken();
    tally.told = ended.iter().map(|user| user.told.len()).sum();
    tally.operations = ended.iter().map(|user| user.acknowledged.len()).sum();
    tally.pods_taken = taken.len();
    tally.leases_stolen = stolen.load(Ordering::Relaxed);
    tally.skewed = usize::from(manner.skew);
    tally.two_lead = usize::from(manner.two_leaders);
    check(&world, &fleet, ended, policy).await;
    world.attempts.assert_one_job_each(|_| true);
    check_runs(&world, &manner, &mut tally);
    tally
}

fn users(world: &Arc<World>, fleet: &Fleet, random: &Random, by_hand: bool) -> JoinSet<User> {
    let mut users = JoinSet::new();
    for (number, name) in (0..USERS).zip(brokers::NAMES) {
        let user = User {
            world: Arc::clone(world),
            fleet: fleet.clone(),
            random: random.part(number),
            instance: InstanceId::new(format!("i{number}")).unwrap(),
            acknowledged: Vec::new(),
            by_hand,
            service: if world.sells.several { name } else { "s" },
            told: BTreeSet::new(),
        };
        users.spawn(user.run());
    }
    users
}

/// What has to hold of all runs that there were.
fn check_runs(world: &World, manner: &Manner, tally: &mut Tally) {
    let (ledger, taken) = (world.kubelet.ledger(), world.taken());
    tally.runs = ledger.len();
    let is_around =
        |run: &Entry| manner.outage.as_ref().is_some_and(|outage| outage.is_around(run));
    for (run, entry) in &ledger {
        // A pod that is taken while no replica looks is followed by another before Kubernetes 1.29, and so is one
        // whose maker had no answer: a Job promises no less than one.
        if !taken.contains(run) && !is_around(entry) {
            assert!(entry.begun.len() <= 1, "{run} ran twice: {entry:?}");
        }
        if let Some(given) = &entry.given {
            let whole = given["parameters"]["password"].as_str().unwrap_or("planted");
            assert!(whole.starts_with("planted"), "{run} was given {given}");
        }
    }
    let leaves = |run: &str, end: &Option<End>| {
        matches!(end, Some(End::Elsewhere(_))) && question(run).is_none()
    };
    tally.elsewhere = ledger.iter().filter(|(run, entry)| leaves(run, &entry.end)).count();
    tally.questions = kept::check_questions(&ledger, &world.attempts.names(), &taken);
    tally.states = kept::check_states(&ledger, &taken, &world.well());
    if !manner.skew {
        tally.pauses = pauses::check(&ledger, &taken);
    }
    if manner.sells.several {
        brokers::check_owners(&ledger);
    }
}

/// A place for a replica: while things go wrong they die in it, one after another.
struct Slot {
    world: Arc<World>,
    fleet: Fleet,
    stage: watch::Receiver<Stage>,
    number: usize,
    random: Random,
    failing: u64,
    delay: u64,
    watches: u64,
    lag: u64,
    deaths: bool,
    character: Character,
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
            let character = Character { plan, ..self.character.clone() };
            let opening = Replica::open(&self.world, character);
            let opened = tokio::select! {
                opened = opening => opened,
                _ = self.stage.wait_for(|stage| *stage == Stage::Over) => Err(Unopened::GaveUp),
            };
            let replica = match opened {
                Ok(replica) => replica,
                Err(unopened) => {
                    deaths += u64::from(unopened == Unopened::Died);
                    continue;
                }
            };
            self.fleet.set(self.number, Some(replica.answers()));
            tokio::select! {
                () = replica.proxy.died() => deaths += 1,
                () = until_over(&mut self.stage, || replica.proxy.calm()) => {}
            }
            calls += replica.proxy.calls();
            self.fleet.set(self.number, None);
        }
    }

    fn plan(&mut self) -> Plan {
        let death = self.deaths.then(|| 1 + self.random.below(160));
        Plan {
            random: self.random.part(death.unwrap_or_default()),
            failing: self.failing,
            delay: self.delay,
            watches: self.watches,
            lag: self.lag,
            death,
            effect: None,
            faults: Arc::clone(&self.world.faults),
        }
    }
}

/// Takes pods away, now and then.
async fn hand(world: Arc<World>, mut random: Random) {
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), &world.namespace);
    loop {
        sleep(Duration::from_millis(300 + random.below(1200))).await;
        // Most live for a few tenths of a second.
        let live = loop {
            let mut all = pods.list(&ListParams::default()).await.unwrap().items;
            all.retain(|pod| pod.metadata.deletion_timestamp.is_none());
            if !all.is_empty() {
                break all;
            }
            sleep(Duration::from_millis(50)).await;
        };
        let index = usize::try_from(random.below(live.len() as u64)).unwrap();
        let pod = &live[index].metadata;
        world.take(pod.labels.as_ref().and_then(|labels| labels.get("manciple.dev/run")));
        let _ = pods.delete(pod.name.as_deref().unwrap(), &DeleteParams::default()).await;
    }
}

/// With a replica that nothing goes wrong with: all ended as was said, and nothing is left behind.
pub(crate) async fn check(world: &Arc<World>, fleet: &Fleet, users: Vec<User>, policy: Policy) {
    // Its tombstones are old at once; those that are needed were asked for before.
    let character =
        |policy: Policy, skew| Character { policy, skew, ..Character::well("at-the-end") };
    let replica = Replica::open(world, character(policy.clone(), 0)).await.expect("a replica");
    fleet.set(0, Some(replica.answers()));
    for mut user in users {
        user.look_back().await;
    }
    if world.sells.several {
        brokers::check(world, &replica).await;
    }
    drop(replica);
    let old = Policy { tombstones: Duration::ZERO, ..policy };
    let replica = Replica::open(world, character(old, 3_600_000)).await.expect("a replica");
    let begun = Instant::now();
    loop {
        for engine in replica.engines.all() {
            let engine = engine.clone();
            let swept = replica.handle().spawn(async move { engine.sweep_once().await });
            swept.await.unwrap().unwrap();
        }
        let left = left(world).await;
        if left.is_empty() {
            return;
        }
        assert!(begun.elapsed() < CLEAN, "left behind in {}: {left:#?}", world.namespace);
        sleep(Duration::from_millis(250)).await;
    }
}

/// What should not be there, by kind and name.
async fn left(world: &World) -> Vec<String> {
    let all = ListParams::default();
    let mut left = Vec::new();
    for kind in Kind::ALL {
        let api: Api<DynamicObject> =
            Api::namespaced_with(world.client.clone(), &world.namespace, &kind.resource());
        for found in api.list(&all).await.unwrap() {
            let record = found.metadata.annotations.as_ref().and_then(|it| it.get(names::RECORD));
            left.push(format!(
                "{} {:?} {record:?} {}",
                kind.name(),
                found.metadata.name,
                found.data
            ));
        }
    }
    macro_rules! look {
        ($kind:ty, $kept:expr) => {
            let api: Api<$kind> = Api::namespaced(world.client.clone(), &world.namespace);
            let kept: &[&str] = $kept;
            for found in api.list(&all).await.unwrap() {
                let name = found.metadata.name.unwrap_or_default();
                if !kept.iter().any(|prefix| name.starts_with(prefix)) {
                    let owners = found.metadata.owner_references.unwrap_or_default();
                    let owners: Vec<_> = owners.iter().map(|it| (&it.kind, &it.name)).collect();
                    left.push(format!("{} {name} of {owners:?}", stringify!($kind)));
                }
            }
        };
    }
    look!(Job, &[]);
    look!(Pod, &[]);
    look!(Secret, &["keys-"]);
    look!(ConfigMap, &["catalog-", "kube-root-ca", "agent-"]);
    look!(Role, &[]);
    look!(RoleBinding, &[]);
    left
}
