//! The errors of opening, backing up and restoring the store, in words for the operator who has to mend it.

use std::io;
use std::path::{Path, PathBuf};

use engine::ports::StoreError;
use rusqlite::ErrorCode;

use crate::seal::{KeyError, KeySource, NoRandomness};

/// The reason why the store was not opened, checked or restored. Nothing that was kept has been changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no usable key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The key is not the one of this store.
    #[error(
        "{tried} the key of this store: give the key that it was written with. If the key \
         was changed on purpose, give the old one as the previous key; a backup needs the key that \
         was in force when it was made"
    )]
    WrongKey {
        /// The keys that were tried.
        tried: Tried,
    },
    /// Another process has the store open.
    #[error(
        "the store in {} is in use by {holder}: one process at a time may open it. Stop that one \
         first; nothing has to be cleaned up after it",
        dir.display()
    )]
    Locked {
        /// Which.
        dir: PathBuf,
        /// The other process, as it says itself: `process <pid>`.
        holder: String,
    },
    /// The database was written by a newer version of this program.
    #[error(
        "the database has version {found}, newer than {known}, the newest that this version of \
         manciple knows: run the newer manciple, or restore a backup made before the upgrade"
    )]
    Newer {
        /// The version it has.
        found: usize,
        /// The newest known here.
        known: usize,
    },
    /// The file of that name is not a database of this program.
    #[error("the file is not a database of manciple: give another directory, or move it away")]
    NotAStore,
    /// The file that was named as a backup cannot be one.
    #[error("{} is not a backup: {why}", path.display())]
    NotABackup {
        /// What was named.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// A restore into this directory stopped half-way.
    #[error(
        "a restore into {} was interrupted: run the same restore again; what was there before is \
         kept in {}",
        dir.display(), aside.display()
    )]
    RestoreInterrupted {
        /// Which directory.
        dir: PathBuf,
        /// The directory of the former store.
        aside: PathBuf,
    },
    /// The directory has a store, which a restore would have replaced.
    #[error(
        "there is a store in {} already: say that it is to be replaced (it will be kept aside), or \
         give an empty directory",
        dir.display()
    )]
    Occupied {
        /// Which directory.
        dir: PathBuf,
    },
    /// The content is not what was written.
    #[error("the database is damaged: {what}. Restore a backup")]
    Damaged {
        /// The first finding.
        what: String,
    },
    /// The file system said no.
    #[error("{what} {}: {source}{}", path.display(), remedy(source))]
    Io {
        /// What was tried, as "creating the directory".
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// SQLite said no.
    #[error("{what}: {why}")]
    Database {
        /// What was tried.
        what: String,
        /// Why not.
        why: String,
    },
    /// No random bytes for a new key.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}

/// The keys that did not fit, for [`OpenError::WrongKey`].
#[derive(Debug, Clone)]
pub struct Tried {
    pub(super) key: KeySource,
    pub(super) previous: Option<KeySource>,
}

impl std::fmt::Display for Tried {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.previous {
            None => write!(f, "{} is not", self.key),
            Some(previous) => {
                write!(f, "neither {} nor (as the previous one) {previous} is", self.key)
            }
        }
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ". The store needs a directory that its user can write to"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ". Free some space",
        io::ErrorKind::FileTooLarge => ". Raise the limit of file sizes (ulimit -f)",
        _ => "",
    }
}

impl OpenError {
    pub(super) fn database(what: &str, error: &rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotAStore,
            _ => Self::Database { what: what.to_owned(), why: explain(error) },
        }
    }

    /// The error for a database that is being checked: damage is then the finding, not a fault of the check.
    pub(super) fn finding(what: &str, error: &rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged { what: error.to_string() },
            _ => Self::database(what, error),
        }
    }

    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, path: path.to_owned(), source }
    }
}

/// The reason why a backup was not made. The store goes on unharmed, and the backup made no file of its name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// There is a file of that name: backups never replace anything.
    #[error("{} exists already: give another name, or move it away", .0.display())]
    Exists(PathBuf),
    /// The file system said no.
    #[error("{what} {}: {source}{}", path.display(), remedy(source))]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// SQLite said no.
    #[error("copying the database to {}: {why}", path.display())]
    Copy {
        /// Where to.
        path: PathBuf,
        /// Why not.
        why: String,
    },
}

impl BackupError {
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, path: path.to_owned(), source }
    }

    pub(super) fn copy(path: &Path) -> impl FnOnce(rusqlite::Error) -> Self {
        move |error| Self::Copy { path: path.to_owned(), why: explain(&error) }
    }
}

/// SQLite's reason, with the remedy where there is one. Never holds content.
pub(super) fn explain(error: &rusqlite::Error) -> String {
    let remedy = match error.sqlite_error_code() {
        _ if is_moved(error) => {
            "; its files were removed or replaced: put them back, or make a backup of what this process \
             still has before it ends, and restore that"
        }
        Some(ErrorCode::DiskFull) => "; free some space: writing resumes by itself",
        Some(ErrorCode::SystemIoFailure) => {
            "; look at the system's log for the disk, and at the limit of file sizes (ulimit -f)"
        }
        Some(ErrorCode::DatabaseCorrupt) => "; restore a backup",
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            "; the store needs files and a directory that its user can write to"
        }
        _ => "",
    };
    let code = match error {
        rusqlite::Error::SqliteFailure(code, _) => format!(" (SQLite {})", code.extended_code),
        _ => String::new(),
    };
    format!("{error}{code}{remedy}")
}

/// SQLite's reason in short, for everybody: without a name or a number of this machine.
pub(super) fn in_short(error: &rusqlite::Error) -> &'static str {
    match error.sqlite_error_code() {
        _ if is_moved(error) => "its files were removed or replaced",
        Some(ErrorCode::DiskFull) => "the disk is full",
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            "its files cannot be written to"
        }
        _ => "the disk or the database failed",
    }
}

/// Whether the files of the store are not where they were; see [`super::files`].
fn is_moved(error: &rusqlite::Error) -> bool {
    matches!(error, rusqlite::Error::SqliteFailure(code, _)
        if code.extended_code == rusqlite::ffi::SQLITE_READONLY_DBMOVED)
}

/// SQLite's error as [`StoreError::Unavailable`].
pub(super) fn unavailable(what: &str, error: &rusqlite::Error) -> StoreError {
    StoreError::Unavailable(format!("{what}: {}", explain(error)))
}
