//! Makes the container images, as archives that `docker load` and its like read.

mod database;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::image::{self, Image};
use crate::{cluster, packages};

/// The name of Manciple's image, as in `charts/manciple/values.yaml`.
const MANCIPLE: &str = "manciple:dev";
const FILES_BROKER: &str = "files-broker:dev";
/// Brokers that are servers of their own, each alone in its image: the image, and the package, whose program has the
/// same name. As in `examples/operator/kubernetes`.
const PROGRAMS: &[(&str, &str)] = &[("settings-broker:dev", "operator")];

const FOLDER: &str = "target/images";

/// The kind of the program in the image.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The release build: static, small, minutes of building.
    Dist,
    /// A developer's build, with the libraries that it is linked with.
    Dev,
}

/// The packages whose programs are in images.
pub(crate) fn packages() -> impl Iterator<Item = &'static str> {
    std::iter::once("manciple").chain(PROGRAMS.iter().map(|(_, package)| *package))
}

/// Removes the programs of images before a build that need not make them, so that none of an earlier build is packed.
/// Cargo puts those that are made already there again.
pub(crate) fn forget_programs() -> anyhow::Result<()> {
    for package in packages() {
        let program = crate::built(package)?;
        if let Err(error) = std::fs::remove_file(&program)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error).with_context(|| format!("{} cannot be removed", program.display()));
        }
    }
    Ok(())
}

/// Makes all images.
pub(crate) fn all(kind: Kind) -> anyhow::Result<()> {
    build(kind)?;
    match kind {
        Kind::Dist => agent()?,
        Kind::Dev => for_tests()?,
    }
    deployment(kind)
}

/// Builds the programs of the images, but for the agent.
pub(crate) fn build(kind: Kind) -> anyhow::Result<()> {
    match kind {
        Kind::Dist => {
            crate::dist()?;
            PROGRAMS.iter().try_for_each(|(_, package)| crate::dist_broker(package))
        }
        Kind::Dev => crate::build(),
    }
}

/// Makes the image that tests of runs get the agent from.
pub(crate) fn agent() -> anyhow::Result<()> {
    crate::agent()?;
    let image = Image::new(testkit::cluster::AGENT_IMAGE)
        .file("/manciple-agent", Path::new("target/dist/manciple-agent"))
        .command(&["/manciple-agent"]);
    write("agent", &image)
}

/// Makes the images that tests on a cluster need beside that of a deployment.
pub(crate) fn for_tests() -> anyhow::Result<()> {
    agent()?;
    // The cluster of `cargo xtask cluster up` has it; for one that somebody else brought up it is there.
    write("busybox", &image::busybox(testkit::cluster::SHELL_IMAGE, &busybox()?)?)?;
    let broker = image::busybox(testkit::cluster::BROKER_IMAGE, &busybox()?)?;
    write("broker", &broker.bytes("/bin/broker", testkit::cluster::BROKER.as_bytes(), 0o755))?;
    let archive = database::archive(&busybox()?)?;
    eprintln!("{}", archive.display());
    cluster::load(&archive)?;
    postgres_broker()
}

/// Makes the images of a deployment, of programs that are built.
pub(crate) fn deployment(kind: Kind) -> anyhow::Result<()> {
    let program = |name: &str| match kind {
        Kind::Dist => Ok(Path::new("target/dist").join(name)),
        Kind::Dev => current(name),
    };
    let manciple = Image::new(MANCIPLE)
        .users()
        // Not /manciple: there runs have their volume.
        .program("/usr/bin/manciple", &program("manciple")?)?
        .file("/manciple-agent", Path::new("target/dist/manciple-agent"))
        .file("/manciple-agent.packed", Path::new("target/dist/manciple-agent.packed"))
        .unprivileged()
        .command(&["/usr/bin/manciple"])
        .arguments(&["serve"]);
    write("manciple", &manciple)?;
    write("files-broker", &broker(FILES_BROKER, "files")?)?;
    for &(name, package) in PROGRAMS {
        let path = format!("/usr/bin/{package}");
        let image = Image::new(name).users().program(&path, &program(package)?)?;
        let archive = name.rsplit('/').next().and_then(|name| name.split(':').next());
        write(archive.unwrap_or(package), &image.unprivileged().command(&[&path]))?;
    }
    postgres_broker()
}

/// The path of a program, if this build has made it.
fn current(name: &str) -> anyhow::Result<PathBuf> {
    let program = crate::built(name)?;
    ensure!(
        program.is_file(),
        "{} is missing: tests build the program of a package that has some in its folder `tests`, and \
         `cargo build -p {name}` builds it without",
        program.display()
    );
    Ok(program)
}

fn postgres_broker() -> anyhow::Result<()> {
    let Some(psql) = psql() else {
        eprintln!("psql is not installed: there is no image of examples/postgres");
        return Ok(());
    };
    let image = broker(testkit::cluster::POSTGRES_BROKER_IMAGE, "postgres")?;
    write("postgres-broker", &image.program("/bin/psql", &psql)?)
}

/// An image with a shell and the broker of an example.
fn broker(name: &str, example: &str) -> anyhow::Result<Image> {
    let script = PathBuf::from(format!("examples/{example}/broker"));
    let image = image::busybox(name, &busybox()?)?.file("/bin/broker", &script);
    Ok(image.unprivileged().command(&["/bin/broker"]))
}

/// The path of busybox: the test cluster's, or that of Debian's package.
fn busybox() -> anyhow::Result<PathBuf> {
    if let Some(ours) = cluster::program("busybox").filter(|path| path.is_file()) {
        return Ok(ours);
    }
    packages::install("the images", &[("busybox", "busybox-static")])?;
    packages::find("busybox").context("busybox-static has no busybox")
}

/// The path of psql itself: what Debian has in the path is a script of Perl.
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
