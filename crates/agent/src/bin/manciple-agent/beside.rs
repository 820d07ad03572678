//! Reads the secrets that a pod has beside those of the contract, because an operator gave it some: they are only
//! masked.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use agent::Order;
use child::files;
use engine::redact::Secrets;

/// The largest file that counts as a secret, in bytes: a Secret holds no more.
const MAX_FILE_BYTES: usize = 1024 * 1024;
/// How many bytes are read of all files together.
const MAX_BYTES: usize = 4 * 1024 * 1024;
const MAX_ENTRIES: usize = 1000;
/// How deep directories are searched: a key of a volume may have a path of its own.
const MAX_DEPTH: usize = 8;

/// The secrets that the order names, as far as they can be read: what the agent cannot read the broker cannot print.
pub(crate) fn secrets(order: &Order) -> Secrets {
    let mut found = Found::default();
    for name in &order.secret_variables {
        let value = std::env::var_os(name).unwrap_or_default();
        found.secrets.add(value.as_os_str().as_bytes());
    }
    for path in &order.secret_paths {
        found.look(path, 0);
    }
    found.secrets
}

#[derive(Default)]
struct Found {
    secrets: Secrets,
    bytes: usize,
    entries: usize,
}

impl Found {
    fn look(&mut self, path: &Path, depth: usize) {
        if depth > MAX_DEPTH || self.bytes >= MAX_BYTES || self.entries >= MAX_ENTRIES {
            return;
        }
        self.entries += 1;
        if path.is_dir() {
            // What begins so a mount keeps for itself: each key is a link into it.
            let is_key = |name: &OsStr| !name.as_bytes().starts_with(b"..");
            let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
            for entry in entries.filter(|entry| is_key(&entry.file_name())) {
                self.look(&entry.path(), depth + 1);
            }
        } else if let Ok(Some(value)) = files::read(path, MAX_FILE_BYTES + 1) {
            self.bytes += value.len();
            if value.len() <= MAX_FILE_BYTES {
                self.secrets.add(&value);
            }
        }
    }
}
