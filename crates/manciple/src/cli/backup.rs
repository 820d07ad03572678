//! `manciple backup`: saves a backup that is whole and can be restored, or none; readable by its owner only, never over
//! another file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use osb::client::ClientError;
use serde_json::json;
use standalone::store::{BackupError, OpenError, check_copy, publish};

use super::args::BackupArgs;
use super::connection::Connection;
use super::exit::Exit;
use super::failure::Failure;

/// The hint for a server that did not answer in time: it copies the whole store before it answers.
const LARGE: &str = "a large store takes longer: --timeout 10m";

pub(crate) async fn save(connection: Connection, args: BackupArgs) -> Result<(), Failure> {
    let target = args.to;
    let unwritten =
        |error: &io::Error| Failure::usage(format!("cannot write {}: {error}", target.display()));
    let taken = || {
        Failure::usage(format!("{} exists already", target.display()))
            .hint("name another file: --to FILE")
    };
    if target.symlink_metadata().is_ok() {
        return Err(taken());
    }
    let download = connection.open_backup().await;
    let lost = |error| {
        let failure = connection.refused("save a backup", &error);
        match error {
            ClientError::Timeout { .. } => failure.hint(LARGE),
            _ => failure,
        }
    };
    let mut download = download.map_err(lost)?;
    let mut partial = Partial::new(&target).map_err(|error| unwritten(&error))?;
    let mut bytes: u64 = 0;
    while let Some(piece) = download.next().await.map_err(lost)? {
        partial.file.write_all(&piece).map_err(|error| unwritten(&error))?;
        bytes += piece.len() as u64;
    }
    let copy = partial.path.clone();
    let checked = tokio::task::spawn_blocking(move || check_copy(&copy)).await;
    let checked = checked.map_err(|error| Failure::usage(format!("cannot check it: {error}")))?;
    let records = checked.map_err(|error| match error {
        OpenError::Io { .. } => {
            Failure::usage(format!("cannot check {}: {error}; nothing was saved", target.display()))
        }
        error => of_no_use(&connection.url, &error),
    })?;
    partial.finish(&target).map_err(|error| match error {
        BackupError::Exists(_) => taken(),
        BackupError::Io { source, .. } => unwritten(&source),
        other => Failure::usage(other.to_string()),
    })?;
    let out = connection.out;
    let told = if out.is_json() {
        let file = target.to_string_lossy();
        out.json(&json!({ "file": file, "bytes": bytes, "records": records }))
    } else if out.quiet {
        Ok(())
    } else {
        out.line(&format!("saved {records} records, {bytes} bytes, to {}", target.display()))
    };
    told.map_err(|failure| failure.hint(format!("the backup is in {}", target.display())))?;
    out.hint("it can be read only with the server's encryption key: keep that, too");
    Ok(())
}

/// The failure for a download that is complete, but no backup.
fn of_no_use(url: &str, error: &OpenError) -> Failure {
    let why = match error {
        OpenError::NotABackup { why, .. } => why.clone(),
        OpenError::Damaged { what } => format!("it is damaged: {what}"),
        other => other.to_string(),
    };
    Failure::new(
        Exit::BrokerFailed,
        format!("what {url} sent is not a backup that could be restored: {why}; nothing was saved"),
    )
    .hint(
        "its store may be damaged: /readyz and the server's log say so; keep the backups there are",
    )
}

/// A file that is being written. It has another name until it is complete, and is removed if it never
/// becomes so, also after an interrupt.
struct Partial {
    file: File,
    path: PathBuf,
}

impl Partial {
    fn new(target: &Path) -> io::Result<Self> {
        let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let name = format!(".{}.{}.partial", name.to_string_lossy(), std::process::id());
        let path = target.with_file_name(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self { file, path })
    }

    /// Gives the file its name; fails if the target exists by now.
    fn finish(self, target: &Path) -> Result<(), BackupError> {
        self.file.sync_all().map_err(|source| BackupError::Io {
            what: "syncing",
            path: self.path.clone(),
            source,
        })?;
        publish(&self.path, target)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_backup_is_private_and_overwrites_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("backup");
        let mut partial = Partial::new(&target).unwrap();
        partial.file.write_all(b"one").unwrap();
        partial.finish(&target).unwrap();
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(Partial::new(&target).unwrap().finish(&target).is_err());
        assert_eq!(fs::read(&target).unwrap(), b"one");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
