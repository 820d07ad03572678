//! A deployment under test, mostly an overlay, in a namespace of its own.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::kubectl::Cluster;
use crate::manifests::{self, RELEASE};

pub(super) const PASSWORD: &str = "of-the-walk";
/// How long anything may take here, on a busy machine: a run waits for a pod, and perhaps for a Lease.
const PATIENCE: Duration = Duration::from_secs(300);
/// The same patience, as an option of kubectl.
pub(super) const TIMEOUT: &str = "--timeout=300s";

/// A namespace for a deployment under test.
pub(super) struct Place<'c> {
    cluster: &'c Cluster,
    /// The name of the deployment: that of the overlay, if it is one.
    name: &'c str,
    namespace: String,
}

impl<'c> Place<'c> {
    /// Runs a test of a deployment, of `deploy/overlays/<name>` if it is an overlay, in a namespace that is removed
    /// after it, however it ends.
    pub(super) fn with(
        cluster: &'c Cluster,
        name: &'c str,
        tried: impl FnOnce(&Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let namespace = format!("manciple-{name}-{}", std::process::id());
        let place = Self { cluster, name, namespace };
        cluster.run(&["create", "namespace", &place.namespace])?;
        let result = tried(&place);
        // What could not be removed in order is to go all the same.
        let left = place.run(&["get", "serviceinstances", "-o", "name"]).unwrap_or_default();
        for name in left.lines() {
            let patch = r#"{"metadata":{"finalizers":null}}"#;
            let _ = place.run(&["patch", name, "--type=merge", "-p", patch]);
        }
        cluster.run(&["delete", "namespace", &place.namespace, "--wait=false"])?;
        result
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(super) fn run(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.cluster.run(&[&["-n", &self.namespace], arguments].concat())
    }

    /// kubectl, not yet started.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut kubectl = self.program("kubectl");
        kubectl.args(["-n", &self.namespace]).args(arguments);
        kubectl
    }

    /// A program with access to the cluster, not yet started.
    pub(super) fn program(&self, name: &str) -> Command {
        self.cluster.command(name)
    }

    /// The objects that an installation needs, and what it sells.
    pub(super) fn needed(&self) -> [Value; 2] {
        let settings = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "files"},
            "data": {"files.root": "/tmp"},
        });
        let credentials = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "manciple-credentials"},
            "stringData": {"platform.password": PASSWORD, "operator.password": PASSWORD},
        });
        [settings, credentials]
    }

    /// The replicas that are ready and stay. A port that is forwarded to another goes with its pod.
    pub(super) fn replicas(&self) -> anyhow::Result<Vec<String>> {
        let pods = self.get("pods")?;
        let of_ours = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array();
            let is_ready =
                |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
            pod["metadata"]["labels"]["app.kubernetes.io/name"] == "manciple"
                && pod["metadata"]["deletionTimestamp"].is_null()
                && conditions.is_some_and(|all| all.iter().any(is_ready))
        };
        let pods = pods["items"].as_array().into_iter().flatten().filter(of_ours);
        let named =
            |pod: &Value| format!("pod/{}", pod["metadata"]["name"].as_str().unwrap_or_default());
        Ok(pods.map(named).collect())
    }

    /// Waits until a rollout is over, and none of the former replicas is there any more.
    pub(super) fn run_out(&self, replicas: usize) -> anyhow::Result<Vec<String>> {
        self.is_rolled_out()?;
        let so_many = format!("there are {replicas} replicas");
        self.until(&so_many, |place| Ok(place.replicas()?.len() == replicas))?;
        self.replicas()
    }

    /// Waits until Kubernetes says that the rollout is over.
    pub(super) fn is_rolled_out(&self) -> anyhow::Result<()> {
        self.run(&["rollout", "status", "deployment/manciple", TIMEOUT]).map(drop)
    }

    /// Deploys the overlay as it is, but for what it sells, and for servers that have no `policy/v1`.
    pub(super) fn deploy(&self) -> anyhow::Result<()> {
        self.deploy_with(&json!({}), &[])
    }

    /// Does as [`Self::deploy`], with further members of `manciple.yaml`, and the objects that these name: by
    /// `kubectl apply -k`, as an overlay on it.
    pub(super) fn deploy_with(&self, members: &Value, named: &[Value]) -> anyhow::Result<()> {
        let env = json!([{"name": "JOBS_CONFIG_MAP", "value": "files"}]);
        let container = json!({"name": "manciple", "env": env});
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "manciple", "namespace": RELEASE},
            "spec": {"template": {"spec": {"containers": [container]}}},
        });
        let resources: Vec<Value> =
            self.needed().into_iter().chain(named.iter().cloned()).collect();
        let patches = [self.settings(members)?, vec![deployment]].concat();
        let folder = self.overlaid(&resources, &patches)?;
        self.run(&["apply", "-k", folder.to_str().context("the name of a folder")?]).map(drop)
    }

    /// The folder of a test's overlay, as an operator writes it, on a copy of this one, which is unchanged unless the
    /// server has no `policy/v1`.
    fn overlaid(&self, resources: &[Value], patches: &[Value]) -> anyhow::Result<PathBuf> {
        let root = crate::built(&format!("deployed-{}", self.name))?;
        if root.exists() {
            std::fs::remove_dir_all(&root)?;
        }
        let known = self.cluster.run(&["api-versions"])?;
        let has_policy = known.lines().any(|version| version == "policy/v1");
        let overlay = format!("overlays/{}", self.name);
        for folder in ["base", &overlay] {
            std::fs::create_dir_all(root.join(folder))?;
            for file in std::fs::read_dir(Path::new("deploy").join(folder))? {
                let file = file?;
                let mut text = std::fs::read_to_string(file.path())?;
                if !has_policy {
                    text = text.replace(
                        "apiVersion: policy/v1\nkind: PodDisruptionBudget\n",
                        "apiVersion: policy/v1beta1\nkind: PodDisruptionBudget\n",
                    );
                }
                std::fs::write(root.join(folder).join(file.file_name()), text)?;
            }
        }
        let ours = root.join("ours");
        std::fs::create_dir_all(&ours)?;
        let write = |what: &str, objects: &[Value]| -> anyhow::Result<Vec<String>> {
            let mut names = Vec::new();
            for (number, object) in objects.iter().enumerate() {
                let name = format!("{what}-{number}.yaml");
                std::fs::write(ours.join(&name), object.to_string())?;
                names.push(name);
            }
            Ok(names)
        };
        let kustomization = json!({
            "namespace": self.namespace,
            "bases": [format!("../{overlay}")],
            "resources": write("resource", resources)?,
            "patchesStrategicMerge": write("patch", patches)?,
        });
        std::fs::write(ours.join("kustomization.yaml"), kustomization.to_string())?;
        Ok(ours)
    }

    /// The objects of the overlay, as kustomize renders them.
    pub(super) fn overlay(&self) -> anyhow::Result<Vec<Value>> {
        let overlay = format!("deploy/overlays/{}", self.name);
        manifests::objects(&self.cluster.run(&["kustomize", &overlay])?)
    }

    /// Its ConfigMap, with further members of `manciple.yaml`.
    fn settings(&self, members: &Value) -> anyhow::Result<Vec<Value>> {
        let mut settings = self.overlay()?;
        settings.retain(|object| {
            object["kind"] == "ConfigMap" && object["metadata"]["name"] == "manciple"
        });
        let members = members.as_object().into_iter().flatten();
        let members: String = members.map(|(name, value)| format!("{name}: {value}\n")).collect();
        for object in &mut settings {
            if let Some(Value::String(text)) = object.pointer_mut("/data/manciple.yaml") {
                text.push_str(&members);
            }
        }
        Ok(settings)
    }

    /// Changes members of `manciple.yaml`, and so the pod template: the replicas are replaced.
    pub(super) fn change(&self, members: &Value) -> anyhow::Result<()> {
        self.cluster.apply(&self.namespace, self.settings(members)?.into_iter(), &[])?;
        let annotations = json!({"manciple.test/settings": members.to_string()});
        let template = json!({"metadata": {"annotations": annotations}});
        let patch = json!({"spec": {"template": template}}).to_string();
        self.run(&["patch", "deployment/manciple", "--type=merge", "-p", &patch]).map(drop)
    }

    /// Adds a cluster-wide definition, and waits until it is served.
    pub(super) fn define(&self, definition: Value) -> anyhow::Result<()> {
        let name = format!("crd/{}", definition["metadata"]["name"].as_str().unwrap_or_default());
        self.apply(definition, &[])?;
        self.run(&["wait", "--for=condition=Established", &name, TIMEOUT]).map(drop)
    }

    pub(super) fn apply(&self, object: Value, flags: &[&str]) -> anyhow::Result<()> {
        self.cluster.apply(&self.namespace, [object].into_iter(), flags)
    }

    pub(super) fn get(&self, what: &str) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.run(&["get", what, "-o", "json"])?)?)
    }

    pub(super) fn until(
        &self,
        what: &str,
        is_so: impl Fn(&Self) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        self.awaited(what, |place| Ok(is_so(place)?.then_some(())))
    }

    /// The same, and what was seen of it.
    pub(super) fn awaited<T>(
        &self,
        what: &str,
        look: impl Fn(&Self) -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let begun = Instant::now();
        loop {
            if let Some(seen) = look(self)? {
                return Ok(seen);
            }
            ensure!(begun.elapsed() < PATIENCE, "it is never so that {what}");
            std::thread::sleep(Duration::from_millis(600));
        }
    }

    pub(super) fn forward(&self, pod: &str) -> anyhow::Result<Forward> {
        let mut kubectl = self.command(&["port-forward", pod, ":8080"]);
        let mut child = kubectl.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().context("kubectl prints nothing")?;
        let mut forward = Forward { child, said: BufReader::new(output), url: String::new() };
        let mut line = String::new();
        forward.said.read_line(&mut line)?;
        let port = line.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next());
        forward.url =
            format!("http://127.0.0.1:{}", port.with_context(|| format!("{pod}: {line}"))?);
        Ok(forward)
    }
}

/// A forwarded port to a pod, until it is dropped.
pub(super) struct Forward {
    child: Child,
    /// The stdout of kubectl, which prints a line for each connection, and ends if nobody can read it.
    said: BufReader<ChildStdout>,
    pub(super) url: String,
}

impl Forward {
    /// Whether kubectl does not forward the port any more.
    pub(super) fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a platform's request; returns the status of the answer, `None` if nobody answers.
pub(super) fn ask(url: &str, method: &str, path: &str, body: &str) -> anyhow::Result<Option<u16>> {
    let output = Command::new("curl")
        .args(["--silent", "--output", "/dev/null", "--write-out", "%{http_code}"])
        .args(["--max-time", "60", "--request", method, "--user"])
        .arg(format!("platform:{PASSWORD}"))
        .args(["--header", "X-Broker-API-Version: 2.17"])
        .args(["--header", "Content-Type: application/json"])
        .args((!body.is_empty()).then_some(["--data", body]).iter().flatten())
        .arg(format!("{url}/v2/{path}"))
        .output()?;
    let code = String::from_utf8(output.stdout)?.parse()?;
    Ok(output.status.success().then_some(code))
}

/// Runs the command `manciple`, as an operator.
pub(super) fn manciple(url: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(crate::built("manciple")?)
        .args(arguments)
        .env("MANCIPLE_URL", url)
        .env("MANCIPLE_USER", "operator")
        .env("MANCIPLE_PASSWORD", PASSWORD)
        .stdin(Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "manciple {arguments:?}: {said}");
    Ok(String::from_utf8(output.stdout)?)
}
