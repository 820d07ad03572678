//! The files of an open store, by which it is noticed that they are not where they were.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rusqlite::ffi;

/// A store goes on in files that were removed or replaced, and nobody would find what it wrote there.
#[derive(Debug)]
pub(super) struct Files(Vec<(PathBuf, Identity)>);

/// Device and inode.
type Identity = (u64, u64);

impl Files {
    /// Those of these that are there.
    pub(super) fn of(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let known = paths.into_iter().filter_map(|path| identity(&path).map(|is| (path, is)));
        Self(known.collect())
    }

    /// # Errors
    /// `SQLITE_READONLY_DBMOVED`, if one is not where it was.
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
