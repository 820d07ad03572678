//! Restores a backup: puts it in the place of a store, while nobody uses that place.
//!
//! The backup is copied into the directory and checked there; only then is anything moved. A former
//! store is kept aside, whole. Replacing takes several renames, so a file `restoring` stands in the
//! directory meanwhile: as long as it is there, the store does not open, and the same restore run
//! again goes on where it was interrupted.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OpenFlags};

use super::error::OpenError;
use super::header;
use super::keys::{self, Keyring};
use super::open::{self, DirLock, Layout, Unlocked};
use super::schema::{self, MIGRATIONS, Shape};
use super::verify;
use crate::data_dir::sync_dir;
use crate::seal::{Cipher, KeySource};

/// The number added to the last version, so that no version that was given after the backup comes back.
const VERSIONS_SKIPPED: i64 = 1 << 32;

/// What to do with a store that is already there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// The store stays; the restore is refused.
    Refuse,
    /// The store is moved into a directory of its own beside the new one, and can be opened there.
    KeepAside,
}

/// A restore that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// How many records there are now.
    pub records: u64,
    /// The directory of the former store, if there was one.
    pub aside: Option<PathBuf>,
}

/// Makes `dir` hold the store that `backup` is a copy of, after checking all of it. Blocks.
///
/// Interrupted at any moment, either the former store is still in place, or the store does not open
/// until the same restore is run again.
///
/// # Errors
/// See [`OpenError`]; the former store is then still in place.
pub fn restore(
    backup: &Path,
    dir: &Path,
    key: &KeySource,
    replace: Replace,
) -> Result<Restored, OpenError> {
    let source = header::open(backup)?;
    let operator = key.read()?;
    let layout = Layout::new(dir);
    let is_new = !dir.exists();
    let _lock = DirLock::take(&layout)?;
    let occupied =
        layout.database_files().iter().any(|path| path.exists()) || layout.restoring().exists();
    if occupied && replace == Replace::Refuse {
        return Err(OpenError::Occupied { dir: dir.to_owned() });
    }

    let candidate = dir.join("manciple.db.new");
    let checked = copy(source, &candidate)
        .and_then(|()| check(&candidate, (key, &operator)))
        .and_then(|records| {
            sync(&candidate)?;
            Ok(records)
        });
    let records = match checked {
        Ok(records) => records,
        Err(error) => {
            let _ = std::fs::remove_file(&candidate);
            if is_new {
                // The lock file would say that there was a store.
                let _ = std::fs::remove_file(layout.lock());
                let _ = std::fs::remove_dir(dir);
            }
            return Err(error);
        }
    };

    let aside = if occupied { Some(move_aside(&layout)?) } else { None };
    std::fs::rename(&candidate, layout.database())
        .map_err(OpenError::io("putting in place", &candidate))?;
    sync_dir(dir).map_err(OpenError::io("syncing the directory", dir))?;
    if aside.is_some() {
        let marker = layout.restoring();
        std::fs::remove_file(&marker).map_err(OpenError::io("removing", &marker))?;
        sync_dir(dir).map_err(OpenError::io("syncing the directory", dir))?;
    }
    Ok(Restored { records, aside })
}

fn copy(mut source: File, to: &Path) -> Result<(), OpenError> {
    let _ = std::fs::remove_file(to);
    let mut target = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(to)
        .map_err(OpenError::io("creating", to))?;
    io::copy(&mut source, &mut target).map_err(OpenError::io("copying to", to))?;
    Ok(())
}

fn sync(path: &Path) -> Result<(), OpenError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(OpenError::io("syncing", path))
}

/// Checks that the copy is a store of this key, and whole; brings it to the present shape.
fn check(path: &Path, (source, operator): (&KeySource, &Cipher)) -> Result<u64, OpenError> {
    let failed = |error: rusqlite::Error| OpenError::finding("checking the backup", &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    let shape = schema::inspect(&connection, MIGRATIONS)?;
    if shape == Shape::Empty {
        return Err(OpenError::NotAStore);
    }
    // One file, whoever made the copy and however.
    connection
        .pragma_update_and_check(None, "journal_mode", "delete", |_| Ok(()))
        .map_err(failed)?;
    let Unlocked::Same(found) = open::unlock(&connection, (source, operator), None)? else {
        return Err(OpenError::Damaged { what: "it has no data key".to_owned() });
    };
    schema::migrate(&mut connection, shape, MIGRATIONS)?;
    let report = verify::check(&connection, &Keyring::new(keys::keys(found)?)).map_err(failed)?;
    if let Some(finding) = report.findings.first() {
        let more = match report.found {
            1 => String::new(),
            found => format!(" (and {} more findings)", found - 1),
        };
        return Err(OpenError::Damaged { what: format!("{finding}{more}") });
    }
    connection
        .execute("UPDATE store SET last_version = last_version + ?1", [VERSIONS_SKIPPED])
        .map_err(failed)?;
    connection.close().map_err(|(_, error)| failed(error))?;
    Ok(report.records)
}

/// Moves the files of the former store into a directory of their own, whose name the marker keeps. Files
/// that an interrupted attempt has moved there already stay there.
fn move_aside(layout: &Layout) -> Result<PathBuf, OpenError> {
    let marker = layout.restoring();
    let name = match std::fs::read_to_string(&marker) {
        Ok(name) if !name.trim().is_empty() => name.trim().to_owned(),
        _ => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let name = format!("replaced-{}", now.as_millis());
            let write = || {
                std::fs::write(&marker, &name)?;
                File::open(&marker)?.sync_all()?;
                sync_dir(&layout.dir)
            };
            write().map_err(OpenError::io("writing", &marker))?;
            name
        }
    };
    let aside = layout.dir.join(name);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&aside)
        .map_err(OpenError::io("creating", &aside))?;
    for path in layout.database_files() {
        let Some(name) = path.file_name() else { continue };
        let target = aside.join(name);
        if path.exists() && !target.exists() {
            std::fs::rename(&path, &target).map_err(OpenError::io("moving aside", &path))?;
        }
    }
    sync_dir(&aside)
        .and_then(|()| sync_dir(&layout.dir))
        .map_err(OpenError::io("syncing", &aside))?;
    Ok(aside)
}
