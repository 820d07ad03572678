//! Backups: a copy of the running store, as it was at one moment.
//!
//! The copy is made page by page from one snapshot: writers go on, only the log cannot be shortened
//! until the copy is done. The copy gets its name only when it is whole and synced.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rusqlite::backup::{Backup as PageCopy, StepResult};
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::EmbeddedStore;
use super::error::{BackupError, explain};
use crate::data_dir::sync_dir;

/// The number of pages that are copied at a time: 1 MiB.
const PAGES: i32 = 256;

/// A backup that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// The path of the backup.
    pub path: PathBuf,
    /// The size of the backup.
    pub bytes: u64,
    /// The records in it.
    pub records: u64,
}

impl EmbeddedStore {
    /// Copies the store to a new file (mode 0600) while it is in use. The copy is encrypted as the
    /// store is; it opens with the key that is in force now.
    ///
    /// Goes on to its end, or to its failure, even if the future is dropped. A crash leaves at most a
    /// file named `*.partial`, which the next backup of that name removes.
    ///
    /// # Errors
    /// See [`BackupError`].
    pub async fn backup_to(&self, path: impl Into<PathBuf>) -> Result<Backup, BackupError> {
        self.copied(path.into(), make).await
    }

    /// Does as [`Self::backup_to`], to a file that has no name any more: it is gone when it is closed, even if the
    /// future is dropped. What a crash leaves is removed by the next such backup, and by the next start.
    ///
    /// # Errors
    /// See [`BackupError`].
    pub async fn backup(&self) -> Result<File, BackupError> {
        self.copied(unnamed(&self.path), |source, path| {
            let file = fill(source, path)
                .and_then(|_| File::open(path).map_err(BackupError::io("opening", path)));
            let _ = std::fs::remove_file(path);
            file
        })
        .await
    }

    async fn copied<T: Send + 'static>(
        &self,
        path: PathBuf,
        copy: impl FnOnce(&Connection, &Path) -> Result<T, BackupError> + Send + 'static,
    ) -> Result<T, BackupError> {
        let (reader, given) = (Arc::clone(&self.reader), path.clone());
        let one_at_a_time = Arc::clone(&self.one_backup);
        tokio::task::spawn_blocking(move || {
            let _one = one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
            // One that is open already: of files that were removed, this saves what they held.
            reader.many.with(|source| copy(source, &path))
        })
        .await
        .map_err(|error| BackupError::Copy { path: given, why: error.to_string() })?
    }
}

/// The path at which a copy of a database is made before it loses its name.
pub(super) fn unnamed(database: &Path) -> PathBuf {
    database.with_extension("db.copy")
}

fn make(source: &Connection, target: &Path) -> Result<Backup, BackupError> {
    if target.symlink_metadata().is_ok() {
        return Err(BackupError::Exists(target.to_owned()));
    }
    let mut partial = target.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let made = fill(source, &partial).and_then(|records| {
        let file = File::open(&partial).map_err(BackupError::io("opening", &partial))?;
        file.sync_all().map_err(BackupError::io("syncing", &partial))?;
        let bytes = file.metadata().map_err(BackupError::io("reading", &partial))?.len();
        publish(&partial, target)?;
        Ok(Backup { path: target.to_owned(), bytes, records })
    });
    if made.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    made
}

fn fill(source: &Connection, partial: &Path) -> Result<u64, BackupError> {
    let failed = BackupError::copy;
    match std::fs::remove_file(partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(BackupError::io("removing", partial)(error));
        }
        _ => {}
    }
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(partial)
        .map_err(BackupError::io("creating", partial))?;

    // One snapshot for all steps: without it, each write would make the copy begin again.
    let snapshot = source.unchecked_transaction().map_err(failed(partial))?;
    let records: i64 = snapshot
        .query_row("SELECT count(*) FROM records", [], |row| row.get(0))
        .map_err(failed(partial))?;

    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut copy = Connection::open_with_flags(partial, flags).map_err(failed(partial))?;
    // Until it has its name, nobody misses it: no journal, one sync at the end.
    copy.execute_batch("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;")
        .map_err(failed(partial))?;
    let pages = PageCopy::new(&snapshot, &mut copy).map_err(failed(partial))?;
    loop {
        match pages.step(PAGES).map_err(failed(partial))? {
            StepResult::Done => break,
            StepResult::More => {}
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    drop(pages);
    // A backup is one file, also for whoever opens it where nothing may be written beside it.
    copy.pragma_update_and_check(None, "journal_mode", "delete", |_| Ok(()))
        .map_err(failed(partial))?;
    copy.close().map_err(|(_, error)| BackupError::Copy {
        path: partial.to_owned(),
        why: explain(&error),
    })?;
    Ok(records.unsigned_abs())
}

/// Renames a finished file to its name, unless that is taken, and syncs the directory. Needs no hard links.
///
/// # Errors
/// [`BackupError::Exists`], [`BackupError::Io`].
pub fn publish(partial: &Path, target: &Path) -> Result<(), BackupError> {
    let renamed = match renameat_with(CWD, partial, CWD, target, RenameFlags::NOREPLACE) {
        // Not every file system can; whoever takes the name just now loses it.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => match target.symlink_metadata() {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => std::fs::rename(partial, target),
        },
        other => other.map_err(io::Error::from),
    };
    match renamed {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(BackupError::Exists(target.to_owned()));
        }
        Err(error) => return Err(BackupError::io("naming", target)(error)),
    }
    let dir = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    sync_dir(dir).map_err(BackupError::io("syncing", dir))
}
