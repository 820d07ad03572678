//! Files that survive a loss of power: written, synced, named, and the directory synced.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

pub(super) use child::files::read;

pub(super) use crate::data_dir::sync_dir;

/// Makes a directory that only this user can open; one that is there is left as it is.
pub(super) fn create_dir(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Creates a file that only this user can open, empty or emptied.
pub(super) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Writes a file as a whole, durably: a reader sees all of it or the one before.
pub(super) fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    stage(path, content)?;
    sync_parent(path)
}

/// Does as [`write`], but the file is durable only with whatever syncs the directory next.
pub(super) fn stage(path: &Path, content: &[u8]) -> io::Result<()> {
    let unnamed = path.with_extension("new");
    let mut file = create(&unnamed)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&unnamed, path)
}

/// Creates a file that nobody else has created; `false` if somebody has. There is no such file if this
/// fails.
pub(super) fn mark(path: &Path, content: &[u8]) -> io::Result<bool> {
    let mut file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
        opened => opened?,
    };
    let written = file.write_all(content).and_then(|()| file.sync_all());
    if let Err(error) = written.and_then(|()| sync_parent(path)) {
        remove(path)?;
        return Err(error);
    }
    Ok(true)
}

/// Removes a file durably; it may be gone already.
pub(super) fn unmark(path: &Path) -> io::Result<()> {
    remove(path)?;
    sync_parent(path)
}

/// Removes a file; it may be gone already.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    absent_is_done(std::fs::remove_file(path))
}

/// Removes a directory and what is in it; it may be gone already. A broker that is run by the same user may have
/// left directories in it that nobody may write to.
pub(super) fn remove_all(path: &Path) -> io::Result<()> {
    match absent_is_done(std::fs::remove_dir_all(path)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_up(path);
            absent_is_done(std::fs::remove_dir_all(path))
        }
        removed => removed,
    }
}

/// Makes each directory of this user writable; where that fails, the removal reports it.
fn open_up(path: &Path) {
    let mut directories = vec![path.to_owned()];
    while let Some(directory) = directories.pop() {
        let _ = std::fs::set_permissions(&directory, Permissions::from_mode(0o700));
        let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        let further = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        directories.extend(further.map(|entry| entry.path()));
    }
}

fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), sync_dir)
}

fn absent_is_done(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
