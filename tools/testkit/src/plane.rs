//! A control plane of a test's own: etcd, API server and controller manager, on ports of its own.
//!
//! ```text
//! etcd ◀── API server ◀── controller manager: Jobs, and the removal of what has lost its owner
//!              ▲
//!            tests, and a [kubelet](crate::kubelet) that they play
//! ```
//!
//! There is no node but one that a test makes, so no root and nothing of the shared cluster is needed, and any part can
//! be killed or paused. The programs are those that `cargo xtask cluster` keeps. A part ends with the thread that
//! started it, even if that is killed.

mod snapshot;

use std::fs::{self, File};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

pub use self::snapshot::Snapshot;
use crate::cluster;

/// How long the API server may take to be ready.
const READY: Duration = Duration::from_secs(240);
/// The pause between looks, each of which is a process of its own.
const LOOK: Duration = Duration::from_millis(300);
/// How many times a control plane, or its API server, is started before it counts as a failure that it does not start.
const STARTS: u32 = 3;
/// The name of a Job that nothing runs.
const PROBE: &str = "probe";
const TOKEN: &str = "of-a-test";
/// The APIs that are served: those that tests, the tested programs and the server itself use. With all that there are,
/// an API server takes twice the time to start.
const SERVED: &[&str] = &[
    "admissionregistration.k8s.io/v1",
    "api/v1",
    "apiextensions.k8s.io/v1",
    "apiextensions.k8s.io/v1beta1",
    "apiregistration.k8s.io/v1",
    "apps/v1",
    "authentication.k8s.io/v1",
    "authorization.k8s.io/v1",
    "batch/v1",
    "coordination.k8s.io/v1",
    "networking.k8s.io/v1",
    "node.k8s.io/v1",
    "policy/v1beta1",
    "rbac.authorization.k8s.io/v1",
    "scheduling.k8s.io/v1",
    "storage.k8s.io/v1",
];

/// A running control plane. Its state is gone when it is dropped.
pub struct ControlPlane {
    folder: tempfile::TempDir,
    /// The port of the API server.
    port: u16,
    etcd: Part,
    api_server: Part,
    manager: Option<Part>,
}

/// A running program of the control plane.
struct Part {
    name: &'static str,
    command: Command,
    child: Child,
}

impl ControlPlane {
    /// Starts a control plane that knows these kinds: definitions of custom resources.
    ///
    /// # Errors
    /// If the programs are not there, or do not start.
    pub fn start(definitions: &[Value]) -> anyhow::Result<Self> {
        Self::start_with(definitions, &[("controllers", "job,garbagecollector")])
    }

    /// Does as [`Self::start`], without the garbage collector that removes what belonged to something that is gone.
    ///
    /// # Errors
    /// As there.
    pub fn start_without_collector(definitions: &[Value]) -> anyhow::Result<Self> {
        Self::start_with(definitions, &[("controllers", "job")])
    }

    /// Does as [`Self::start`], with a node controller that gives up a node of which it has not heard for some seconds.
    ///
    /// # Errors
    /// As there.
    pub fn start_with_nodes(definitions: &[Value]) -> anyhow::Result<Self> {
        let flags = [
            ("controllers", "job,garbagecollector,nodelifecycle"),
            ("node-monitor-grace-period", "4s"),
            ("node-monitor-period", "1s"),
        ];
        Self::start_with(definitions, &flags)
    }

    /// Starts a control plane, and tries again with other ports: another process may take one that was free just now.
    fn start_with(definitions: &[Value], manager: &[(&str, &str)]) -> anyhow::Result<Self> {
        for _ in 1..STARTS {
            if let Ok(plane) = Self::start_once(definitions, manager) {
                return Ok(plane);
            }
        }
        Self::start_once(definitions, manager)
    }

    fn start_once(definitions: &[Value], manager: &[(&str, &str)]) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("plane-").tempdir()?;
        let [etcd_port, peer_port, port] = free_ports()?;
        let at = |name: &str| folder.path().join(name).display().to_string();
        let key = rcgen::KeyPair::generate()?;
        fs::write(at("accounts.key"), key.serialize_pem())?;
        fs::write(at("accounts.pub"), key.public_key_pem())?;
        fs::write(at("tokens"), format!("{TOKEN},admin,1,system:masters\n"))?;
        fs::write(at("kubeconfig"), kubeconfig(&format!("https://127.0.0.1:{port}")))?;
        let etcd = format!("http://127.0.0.1:{etcd_port}");
        let peer = format!("http://127.0.0.1:{peer_port}");
        let served = SERVED.iter().map(|version| format!("{version}=true"));
        let served: Vec<_> = std::iter::once("api/all=false".to_owned()).chain(served).collect();
        let etcd = Part::start(
            folder.path(),
            "etcd",
            &[
                ("data-dir", &at("etcd")),
                ("listen-client-urls", &etcd),
                ("advertise-client-urls", &etcd),
                ("listen-peer-urls", &peer),
                ("initial-advertise-peer-urls", &peer),
                ("initial-cluster", &format!("default={peer}")),
                // What survives a power cut is not tried here.
                ("unsafe-no-fsync", "true"),
            ],
        )?;
        let api_server = Part::start(
            folder.path(),
            "kube-apiserver",
            &[
                ("etcd-servers", &format!("http://127.0.0.1:{etcd_port}")),
                ("bind-address", "127.0.0.1"),
                ("secure-port", &port.to_string()),
                ("cert-dir", &at("certificates")),
                ("token-auth-file", &at("tokens")),
                ("authorization-mode", "AlwaysAllow"),
                ("anonymous-auth", "false"),
                ("service-cluster-ip-range", "10.246.0.0/16"),
                ("service-account-issuer", "https://kubernetes.default.svc"),
                ("service-account-signing-key-file", &at("accounts.key")),
                ("service-account-key-file", &at("accounts.pub")),
                ("disable-admission-plugins", "ServiceAccount"),
                ("endpoint-reconciler-type", "none"),
                ("enable-priority-and-fairness", "false"),
                ("runtime-config", &served.join(",")),
            ],
        )?;
        let mut plane = Self { folder, port, etcd, api_server, manager: None };
        plane.until_ready()?;
        plane.install(definitions)?;
        // It looks for further kinds only every half minute.
        let kubeconfig = plane.kubeconfig().display().to_string();
        let manager = Part::start(
            plane.folder.path(),
            "kube-controller-manager",
            &[
                manager,
                &[
                    ("kubeconfig", &kubeconfig),
                    ("leader-elect", "false"),
                    ("secure-port", "0"),
                    ("port", "0"),
                    ("kube-api-qps", "500"),
                    ("kube-api-burst", "1000"),
                    ("concurrent-gc-syncs", "4"),
                ],
            ]
            .concat(),
        )?;
        plane.manager = Some(manager);
        plane.until_managed()?;
        Ok(plane)
    }

    /// The path of a kubeconfig with all rights.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// A folder that is removed with the control plane.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Ends the API server by SIGKILL.
    ///
    /// # Errors
    /// If it has ended already.
    pub fn kill_api_server(&mut self) -> anyhow::Result<()> {
        self.api_server.kill()
    }

    /// Starts the API server again, and waits until it is ready.
    ///
    /// # Errors
    /// If it does not become ready.
    pub fn start_api_server(&mut self) -> anyhow::Result<()> {
        self.api_server.start_again()?;
        self.until_ready()
    }

    /// Stops the clock of etcd: it holds its connections and answers nothing.
    ///
    /// # Errors
    /// If it has ended.
    pub fn pause_etcd(&self) -> anyhow::Result<()> {
        self.etcd.signal(Signal::STOP)
    }

    /// Lets etcd go on.
    ///
    /// # Errors
    /// If it has ended.
    pub fn resume_etcd(&self) -> anyhow::Result<()> {
        self.etcd.signal(Signal::CONT)
    }

    /// kubectl, with all rights.
    pub fn kubectl(&self) -> Command {
        let mut kubectl = cluster::kubectl();
        kubectl.env("KUBECONFIG", self.kubeconfig());
        kubectl
    }

    /// Waits until the API server answers, and has its etcd. An API server ends itself where it is too slow to begin, on
    /// a busy machine; it is started again then, as a kubelet would do.
    ///
    /// # Errors
    /// If etcd has ended, or the API server again and again, or that takes minutes.
    pub fn until_ready(&mut self) -> anyhow::Result<()> {
        let (begun, mut starts) = (Instant::now(), 1);
        loop {
            // Until somebody listens, there is nothing to look at.
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                let mut look = self.kubectl();
                look.args(["get", "--raw", "/readyz", "--request-timeout=10s"]);
                if look.output()?.status.success() {
                    return Ok(());
                }
            }
            self.etcd.check(self.folder.path())?;
            match self.api_server.check(self.folder.path()) {
                Err(_) if starts < STARTS => {
                    starts += 1;
                    self.api_server.start_again()?;
                }
                lives => lives?,
            }
            ensure!(begun.elapsed() < READY, "the API server is not ready after {READY:?}");
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until the controller manager acts on Jobs. One that does not find the API server while it starts ends, and
    /// nothing would start it again.
    fn until_managed(&mut self) -> anyhow::Result<()> {
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": PROBE, "namespace": "default"},
            "spec": {"completions": 0, "template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "none", "image": "none"}],
            }}},
        });
        self.create(&job)?;
        let begun = Instant::now();
        loop {
            let mut look = self.kubectl();
            look.args(["-n", "default", "get", "job", PROBE, "-o", "jsonpath={.status.startTime}"]);
            if !look.output()?.stdout.is_empty() {
                break;
            }
            let (folder, manager) = (self.folder.path(), self.manager.as_mut());
            manager.map_or(Ok(()), |manager| manager.check(folder))?;
            ensure!(begun.elapsed() < READY, "nobody acts on Jobs after {READY:?}");
            std::thread::sleep(LOOK);
        }
        let mut delete = self.kubectl();
        delete.args(["-n", "default", "delete", "job", PROBE, "--wait=false"]);
        ensure!(delete.output()?.status.success(), "{PROBE} cannot be removed");
        Ok(())
    }

    fn create(&self, object: &Value) -> anyhow::Result<()> {
        let mut kubectl = self.kubectl();
        kubectl.args(["create", "--validate=false", "-f", "-"]);
        let mut kubectl = kubectl.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let mut input = kubectl.stdin.take().context("kubectl takes no input")?;
        input.write_all(object.to_string().as_bytes())?;
        drop(input);
        ensure!(kubectl.wait()?.success(), "kubectl cannot create what it is given");
        Ok(())
    }

    fn install(&self, definitions: &[Value]) -> anyhow::Result<()> {
        if definitions.is_empty() {
            return Ok(());
        }
        self.create(&json!({"apiVersion": "v1", "kind": "List", "items": definitions}))?;
        let mut wait = self.kubectl();
        let established = ["wait", "--for=condition=Established", "--timeout=120s", "crd", "--all"];
        ensure!(wait.args(established).output()?.status.success(), "a kind is not served");
        Ok(())
    }
}

impl Part {
    fn start(folder: &Path, name: &'static str, flags: &[(&str, &str)]) -> anyhow::Result<Self> {
        let program = cluster::program(name).with_context(|| {
            format!("{name} is not there: `cargo xtask cluster up` builds it once, as root")
        })?;
        // Without unsafe code of ours: util-linux sets the signal for the death of whoever starts it.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program);
        command.args(flags.iter().map(|(flag, value)| format!("--{flag}={value}")));
        // Half of what an API server does here is to collect garbage; memory is to be had.
        command.env("GOGC", "400");
        let log = File::create(folder.join(format!("{name}.log")))?;
        command.current_dir(folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().context("setpriv of util-linux cannot be run")?;
        Ok(Self { name, command, child })
    }

    fn start_again(&mut self) -> anyhow::Result<()> {
        self.child = self.command.spawn()?;
        Ok(())
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        Ok(kill_process(id.context("no process")?, signal)?)
    }

    /// Fails if the program has ended.
    fn check(&mut self, folder: &Path) -> anyhow::Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let log = fs::read_to_string(folder.join(format!("{}.log", self.name))).unwrap_or_default();
        let from = log.char_indices().rev().nth(1500).map_or(0, |(at, _)| at);
        bail!("{} has ended ({status}):\n{}", self.name, &log[from..]);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A kubeconfig for a server: the API server itself, or a [proxy](crate::proxy) before it.
pub fn kubeconfig(server: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
         clusters: [{{name: test, cluster: {{server: \"{server}\", insecure-skip-tls-verify: true}}}}]\n\
         users: [{{name: test, user: {{token: {TOKEN}}}}}]\n\
         contexts: [{{name: test, context: {{cluster: test, user: test}}}}]\n"
    )
}

/// Ports that nobody listens on. Another may take one first; the part that it was for ends then.
fn free_ports<const N: usize>() -> anyhow::Result<[u16; N]> {
    let listeners: Vec<_> =
        (0..N).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}
