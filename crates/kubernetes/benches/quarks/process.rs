//! The controller as a process of its own, and what it takes.

use std::collections::HashSet;
use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, PostParams, WatchEvent, WatchParams};
use kubernetes::quarks::{Controller, Dialect, Monitored, Settings, WORKERS};
use kubernetes::{Client, Delivery, Lead};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A variable: commands are not wrapped.
const SIDECAR: &str = "QUARKS_SIDECAR";
/// A variable: the program `manciple` that is measured as the controller, instead of this one.
const PROGRAM: &str = "CONTROLLER_BINARY";
pub(crate) const COMMAND: &str = "controller";

/// What the child does.
pub(crate) async fn run(kubeconfig: &str, namespace: &str, monitored: &str) {
    let client = kubernetes::client(Some(Path::new(kubeconfig))).await.unwrap();
    let delivery = match testkit::cluster::packed_agent() {
        Ok(path) => Delivery::ConfigMap(kubernetes::PackedAgent::read(&path).unwrap()),
        Err(_) => Delivery::from("agent"),
    };
    let settings = Settings {
        namespace: namespace.to_owned(),
        name: "bench".to_owned(),
        monitored: Monitored::Marked(monitored.to_owned()),
        delivery,
        settle: Duration::from_secs(1),
        workers: WORKERS,
        key_rotation: Duration::from_secs(30 * 24 * 3600),
        wraps: std::env::var_os(SIDECAR).is_none(),
        strict: false,
        verbatim_prefixes: false,
        immutable_versions: true,
        mends_definitions: false,
        agent_resources: None,
    };
    let lead = Arc::new(Lead::new(client.clone(), namespace, "bench", "bench"));
    let controller = Controller::open(client, settings).await.unwrap();
    let keeps = Arc::clone(&lead);
    tokio::spawn(async move { keeps.keep().await });
    let told = Arc::clone(&controller);
    tokio::spawn(async move {
        while !told.is_ready() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        std::fs::write(ready(std::process::id()), "").unwrap();
    });
    controller.run(lead).await;
}

fn ready(pid: u32) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("quarks-bench-{pid}"))
}

/// Ends with the bench.
pub(crate) struct Process(Child);

impl Process {
    /// Starts it, and waits until it knows everything.
    pub(crate) async fn start(kubeconfig: &Path, namespace: &str, monitored: &str) -> Self {
        let sidecar = std::env::var_os(SIDECAR).is_some();
        Self::start_with(kubeconfig, namespace, monitored, sidecar).await
    }

    /// The same, where output is gathered by a sidecar, or not.
    pub(crate) async fn start_with(
        kubeconfig: &Path,
        namespace: &str,
        monitored: &str,
        sidecar: bool,
    ) -> Self {
        if let Some(program) = std::env::var_os(PROGRAM) {
            let mut command = Command::new(program);
            command
                .arg("controller")
                .env("KUBECONFIG", kubeconfig)
                .env("POD_NAMESPACE", namespace)
                .env("MONITORED_ID", monitored)
                .env("MANCIPLE_MONITORED", "marked")
                .env("MANCIPLE_AGENT_FILE", testkit::cluster::packed_agent().unwrap());
            return Self::given_away(command, sidecar).await;
        }
        let program = std::env::current_exe().unwrap();
        let mut command = Command::new(program);
        command.arg(COMMAND).arg(kubeconfig).args([namespace, monitored]);
        match sidecar {
            true => command.env(SIDECAR, "1"),
            false => command.env_remove(SIDECAR),
        };
        let process = Self(command.spawn().unwrap());
        while !ready(process.0.id()).is_file() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        std::fs::remove_file(ready(process.0.id())).unwrap();
        process
    }

    /// The program as people have it.
    async fn given_away(mut command: Command, sidecar: bool) -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        command.env("MANCIPLE_LISTEN", address.to_string()).env("LOG_LEVEL", "error");
        if sidecar {
            command.env("MANCIPLE_ALWAYS_SIDECAR", "true");
        }
        let mut process = Self(command.spawn().unwrap());
        while !is_ready(address) {
            assert!(process.0.try_wait().unwrap().is_none(), "the controller has ended");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        process
    }

    /// Resident, now and at most, in MB.
    pub(crate) fn memory(&self) -> (f64, f64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let of = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() * 1024.0 / 1e6
        };
        (of("VmRSS"), of("VmHWM"))
    }

    /// CPU time until now, in seconds.
    pub(crate) fn cpu(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        let after = stat.rsplit(')').next().unwrap();
        let fields: Vec<&str> = after.split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
        ticks / 100.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_ready(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let asked = stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let mut answer = String::new();
    let heard = asked.and_then(|()| stream.read_to_string(&mut answer));
    heard.is_ok() && answer.starts_with("HTTP/1.1 200")
}

/// A namespace that is monitored under its own name, if it is to be.
pub(crate) async fn namespace(client: &Client, name: &str, monitored: bool) {
    let mut object = json!({"metadata": {"name": name}});
    if monitored {
        object["metadata"]["labels"] = json!({"quarks.cloudfoundry.org/monitored": name});
    }
    let object: Namespace = serde_json::from_value(object).unwrap();
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &object).await.unwrap();
}

pub(crate) fn resources(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &Dialect::QuarksJob.resource())
}

/// Creates one.
pub(crate) async fn create(client: &Client, namespace: &str, name: &str, spec: Value) {
    let object = json!({
        "apiVersion": Dialect::QuarksJob.api_version(), "kind": Dialect::QuarksJob.kind(),
        "metadata": {"name": name}, "spec": spec,
    });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    resources(client, namespace).create(&PostParams::default(), &object).await.unwrap();
}

pub(crate) fn is_completed(quarks_job: &DynamicObject) -> bool {
    quarks_job.data["status"]["completed"] == true
}

/// Waits until `count` of them are over, by a watch: who asks again and again is measured with what is asked about.
pub(crate) async fn until_over<K>(api: &Api<K>, count: usize, is_over: impl Fn(&K) -> bool)
where
    K: kube::Resource + Clone + DeserializeOwned + Debug,
{
    let mut over = HashSet::new();
    loop {
        let events = api.watch(&WatchParams::default(), "0").await.unwrap();
        pin_mut!(events);
        while let Some(Ok(event)) = events.next().await {
            if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event
                && is_over(&object)
            {
                over.insert(object.name_any());
            }
            if over.len() >= count {
                return;
            }
        }
    }
}

pub(crate) fn median(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort();
    (times[times.len() / 2], *times.last().unwrap())
}

pub(crate) fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split_whitespace().next().unwrap_or_default().to_owned()
}
