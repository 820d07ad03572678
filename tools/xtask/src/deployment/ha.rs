//! The overlay `ha` as it is deployed: two replicas become ready, a budget lets one of them be taken away, what one
//! has accepted the other answers for, and a rolling restart loses nothing of what goes on.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::kubectl::Cluster;
use crate::manifests;

const OVERLAY: &str = "deploy/overlays/ha";
const PASSWORD: &str = "of-the-walk";
const PATIENCE: Duration = Duration::from_secs(90);

/// All of it, in a namespace of its own.
pub(super) fn test(cluster: &Cluster) -> anyhow::Result<()> {
    let namespace = format!("manciple-ha-{}", std::process::id());
    let place = Place { cluster, namespace: &namespace };
    cluster.run(&["create", "namespace", &namespace])?;
    let result = place.lives();
    // What could not be removed in order is to go all the same.
    let left = place.run(&["get", "serviceinstances", "-o", "name"]).unwrap_or_default();
    for name in left.lines() {
        let patch = r#"{"metadata":{"finalizers":null}}"#;
        let _ = place.run(&["patch", name, "--type=merge", "-p", patch]);
    }
    cluster.run(&["delete", "namespace", &namespace, "--wait=false"])?;
    result
}

struct Place<'c> {
    cluster: &'c Cluster,
    namespace: &'c str,
}

impl Place<'_> {
    fn run(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.cluster.run(&[&["-n", self.namespace], arguments].concat())
    }

    fn lives(&self) -> anyhow::Result<()> {
        self.deploy()?;
        self.run(&["rollout", "status", "deployment/manciple", "--timeout=120s"])?;
        self.until("one of two may be taken away", |place| {
            let budget = place.get("poddisruptionbudget/manciple")?;
            let status = &budget["status"];
            Ok(status["expectedPods"] == 2 && status["disruptionsAllowed"] == 1)
        })?;
        let pods = self.replicas()?;
        let [one, other] = &pods[..] else { anyhow::bail!("two replicas, not {pods:?}") };
        let first = self.forward(one)?;
        manciple(&first.url, &["provision", "manciple-files", "plain", "shop"])?;
        self.run(&["delete", one, "--wait=false"])?;
        let second = self.forward(other)?;
        let said = manciple(&second.url, &["status", "shop", "-o", "json"])?;
        ensure!(said.contains("ready"), "{other} does not answer for what {one} made: {said}");
        manciple(&second.url, &["deprovision", "shop"])?;
        self.rolls()
    }

    /// The replicas that are ready and are to stay. A port that is forwarded to any other goes with its pod.
    fn replicas(&self) -> anyhow::Result<Vec<String>> {
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

    /// A rolling restart while operations go on: each ends well, by its first attempt.
    fn rolls(&self) -> anyhow::Result<()> {
        let old = self.run_out()?;
        let before = self.forward(&old[0])?;
        let orders: Vec<String> = (0..6).map(|number| format!("rolling-{number}")).collect();
        for name in &orders {
            manciple(&before.url, &["provision", "manciple-files", "plain", name, "--no-wait"])?;
        }
        drop(before);
        self.run(&["rollout", "restart", "deployment/manciple"])?;
        let new = self.run_out()?;
        ensure!(new.iter().all(|pod| !old.contains(pod)), "{old:?} are still there: {new:?}");
        let after = self.forward(&new[0])?;
        for name in &orders {
            self.until(&format!("{name} is ready"), |_| {
                let said = manciple(&after.url, &["status", name, "-o", "json"])?;
                let operation = serde_json::from_str::<Value>(&said)?["operation"].clone();
                ensure!(
                    operation["attempt"] == 1 && operation["state"] != "failed",
                    "{name}: {said}"
                );
                Ok(operation["state"] == "succeeded")
            })?;
        }
        for name in &orders {
            manciple(&after.url, &["deprovision", name])?;
        }
        Ok(())
    }

    /// Waits until a rollout is over, and none of the former replicas is there any more.
    fn run_out(&self) -> anyhow::Result<Vec<String>> {
        self.run(&["rollout", "status", "deployment/manciple", "--timeout=120s"])?;
        self.until("two replicas are there", |place| Ok(place.replicas()?.len() == 2))?;
        self.replicas()
    }

    /// The overlay as it is, but for what it is to sell, and for servers that have no `policy/v1`.
    fn deploy(&self) -> anyhow::Result<()> {
        let settings = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "files"},
            "data": {"files.root": "/tmp"},
        });
        let credentials = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "manciple-credentials"},
            "stringData": {"platform.password": PASSWORD, "operator.password": PASSWORD},
        });
        let made = manifests::objects(&self.cluster.run(&["kustomize", OVERLAY])?)?;
        let known = self.cluster.run(&["api-versions"])?;
        let has_policy = known.lines().any(|version| version == "policy/v1");
        let made =
            made.into_iter().filter(|object| object["kind"] != "Namespace").map(|mut object| {
                match object["kind"].as_str() {
                    Some("PodDisruptionBudget") if !has_policy => {
                        object["apiVersion"] = json!("policy/v1beta1");
                    }
                    Some("Deployment") => {
                        let variables = object.pointer_mut("/spec/template/spec/containers/0/env");
                        if let Some(Value::Array(variables)) = variables {
                            variables.push(json!({"name": "JOBS_CONFIG_MAP", "value": "files"}));
                        }
                    }
                    _ => {}
                }
                object
            });
        self.cluster.apply(self.namespace, [settings, credentials].into_iter().chain(made), &[])
    }

    fn get(&self, what: &str) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.run(&["get", what, "-o", "json"])?)?)
    }

    fn until(
        &self,
        what: &str,
        is_so: impl Fn(&Self) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let begun = Instant::now();
        while !is_so(self)? {
            ensure!(begun.elapsed() < PATIENCE, "it is never so that {what}");
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    fn forward(&self, pod: &str) -> anyhow::Result<Forward> {
        let mut kubectl = self.cluster.command("kubectl");
        kubectl.args(["-n", self.namespace, "port-forward", pod, ":8080"]);
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

/// A way to a pod, until it is dropped.
struct Forward {
    child: Child,
    /// It prints a line for each connection, and ends where nobody can read it.
    said: BufReader<ChildStdout>,
    url: String,
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command, as an operator.
fn manciple(url: &str, arguments: &[&str]) -> anyhow::Result<String> {
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
