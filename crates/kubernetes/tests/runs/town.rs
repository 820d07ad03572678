//! One schedule: what goes wrong, and what has to hold at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use engine::trigger::LOST;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use kubernetes::Lead;
use kubernetes::quarks::{Controller, Monitored, Settings};
use serde_json::{Value, json};
use testkit::kubelet::{JobAct, JobScript, Kubelet};
use testkit::plane::ControlPlane;
use testkit::proxy::{Plan, Proxy};
use testkit::random::Random;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::attempts::Attempts;
use crate::seeds::Sum;
use crate::users::{User, resources, sure};

/// For how long things go wrong.
const WRONG: Duration = Duration::from_secs(6);
/// How long a Lease lasts, so that not much is waited for.
const LEASE: Duration = Duration::from_secs(2);
/// How long what is left over may take to go, once all is well.
const CLEAN: Duration = Duration::from_secs(60);
/// The Job controller awaits the pods that it made by the name of their Job: where one was taken away by hand and made
/// again at once, it may leave the new one alone until it has forgotten the old one, after five minutes.
const FORGOTTEN: Duration = Duration::from_secs(330);
/// In which a run for nothing would begin.
const QUIET: Duration = Duration::from_secs(2);
const REPLICAS: usize = 2;

/// What happened.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    deaths: u64,
    calls: u64,
    pub(crate) runs: usize,
    versions: usize,
}

impl Sum for Tally {
    fn add(&mut self, other: &Self) {
        self.deaths += other.deaths;
        self.calls += other.calls;
        self.runs += other.runs;
        self.versions += other.versions;
    }

    fn deaths(&self) -> u64 {
        self.deaths
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Stage {
    Wrong,
    Calm,
    Over,
}

/// Where a control plane is.
#[derive(Clone)]
pub(crate) struct Place {
    kubeconfig: PathBuf,
    folder: PathBuf,
}

impl Place {
    pub(crate) fn of(plane: &ControlPlane) -> Self {
        Self { kubeconfig: plane.kubeconfig(), folder: plane.folder().to_owned() }
    }
}

/// A namespace with a kubelet, and a client that nothing goes wrong with.
pub(crate) struct Town {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    kubelet: Kubelet,
    pub(crate) attempts: Attempts,
    folder: PathBuf,
}

impl Town {
    pub(crate) async fn new(place: &Place, name: &str, script: JobScript) -> Self {
        let client = kubernetes::client(Some(&place.kubeconfig)).await.unwrap();
        let labels = json!({
            "quarks.cloudfoundry.org/monitored": name,
            "quarks.cloudfoundry.org/qjob-service-account": "default",
        });
        let namespace = json!({"metadata": {"name": name, "labels": labels}});
        let namespace: Namespace = serde_json::from_value(namespace).unwrap();
        let namespaces = Api::<Namespace>::all(client.clone());
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let kubelet = Kubelet::start_jobs(client.clone(), name, script);
        let attempts = Attempts::watch(&client, name);
        let (namespace, folder) = (name.to_owned(), place.folder.clone());
        Self { client, namespace, kubelet, attempts, folder }
    }

    /// The kubelet says nothing any more.
    pub(crate) fn stop_kubelet(&mut self) {
        self.kubelet.stop();
    }

    /// How many pods have begun.
    pub(crate) fn begun(&self) -> usize {
        self.kubelet.ledger().values().map(|run| run.begun.len()).sum()
    }
}

/// What pods do, by the seed: one in nine fails.
fn script(seed: u64) -> JobScript {
    Arc::new(move |job: &str| {
        let add = |sum: u64, byte: u8| sum.wrapping_mul(31).wrapping_add(u64::from(byte));
        let turn = job.bytes().fold(seed, add);
        JobAct {
            begins: Duration::from_millis(turn % 60),
            lasts: Duration::from_millis(turn % 400),
            code: i32::from(turn.is_multiple_of(9)),
            output: json!({"job": job}).to_string(),
        }
    })
}

pub(crate) async fn schedule(place: Place, seed: u64, outage: bool) -> Tally {
    let random = Random::new(seed);
    let town = Arc::new(Town::new(&place, &format!("runs-{seed}"), script(seed)).await);
    let stage = watch::Sender::new(Stage::Wrong);
    let mut slots = JoinSet::new();
    for number in 0..REPLICAS {
        let two_leaders = seed % 5 == 4;
        let slot = Slot {
            town: Arc::clone(&town),
            stage: stage.subscribe(),
            random: random.part(100 + number as u64),
            lease: if two_leaders { format!("lease-{number}") } else { "lease".to_owned() },
            seed,
        };
        slots.spawn(slot.keep());
    }
    let mut users = JoinSet::new();
    for user in User::all(&town, &random, seed.is_multiple_of(3)) {
        users.spawn(user.run());
    }
    let mut ended = Vec::new();
    let calm = sleep(WRONG);
    tokio::pin!(calm);
    loop {
        tokio::select! {
            () = &mut calm, if *stage.borrow() == Stage::Wrong => {
                stage.send_replace(Stage::Calm);
            }
            user = users.join_next() => match user {
                Some(Ok(user)) => ended.push(user),
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                None => break,
            },
        }
    }
    stage.send_replace(Stage::Calm);
    let mut tally = Tally::default();
    check(&town, &ended, outage, &mut tally).await;
    stage.send_replace(Stage::Over);
    while let Some(slot) = slots.join_next().await {
        let (deaths, calls) = slot.unwrap();
        tally.deaths += deaths;
        tally.calls += calls;
    }
    tally
}

/// A place for a controller: while things go wrong they die in it, one after another.
struct Slot {
    town: Arc<Town>,
    stage: watch::Receiver<Stage>,
    random: Random,
    lease: String,
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
            let runtime = controller(&self.town, &proxy, &self.lease);
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
        }
    }
}

/// A controller in a runtime of its own, so that it can be ended at once.
pub(crate) fn controller(town: &Town, proxy: &Proxy, lease: &str) -> Runtime {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let kubeconfig = town.folder.join(format!("controller-{count}"));
    std::fs::write(&kubeconfig, proxy.kubeconfig()).unwrap();
    let (namespace, lease) = (town.namespace.clone(), lease.to_owned());
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.spawn(async move {
        let client = kubernetes::client(Some(&kubeconfig)).await.unwrap();
        let settings = Settings {
            namespace: namespace.clone(),
            name: "runs".to_owned(),
            monitored: Monitored::Labelled(namespace.clone()),
            delivery: "agent".into(),
            settle: Duration::from_millis(100),
            workers: 4,
            key_rotation: Duration::from_secs(3600),
            wraps: true,
            strict: false,
            verbatim_prefixes: false,
        };
        let controller = loop {
            match Controller::open(client.clone(), settings.clone()).await {
                Ok(controller) => break controller,
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        };
        let identity = format!("controller-{count}");
        let lead = Lead::new(client, &namespace, &lease, &identity).lasting(LEASE);
        let lead = Arc::new(lead);
        let keeps = Arc::clone(&lead);
        tokio::spawn(async move { keeps.keep().await });
        controller.run(lead).await;
    });
    runtime
}

async fn until_over(stage: &mut watch::Receiver<Stage>, calm: impl Fn()) {
    let _ = stage.wait_for(|stage| *stage >= Stage::Calm).await;
    calm();
    let _ = stage.wait_for(|stage| *stage == Stage::Over).await;
}

/// All ended as was triggered, and nothing is left behind.
pub(crate) async fn check(town: &Town, users: &[User], outage: bool, tally: &mut Tally) {
    // The last run of all has its outcome; then nothing may follow.
    let begun = Instant::now();
    while !left(town).await.is_empty() {
        let waited = begun.elapsed();
        if waited >= FORGOTTEN || waited >= CLEAN && !any_not_looked_at(town).await {
            panic!("left behind: {:#?}", [left(town).await, seen(town).await]);
        }
        sleep(Duration::from_millis(250)).await;
    }
    sleep(QUIET).await;
    let is_robbed =
        |job: &str| users.iter().any(|user| user.is_robbed() && job.starts_with(&user.name));
    town.attempts.assert_one_job_each(|job| !is_robbed(job));
    let ledger = town.kubelet.ledger();
    for user in users {
        let object = user.get().await.data;
        let history = object["status"]["history"].as_array().cloned().unwrap_or_default();
        let ids: Vec<u64> = history.iter().rev().filter_map(|run| run["id"].as_u64()).collect();
        let expected: Vec<u64> = (1..=user.triggers).collect();
        assert_eq!(ids, expected, "{}: {} triggers, {object:#}", user.name, user.triggers);
        let jobs = ledger.iter().filter(|(job, _)| job.starts_with(&format!("{}-", user.name)));
        let begun: BTreeMap<&str, usize> =
            jobs.map(|(job, entry)| (job.as_str(), entry.begun.len())).collect();
        assert!(
            user.may_have(&begun, history.len(), outage),
            "{}: {begun:?} {object:#}",
            user.name
        );
        let last = history.first().map(|run| run["succeeded"].clone()).unwrap_or_default();
        assert_eq!(object["status"]["completed"], last, "{}: {object:#}", user.name);
        tally.runs += history.len();
        tally.versions += versions(town, user, &history).await;
    }
}

/// One for each run that succeeded, with what that run has left.
async fn versions(town: &Town, user: &User, history: &[Value]) -> usize {
    let secrets: Api<Secret> = Api::namespaced(town.client.clone(), &town.namespace);
    let all = ListParams::default();
    let secrets = sure(|| secrets.list(&all)).await.items;
    let of = |secret: &&Secret| {
        secret.metadata.name.as_ref().unwrap().starts_with(&format!("out-{}-v", user.name))
    };
    let text = |secret: &Secret| {
        String::from_utf8(secret.data.as_ref().unwrap()["job"].0.clone()).unwrap()
    };
    let mut kept: Vec<String> = secrets.iter().filter(of).map(text).collect();
    kept.sort();
    let good = history.iter().filter(|run| run["succeeded"] == true);
    let mut expected: Vec<String> =
        good.map(|run| run["job"].as_str().unwrap().to_owned()).collect();
    expected.sort();
    if user.is_robbed() {
        // A Job that was taken after its output was kept, and before anybody could say so, is lost all the same.
        kept.retain(|job| expected.contains(job) || !history.iter().any(|run| run["job"] == **job));
    }
    assert_eq!(kept, expected, "{}", user.name);
    kept.len()
}

/// Whether the Job controller has not looked at a Job yet.
async fn any_not_looked_at(town: &Town) -> bool {
    let jobs: Api<Job> = Api::namespaced(town.client.clone(), &town.namespace);
    let all = ListParams::default();
    let jobs = sure(|| jobs.list(&all)).await.items;
    jobs.iter().any(|job| job.status.as_ref().is_none_or(|status| status.start_time.is_none()))
}

/// How Jobs and pods stand, for whoever looks for the cause.
async fn seen(town: &Town) -> Vec<String> {
    let all = ListParams::default();
    let jobs: Api<Job> = Api::namespaced(town.client.clone(), &town.namespace);
    let jobs = sure(|| jobs.list(&all)).await.items.into_iter();
    let jobs = jobs.map(|job| format!("{:?}: {:?}", job.metadata.name, job.status));
    let pods: Api<Pod> = Api::namespaced(town.client.clone(), &town.namespace);
    let pods = sure(|| pods.list(&all)).await.items.into_iter();
    jobs.chain(pods.map(|pod| format!("{:?}: {:?}", pod.metadata, pod.status))).collect()
}

/// Runs that have not ended, and Jobs of others but those that failed, which stay, by name.
async fn left(town: &Town) -> Vec<String> {
    let jobs: Api<Job> = Api::namespaced(town.client.clone(), &town.namespace);
    let all = ListParams::default();
    let jobs = sure(|| jobs.list(&all)).await.items;
    let mut jobs: BTreeSet<String> = jobs.into_iter().filter_map(|it| it.metadata.name).collect();
    let mut left = Vec::new();
    let resources = resources(town);
    for object in sure(|| resources.list(&all)).await {
        let record =
            object.metadata.annotations.as_ref().and_then(|it| it.get("manciple.dev/runs"));
        let record: Value = serde_json::from_str(record.map_or("{}", String::as_str)).unwrap();
        let history = object.data["status"]["history"].as_array().cloned().unwrap_or_default();
        // A run fails without its Job too, if its output is lost.
        let stays = |run: &&Value| run["succeeded"] == false && run["reason"] != LOST;
        for run in history.iter().filter(stays) {
            jobs.remove(run["job"].as_str().unwrap());
        }
        let ended = |run: &Value| history.iter().any(|it| it["id"] == run["id"]);
        let open = record["open"].as_array().into_iter().flatten().filter(|run| !ended(run));
        left.extend(open.map(|run| format!("{:?}: {run}", object.metadata.name)));
    }
    left.extend(jobs);
    left
}
