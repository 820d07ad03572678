//! A PostgreSQL server for the tests of what is ordered on a cluster that reaches no registry: Debian's, unpacked and
//! not installed, as an installation would start a server on this machine.
//!
//! The archive is in the cache beside the cluster's programs, made once per machine and recipe.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::cluster::debian::Archive;
use crate::image::{self, Image};

/// The name of the archive. It has to be changed with anything here, and in `database.sh`, that changes what is made.
const RECIPE: &str = "postgres-15-a";

/// The folder of the server's files in Debian.
const HOME: &str = "usr/lib/postgresql/15";
const SHARE: &str = "usr/share/postgresql/15";

/// The programs that are in the image.
const PROGRAMS: [&str; 4] = ["postgres", "initdb", "pg_isready", "psql"];
/// The modules that the server loads by itself while a database is made, and the language for functions.
const MODULES: [&str; 2] = ["dict_snowball.so", "plpgsql.so"];
/// The folders of `SHARE` that the server and initdb read, itself first.
const READ: [&str; 4] = ["", "extension", "timezonesets", "tsearch_data"];

/// The packages of the server and of all that its programs are linked with, but for what they load by choice (LLVM,
/// Perl, Python).
const PACKAGES: [&str; 39] = [
    "libaudit1",
    "libc6",
    "libcap-ng0",
    "libcap2",
    "libcom-err2",
    "libffi8",
    "libgcc-s1",
    "libgcrypt20",
    "libgmp10",
    "libgnutls30",
    "libgpg-error0",
    "libgssapi-krb5-2",
    "libhogweed6",
    "libicu72",
    "libidn2-0",
    "libk5crypto3",
    "libkeyutils1",
    "libkrb5-3",
    "libkrb5support0",
    "libldap-2.5-0",
    "liblz4-1",
    "liblzma5",
    "libnettle8",
    "libp11-kit0",
    "libpam0g",
    "libpq5",
    "libreadline8",
    "libsasl2-2",
    "libssl3",
    "libstdc++6",
    "libsystemd0",
    "libtasn1-6",
    "libtinfo6",
    "libunistring2",
    "libxml2",
    "libzstd1",
    "postgresql-15",
    "postgresql-client-15",
    "zlib1g",
];

/// The user of the server, with the number that it has in the usual image.
const PASSWD: &str =
    "root:x:0:0:root:/:/bin/sh\npostgres:x:999:999:postgres:/var/lib/postgresql:/bin/sh\n";

/// The path of the archive, which is made unless it is there.
pub(super) fn archive(busybox: &Path) -> anyhow::Result<PathBuf> {
    let cache = testkit::cluster::folder()
        .context("neither XDG_CACHE_HOME nor HOME is set: there is no place for a cache")?;
    let archive = cache.join(format!("{RECIPE}.tar"));
    if archive.is_file() {
        return Ok(archive);
    }
    eprintln!(
        "making the image of PostgreSQL from Debian's packages, once; it is kept in {}",
        archive.display()
    );
    let work = cache.join(format!("{RECIPE}.{}", std::process::id()));
    let made = make(&work, busybox).and_then(|made| Ok(fs::rename(made, &archive)?));
    let _ = fs::remove_dir_all(&work);
    made.map(|()| archive)
}

/// Makes the archive in a folder.
fn make(work: &Path, busybox: &Path) -> anyhow::Result<PathBuf> {
    let root = work.join("root");
    Archive::open(&work.join("apt"))?.unpack(&PACKAGES, &root)?;
    let image = image::busybox(testkit::cluster::POSTGRES_IMAGE, busybox)?
        .bytes("/etc/passwd", PASSWD.as_bytes(), 0o644)
        .bytes("/bin/entrypoint", include_bytes!("database.sh"), 0o755)
        .folder("/var/lib/postgresql", 0o1777)
        // Where Debian's programs have their socket.
        .folder("/var/run/postgresql", 0o1777)
        // Without zones it tells the time of UTC, and without the folder it complains.
        .folder("/usr/share/zoneinfo", 0o755)
        .user(999)
        // The server's word for: now, and do not wait for clients to go.
        .stopped_by("SIGINT")
        .command(&["/bin/entrypoint"]);
    let image = server(image, &root)?;
    let archive = work.join("image.tar");
    image.write(&archive)?;
    Ok(archive)
}

/// Adds the server's files, each at its own path.
fn server(mut image: Image, root: &Path) -> anyhow::Result<Image> {
    let programs = PROGRAMS.map(|name| format!("{HOME}/bin/{name}"));
    let modules = MODULES.map(|name| format!("{HOME}/lib/{name}"));
    let loader = loader(root)?;
    let mut libraries = BTreeSet::new();
    for path in programs.iter().chain(&modules) {
        image = image.file(path, &root.join(path));
        libraries.extend(linked(root, &loader, path)?);
    }
    for name in PROGRAMS {
        image = image.link(&format!("/bin/{name}"), &format!("/{HOME}/bin/{name}"));
    }
    for path in libraries.iter().map(PathBuf::as_path).chain([loader.as_path()]) {
        image = image.file(&inside(root, path)?, path);
    }
    // Where programs look for the loader, by the processor.
    for folder in ["lib64", "lib"] {
        let name = loader.file_name().unwrap_or_default();
        if fs::symlink_metadata(root.join(folder).join(name)).is_ok() {
            let path = format!("/{folder}/{}", name.to_string_lossy());
            image = image.link(&path, &format!("/{}", inside(root, &loader)?));
        }
    }
    for folder in READ {
        for entry in fs::read_dir(root.join(SHARE).join(folder))? {
            let path = entry?.path();
            if path.is_file() {
                let bytes = fs::read(&path)?;
                image = image.bytes(&inside(root, &path)?, &bytes, 0o644);
            }
        }
    }
    Ok(image)
}

/// The loader of the packages' own C library, whatever this machine has.
fn loader(root: &Path) -> anyhow::Result<PathBuf> {
    let folder = root.join("lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
    let found = fs::read_dir(&folder)?.flatten().map(|entry| entry.path());
    let is_loader = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-linux"))
    };
    found.into_iter().find(is_loader).context("libc6 has no loader")
}

/// The libraries of a file in the root, which are there too.
fn linked(root: &Path, loader: &Path, path: &str) -> anyhow::Result<BTreeSet<PathBuf>> {
    let folders = ["lib", "usr/lib"].map(|folder| {
        root.join(folder).join(format!("{}-linux-gnu", std::env::consts::ARCH)).into_os_string()
    });
    let mut list = Command::new(loader);
    list.arg("--library-path").arg(folders.join(std::ffi::OsStr::new(":")));
    let output = list.arg("--list").arg(root.join(path)).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let lacks = || format!("{path} is linked with what no package here has: {said}");
    ensure!(output.status.success() && !said.contains("not found"), lacks());
    let words = said.split_whitespace().map(Path::new);
    let libraries: BTreeSet<PathBuf> =
        words.filter(|word| word.is_absolute()).map(Path::to_owned).collect();
    let own = |path: &&PathBuf| path.starts_with(root) || path.file_name() == loader.file_name();
    ensure!(libraries.iter().all(|path| own(&path)), lacks());
    Ok(libraries.into_iter().filter(|path| path.starts_with(root)).collect())
}

fn inside(root: &Path, path: &Path) -> anyhow::Result<String> {
    Ok(path.strip_prefix(root)?.to_string_lossy().into_owned())
}
