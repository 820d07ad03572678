//! Observes runs: their state and their logs; and releases them.

use std::io;
use std::path::Path;
use std::sync::PoisonError;
use std::time::SystemTime;

use engine::contract;
use engine::names::RunName;
use engine::ports::RunState;
use engine::record::Key;
use engine::redact::{MASK, Redactor, Secrets};
use osb::Work;
use osb::jobs::contract::MAX_STATE_BYTES;

use super::Shared;
use crate::process::directory::{RunDirectory, Standing};
use crate::process::durable;
use crate::process::ending::Ending;
use crate::process::exchange::Exchange;
use crate::process::log;

/// How many bytes of a progress file are read at most.
const PROGRESS_BYTES: usize = 16 * 1024;

/// Whether there are runs in this directory that go on, or whose result was not released, whoever started them.
///
/// # Errors
/// If the directory or a run in it cannot be read.
pub fn has_runs(runs: &Path) -> io::Result<bool> {
    let entries = match std::fs::read_dir(runs) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        let Some(name) = name.to_str().and_then(RunName::parse) else { continue };
        match RunDirectory::at(runs.join(name.as_str())).standing()? {
            Standing::Running { .. } | Standing::Ended | Standing::Lost => return Ok(true),
            Standing::Absent | Standing::Prepared | Standing::Released => {}
        }
    }
    Ok(false)
}

/// The progress that a file said when it was last read: to redact it again for every glance would cost
/// more than the glance.
#[derive(Debug)]
pub(super) struct Said {
    modified: SystemTime,
    progress: Option<String>,
}

impl Shared {
    pub(super) fn observe(&self, name: &str) -> io::Result<RunState> {
        let run = self.run(name);
        Ok(match run.settled()? {
            Standing::Absent | Standing::Prepared | Standing::Released => RunState::Absent,
            Standing::Running { .. } => RunState::Running { progress: self.progress(name)? },
            Standing::Ended => {
                let sealed = run.result()?.unwrap_or_default();
                let ending = self.key(name).and_then(|key| Ending::open(&key, name, &sealed));
                match (run.about(), ending) {
                    (Ok(Some(about)), Some(ending)) => RunState::Finished(ending.interpret(&about)),
                    // No time mends it.
                    (Err(error), _) if error.kind() == io::ErrorKind::InvalidData => {
                        RunState::Lost { why: format!("what it was to do is not known: {error}") }
                    }
                    (Err(error), _) => return Err(error),
                    _ => RunState::Lost {
                        why: "its result was damaged, or sealed under another key".to_owned(),
                    },
                }
            }
            Standing::Lost => {
                run.end_broker()?;
                let what = "its supervisor was ended before it left a result (killed, out of \
                            memory, or the machine went down)";
                let log = self.log(name)?.unwrap_or_default();
                let redactor = self.redactor(&self.exchange(name));
                RunState::Lost { why: contract::with_log(what, &log, &redactor) }
            }
        })
    }

    /// The runs that are not released. A run that cannot be read is left out, so that it keeps no other from being
    /// released.
    pub(super) fn unreleased(&self) -> io::Result<Vec<(RunName, Key)>> {
        let mut unreleased = Vec::new();
        for entry in std::fs::read_dir(&self.runs)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str().and_then(RunName::parse) else { continue };
            match self.owner_of_unreleased(name.as_str()) {
                Ok(owner) => unreleased.extend(owner.map(|owner| (name, owner))),
                Err(error) => {
                    tracing::warn!(run = %name, %error, "a run stays: whose it is cannot be read");
                }
            }
        }
        Ok(unreleased)
    }

    /// The record of a run that is not released; `None` also for a run whose order was never written down: it had no
    /// broker.
    fn owner_of_unreleased(&self, name: &str) -> io::Result<Option<Key>> {
        let run = self.run(name);
        let about = match run.standing()? {
            Standing::Running { .. } | Standing::Ended | Standing::Lost => run.about()?,
            Standing::Absent | Standing::Prepared | Standing::Released => None,
        };
        Ok(about.and_then(|about| about.key()))
    }

    fn progress(&self, name: &str) -> io::Result<Option<String>> {
        let exchange = self.exchange(name);
        let Ok(modified) = exchange.progress().metadata().and_then(|file| file.modified()) else {
            return Ok(None);
        };
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(said) = said.get(name).filter(|said| said.modified == modified) {
            return Ok(said.progress.clone());
        }
        let text = durable::read(&exchange.progress(), PROGRESS_BYTES)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let progress = contract::progress(&text, &self.redactor(&exchange));
        said.insert(name.to_owned(), Said { modified, progress: progress.clone() });
        Ok(progress)
    }

    pub(super) fn log(&self, name: &str) -> io::Result<Option<String>> {
        let run = self.run(name);
        if let Some(log) = run.log()? {
            return Ok(Some(log));
        }
        let standing = run.standing()?;
        if standing == Standing::Absent {
            return Ok(None);
        }
        let exchange = self.exchange(name);
        let redactor = self.redactor(&exchange);
        let mut log = log::read(exchange.path(), self.settings.log_limit, None, &redactor)?;
        // What may yet become a secret, or nothing of the kind, waits: who follows a log looks in the next for what was
        // in the one before.
        if matches!(standing, Standing::Running { .. }) && log.ends_with(MASK) {
            log.truncate(log.len() - MASK.len());
        }
        Ok(Some(log))
    }

    /// A redactor of what the broker of a run was given; what it will give is not known.
    fn redactor(&self, exchange: &Exchange) -> Redactor {
        let request = durable::read(&exchange.request(), usize::MAX).ok().flatten();
        let request = request.and_then(|json| serde_json::from_slice::<Work>(&json).ok());
        let mut secrets: Secrets =
            request.as_ref().map(contract::secrets::of_work).unwrap_or_default();
        if let Ok(Some(state)) = durable::read(&exchange.state(), MAX_STATE_BYTES) {
            secrets.add(&state);
        }
        if let Ok(Some(removed)) = durable::read(&exchange.removes(), usize::MAX) {
            secrets.extend(contract::secrets::of_output(&removed));
        }
        let directory = self.settings.secret_dir.as_deref();
        if let Some(Ok(keys)) = directory.map(child::keys::read) {
            keys.values.iter().for_each(|value| secrets.add(value));
        }
        Redactor::new(&secrets)
    }

    /// Releases a run; `false` while it is alive: it was asked to end then.
    pub(super) fn release(&self, run: &RunDirectory, name: &str) -> io::Result<bool> {
        match run.standing()? {
            Standing::Absent => return Ok(true),
            Standing::Running { .. } => {
                run.cancel()?;
                return Ok(false);
            }
            // A supervisor that an earlier server left behind may still be about to start it.
            Standing::Prepared if !run.claim(None)? => return Ok(false),
            Standing::Lost => {
                run.end_broker()?;
                if run.log()?.is_none() {
                    run.write_log(&self.log(name)?.unwrap_or_default())?;
                }
            }
            Standing::Prepared | Standing::Ended | Standing::Released => {}
        }
        self.said.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        run.release()?;
        // Released it is all the same.
        if let Err(error) = self.exchange(name).remove() {
            tracing::warn!(run = name, %error, "something of what its broker worked with stays");
        }
        Ok(true)
    }
}
