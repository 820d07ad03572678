//! The configuration as a broker sees it: one file and one variable for each key.
//!
//! Seed "Jobs Mode", "Downward API". The directories may be mounts of a ConfigMap and a Secret, in
//! which each key is a symlink into a hidden directory (`..data`).

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use engine::contract;

use crate::files;

/// The longest variable, in bytes: the kernel takes no longer one (`MAX_ARG_STRLEN`, with the terminating zero).
const MAX_VARIABLE_BYTES: usize = 128 * 1024 - 1;
/// The largest file of a key, in bytes: as of a ConfigMap or a Secret of Kubernetes.
const MAX_FILE_BYTES: usize = 1024 * 1024;

/// The keys of a directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct KeyFiles {
    /// The variables, in the order of the keys' names.
    pub variables: Vec<(String, OsString)>,
    /// Every value, whether or not it becomes a variable.
    pub values: Vec<Vec<u8>>,
    /// Notes on the keys that are offered as files only, and why.
    pub notes: Vec<String>,
}

/// Reads the keys of a directory. Directories are no keys, nor are the files that a mount keeps for itself. A hidden
/// file is a key, as `.pgpass` in `_PGPASS`, unless it cannot be read.
pub fn read(directory: &Path) -> io::Result<KeyFiles> {
    let mut entries: Vec<_> = std::fs::read_dir(directory)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    let mut keys = KeyFiles::default();
    for entry in entries {
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(b"..") {
            continue;
        }
        let read = files::read(&entry.path(), MAX_FILE_BYTES + 1);
        // Of an editor, or of somebody else: the broker may not be able to read it either.
        if read.is_err() && name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let Some(value) = read? else { continue };
        let variable = match name.to_str() {
            _ if value.len() > MAX_FILE_BYTES => Err("it is over 1 MiB"),
            Some(key) => variable(key, &value),
            None => Err("its name is not UTF-8"),
        };
        match variable {
            Ok(name) => {
                // The later of the two is what a process finds.
                if keys.variables.iter().any(|(taken, _)| *taken == name) {
                    let path = entry.path();
                    let why =
                        format!("{name} is the variable of another key too, which is a file only");
                    keys.notes.push(format!("{}: {why}", path.display()));
                }
                keys.variables.push((name, OsString::from_vec(value.clone())));
            }
            Err(why) => {
                let path = entry.path();
                keys.notes.push(format!("{} is offered as a file only: {why}", path.display()));
            }
        }
        keys.values.push(value);
    }
    Ok(keys)
}

fn variable(key: &str, value: &[u8]) -> Result<String, &'static str> {
    let name = contract::variable(key)?;
    if value.contains(&0) {
        return Err("its value has a NUL byte");
    }
    if name.len() + 1 + value.len() > MAX_VARIABLE_BYTES {
        return Err("its value is too long for a variable");
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(keys: &KeyFiles) -> Vec<&str> {
        keys.variables.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn keys_of_a_kubernetes_mount_become_variables() {
        let mount = tempfile::tempdir().unwrap();
        let version = mount.path().join("..2026_11_01");
        std::fs::create_dir(&version).unwrap();
        std::fs::write(version.join("aws.secret.key"), "s3cret\n").unwrap();
        std::fs::write(version.join("region-name"), "eu").unwrap();
        symlink("..2026_11_01", mount.path().join("..data")).unwrap();
        for key in ["aws.secret.key", "region-name"] {
            symlink(format!("..data/{key}"), mount.path().join(key)).unwrap();
        }
        let keys = read(mount.path()).unwrap();
        let expected = [("AWS_SECRET_KEY", "s3cret\n"), ("REGION-NAME", "eu")];
        assert_eq!(keys.variables, expected.map(|(name, value)| (name.into(), value.into())));
        assert_eq!(keys.notes, [] as [&str; 0]);
    }

    #[test]
    fn of_two_keys_with_one_variable_it_is_said_which_has_it() {
        let directory = tempfile::tempdir().unwrap();
        for key in ["PG_HOST", "pg.host"] {
            std::fs::write(directory.path().join(key), key).unwrap();
        }
        let keys = read(directory.path()).unwrap();
        let last = keys.variables.last().unwrap();
        assert_eq!((last.0.as_str(), &*last.1), ("PG_HOST", std::ffi::OsStr::new("pg.host")));
        let [note] = &keys.notes[..] else { panic!("{:?}", keys.notes) };
        assert!(note.contains("/pg.host: PG_HOST is the variable of another key too"), "{note}");
    }

    #[test]
    fn what_cannot_be_a_variable_is_noted_and_still_a_secret() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        std::fs::write(path.join("osb.state.file"), "reserved").unwrap();
        std::fs::write(path.join("nul"), b"a\0b").unwrap();
        std::fs::write(path.join("a=b"), "equals").unwrap();
        std::fs::write(path.join("long"), "x".repeat(MAX_VARIABLE_BYTES)).unwrap();
        std::fs::write(path.join("huge"), vec![b'x'; MAX_FILE_BYTES + 1]).unwrap();
        std::fs::write(path.join(std::ffi::OsStr::from_bytes(b"\xff")), "bytes").unwrap();
        std::fs::write(path.join("good"), "good").unwrap();
        let keys = read(path).unwrap();
        assert_eq!(names(&keys), ["GOOD"]);
        assert_eq!(keys.notes.len(), 6);
        assert_eq!(keys.values.len(), 7);
        assert!(!keys.notes.join("").contains("equals"), "a note has no value in it");
    }

    #[test]
    fn what_is_hidden_is_a_key_as_any() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(".pgpass"), "db:5432:*:u:hunter2").unwrap();
        let keys = read(directory.path()).unwrap();
        assert_eq!(keys.variables, [("_PGPASS".to_owned(), "db:5432:*:u:hunter2".into())]);
        assert_eq!(keys.values, [b"db:5432:*:u:hunter2".to_vec()]);
    }

    #[test]
    fn capitals_and_underscores_stay_as_they_are() {
        let directory = tempfile::tempdir().unwrap();
        for key in ["Db_URL", "x-y.Z"] {
            std::fs::write(directory.path().join(key), "v").unwrap();
        }
        assert_eq!(names(&read(directory.path()).unwrap()), ["DB_URL", "X-Y_Z"]);
    }

    #[test]
    fn directories_dangling_links_and_what_is_of_the_mount_are_no_keys() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("sub")).unwrap();
        std::fs::create_dir(directory.path().join(".sub")).unwrap();
        std::fs::write(directory.path().join("..version"), "x").unwrap();
        symlink("nowhere", directory.path().join("dangling")).unwrap();
        assert_eq!(read(directory.path()).unwrap(), KeyFiles::default());
        assert!(read(&directory.path().join("missing")).is_err());
    }
}
