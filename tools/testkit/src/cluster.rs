//! Finds the test cluster: the one that `KUBECONFIG` names, or that of `cargo xtask cluster up`.

use std::path::PathBuf;

/// An image with a shell and the usual small tools, in the cluster of `cargo xtask cluster up`.
pub const SHELL_IMAGE: &str = "manciple.test/busybox:1";

/// The image that runs get the agent from, once `cargo xtask images` has loaded it.
pub const AGENT_IMAGE: &str = "manciple.test/agent:1";

/// An image of a PostgreSQL server, once `cargo xtask images dev` has loaded it. It takes what the usual image takes:
/// POSTGRES_USER, POSTGRES_PASSWORD, POSTGRES_DB and PGDATA, and runs as user 999.
pub const POSTGRES_IMAGE: &str = "manciple.test/postgres:15";

/// An image with a shell and [`BROKER`], once `cargo xtask images dev` has loaded it.
pub const BROKER_IMAGE: &str = "manciple.test/broker:1";

/// A broker of the contract's first version that checks its configuration: it offers nothing unless it has found a
/// key of each kind, as a file and as a variable.
pub const BROKER: &str = include_str!("broker.sh");

/// The image of `examples/postgres`: its script, a shell and psql.
pub const POSTGRES_BROKER_IMAGE: &str = "postgres-broker:dev";

/// How many bytes the keys of a ConfigMap hold together.
pub const CONFIG_MAP_BYTES: usize = 1024 * 1024;

/// The path of the agent as it goes into a ConfigMap.
///
/// # Errors
/// If it was not built; the message says what to do about it.
pub fn packed_agent() -> Result<PathBuf, String> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let path = root.join("target/dist/manciple-agent.packed");
    let why = || format!("{} is not there: build it with `cargo xtask agent`", path.display());
    path.is_file().then(|| path.clone()).ok_or_else(why)
}

/// The folder that `cargo xtask cluster` keeps: programs and, while it is up, the cluster's state.
pub fn folder() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty());
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    Some(cache.map(PathBuf::from).or_else(home)?.join("manciple/cluster"))
}

/// The kubeconfig of the cluster that tests use.
///
/// # Errors
/// If there is none; the message says what to do about it.
pub fn kubeconfig() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("KUBECONFIG").filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    let path = folder().map(|folder| folder.join("state/kubeconfig"));
    path.filter(|path| path.is_file()).ok_or_else(|| {
        "this test needs a cluster: bring one up with `cargo xtask cluster up`, or set KUBECONFIG"
            .to_owned()
    })
}

/// A program of the test cluster, if `cargo xtask cluster up` has made it.
pub fn program(name: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder()?).ok()?.flatten();
    entries.map(|entry| entry.path().join("bin").join(name)).find(|path| path.is_file())
}

/// kubectl, for the cluster that tests use: that of `cargo xtask cluster`, or whichever is in the path.
pub fn kubectl() -> std::process::Command {
    let mut kubectl =
        std::process::Command::new(program("kubectl").unwrap_or_else(|| "kubectl".into()));
    if let Ok(kubeconfig) = kubeconfig() {
        kubectl.env("KUBECONFIG", kubeconfig);
    }
    kubectl
}

/// `kubectl apply` of an object, as JSON or YAML.
///
/// # Panics
/// If the server does not take it.
#[allow(clippy::panic, reason = "a step of a test")]
pub fn apply(object: &impl std::fmt::Display) {
    use std::io::Write as _;
    let mut child = kubectl()
        .args(["apply", "-f", "-"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("kubectl: {error}"));
    let written =
        child.stdin.take().map(|mut stdin| stdin.write_all(object.to_string().as_bytes()));
    assert!(matches!(written, Some(Ok(()))), "kubectl takes no input");
    let ended = child.wait().unwrap_or_else(|error| panic!("kubectl: {error}"));
    assert!(ended.success(), "kubectl apply refused {object}");
}
