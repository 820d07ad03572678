//! Where the test cluster is: the one that `KUBECONFIG` names, or that of `cargo xtask cluster up`.

use std::path::PathBuf;

/// An image with a shell and the usual small tools, in the cluster of `cargo xtask cluster up`.
pub const SHELL_IMAGE: &str = "manciple.test/busybox:1";

/// The image that runs get the agent from, once `cargo xtask images` has loaded it.
pub const AGENT_IMAGE: &str = "manciple.test/agent:1";

/// The folder that `cargo xtask cluster` keeps: programs and, while it is up, the cluster's state.
pub fn folder() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty());
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    Some(cache.map(PathBuf::from).or_else(home)?.join("manciple/cluster"))
}

/// The kubeconfig of the cluster that tests use.
///
/// # Errors
/// If there is none: what to do about it.
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
