//! The exchange directory of a run: the broker's working directory, the files of the contract, and its log
//! as it grows. It is in memory where the machine has `/dev/shm`: requests and state hold secrets, and the
//! log is not redacted yet.

use std::io;
use std::ops::Deref;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use child::exchange::ExchangeDirectory;
use data_encoding::HEXLOWER;
use osb::Work;
use ring::digest::{SHA256, digest};
use serde::Serialize;
use serde_json::Value;

use super::durable;

/// The files that are written into a new exchange directory.
#[derive(Debug, Default)]
pub(super) struct Files<'o> {
    pub(super) request: Option<&'o Work>,
    pub(super) state: Option<&'o Value>,
    pub(super) removes: Option<&'o Value>,
}

/// The exchange directory of one run.
#[derive(Debug, Clone)]
pub(super) struct Exchange(ExchangeDirectory);

impl Deref for Exchange {
    type Target = ExchangeDirectory;

    fn deref(&self) -> &ExchangeDirectory {
        &self.0
    }
}

impl Exchange {
    pub(super) fn at(path: impl Into<PathBuf>) -> Self {
        Self(ExchangeDirectory::at(path))
    }

    /// Makes the directory anew, with the files that the broker is given, and the secrets that its log must not show.
    pub(super) fn create(&self, files: &Files<'_>) -> io::Result<()> {
        durable::remove_all(self.path())?;
        again_if_gone(|| {
            own(self.path().parent().unwrap_or(self.path()))?;
            durable::create_dir(self.path())
        })?;
        durable::create_dir(&self.work())?;
        if let Some(request) = files.request {
            write_json(&self.request(), request)?;
        }
        if let Some(removes) = files.removes {
            write_json(&self.removes(), removes)?;
        }
        files.state.map_or(Ok(()), |state| write_json(&self.state(), state))
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        durable::remove_all(self.path())
    }

    /// The broker's working directory.
    pub(super) fn work(&self) -> PathBuf {
        self.path().join("work")
    }

    /// The file with the binding that the run removes, so that it can be redacted.
    pub(super) fn removes(&self) -> PathBuf {
        self.path().join("removes.json")
    }
}

fn write_json(path: &Path, content: &impl Serialize) -> io::Result<()> {
    std::io::Write::write_all(&mut durable::create(path)?, &serde_json::to_vec(content)?)
}

/// The root directory of the exchange directories of all runs.
///
/// A root in memory is outside the data directory, where nobody would look for leftovers: it is
/// removed when its user ends and it is empty. A run that goes on keeps it, and the next user, a
/// supervisor included, makes it again.
#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    in_memory: bool,
}

impl Root {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if self.in_memory {
            // Fails, as it should, if anything is in it.
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}

/// Makes the root: the configured one; else one in memory if possible, else one beside the runs.
pub(super) fn root(configured: Option<&Path>, runs: &Path) -> io::Result<Root> {
    let path = match configured {
        Some(root) => root.to_owned(),
        None => {
            let path = in_memory(runs);
            if again_if_gone(|| private(&path)).is_ok() {
                return Ok(Root { path, in_memory: true });
            }
            runs.join(".exchange")
        }
    };
    private(&path)?;
    Ok(Root { path, in_memory: false })
}

/// Makes something in the root, and makes both again if the root is gone: another user of it that ends may have removed
/// it in between.
fn again_if_gone<T>(make: impl Fn() -> io::Result<T>) -> io::Result<T> {
    const TRIES: usize = 10;
    let gone = |made: &io::Result<T>| {
        made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    (1..TRIES).map(|_| make()).find(|made| !gone(made)).unwrap_or_else(&make)
}

/// The path of the root in memory: one for each user and data directory, so that two installations do not share it.
fn in_memory(runs: &Path) -> PathBuf {
    let hash = digest(&SHA256, runs.as_os_str().as_encoded_bytes());
    let hash = HEXLOWER.encode(&hash.as_ref()[..8]);
    let user = rustix::process::geteuid().as_raw();
    PathBuf::from(format!("/dev/shm/manciple-{user}-{hash}"))
}

/// Makes a directory, and checks that this user owns it. `/dev/shm` is open to all: what is there under the name may be
/// somebody else's, or a link to elsewhere.
fn own(path: &Path) -> io::Result<()> {
    durable::create_dir(path)?;
    let found = std::fs::symlink_metadata(path)?;
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
        let what = format!("{} is there and is not our directory", path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
    }
    Ok(())
}

/// Does as [`own`] for a directory that nobody else can open and that can be written.
fn private(path: &Path) -> io::Result<()> {
    own(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
    // Read-only file systems let a directory that exists be made again.
    let probe = path.join(".probe");
    durable::create(&probe)?;
    durable::remove(&probe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_place_of_the_directory_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("/tmp", &link).unwrap();
        assert!(root(Some(&link), directory.path()).is_err());
    }

    #[test]
    fn the_directory_is_closed_to_others() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("exchange");
        std::fs::create_dir(&path).unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, mode).unwrap();
        root(Some(&path), directory.path()).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn it_is_in_memory_where_there_is_such_a_thing() {
        let runs = tempfile::tempdir().unwrap();
        let root = root(None, runs.path()).unwrap();
        let memory =
            durable::create(&Path::new("/dev/shm").join(format!(".{}", std::process::id())));
        assert_eq!(root.path().starts_with("/dev/shm"), memory.is_ok());
        let _ = durable::remove(&Path::new("/dev/shm").join(format!(".{}", std::process::id())));
    }

    #[test]
    fn its_root_in_memory_goes_with_its_user_unless_something_is_in_it() {
        let runs = tempfile::tempdir().unwrap();
        let first = root(None, runs.path()).unwrap();
        if !first.in_memory {
            testkit::skipped("/dev/shm cannot be used");
            return;
        }
        let path = first.path().to_owned();
        let exchange = Exchange::at(path.join("run-1"));
        exchange.create(&Files::default()).unwrap();
        drop(first);
        assert!(exchange.work().is_dir(), "a run that goes on keeps it");
        let second = root(None, runs.path()).unwrap();
        exchange.remove().unwrap();
        drop(second);
        assert!(!path.exists());
        exchange.create(&Files::default()).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o700, "made again, closed");
        exchange.remove().unwrap();
        drop(root(None, runs.path()).unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn a_configured_root_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("exchange");
        drop(root(Some(&path), directory.path()).unwrap());
        assert!(path.is_dir());
    }

    #[test]
    fn a_root_that_is_not_ours_is_not_used_by_a_run_either() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path(), &link).unwrap();
        let error = Exchange::at(link.join("run-1")).create(&Files::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn two_data_directories_do_not_meet() {
        assert_ne!(in_memory(Path::new("/a")), in_memory(Path::new("/b")));
    }
}
