//! Retention: removes what is left of released runs after a while, and other leftovers.
//!
//! Each release looks at the oldest few, so that the cost follows the runs; what an earlier server left
//! is read once, at the first release.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use super::directory::{RunDirectory, Standing};
use super::durable;

/// How many runs one release removes at most.
const AT_ONCE: usize = 8;
/// The age from which directories of runs that were never started, or of catalogs, are removed.
const UNFINISHED: Duration = Duration::from_secs(24 * 60 * 60);

/// The released runs, and when they were released.
#[derive(Debug)]
pub(super) struct Retention {
    runs: PathBuf,
    keep: usize,
    keep_for: Duration,
    /// `None` before the first release.
    released: Mutex<Option<BTreeSet<(SystemTime, String)>>>,
}

impl Retention {
    pub(super) fn new(runs: &Path, keep: usize, keep_for: Duration) -> Self {
        Self { runs: runs.to_owned(), keep, keep_for, released: Mutex::new(None) }
    }

    /// Remembers a release and removes what is over the limits.
    pub(super) fn released(&self, name: &str, exchange: &Path) -> io::Result<()> {
        let mut released = self.released.lock().unwrap_or_else(PoisonError::into_inner);
        if released.is_none() {
            *released = Some(self.find(exchange)?);
        }
        let Some(released) = released.as_mut() else { return Ok(()) };
        if let Some(at) = self.run(name).released_at() {
            released.insert((at, name.to_owned()));
        }
        let now = SystemTime::now();
        for _ in 0..AT_ONCE {
            let Some((at, name)) = released.first() else { break };
            let age = now.duration_since(*at).unwrap_or_default();
            if released.len() <= self.keep && age <= self.keep_for {
                break;
            }
            self.remove(name);
            released.pop_first();
        }
        Ok(())
    }

    /// Finds the runs that were released before, and removes leftovers that nobody needs.
    fn find(&self, exchange: &Path) -> io::Result<BTreeSet<(SystemTime, String)>> {
        let mut released = BTreeSet::new();
        for name in names(&self.runs)? {
            let run = self.run(&name);
            let Ok(standing) = run.standing() else { continue };
            match (standing, run.released_at()) {
                (Standing::Released, Some(at)) => {
                    released.insert((at, name));
                }
                (Standing::Prepared, _) if is_old(run.path()) => self.remove(&name),
                // A catalog that nobody waited for.
                (Standing::Ended | Standing::Lost, _)
                    if name.starts_with('.') && is_old(run.path()) =>
                {
                    self.remove(&name);
                }
                _ => {}
            }
        }
        // Another user of it may have ended, and nobody have needed it since.
        for name in names(exchange).unwrap_or_default() {
            if matches!(self.run(&name).standing(), Ok(Standing::Absent | Standing::Released))
                && is_old(&exchange.join(&name))
            {
                removed(&name, durable::remove_all(&exchange.join(&name)));
            }
        }
        Ok(released)
    }

    fn remove(&self, name: &str) {
        removed(name, self.run(name).remove());
    }

    fn run(&self, name: &str) -> RunDirectory {
        RunDirectory::at(self.runs.join(name))
    }
}

/// Logs that something could not be removed, which keeps nothing else from being removed.
fn removed(name: &str, removed: io::Result<()>) {
    if let Err(error) = removed {
        tracing::warn!(run = name, %error, "something that nobody needs stays");
    }
}

fn names(directory: &Path) -> io::Result<Vec<String>> {
    let entries = std::fs::read_dir(directory)?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
}

fn is_old(path: &Path) -> bool {
    let modified = path.metadata().and_then(|metadata| metadata.modified());
    let age = modified.ok().and_then(|modified| modified.elapsed().ok());
    age.is_some_and(|age| age > UNFINISHED)
}
