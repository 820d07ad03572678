//! The real controller before an API server of the test's own, killed by SIGKILL at its n-th call, before that takes
//! effect and after it: whoever is started then ends each run, and begins none again.
//!
//! `MANCIPLE_CALLS=1` has it die at each of its calls; otherwise it is every sixth.

mod support;

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kubernetes::quarks::Dialect;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::{Value, json};
use support::deaths::at_calls;
use support::{Served, Site};
use testkit::cluster;
use testkit::kubelet::{JobAct, Kubelet};
use testkit::plane::ControlPlane;
use testkit::proxy::{Plan, Proxy};
use tokio::runtime::Runtime;
use tokio::time::sleep;

const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(100);

/// A monitored namespace with a kubelet, and nothing else in it.
struct Town {
    runtime: Arc<Runtime>,
    client: Client,
    namespace: String,
    kubelet: Kubelet,
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
            code: 0,
            output: json!({"job": job}).to_string(),
        });
        let _entered = runtime.enter();
        let kubelet = Kubelet::start_jobs(client.clone(), name, script);
        let runtime = Arc::clone(runtime);
        Self { runtime, client, namespace: name.to_owned(), kubelet, site: Site::new("") }
    }

    fn command(&self, kubeconfig: &str) -> Command {
        let kubeconfig = self.site.write("kubeconfig", kubeconfig);
        let mut command = Command::new(env!("CARGO_BIN_EXE_manciple"));
        command
            .args(["controller", "--listen", "127.0.0.1:0", "--log-format", "json"])
            .env_clear()
            .env("KUBECONFIG", kubeconfig)
            .env("POD_NAMESPACE", &self.namespace)
            .env("MONITORED_ID", &self.namespace)
            .env("MANCIPLE_AGENT_FILE", cluster::packed_agent().unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    /// A controller until it is killed at a call, or until all is done; how many calls it made, and whether it was
    /// killed before.
    fn first_life(&self, plan: Plan, done: impl Future<Output = ()>) -> (u64, bool) {
        let proxy = self.runtime.block_on(Proxy::start(self.client.clone(), plan)).unwrap();
        let child = self.command(&proxy.kubeconfig()).spawn().unwrap();
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
        let resource = Dialect::QuarksJob.resource();
        User(Api::namespaced_with(self.client.clone(), &self.namespace, &resource))
    }

    fn secret(&self, name: &str) -> Option<Value> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secret = self.runtime.block_on(secrets.get_opt(name)).unwrap()?;
        Some(json!(String::from_utf8(secret.data?.remove("job")?.0).unwrap()))
    }

    fn jobs(&self) -> Vec<String> {
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), &self.namespace);
        let jobs = self.runtime.block_on(jobs.list(&ListParams::default())).unwrap();
        jobs.into_iter().filter_map(|job| job.metadata.name).collect()
    }

    /// Each of the three runs had one Job with one pod, and its output is what is kept.
    fn is_as_it_should_be(&self, when: &str) {
        let [versioned, plain] =
            ["once", "again"].map(|name| self.runtime.block_on(self.user().get(name)));
        let job_of = |object: &Value, run: usize| object["status"]["history"][run]["job"].clone();
        assert_eq!(self.secret("once-out-v1"), Some(job_of(&versioned, 0)), "{when}");
        assert_eq!(self.secret("once-out-v2"), None, "{when}");
        assert_eq!(self.secret("again-out"), Some(job_of(&plain, 0)), "{when}");
        for (object, runs) in [(&versioned, 1), (&plain, 2)] {
            let status = &object["status"];
            assert_eq!(status["completed"], true, "{when}: {object:#}");
            assert_eq!(status["history"].as_array().unwrap().len(), runs, "{when}: {object:#}");
        }
        let ledger = self.kubelet.ledger();
        assert_eq!(ledger.len(), 3, "{when}: a Job for each run: {ledger:?}");
        assert!(ledger.values().all(|run| run.begun.len() == 1), "{when}: {ledger:?}");
        let begin = Instant::now();
        while !self.jobs().is_empty() {
            assert!(begin.elapsed() < PATIENCE, "{when}: left behind: {:?}", self.jobs());
            std::thread::sleep(LOOK);
        }
    }
}

/// Somebody who has things run: one thing once, with versions, and another twice.
struct User(Api<DynamicObject>);

impl User {
    async fn has_three_runs(self) {
        let output = |name: &str, versioned: bool| json!({"outputMap": {"c": {"o.json": {"name": name, "versioned": versioned}}}});
        self.create("once", "once", &output("once-out", true)).await;
        self.create("again", "now", &output("again-out", false)).await;
        self.ended("again", 1).await;
        let now = json!({"spec": {"trigger": {"strategy": "now"}}});
        self.0.patch("again", &PatchParams::default(), &Patch::Merge(now)).await.unwrap();
        self.ended("once", 1).await;
        self.ended("again", 2).await;
    }

    async fn create(&self, name: &str, strategy: &str, output: &Value) {
        let container = json!({"name": "c", "image": "none", "command": ["none"]});
        let pod = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
        let object = json!({
            "apiVersion": Dialect::QuarksJob.api_version(), "kind": Dialect::QuarksJob.kind(),
            "metadata": {"name": name},
            "spec": {
                "trigger": {"strategy": strategy}, "output": output,
                "template": {"spec": {"template": pod}},
            },
        });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        self.0.create(&PostParams::default(), &object).await.unwrap();
    }

    async fn get(&self, name: &str) -> Value {
        serde_json::to_value(self.0.get(name).await.unwrap()).unwrap()
    }

    async fn ended(&self, name: &str, runs: usize) {
        let begin = Instant::now();
        loop {
            let object = self.get(name).await;
            let history = object["status"]["history"].as_array().map_or(0, Vec::len);
            if history == runs && object["status"]["completed"] == true {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{name} has not run {runs} times: {object:#}");
            sleep(LOOK).await;
        }
    }
}

/// A life in which the first controller is killed there, or never; how many calls it made, and whether it was killed.
fn live(plane: &ControlPlane, runtime: &Arc<Runtime>, death: Option<(u64, bool)>) -> (u64, bool) {
    let when = match death {
        None => "never".to_owned(),
        Some((call, effect)) => format!("{call}-{}", if effect { "after" } else { "before" }),
    };
    let town = Town::new(plane, runtime, &format!("killed-{when}"));
    let (call, effect) = death.unzip();
    let mut user = runtime.spawn(town.user().has_three_runs());
    let plan = Plan { death: call, effect, ..Plan::calm() };
    let mut done = false;
    let (calls, died) = town.first_life(plan, async {
        (&mut user).await.unwrap();
        done = true;
    });
    town.free_lease();
    let kubeconfig = std::fs::read_to_string(plane.kubeconfig()).unwrap();
    let second = Served::start(&mut town.command(&kubeconfig)).unwrap();
    if !done {
        runtime.block_on(user).unwrap_or_else(|error| panic!("{when}: {error}\n{}", second.log()));
    }
    town.is_as_it_should_be(&when);
    (calls, died)
}

#[test]
fn a_controller_that_is_killed_at_any_call_is_followed_by_one_that_ends_each_run_and_begins_none_again()
 {
    let plane = ControlPlane::start(&kubernetes::resources::definitions()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let runtime = Arc::new(runtime);
    let (calls, _) = live(&plane, &runtime, None);
    at_calls(calls, |point| live(&plane, &runtime, Some(point)).1);
}
