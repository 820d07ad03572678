//! Access to a cluster by kubectl.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::{cluster, manifests};

/// The label of a test's objects outside of its namespace, which names that namespace.
pub(crate) const OF_TEST: &str = "manciple.test/namespace";
/// The APIs that a cluster may not know: `policy/v1` before 1.21, and those that an operator installs.
const NOT_EVERYWHERE: [&str; 4] =
    ["PodDisruptionBudget", "ServiceMonitor", "Certificate", "Issuer"];
/// The cluster-wide kinds whose names do not begin with `Cluster`.
const OF_CLUSTER: [&str; 2] = ["CustomResourceDefinition", "MutatingWebhookConfiguration"];

/// Whether an object is cluster-wide.
pub(crate) fn is_of_cluster(object: &Value) -> bool {
    let kind = object["kind"].as_str().unwrap_or_default();
    kind.starts_with("Cluster") || OF_CLUSTER.contains(&kind)
}

/// The cluster.
pub(crate) struct Cluster {
    kubeconfig: std::path::PathBuf,
    path: std::ffi::OsString,
}

impl Cluster {
    /// A cluster with the test cluster's kubectl, the oldest supported, or else that of the path.
    pub(crate) fn of(kubeconfig: &Path) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let ours = cluster::program("kubectl").filter(|kubectl| kubectl.is_file());
        let folders = ours.as_deref().and_then(Path::parent).map(Path::to_owned).into_iter();
        let path = std::env::join_paths(folders.chain(std::env::split_paths(&path)));
        Self { kubeconfig: kubeconfig.to_owned(), path: path.unwrap_or_default() }
    }

    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("KUBECONFIG", &self.kubeconfig).env("PATH", &self.path);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> anyhow::Result<String> {
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

    /// Checks that the server would accept these objects.
    pub(crate) fn takes(
        &self,
        namespace: &str,
        objects: impl Iterator<Item = Value>,
    ) -> anyhow::Result<()> {
        let everywhere =
            objects.filter(|object| !NOT_EVERYWHERE.iter().any(|it| object["kind"] == *it));
        self.apply(namespace, everywhere, &["--dry-run=server"])
    }

    /// Applies these objects in a namespace, whatever namespace they say.
    pub(crate) fn apply(
        &self,
        namespace: &str,
        objects: impl Iterator<Item = Value>,
        flags: &[&str],
    ) -> anyhow::Result<()> {
        let moved = objects.map(|mut object| {
            if !is_of_cluster(&object) {
                object["metadata"]["namespace"] = json!(namespace);
            }
            if let Some(of) = object.pointer_mut("/subjects/0/namespace") {
                *of = json!(namespace);
            }
            object
        });
        self.put(namespace, moved, flags)
    }

    /// Applies these objects in the namespaces that they say, labelled as made by the test of this namespace.
    pub(crate) fn install(
        &self,
        namespace: &str,
        objects: impl Iterator<Item = Value>,
    ) -> anyhow::Result<()> {
        self.put(namespace, objects, &[])
    }

    fn put(
        &self,
        namespace: &str,
        objects: impl Iterator<Item = Value>,
        flags: &[&str],
    ) -> anyhow::Result<()> {
        let marked = objects.map(|mut object| {
            if is_of_cluster(&object) {
                object["metadata"]["labels"][OF_TEST] = json!(namespace);
            }
            object
        });
        let list = manifests::list(marked);
        self.feed(&[&["apply", "-f", "-"], flags].concat(), &list.to_string()).map(drop)
    }
}
