//! The real controller before an API server of the test's own, killed by SIGKILL at its n-th call, before that takes
//! effect and after it: whoever is started then ends each run, and begins none again.
//!
//! `MANCIPLE_CALLS=1` has it die at each of its calls; otherwise it is every sixth. `MANCIPLE_OLDER=/path/to/manciple` has
//! one of this build follow one of that, and the other way round.

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kubernetes::quarks::Dialect;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::{Value, json};
use support::builds::successions;
use support::deaths::at_calls;
use support::{Served, Site};
use testkit::attempts::Attempts;
use testkit::cluster;
use testkit::kubelet::{JobAct, Kubelet};
use testkit::plane::ControlPlane;
use testkit::proxy::{Plan, Proxy};
use tokio::runtime::Runtime;
use tokio::time::sleep;

const PATIENCE: Duration = Duration::from_secs(120);
/// How long what is left over may take to go: the garbage collector looks each half minute which kinds there are.
const CLEAN: Duration = Duration::from_secs(180);
const LOOK: Duration = Duration::from_millis(100);
/// In which users say something that nobody hears.
const UNHEARD: Duration = Duration::from_millis(300);
/// In which a run for nothing would begin: several times as long as a changed configuration has to be quiet.
const QUIET: Duration = Duration::from_millis(500);
const SETTLE: &str = "100ms";

/// Something that a user has run.
#[derive(Debug, Clone, Copy)]
struct Thing {
    name: &'static str,
    dialect: Dialect,
    /// What its first run is for.
    strategy: &'static str,
    /// What its second run is for, if it has one.
    then: Option<Cause>,
    /// Each run leaves a version; else the last is written over.
    versioned: bool,
    /// A sidecar reads its output: no command is known that could be wrapped.
    sidecar: bool,
}

/// What a run is for that is not the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Told,
    /// The ConfigMap that it refers to changes.
    Changed,
}

const ONCE: Thing = Thing {
    name: "once",
    dialect: Dialect::QuarksJob,
    strategy: "once",
    then: None,
    versioned: true,
    sidecar: false,
};
const AGAIN: Thing =
    Thing { name: "again", strategy: "now", then: Some(Cause::Told), versioned: false, ..ONCE };
const FOLLOWS: Thing = Thing { name: "follows", then: Some(Cause::Changed), ..ONCE };
const PRINTS: Thing =
    Thing { name: "prints", dialect: Dialect::ExtendedJob, versioned: false, ..ONCE };
const BESIDE: Thing = Thing { name: "beside", sidecar: true, ..ONCE };

/// What is run in each life, by the name of the life.
const LIVES: [(&str, &[Thing]); 2] =
    [("told", &[ONCE, AGAIN]), ("followed", &[FOLLOWS, PRINTS, BESIDE])];

impl Thing {
    fn runs(self) -> usize {
        1 + usize::from(self.then.is_some())
    }

    fn follows(self) -> bool {
        self.then == Some(Cause::Changed)
    }

    /// The Secrets that so many runs leave, and of which run each is.
    fn kept(self, runs: usize) -> Vec<(String, usize)> {
        let name = self.name;
        match (self.dialect, self.versioned) {
            (_, true) => (1..=runs).map(|run| (format!("{name}-out-v{run}"), run)).collect(),
            (Dialect::QuarksJob, false) => vec![(format!("{name}-out"), runs)],
            (Dialect::ExtendedJob, false) => vec![(format!("{name}-out-c"), runs)],
        }
    }

    fn manifest(self) -> DynamicObject {
        let out = format!("{}-out", self.name);
        let mut container = json!({"name": "c", "image": "none"});
        if !self.sidecar {
            container["command"] = json!(["none"]);
        }
        if self.follows() {
            container["envFrom"] = json!([{"configMapRef": {"name": self.name}}]);
        }
        let pod = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
        let file = json!({"name": out, "versioned": self.versioned});
        let (template, output) = match self.dialect {
            Dialect::QuarksJob => {
                (json!({"spec": {"template": pod}}), json!({"outputMap": {"c": {"o.json": file}}}))
            }
            Dialect::ExtendedJob => (pod, json!({"namePrefix": out})),
        };
        let object = json!({
            "apiVersion": self.dialect.api_version(), "kind": self.dialect.kind(),
            "metadata": {"name": self.name},
            "spec": {
                "trigger": {"strategy": self.strategy}, "updateOnConfigChange": self.follows(),
                "template": template, "output": output,
            },
        });
        serde_json::from_value(object).unwrap()
    }
}

/// A monitored namespace with a kubelet, and nothing else in it.
struct Town {
    runtime: Arc<Runtime>,
    client: Client,
    namespace: String,
    kubelet: Kubelet,
    attempts: Attempts,
    site: Site,
}

impl Town {
    fn new(plane: &ControlPlane, runtime: &Arc<Runtime>, name: &str) -> Self {
        let client = runtime.block_on(kubernetes::client(Some(&plane.kubeconfig()))).unwrap();
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": name, "labels": {
                "quarks.cloudfoundry.org/monitored": name,
                "quarks.cloudfoundry.org/qjob-service-account": "default",
            }}}))
            .unwrap();
        let namespaces = Api::<Namespace>::all(client.clone());
        runtime.block_on(namespaces.create(&PostParams::default(), &namespace)).unwrap();
        let script = Arc::new(|job: &str| JobAct {
            begins: Duration::from_millis(10),
            lasts: Duration::from_millis(30),
            ends: Duration::ZERO,
            code: 0,
            output: json!({"job": job}).to_string(),
        });
        let _entered = runtime.enter();
        let kubelet = Kubelet::start_jobs(client.clone(), name, script);
        let attempts = Attempts::watch(&client, name);
        let (runtime, namespace) = (Arc::clone(runtime), name.to_owned());
        Self { runtime, client, namespace, kubelet, attempts, site: Site::new("") }
    }

    fn command(&self, build: &Path, kubeconfig: &str) -> Command {
        let kubeconfig = self.site.write("kubeconfig", kubeconfig);
        let mut command = Command::new(build);
        command
            .args(["controller", "--listen", "127.0.0.1:0", "--log-format", "json"])
            .env_clear()
            .env("KUBECONFIG", kubeconfig)
            .env("POD_NAMESPACE", &self.namespace)
            .env("MONITORED_ID", &self.namespace)
            .env("MANCIPLE_AGENT_FILE", cluster::packed_agent().unwrap())
            .env("MANCIPLE_SETTLE", SETTLE)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    /// A controller until it is killed at a call, or until all is done; how many calls it made, and whether it was
    /// killed before.
    fn first_life(&self, build: &Path, plan: Plan, done: impl Future<Output = ()>) -> (u64, bool) {
        let proxy = self.runtime.block_on(Proxy::start(self.client.clone(), plan)).unwrap();
        let child = self.command(build, &proxy.kubeconfig()).spawn().unwrap();
        let id = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        let process = pidfd_open(id, PidfdFlags::empty()).unwrap();
        // Until it listens it may be killed, too.
        let served = std::thread::spawn(|| Served::begun(child, false));
        let died = self.runtime.block_on(async {
            tokio::select! {
                () = proxy.died() => true,
                () = done => false,
            }
        });
        let _ = pidfd_send_signal(process, Signal::KILL);
        if let Ok(mut served) = served.join().unwrap() {
            served.kill();
        }
        (proxy.calls(), died)
    }

    /// As if the time of its holder was over.
    fn free_lease(&self) {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let all = (DeleteParams::default(), ListParams::default());
        self.runtime.block_on(leases.delete_collection(&all.0, &all.1)).unwrap();
    }

    fn user(&self) -> User {
        User { client: self.client.clone(), namespace: self.namespace.clone() }
    }

    /// What runs have left: of which Job each Secret is.
    fn kept(&self) -> BTreeMap<String, String> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secrets = self.runtime.block_on(secrets.list(&ListParams::default())).unwrap();
        let of = |secret: Secret| {
            let job = secret.data?.remove("job")?.0;
            Some((secret.metadata.name?, String::from_utf8(job).ok()?))
        };
        secrets.into_iter().filter_map(of).collect()
    }

    /// The Jobs that are there, and the pods that go on: those of runs that have succeeded stay, as with the original.
    fn left(&self) -> Vec<String> {
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), &self.namespace);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let all = ListParams::default();
        let jobs = self.runtime.block_on(jobs.list(&all)).unwrap();
        let pods = self.runtime.block_on(pods.list(&all)).unwrap();
        let goes_on = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            !matches!(phase, Some("Succeeded" | "Failed"))
        };
        let jobs = jobs.into_iter().map(|job| job.metadata);
        let all = jobs.chain(pods.into_iter().filter(goes_on).map(|pod| pod.metadata));
        all.filter_map(|it| it.name).collect()
    }

    /// Each of so many runs had one Job, by its uid, with one pod; what it put out is what is kept, and nothing is left
    /// over.
    fn is_as_it_should_be(&self, ran: &[(Thing, usize)], when: &str) {
        let begin = Instant::now();
        while !self.left().is_empty() {
            assert!(begin.elapsed() < CLEAN, "{when}: left behind: {:?}", self.left());
            std::thread::sleep(LOOK);
        }
        std::thread::sleep(QUIET);
        let mut kept = BTreeMap::new();
        for (thing, runs) in ran {
            let object = self.runtime.block_on(self.user().get(thing));
            let status = &object["status"];
            let history = status["history"].as_array().unwrap();
            assert_eq!(history.len(), *runs, "{when}: {object:#}");
            assert_eq!(status["completed"], true, "{when}: {object:#}");
            let job_of = |run: usize| history[runs - run]["job"].as_str().unwrap().to_owned();
            kept.extend(thing.kept(*runs).into_iter().map(|(name, run)| (name, job_of(run))));
        }
        assert_eq!(self.kept(), kept, "{when}");
        let ledger = self.kubelet.ledger();
        let runs: usize = ran.iter().map(|(_, runs)| runs).sum();
        assert_eq!(ledger.len(), runs, "{when}: a Job for each run: {ledger:?}");
        assert!(ledger.values().all(|run| run.begun.len() == 1), "{when}: {ledger:?}");
        assert_eq!(self.attempts.most(), 1, "{when}: a Job was made again");
        assert!(ledger.values().all(|run| !run.told_early), "{when}: {ledger:?}");
    }
}

/// Somebody who has things run.
#[derive(Clone)]
struct User {
    client: Client,
    namespace: String,
}

impl User {
    /// Has each of these run as often as it is to.
    async fn has_run(self, things: &[Thing]) {
        join_all(things.iter().map(|thing| self.has_one_run(thing))).await;
    }

    async fn has_one_run(&self, thing: &Thing) {
        if thing.follows() {
            self.configures(thing, 1).await;
        }
        let resources = self.resources(thing);
        resources.create(&PostParams::default(), &thing.manifest()).await.unwrap();
        self.sees(thing, 1).await;
        match thing.then {
            None => return,
            Some(Cause::Told) => {
                let now = json!({"spec": {"trigger": {"strategy": "now"}}});
                let (params, now) = (PatchParams::default(), Patch::Merge(now));
                resources.patch(thing.name, &params, &now).await.unwrap();
            }
            Some(Cause::Changed) => self.configures(thing, 2).await,
        }
        self.sees(thing, 2).await;
    }

    /// Writes what a thing refers to, for the run of this number.
    async fn configures(&self, thing: &Thing, run: usize) {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": thing.name}, "data": {"for": run.to_string()},
        });
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let (params, map) = (PatchParams::apply("user").force(), Patch::Apply(&map));
        maps.patch(thing.name, &params, &map).await.unwrap();
    }

    fn resources(&self, thing: &Thing) -> Api<DynamicObject> {
        let resource = thing.dialect.resource();
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    async fn get(&self, thing: &Thing) -> Value {
        let object = self.resources(thing).get(thing.name).await.unwrap();
        serde_json::to_value(object).unwrap()
    }

    /// Waits until so many runs have ended, well.
    async fn sees(&self, thing: &Thing, runs: usize) {
        let begin = Instant::now();
        loop {
            let object = self.get(thing).await;
            let history = object["status"]["history"].as_array().map_or(0, Vec::len);
            if history == runs && object["status"]["completed"] == true {
                return;
            }
            let name = thing.name;
            assert!(begin.elapsed() < PATIENCE, "{name} has not run {runs} times: {object:#}");
            sleep(LOOK).await;
        }
    }
}

/// What each life has in common.
struct Scene<'s> {
    plane: &'s ControlPlane,
    runtime: &'s Arc<Runtime>,
    name: String,
    things: &'static [Thing],
    /// Who is killed, and who follows.
    builds: [PathBuf; 2],
}

impl Scene<'_> {
    /// A life in which the first controller is killed there, or when all has run; how many calls it made, and whether it
    /// was killed at one.
    fn live(&self, death: Option<(u64, bool)>) -> (u64, bool) {
        let when = match death {
            None => format!("{}-never", self.name),
            Some((call, true)) => format!("{}-{call}-after", self.name),
            Some((call, false)) => format!("{}-{call}-before", self.name),
        };
        let [first, second] = &self.builds;
        let town = Town::new(self.plane, self.runtime, &format!("killed-{when}"));
        let user = town.user();
        let (call, effect) = death.unzip();
        let mut has_run = self.runtime.spawn(user.clone().has_run(self.things));
        let plan = Plan { death: call, effect, ..Plan::calm() };
        let mut done = false;
        let (calls, died) = town.first_life(first, plan, async {
            (&mut has_run).await.unwrap();
            done = true;
        });
        town.free_lease();
        let runs = |thing: &Thing| thing.runs() + usize::from(done && thing.follows());
        let ran: Vec<_> = self.things.iter().map(|thing| (*thing, runs(thing))).collect();
        // Nobody hears of this.
        for (thing, runs) in ran.iter().filter(|(thing, _)| done && thing.follows()) {
            self.runtime.block_on(user.configures(thing, *runs));
        }
        std::thread::sleep(UNHEARD);
        let kubeconfig = std::fs::read_to_string(self.plane.kubeconfig()).unwrap();
        let second = Served::start(&mut town.command(second, &kubeconfig)).unwrap();
        let seen = self.runtime.block_on(async {
            if !done {
                has_run.await?;
            }
            let last = ran.clone();
            let sees = async move {
                join_all(last.iter().map(|(thing, runs)| user.sees(thing, *runs))).await;
            };
            tokio::spawn(sees).await
        });
        seen.unwrap_or_else(|error| panic!("{when}: {error}\n{}", second.log()));
        town.is_as_it_should_be(&ran, &when);
        (calls, died)
    }
}

#[test]
fn a_controller_that_is_killed_at_any_call_is_followed_by_one_that_ends_each_run_and_begins_none_again()
 {
    let plane = ControlPlane::start(&kubernetes::definitions()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let runtime = Arc::new(runtime);
    for (place, builds) in successions().into_iter().enumerate() {
        for (name, things) in LIVES {
            println!("{name}: {builds:?}");
            let name = format!("{name}-{place}");
            let scene =
                Scene { plane: &plane, runtime: &runtime, name, things, builds: builds.clone() };
            let (calls, _) = scene.live(None);
            at_calls(calls, 30, |point| scene.live(Some(point)).1);
        }
    }
}
