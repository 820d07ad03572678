//! The container images, as archives that `docker load` and its like read.

mod database;

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::image::{self, Image};
use crate::{cluster, packages};

/// As in `charts/manciple/values.yaml`.
const MANCIPLE: &str = "manciple:dev";
const FILES_BROKER: &str = "files-broker:dev";
/// As in `examples/operator/kubernetes`.
const SETTINGS_BROKER: &str = "settings-broker:dev";

const FOLDER: &str = "target/images";

/// Which program is in the image.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The one that is given away: static, small, minutes of building.
    Dist,
    /// The one of a developer's build, with the libraries that it is linked with.
    Dev,
}

/// All of them.
pub(crate) fn all(kind: Kind) -> anyhow::Result<()> {
    match kind {
        Kind::Dist => {
            crate::dist()?;
            crate::dist_operator()?;
            agent()?;
        }
        Kind::Dev => {
            crate::build()?;
            for_tests()?;
        }
    }
    deployment(kind)
}

/// The image that tests of runs get the agent from.
pub(crate) fn agent() -> anyhow::Result<()> {
    crate::agent()?;
    let image = Image::new(testkit::cluster::AGENT_IMAGE)
        .file("/manciple-agent", Path::new("target/dist/manciple-agent"))
        .command(&["/manciple-agent"]);
    write("agent", &image)
}

/// The images that tests on a cluster need beside that of a deployment.
pub(crate) fn for_tests() -> anyhow::Result<()> {
    agent()?;
    // The cluster of `cargo xtask cluster up` has it; for one that somebody else brought up it is there.
    write("busybox", &image::busybox(testkit::cluster::SHELL_IMAGE, &busybox()?)?)?;
    let archive = database::archive(&busybox()?)?;
    eprintln!("{}", archive.display());
    cluster::load(&archive)?;
    postgres_broker()
}

/// The images of a deployment, of programs that are built.
pub(crate) fn deployment(kind: Kind) -> anyhow::Result<()> {
    let program = |name: &str| match kind {
        Kind::Dist => Ok(Path::new("target/dist").join(name)),
        Kind::Dev => crate::built(name),
    };
    let manciple = Image::new(MANCIPLE)
        .users()
        // Not /manciple: there runs have their volume.
        .program("/usr/bin/manciple", &program("manciple")?)?
        .file("/manciple-agent", Path::new("target/dist/manciple-agent"))
        .file("/manciple-agent.packed", Path::new("target/dist/manciple-agent.packed"))
        .unprivileged()
        .command(&["/usr/bin/manciple"]);
    write("manciple", &manciple)?;
    write("files-broker", &broker(FILES_BROKER, "files")?)?;
    let settings = Image::new(SETTINGS_BROKER)
        .users()
        .program("/usr/bin/operator", &program("operator")?)?
        .unprivileged()
        .command(&["/usr/bin/operator"]);
    write("settings-broker", &settings)?;
    postgres_broker()
}

fn postgres_broker() -> anyhow::Result<()> {
    let Some(psql) = psql() else {
        eprintln!("psql is not installed: there is no image of examples/postgres");
        return Ok(());
    };
    let image = broker(testkit::cluster::POSTGRES_BROKER_IMAGE, "postgres")?;
    write("postgres-broker", &image.program("/bin/psql", &psql)?)
}

/// An example, in an image with a shell.
fn broker(name: &str, example: &str) -> anyhow::Result<Image> {
    let script = PathBuf::from(format!("examples/{example}/broker"));
    let image = image::busybox(name, &busybox()?)?.file("/bin/broker", &script);
    Ok(image.unprivileged().command(&["/bin/broker"]))
}

/// The test cluster's, or that of Debian's package.
fn busybox() -> anyhow::Result<PathBuf> {
    if let Some(ours) = cluster::program("busybox").filter(|path| path.is_file()) {
        return Ok(ours);
    }
    packages::install("the images", &[("busybox", "busybox-static")])?;
    packages::find("busybox").context("busybox-static has no busybox")
}

/// The program itself: what is in the path of Debian is a script of Perl.
fn psql() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<_> = versions.map(|version| version.path().join("bin/psql")).collect();
    found.retain(|path| path.is_file());
    found.sort();
    found.pop()
}

fn write(name: &str, image: &Image) -> anyhow::Result<()> {
    std::fs::create_dir_all(FOLDER)?;
    let archive = PathBuf::from(format!("{FOLDER}/{name}.tar"));
    image.write(&archive)?;
    eprintln!("{}", archive.display());
    cluster::load(&archive)
}
