//! A real Kubernetes on this machine, for the tests: one node, real pods.
//!
//! ```text
//! Debian's packages ──┬── etcd, containerd, runc, network plugins, kubectl ──┐
//!                     └── Kubernetes' source, Go ── built once ──────────────┤
//!                                                                            ▼
//!     cache/<recipe>/bin ──▶ etcd ◀── API server ◀── controller manager, scheduler
//!                                          ▲
//!                     containerd ◀── kubelet          all on this machine's own network
//! ```
//!
//! Nothing of Kubernetes is installed: packages are unpacked into the cache, which is outside the work
//! tree and made once per machine and recipe. The state is thrown away by `down`. Kubernetes is 1.20,
//! the oldest that we promise to run on and the newest whose source Debian carries.

mod build;
mod certificates;
mod configuration;
pub(crate) mod debian;
mod left;
mod network;
mod processes;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::image;
use crate::packages;

/// The programs that the machine needs beside those in the cache, and their packages.
const NEEDED: [(&str, &str); 5] = [
    ("make", "make"),
    ("rsync", "rsync"),
    ("jq", "jq"),
    ("ip", "iproute2"),
    ("iptables", "iptables"),
];

/// How long a part may take to be ready, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// The folders of the cluster.
pub(crate) struct Place {
    /// The folder of built and unpacked programs: one for each recipe.
    pub(crate) programs: PathBuf,
    /// The state of the running cluster: gone after `down`.
    pub(crate) state: PathBuf,
    /// Sockets and mounts, whose paths must be short: gone after `down` too.
    pub(crate) run: PathBuf,
}

impl Place {
    fn of_this_machine() -> anyhow::Result<Self> {
        let cache = testkit::cluster::folder()
            .context("neither XDG_CACHE_HOME nor HOME is set: there is no place for a cache")?;
        Ok(Self {
            programs: cache.join(build::RECIPE),
            state: cache.join("state"),
            run: PathBuf::from("/run/manciple-cluster"),
        })
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.programs.join("bin").join(name)
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.state.join("kubeconfig")
    }

    pub(crate) fn kubectl(&self) -> Command {
        let mut kubectl = Command::new(self.program("kubectl"));
        kubectl.arg("--kubeconfig").arg(self.kubeconfig());
        kubectl
    }
}

/// Brings the cluster up, unless it is up. Returns the path of its kubeconfig.
pub(crate) fn up() -> anyhow::Result<PathBuf> {
    let place = Place::of_this_machine()?;
    if ready(&place) {
        // A kubelet whose disk was full has removed every image that no pod had in use.
        load_images(&place)?;
        eprintln!("the cluster is up: export KUBECONFIG={}", place.kubeconfig().display());
        return Ok(place.kubeconfig());
    }
    ensure_root()?;
    packages::install("the test cluster", &NEEDED)?;
    build::programs(&place)?;
    stop(&place)?;
    let begun = Instant::now();
    for folder in [&place.state, &place.run] {
        std::fs::create_dir_all(folder)?;
    }
    certificates::write(&place)?;
    configuration::write(&place)?;
    network::up()?;
    let is_first = |name: &str| processes::FIRST.contains(&name);
    processes::start(&place, is_first)?;
    processes::until_runtime(&place, PATIENCE)?;
    until("the API server", &place, &["get", "--raw", "/readyz"])?;
    processes::start(&place, |name| !is_first(name))?;
    load_images(&place)?;
    until("the node", &place, &["wait", "--for=condition=Ready", "node/localhost"])?;
    until("the default service account", &place, &["get", "serviceaccount", "default"])?;
    let seconds = begun.elapsed().as_secs();
    eprintln!(
        "the cluster is up after {seconds} s: export KUBECONFIG={}",
        place.kubeconfig().display()
    );
    Ok(place.kubeconfig())
}

/// Takes the cluster down, and leaves nothing but the cache of programs: anything else that stays is an error that
/// names it.
pub(crate) fn down() -> anyhow::Result<()> {
    let place = Place::of_this_machine()?;
    stop(&place)?;
    left::nothing(&place)
}

/// The cluster that tests are to use, and whether it was brought up for them: the one that `KUBECONFIG`
/// names, the one that is up, or a new one.
pub(crate) fn for_tests() -> anyhow::Result<(PathBuf, bool)> {
    if let Some(path) = named() {
        eprintln!(
            "the tests use the cluster of KUBECONFIG: of one node, this machine, since pods write where tests \
             read; its runtime needs the images of target/images, which `cargo xtask images dev` makes"
        );
        programs_for_tests()?;
        return Ok((path.into(), false));
    }
    let was_up = is_up();
    Ok((up()?, !was_up))
}

/// Fails as [`for_tests`] would if it has no cluster and may not bring one up: for a caller that has much to do before.
pub(crate) fn can_be_had() -> anyhow::Result<()> {
    if named().is_some() || is_up() { Ok(()) } else { ensure_root() }
}

/// The kubeconfig that `KUBECONFIG` names.
fn named() -> Option<OsString> {
    std::env::var_os("KUBECONFIG").filter(|path| !path.is_empty())
}

fn is_up() -> bool {
    Place::of_this_machine().is_ok_and(|place| ready(&place))
}

fn ensure_root() -> anyhow::Result<()> {
    ensure!(
        packages::is_root(),
        "a cluster has to be brought up by root; or set KUBECONFIG to one that you have"
    );
    Ok(())
}

/// Makes the programs, unless they are there: tests that kill an API server have control planes of their own.
pub(crate) fn programs_for_tests() -> anyhow::Result<()> {
    let place = Place::of_this_machine()?;
    if !place.programs.is_dir() {
        packages::install("the control planes of tests", &NEEDED)?;
    }
    build::programs(&place)
}

/// The audit log of a cluster's API server, which is there once an installed account does something; `None` for a
/// cluster that was not brought up here.
pub(crate) fn audit_log(kubeconfig: &Path) -> Option<PathBuf> {
    let place = Place::of_this_machine().ok()?;
    let is_ours = place.kubeconfig().canonicalize().ok()? == kubeconfig.canonicalize().ok()?;
    is_ours.then(|| place.state.join(configuration::AUDIT_LOG))
}

/// A program of the cluster's, where it is or would be.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    Some(Place::of_this_machine().ok()?.program(name))
}

/// Loads an image, as an OCI archive, into the cluster's container runtime, if it is up.
pub(crate) fn load(archive: &Path) -> anyhow::Result<()> {
    let place = Place::of_this_machine()?;
    if processes::serves(&place) { import(&place, archive) } else { Ok(()) }
}

fn stop(place: &Place) -> anyhow::Result<()> {
    processes::stop(place)?;
    network::down();
    processes::sweep();
    for folder in [&place.run, &place.state] {
        processes::unmount(folder);
        match std::fs::remove_dir_all(folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error)
                    .with_context(|| format!("{} cannot be removed", folder.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether the cluster is up. If nothing listens that is known at once; a busy server may take its time to answer.
fn ready(place: &Place) -> bool {
    place.kubeconfig().is_file()
        && place
            .kubectl()
            .args(["get", "--raw", "/readyz", "--request-timeout=60s"])
            .output()
            .is_ok_and(|output| output.status.success())
}

/// Repeats a kubectl command until it succeeds.
fn until(what: &str, place: &Place, arguments: &[&str]) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let output = place.kubectl().args(arguments).arg("--request-timeout=30s").output()?;
        if output.status.success() {
            return Ok(());
        }
        processes::check(place)?;
        if begun.elapsed() > PATIENCE {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let state = place.state.display();
            bail!("{what} is not ready after {PATIENCE:?}: {said}; logs are in {state}");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Loads the image of every pod's sandbox, and one with a shell for the tests: from scratch, for there is no registry.
fn load_images(place: &Place) -> anyhow::Result<()> {
    for (name, image) in [
        (
            "pause",
            image::Image::new(configuration::SANDBOX_IMAGE)
                .file("/pause", &place.program("catatonit"))
                .command(&["/pause", "-P"]),
        ),
        ("busybox", image::busybox(testkit::cluster::SHELL_IMAGE, &place.program("busybox"))?),
    ] {
        let archive = place.state.join(format!("{name}.tar"));
        image.write(&archive)?;
        import(place, &archive)?;
        std::fs::remove_file(&archive)?;
    }
    Ok(())
}

fn import(place: &Place, archive: &Path) -> anyhow::Result<()> {
    let images = || {
        let mut ctr = Command::new(place.program("ctr"));
        ctr.arg("--address").arg(configuration::containerd_socket(place));
        ctr.args(["-n", "k8s.io", "images"]);
        ctr
    };
    // A server in an image takes seconds to import, also where it is there.
    let (name, digest) = image::written(archive)?;
    let there = images().arg("list").arg(format!("name=={name}")).output()?;
    if String::from_utf8_lossy(&there.stdout).contains(&digest) {
        return Ok(());
    }
    let begun = Instant::now();
    loop {
        let output = images().arg("import").arg(archive).output()?;
        if output.status.success() {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            bail!("{} cannot be imported: {said}", archive.display());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}
