//! What users do, through a client that nothing goes wrong with but that the API server may be away: each trigger
//! is one that it has taken, and none is said again before the one before was taken up.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kubernetes::quarks::Dialect;
use serde_json::json;
use testkit::kubelet::{Entry, INPUT};
use testkit::random::Random;
use tokio::time::{Instant, sleep};

use crate::objects::{LOOK, PATIENCE, at, history, open, record, recorded, resources, sure, until};
use crate::shape::{Causes, FANNED, Kept, Policy, Refers, Shape};
use crate::town::Town;

/// How often each says something.
const ROUNDS: u64 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Told to run, again and again.
    Errand,
    /// Changes what it refers to, again and again.
    Follower,
    /// The same while its run goes on.
    Restless,
    /// The same whether a run goes on or not, several times at once, and back to what it was.
    Hasty,
    /// The same, of the versions of a Secret.
    OfVersions,
    /// Runs for pods that are somebody else's.
    OfPods,
    /// As an errand, and somebody takes Jobs and pods away by hand.
    Robbed,
    /// Runs once, and is deleted in mid-run and made anew under its name, again and again.
    Deleted,
    /// Runs once, for something that comes late.
    Late,
    /// Runs when another has succeeded, once or each time.
    Dependent { follows: bool },
    /// Runs at each full minute.
    Timed,
}

pub(crate) struct User {
    pub(crate) town: Arc<Town>,
    pub(crate) random: Random,
    pub(crate) rounds: u64,
    pub(crate) manner: Manner,
    pub(crate) shape: Shape,
    pub(crate) name: String,
    /// How many runs there have to be; of one that depends on another that other's say it.
    pub(crate) triggers: u64,
    /// What each of the runs that it said was told, the first first.
    pub(crate) told: Vec<Option<String>>,
    /// How many triggers were passed over, for they met a run.
    pub(crate) passed_over: u64,
    /// How many changes met a run.
    pub(crate) met: u64,
    /// How often something was changed back to what it was.
    pub(crate) backs: u64,
    /// The full minutes at which it had to run, in seconds since 1970.
    pub(crate) minutes: Vec<i64>,
    /// What one depends on.
    pub(crate) upstream: Option<String>,
}

/// What the names of ExtendedJobs begin with.
pub(crate) const EXTENDED: &str = "x-";
/// What those are named by whose runs may go on until another takes their place.
pub(crate) const HANGING: &str = "hanging";
/// A pod that has not ended after this long never does.
const HANGS: Duration = Duration::from_secs(5);
/// A full minute that is no longer away than this is waited for, in seconds.
const SOON: i64 = 20;
/// How near to a full minute nothing is judged by it, in seconds: it is just looked at.
const NEAR: i64 = 1;

/// Whether two lead all the time, each with a Lease of its own.
pub(crate) fn leads_twice(seed: u64) -> bool {
    seed % 5 == 4
}

impl User {
    pub(crate) fn all(town: &Arc<Town>, random: &Random, seed: u64) -> Vec<Self> {
        let second = match seed % 3 {
            0 => Manner::Robbed,
            1 => Manner::Errand,
            _ => Manner::Deleted,
        };
        let fourth = match seed / 2 % 4 {
            0 => Manner::Late,
            1 => Manner::Timed,
            2 => Manner::Dependent { follows: false },
            _ => Manner::Dependent { follows: true },
        };
        let third = match seed / 5 % 4 {
            0 => Manner::Follower,
            1 => Manner::Hasty,
            2 => Manner::OfVersions,
            _ => Manner::OfPods,
        };
        let manners = [Manner::Errand, second, third, fourth];
        let of = |(number, manner)| {
            let mut shapes = random.part(200 + number);
            let shape = match manner {
                Manner::Robbed => Shape::of_one_robbed(&mut shapes),
                Manner::Deleted => Shape::of_one_deleted(&mut shapes),
                // The trigger of its first releases.
                Manner::OfPods => Shape::of(Dialect::ExtendedJob, &mut shapes),
                _ => Shape::any(&mut shapes),
            };
            Self::new(town, random.part(number), manner, shape, number)
        };
        let mut all: Vec<Self> = (0..).zip(manners).map(of).collect();
        // Of the same kind, or it could not be named.
        if let Manner::Dependent { .. } = fourth {
            let shape = Shape::of(all[0].shape.dialect, &mut random.part(300));
            let other = all[0].name.clone();
            all[3] = Self::new(town, random.part(3), fourth, shape, 3);
            all[3].upstream = Some(other);
        }
        all
    }

    fn new(town: &Arc<Town>, random: Random, manner: Manner, shape: Shape, number: u64) -> Self {
        let prefix = match (shape.dialect, shape.kept) {
            (Dialect::ExtendedJob, _) => EXTENDED.to_owned(),
            (_, Kept::FannedOut { .. }) => format!("{FANNED}-"),
            _ => String::new(),
        };
        let word = match manner {
            Manner::Errand if shape.policy == Policy::Replace => HANGING,
            Manner::Errand => "errand",
            Manner::Follower => "follower",
            Manner::Restless => "restless",
            Manner::Hasty => "hasty",
            Manner::OfVersions => "of-versions",
            Manner::OfPods => "of-pods",
            Manner::Robbed => "robbed",
            Manner::Deleted => "deleted",
            Manner::Late => "late",
            Manner::Dependent { .. } => "dependent",
            Manner::Timed => "timed",
        };
        Self {
            town: Arc::clone(town),
            random,
            rounds: ROUNDS,
            manner,
            shape,
            name: format!("{prefix}{word}-{number}"),
            triggers: 0,
            told: Vec::new(),
            passed_over: 0,
            met: 0,
            backs: 0,
            minutes: Vec::new(),
            upstream: None,
        }
    }

    /// The same user of one that is like this.
    pub(crate) fn of_one_like(self, shape: Shape) -> Self {
        Self { shape, ..self }
    }

    /// One who says something so often.
    pub(crate) fn of_rounds(
        town: &Arc<Town>,
        seed: u64,
        rounds: u64,
        (manner, shape): (Manner, Shape),
        number: u64,
    ) -> Self {
        let random = Random::new(seed).part(number);
        Self { rounds, ..Self::new(town, random, manner, shape, number) }
    }

    /// One who tells a QuarksJob to run.
    pub(crate) fn who_tells(town: &Arc<Town>) -> Self {
        Self::new(town, Random::new(0), Manner::Errand, Shape::usual(), 0)
    }

    pub(crate) async fn run(mut self) -> Self {
        self.pause(600).await;
        match self.manner {
            Manner::Errand | Manner::Robbed => self.errand().await,
            Manner::Deleted => self.deleted().await,
            Manner::Follower | Manner::Restless | Manner::OfVersions => self.follower().await,
            Manner::Hasty => self.hasty().await,
            Manner::OfPods => self.of_pods().await,
            Manner::Late => self.late().await,
            Manner::Dependent { follows } => self.dependent(follows).await,
            Manner::Timed => self.timed().await,
        }
        self
    }

    pub(crate) async fn pause(&mut self, most: u64) {
        sleep(Duration::from_millis(self.random.below(most))).await;
    }

    pub(crate) async fn create(&self, strategy: &'static str, follows: bool) {
        let refers = match self.manner {
            Manner::Follower | Manner::Restless | Manner::Hasty | Manner::Late => {
                Some(Refers::ConfigMap)
            }
            Manner::OfVersions => Some(Refers::Versions),
            _ => None,
        };
        let causes = Causes { strategy, follows, refers, ..Causes::default() };
        self.create_for(&causes).await;
    }

    pub(crate) async fn create_for(&self, causes: &Causes) {
        let object = self.shape.manifest(&self.name, causes);
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let made = || async {
            let params = PostParams::default();
            match self.resources().create(&params, &object).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
                made => made.map(drop),
            }
        };
        sure(made).await;
    }

    pub(crate) fn resources(&self) -> Api<DynamicObject> {
        resources(&self.town, self.shape.dialect)
    }

    async fn config(&self, value: u64) {
        if self.manner == Manner::OfVersions {
            return self.version(value + 1).await;
        }
        self.write(value).await;
    }

    /// Writes its ConfigMap; the resource version that this has then.
    pub(crate) async fn write(&self, value: u64) -> u64 {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": self.name}, "data": {"k": value.to_string()},
        });
        let maps: Api<ConfigMap> = Api::namespaced(self.town.client.clone(), &self.town.namespace);
        let (params, patch) = (PatchParams::apply("user").force(), Patch::Apply(&map));
        let map = sure(|| maps.patch(&self.name, &params, &patch)).await;
        map.metadata.resource_version.unwrap().parse().unwrap()
    }

    pub(crate) async fn get(&self) -> DynamicObject {
        let resources = self.resources();
        let object = sure(|| resources.get(&self.name)).await;
        // As it was when the last run was recorded.
        let open = record(&object)["open"].as_array().map_or(0, Vec::len);
        let overlap = self.shape.policy == Policy::Allow;
        assert!(overlap || open <= 1, "{}: {open} runs at once, {object:#?}", self.name);
        object
    }

    pub(crate) async fn until(
        &self,
        what: &str,
        holds: impl Fn(&DynamicObject) -> bool,
    ) -> DynamicObject {
        let begun = Instant::now();
        loop {
            let object = self.get().await;
            if holds(&object) {
                return object;
            }
            assert!(begun.elapsed() < PATIENCE, "{} is never {what}: {object:#?}", self.name);
            sleep(LOOK).await;
        }
    }

    async fn until_manual(&self) -> DynamicObject {
        self.until("manual", |it| it.data["spec"]["trigger"]["strategy"] == "manual").await
    }

    async fn errand(&mut self) {
        self.create("manual", false).await;
        for round in 0..self.rounds {
            let input = (self.random.below(2) == 0).then(|| format!("round-{round}"));
            let before = self.tell(input.as_deref()).await;
            let runs = match self.shape.policy {
                Policy::Forbid => self.judge(&before).await,
                _ => 1,
            };
            self.triggers += runs;
            self.told.extend((runs == 1).then_some(input));
            if self.manner == Manner::Robbed {
                self.pause(600).await;
                self.rob().await;
            }
            // Those that meet a run are what a policy is for.
            self.pause(if self.shape.policy == Policy::Allow { 1200 } else { 300 }).await;
        }
        while self.manner == Manner::Errand
            && self.shape.policy == Policy::Replace
            && self.hangs().await
        {
            self.tell(None).await;
            self.triggers += 1;
            self.told.push(None);
        }
        self.until_manual().await;
    }

    /// Whether its last run does not end, however long it is waited for.
    async fn hangs(&self) -> bool {
        loop {
            let object = self.until_manual().await;
            if open(&object).is_empty() {
                return false;
            }
            let ledger = self.town.ledger();
            let of_user = ledger.iter().filter(|(job, _)| job.starts_with(&self.name));
            let goes_on = |entry: &Entry| entry.end.is_none() && !entry.halted;
            let mut since =
                of_user.filter(|(_, entry)| goes_on(entry)).filter_map(|(_, it)| it.ran);
            if since.any(|(began, _)| began.elapsed() > HANGS) {
                return true;
            }
            sleep(LOOK).await;
        }
    }

    /// Says `now`, and tells the run this; how it was just before.
    async fn tell(&self, input: Option<&str>) -> DynamicObject {
        let inputs = input.map_or(json!([]), |input| json!([{"name": INPUT, "value": input}]));
        loop {
            let object = self.until_manual().await;
            let patch = json!({
                "metadata": {"resourceVersion": object.metadata.resource_version},
                "spec": {"trigger": {"strategy": "now", "inputs": inputs}},
            });
            let params = PatchParams::default();
            let patched = self.resources().patch(&self.name, &params, &Patch::Merge(patch)).await;
            match patched {
                Ok(_) => return object,
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                // The API server went with the answer: it may have taken it.
                Err(_) => {
                    let now = self.get().await;
                    let is_said = now.data["spec"]["trigger"]["strategy"] == "now";
                    if is_said || recorded(&now) > recorded(&object) {
                        return object;
                    }
                }
            }
        }
    }

    /// How many runs the trigger had: one if it met no run, for it was said of what it was then.
    async fn judge(&mut self, before: &DynamicObject) -> u64 {
        let after = self.until_manual().await;
        let runs = recorded(&after) - recorded(before);
        assert!(runs <= 1, "{}: {runs} runs for one trigger, {after:#?}", self.name);
        let met = open(before);
        assert!(runs == 1 || !met.is_empty(), "{}: passed over for nothing, {after:#?}", self.name);
        self.passed_over += 1 - runs;
        runs
    }

    /// Deletes its Jobs with their pods, or its pods.
    async fn rob(&mut self) {
        let (client, namespace) = (self.town.client.clone(), &self.town.namespace);
        let all = ListParams::default()
            .labels(&format!("quarks.cloudfoundry.org/qjob-name={}", self.name));
        if self.random.below(2) == 0 {
            let jobs: Api<Job> = Api::namespaced(client, namespace);
            for job in sure(|| jobs.list(&all)).await {
                let name = job.metadata.name.unwrap_or_default();
                let _ = jobs.delete(&name, &DeleteParams::background()).await;
            }
        } else {
            let pods: Api<Pod> = Api::namespaced(client, namespace);
            for pod in sure(|| pods.list(&all)).await {
                let name = pod.metadata.name.unwrap_or_default();
                let _ = pods.delete(&name, &DeleteParams::default().grace_period(0)).await;
            }
        }
    }

    /// Whether Jobs of it go that nobody says the end of. Those of one that is deleted go with it; of the one that was
    /// made anew last none does.
    pub(crate) fn is_robbed(&self) -> bool {
        self.manner == Manner::Robbed
    }

    async fn deleted(&mut self) {
        self.create("once", false).await;
        for _ in 1..self.rounds {
            self.pause(1500).await;
            let params = match self.random.below(2) {
                0 => DeleteParams::background(),
                _ => DeleteParams::foreground(),
            };
            let resources = self.resources();
            let uid = self.get().await.metadata.uid;
            let is_gone = || async {
                let _ = resources.delete(&self.name, &params).await;
                let found = resources.get_opt(&self.name).await.ok()?;
                found.is_none_or(|found| found.metadata.uid != uid).then_some(())
            };
            until("gone", is_gone).await;
            self.create("once", false).await;
        }
        self.triggers = 1;
        self.until("done", |it| it.data["spec"]["trigger"]["strategy"] == "done").await;
    }

    async fn follower(&mut self) {
        self.config(0).await;
        self.create("once", true).await;
        self.triggers = 1;
        for round in 1..self.rounds {
            match self.manner {
                Manner::Restless => self.until_it_goes_on().await,
                _ => self.until_it_has_run().await,
            }
            self.pause(500).await;
            self.config(round).await;
            self.triggers += 1;
        }
        self.until_it_has_run().await;
    }

    /// Waits until there was a run for each trigger, and the last has ended.
    pub(crate) async fn until_it_has_run(&self) {
        let runs = self.triggers;
        let has_run = |object: &DynamicObject| history(object).iter().any(|run| run["id"] == runs);
        self.until("that far", has_run).await;
    }

    /// Waits until a pod has begun for each trigger.
    async fn until_it_goes_on(&self) {
        let begun = || async {
            let ledger = self.town.ledger();
            let of_user = ledger.iter().filter(|(job, _)| job.starts_with(&self.name));
            let begun = of_user.filter(|(_, entry)| !entry.begun.is_empty()).count() as u64;
            (begun == self.triggers).then_some(())
        };
        until("under way", begun).await;
    }

    async fn late(&mut self) {
        self.create("once", false).await;
        self.triggers = 1;
        self.pause(3000).await;
        self.config(0).await;
        self.until("done", |it| it.data["spec"]["trigger"]["strategy"] == "done").await;
    }

    async fn dependent(&mut self, follows: bool) {
        let depends_on = self.upstream.clone();
        let causes = Causes { strategy: "once", follows, depends_on, ..Causes::default() };
        self.create_for(&causes).await;
    }

    /// Ends when all minutes until then have had their run, and takes its schedule away.
    async fn timed(&mut self) {
        let schedule = Some("* * * * *");
        self.create_for(&Causes { strategy: "manual", schedule, ..Causes::default() }).await;
        let created = self.get().await.metadata.creation_timestamp.unwrap().0.as_second();
        self.pause(6000).await;
        let now = Timestamp::now().as_second();
        if 60 - now % 60 <= SOON {
            sleep(Duration::from_secs(u64::try_from(60 - now % 60 + 1 + NEAR).unwrap())).await;
        }
        let begun = Instant::now();
        loop {
            let object = self.get().await;
            assert!(begun.elapsed() < PATIENCE, "{} misses its time: {object:#?}", self.name);
            let now = Timestamp::now().as_second();
            let is_near = (now + NEAR) % 60 <= 2 * NEAR;
            let minute = now - now % 60;
            let runs: Vec<i64> = open(&object).iter().map(|run| at(run, "at")).collect();
            let ended = history(&object);
            let ended = ended.iter().map(|run| at(run, "startedAt"));
            let has_run = runs.into_iter().chain(ended).any(|at| at >= minute - NEAR);
            let patch = json!({
                "metadata": {"resourceVersion": object.metadata.resource_version},
                "spec": {"trigger": {"schedule": null}},
            });
            let is_gone = object.data["spec"]["trigger"]["schedule"].is_null();
            if !is_gone && !is_near && (has_run || minute <= created) {
                self.triggers = recorded(&object);
                self.minutes = (created / 60 + 1..=now / 60).map(|minute| minute * 60).collect();
                let params = PatchParams::default();
                let _ = self.resources().patch(&self.name, &params, &Patch::Merge(patch)).await;
            } else if is_gone {
                return;
            } else {
                sleep(LOOK).await;
            }
        }
    }
}
