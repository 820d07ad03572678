//! Installs what the tests need beside Rust, from Debian's packages.

use std::path::Path;
use std::process::Command;

use anyhow::ensure;

/// The needed programs, each with its package.
const NEEDED: [(&str, &str); 4] =
    [("cc", "gcc"), ("psql", "postgresql"), ("curl", "curl"), ("openssl", "openssl")];

/// Installs what the tests need and is missing, and says what it installs.
pub(crate) fn install_for_tests() -> anyhow::Result<()> {
    install_nextest()?;
    if !postgres_server() {
        return install("the tests", &[NEEDED.as_slice(), &[("initdb", "postgresql")]].concat());
    }
    install("the tests", &NEEDED)
}

/// Installs the packages of programs that are missing, and says so.
pub(crate) fn install(who: &str, needed: &[(&str, &str)]) -> anyhow::Result<()> {
    let missing = missing(needed, on_path);
    if missing.is_empty() {
        return Ok(());
    }
    eprintln!(
        "{who} need{} {}: installing from Debian's packages",
        plural(who),
        missing.join(", ")
    );
    ensure!(
        on_path("apt-get"),
        "there is no apt-get here: install {} yourself",
        missing.join(", ")
    );
    let sudo: &[&str] = if on_path("sudo") && !is_root() { &["sudo"] } else { &[] };
    let apt = |arguments: &[&str]| {
        let mut line = sudo.to_vec();
        line.push("apt-get");
        line.extend(arguments);
        crate::run(Command::new(line[0]).args(&line[1..]).env("DEBIAN_FRONTEND", "noninteractive"))
    };
    apt(&["update", "-q"])?;
    let mut install = vec!["install", "-y", "-q", "--no-install-recommends"];
    install.extend(&missing);
    apt(&install)
}

/// The packages of missing programs, each once.
fn missing<'p>(needed: &[(&str, &'p str)], is_there: impl Fn(&str) -> bool) -> Vec<&'p str> {
    let missing = needed.iter().filter(|(program, _)| !is_there(program));
    let mut packages: Vec<_> = missing.map(|(_, package)| *package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn plural(who: &str) -> &'static str {
    if who.ends_with('s') { "" } else { "s" }
}

/// Installs nextest, which runs the tests, if it is missing, and says so.
pub(crate) fn install_nextest() -> anyhow::Result<()> {
    let there = crate::cargo().args(["nextest", "--version"]).output();
    if there.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    eprintln!("the tests need cargo-nextest: installing it with cargo");
    crate::run(crate::cargo().args(["install", "--locked", "cargo-nextest"]))
}

fn on_path(program: &str) -> bool {
    find(program).is_some()
}

/// The path of a program, as `PATH` has it.
pub(crate) fn find(program: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(program));
    found.into_iter().find(|path| path.is_file())
}

/// Whether the PostgreSQL server's programs are installed, which Debian keeps out of the path.
fn postgres_server() -> bool {
    let versions = std::fs::read_dir("/usr/lib/postgresql");
    let debian = versions.into_iter().flatten().flatten();
    debian.map(|version| version.path().join("bin/initdb")).any(|path| path.is_file())
        || on_path("initdb")
}

pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(Path::new("/proc/self")).is_ok_and(|process| process.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::missing;

    #[test]
    fn a_package_that_has_several_of_the_missing_programs_is_named_once() {
        let needed = [("psql", "postgresql"), ("curl", "curl"), ("initdb", "postgresql")];
        let of = |there: &[&str]| missing(&needed, |program| there.contains(&program));
        assert_eq!(of(&[]), ["curl", "postgresql"]);
        assert_eq!(of(&["psql"]), ["curl", "postgresql"]);
        assert_eq!(of(&["psql", "initdb"]), ["curl"]);
        assert_eq!(of(&["psql", "curl", "initdb"]), [""; 0]);
    }
}
