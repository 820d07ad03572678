//! Packages of one Debian release, whatever this machine runs: fetched and unpacked, not installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

/// The release whose packages the recipe is written for.
const RELEASE: &str = "bookworm";

/// A private view of the archive: apt's own settings and lists are left alone.
pub(crate) struct Archive {
    folder: PathBuf,
    options: Vec<String>,
}

impl Archive {
    /// Reads the archive's lists into a folder.
    pub(crate) fn open(folder: &Path) -> anyhow::Result<Self> {
        for part in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(folder.join(part))?;
        }
        let mirror = mirror()?;
        let sources = folder.join("sources.list");
        let entry = format!("deb {mirror} {RELEASE} main\ndeb-src {mirror} {RELEASE} main\n");
        fs::write(&sources, entry)?;
        let set = |name: &str, value: String| ["-o".to_owned(), format!("{name}={value}")];
        let options = [
            set("Dir::Etc::sourcelist", sources.display().to_string()),
            set("Dir::Etc::sourceparts", "-".into()),
            set("Dir::State::lists", folder.join("lists").display().to_string()),
            set("Dir::Cache", folder.join("archives").display().to_string()),
            set("APT::Sandbox::User", "root".into()),
            set("Acquire::Languages", "none".into()),
        ]
        .concat();
        let archive = Self { folder: folder.to_owned(), options };
        crate::run(archive.apt().args(["-q", "update"]))?;
        Ok(archive)
    }

    /// Unpacks packages over a folder.
    pub(crate) fn unpack(&self, packages: &[&str], root: &Path) -> anyhow::Result<()> {
        let folder = self.folder.join("debs");
        fs::create_dir_all(&folder)?;
        fs::create_dir_all(root)?;
        crate::run(self.apt().args(["-q", "download"]).args(packages).current_dir(&folder))?;
        for entry in fs::read_dir(&folder)? {
            crate::run(Command::new("dpkg-deb").arg("-x").arg(entry?.path()).arg(root))?;
        }
        Ok(fs::remove_dir_all(&folder)?)
    }

    /// Unpacks the original source of a package, without Debian's changes, into a folder.
    pub(crate) fn unpack_source(&self, package: &str, into: &Path) -> anyhow::Result<()> {
        let folder = self.folder.join("source");
        fs::create_dir_all(&folder)?;
        fs::create_dir_all(into)?;
        let fetch = ["-q", "source", "--download-only", package];
        crate::run(self.apt().args(fetch).current_dir(&folder))?;
        let original = fs::read_dir(&folder)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.to_string_lossy().contains(".orig.tar."))
            .with_context(|| format!("the source of {package} has no original"))?;
        let untar = ["--strip-components=1", "-xf"];
        crate::run(Command::new("tar").arg("-C").arg(into).args(untar).arg(original))?;
        Ok(fs::remove_dir_all(&folder)?)
    }

    fn apt(&self) -> Command {
        let mut apt = Command::new("apt-get");
        apt.args(&self.options);
        apt
    }
}

/// The mirror from which this machine gets its own packages, as apt is configured.
fn mirror() -> anyhow::Result<String> {
    let format = "$(REPO_URI) $(RELEASE) $(COMPONENT)";
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", format, "Created-By: Packages"])
        .output()
        .context("there is no apt-get here: the test cluster is made from Debian's packages")?;
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let release = system
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .unwrap_or(RELEASE)
        .trim_matches('"');
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let mirror = lines.lines().find_map(|line| {
        let mut words = line.split(' ');
        let uri = words.next()?;
        (words.next() == Some(release) && words.next() == Some("main")).then(|| uri.to_owned())
    });
    let mirror = mirror.context("apt knows no mirror of Debian on this machine")?;
    ensure!(system.contains("ID=debian"), "the test cluster is made from Debian's packages only");
    Ok(mirror)
}
