//! What is deployed, tried on a cluster: the overlays are what the chart says and the server takes them, the
//! rights are those that are written down and no more, and an instance lives through `examples/kubernetes`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::images::{self, Kind};
use crate::{cluster, manifests};

/// What a cluster may not know: `policy/v1` before 1.21, and what an operator installs.
const NOT_EVERYWHERE: [&str; 2] = ["PodDisruptionBudget", "ServiceMonitor"];

/// All of it, with programs that are built.
pub(crate) fn test(kubeconfig: &Path) -> anyhow::Result<()> {
    images::deployment(Kind::Dev)?;
    let cluster = Cluster::of(kubeconfig);
    cluster.run(&["apply", "-k", "deploy/crds"])?;
    let namespace = format!("manciple-deployment-{}", std::process::id());
    cluster.run(&["create", "namespace", &namespace])?;
    let result = overlays(&cluster, &namespace).and_then(|()| rights(&cluster, &namespace));
    cluster.run(&["delete", "namespace", &namespace, "--wait=false"])?;
    result?;
    crate::run(&mut cluster.command("examples/kubernetes/walk.sh"))
}

/// Each overlay, and the values that make the chart say the same.
fn overlays(cluster: &Cluster, namespace: &str) -> anyhow::Result<()> {
    for (overlay, values) in [
        ("minimal", json!({"replicas": 1})),
        ("ha", json!({"antiAffinity": true, "podDisruptionBudget": {"enabled": true}})),
        ("monitoring", json!({"serviceMonitor": {"enabled": true}})),
    ] {
        let made = cluster.run(&["kustomize", &format!("deploy/overlays/{overlay}")])?;
        let made = by_name(manifests::objects(&made)?);
        let said = by_name(objects_of(&values)?);
        for (name, object) in &said {
            ensure!(
                made.get(name) == Some(object),
                "overlay {overlay}: {name} is not what the chart makes of {values}"
            );
        }
        ensure!(made.len() == said.len(), "overlay {overlay}: there are objects without a chart");
        cluster.takes(namespace, made.into_values())?;
    }
    let all = json!({
        "tls": {"secretName": "certificate"},
        "broker": {"configMap": "settings", "secret": "secrets"},
        "imagePullSecrets": ["registry"],
        "config": "operations: {max_runs: 4}",
        "auth": access(),
    });
    cluster.takes(namespace, objects_of(&all)?.into_iter())?;
    let several = json!({"brokers": "apart", "jobNamespaces": ["jobs-a", "jobs-b"]});
    let several = objects_of(&several)?;
    let roles = several.iter().filter(|object| object["kind"] == "Role").count();
    ensure!(roles == 3, "a Role for each namespace with Jobs, and Manciple's own: {roles}");
    cluster.takes(namespace, several.into_iter())
}

/// Who may ask, by everything that needs a right of its own.
fn access() -> Value {
    json!({"secrets": [{"name": "cf", "role": "platform"}], "kubernetes": "access_review: true"})
}

fn objects_of(values: &Value) -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    for text in manifests::chart(values)?.into_values() {
        objects.extend(manifests::objects(&text)?);
    }
    Ok(objects)
}

/// Objects by kind and name; variables in order of their names, for the order is no matter.
fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let named = objects.into_iter().map(|mut object| {
        let variables = object.pointer_mut("/spec/template/spec/containers/0/env");
        if let Some(variables) = variables.and_then(Value::as_array_mut) {
            variables.sort_by_key(|variable| variable["name"].to_string());
        }
        let word = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or("?");
        (format!("{} {}", word("/kind"), word("/metadata/name")), object)
    });
    named.collect()
}

/// What the service account may do is what its roles say, and what every service account may: with the
/// defaults, and with all that is by choice.
fn rights(cluster: &Cluster, namespace: &str) -> anyhow::Result<()> {
    compare(cluster, namespace, &json!({}))?;
    let result = compare(cluster, namespace, &json!({"auth": access()}));
    for kind in ["clusterrole", "clusterrolebinding"] {
        let label = format!("{OF_TEST}={namespace}");
        cluster.run(&["delete", kind, "-l", &label])?;
    }
    result
}

/// A label of what is not of the test's namespace.
const OF_TEST: &str = "manciple.test/namespace";

fn compare(cluster: &Cluster, namespace: &str, values: &Value) -> anyhow::Result<()> {
    let mut objects = objects_of(values)?;
    let kinds = ["ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];
    objects.retain(|object| kinds.iter().any(|kind| object["kind"] == *kind));
    let said: BTreeSet<String> = objects.iter().flat_map(rules).collect();
    cluster.apply(namespace, objects.into_iter(), &[])?;
    let list = |account: &str| -> anyhow::Result<BTreeSet<String>> {
        let who = format!("--as=system:serviceaccount:{namespace}:{account}");
        let groups = "--as-group=system:serviceaccounts";
        let asked = ["-n", namespace, "auth", "can-i", "--list", "--no-headers", &who, groups];
        Ok(cluster.run(&asked)?.lines().map(may).collect())
    };
    let (everybody, manciple) = (list("default")?, list("manciple")?);
    let more: BTreeSet<String> = manciple.difference(&everybody).cloned().collect();
    ensure!(more == said, "the service account may {more:?}, and its roles say {said:?}");
    Ok(())
}

/// The rules of a Role, a resource each, as [`may`] has them; none of anything else.
fn rules(object: &Value) -> Vec<String> {
    let mut said = Vec::new();
    for rule in object["rules"].as_array().into_iter().flatten() {
        let words = |name: &str| -> Vec<String> {
            let words = rule[name].as_array().into_iter().flatten().filter_map(Value::as_str);
            words.map(ToOwned::to_owned).collect()
        };
        let verbs = sorted(words("verbs"));
        for group in words("apiGroups") {
            for resource in words("resources") {
                // pods/log, jobs.batch, serviceinstances.manciple.dev/status
                let (resource, sub) = resource.split_once('/').unwrap_or((&resource, ""));
                let dot = if group.is_empty() { "" } else { "." };
                let slash = if sub.is_empty() { "" } else { "/" };
                said.push(format!("{resource}{dot}{group}{slash}{sub} {verbs}"));
            }
        }
    }
    said
}

/// A line of `kubectl auth can-i --list`: resources or paths, names, verbs.
fn may(line: &str) -> String {
    let what = line.split_once('[').map_or(line, |(what, _)| what).trim();
    let verbs = line.rsplit_once('[').map_or("", |(_, verbs)| verbs).trim().trim_end_matches(']');
    // The columns are as wide as their longest word.
    let whole = || line.split_whitespace().collect::<Vec<_>>().join(" ");
    let rest = if what.is_empty() { whole() } else { what.to_owned() };
    format!("{rest} {}", sorted(verbs.split(' ').map(ToOwned::to_owned).collect()))
}

fn sorted(mut words: Vec<String>) -> String {
    words.sort();
    words.join(" ")
}

/// The cluster, by kubectl.
struct Cluster {
    kubeconfig: std::path::PathBuf,
    path: std::ffi::OsString,
}

impl Cluster {
    /// With the test cluster's kubectl, the oldest there is, else that of the path.
    fn of(kubeconfig: &Path) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let ours = cluster::program("kubectl").filter(|kubectl| kubectl.is_file());
        let folders = ours.as_deref().and_then(Path::parent).map(Path::to_owned).into_iter();
        let path = std::env::join_paths(folders.chain(std::env::split_paths(&path)));
        Self { kubeconfig: kubeconfig.to_owned(), path: path.unwrap_or_default() }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("KUBECONFIG", &self.kubeconfig).env("PATH", &self.path);
        command
    }

    fn run(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.feed(arguments, "")
    }

    fn feed(&self, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        let mut kubectl = self.command("kubectl");
        kubectl.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = kubectl.spawn().context("kubectl cannot be run")?;
        let mut stdin = child.stdin.take().context("kubectl has no input")?;
        stdin.write_all(input.as_bytes())?;
        drop(stdin);
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl {}: {said}", arguments.join(" "));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Insists that the server would take these.
    fn takes(&self, namespace: &str, objects: impl Iterator<Item = Value>) -> anyhow::Result<()> {
        let everywhere =
            objects.filter(|object| !NOT_EVERYWHERE.iter().any(|it| object["kind"] == *it));
        self.apply(namespace, everywhere, &["--dry-run=server"])
    }

    fn apply(
        &self,
        namespace: &str,
        objects: impl Iterator<Item = Value>,
        flags: &[&str],
    ) -> anyhow::Result<()> {
        let moved = objects.map(|mut object| {
            let everywhere =
                object["kind"].as_str().is_some_and(|kind| kind.starts_with("Cluster"));
            if everywhere {
                object["metadata"]["labels"][OF_TEST] = json!(namespace);
            } else {
                object["metadata"]["namespace"] = json!(namespace);
            }
            if let Some(of) = object.pointer_mut("/subjects/0/namespace") {
                *of = json!(namespace);
            }
            object
        });
        let list = json!({"apiVersion": "v1", "kind": "List", "items": moved.collect::<Vec<_>>()});
        self.feed(&[&["apply", "-f", "-"], flags].concat(), &list.to_string()).map(drop)
    }
}
