//! Watches the files of an open store, to notice when they are not where they were.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rusqlite::ffi;

/// The files of an open store. SQLite goes on writing to files that were removed or replaced, and nobody would find
/// what it wrote there.
#[derive(Debug)]
pub(super) struct Files(Vec<(PathBuf, Identity)>);

/// The identity of a file: device and inode.
type Identity = (u64, u64);

impl Files {
    /// The files at these paths, as far as they are there.
    pub(super) fn of(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let known = paths.into_iter().filter_map(|path| identity(&path).map(|is| (path, is)));
        Self(known.collect())
    }

    /// Checks that the files are where they were.
    ///
    /// # Errors
    /// `SQLITE_READONLY_DBMOVED`, if one is not.
    pub(super) fn are_in_place(&self) -> rusqlite::Result<()> {
        let in_place = self.0.iter().all(|(path, is)| identity(path).as_ref() == Some(is));
        let moved = || ffi::Error::new(ffi::SQLITE_READONLY_DBMOVED);
        in_place.then_some(()).ok_or_else(|| rusqlite::Error::SqliteFailure(moved(), None))
    }
}

fn identity(path: &Path) -> Option<Identity> {
    let metadata = path.metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}
