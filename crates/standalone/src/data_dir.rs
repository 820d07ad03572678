//! Makes directories that survive a loss of power.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Makes a directory that only this user can open, and those above it that are missing; one that is there is left as it
/// is. The directories are durable when this returns.
///
/// # Errors
/// If one of them cannot be made or synced, or something else has its name.
pub fn make(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|it| is_missing(it)).collect();
    for path in missing.into_iter().rev() {
        match DirBuilder::new().mode(0o700).create(path) {
            // Another makes it, too; whoever comes first, it is synced.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        sync_dir(parent(path))?;
    }
    // Nothing is changed by this; it says what is in the way.
    match path.metadata()?.is_dir() {
        true => Ok(()),
        false => Err(io::ErrorKind::NotADirectory.into()),
    }
}

/// Makes a file in a directory and removes it.
///
/// # Errors
/// If nothing may be made there: it is another user's, or on a disk that is read-only. A full disk is no error: that
/// passes, and is said by whoever meets it.
pub(crate) fn try_to_write(path: &Path) -> io::Result<()> {
    let file = path.join(format!(".try-{}", std::process::id()));
    match File::create(&file).and_then(|_| std::fs::remove_file(&file)) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            ) =>
        {
            Ok(())
        }
        tried => tried,
    }
}

/// Makes the names in a directory durable.
pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Whether a directory is missing. The last ancestor of a relative path is empty: it is the current directory.
fn is_missing(path: &Path) -> bool {
    !path.as_os_str().is_empty() && !path.exists()
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn where_nothing_can_be_made_is_told_from_where_it_can() {
        let home = tempfile::tempdir().unwrap();
        try_to_write(home.path()).unwrap();
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "something is left of it");
        // Not even root makes files there.
        try_to_write(Path::new("/proc")).unwrap_err();
    }

    #[test]
    fn what_is_missing_is_made_for_us_alone_and_what_is_there_is_left() {
        let home = tempfile::tempdir().unwrap();
        let (above, data) = (home.path().join("above"), home.path().join("above/of/data"));
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        std::fs::create_dir(&above).unwrap();
        std::fs::set_permissions(&above, std::fs::Permissions::from_mode(0o755)).unwrap();
        make(&data).unwrap();
        make(&data).unwrap();
        assert_eq!([mode(&above), mode(&above.join("of")), mode(&data)], [0o755, 0o700, 0o700]);
        std::fs::write(home.path().join("file"), "").unwrap();
        make(&home.path().join("file")).unwrap_err();
        make(&home.path().join("file/data")).unwrap_err();
        assert_eq!(
            [parent(Path::new("data")), parent(Path::new("a/b"))],
            [".", "a"].map(Path::new)
        );
    }
}
