//! The directory of one run, whose files say how the run stands and keep what it left.
//!
//! ```text
//! lock        held by the supervisor while it lives
//! started     created once, before the broker: no second one is ever started; says whose session it is in
//! run.json    what was ordered
//! broker      which processes the broker's are
//! cancel      somebody asked for the end
//! stderr.log  the redacted log
//! exit.json   how it ended, for people
//! result      how it ended, sealed; once it is there, everything else is
//! released    nobody needs the result any more: only what is for people is left
//! ```

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use engine::contract::Exit;
use rustix::process::Signal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::durable;
use super::identity::Identity;
use super::lock::{self, Lock};
use super::order::About;
use crate::data_dir;

/// How long a supervisor may take to start its broker.
const SETTLE: Duration = Duration::from_secs(30);

/// The state of a run, as its directory says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// There is no directory.
    Absent,
    /// There is a directory, and no broker was ever started; none will be unless it is asked for again.
    Prepared,
    /// A supervisor is alive.
    Running {
        /// Whether its broker was started: until then it may yet find that it cannot, and give the
        /// claim back.
        begun: bool,
    },
    /// The run ended and left a result.
    Ended,
    /// The run was started, no supervisor is alive, and there is no result.
    Lost,
    /// The run was released.
    Released,
}

/// The end of a run, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ExitNote {
    pub(super) exit: Exit,
    /// The time of the end, in seconds since 1970.
    pub(super) ended_at: u64,
    pub(super) stdout_bytes: u64,
    pub(super) stderr_bytes: u64,
}

/// The directory of one run.
#[derive(Debug, Clone)]
pub(super) struct RunDirectory {
    path: PathBuf,
}

impl RunDirectory {
    pub(super) fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the directory; durable when this returns.
    pub(super) fn prepare(&self) -> io::Result<()> {
        match durable::create_dir(&self.path) {
            // Somebody has removed them all.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                data_dir::make(&self.path)?;
            }
            made => made?,
        }
        self.path.parent().map_or(Ok(()), durable::sync_dir)
    }

    /// Whether there is no such directory, or it was removed while a process works in it: nothing has a name in it
    /// then.
    pub(super) fn is_absent(&self) -> bool {
        let is_there = |it: Metadata| it.is_dir() && it.nlink() > 0;
        !self.path.metadata().is_ok_and(is_there)
    }

    /// The state of the run. The lock is looked at before the result: a supervisor that ends in between has left one.
    pub(super) fn standing(&self) -> io::Result<Standing> {
        if self.is_absent() {
            return Ok(Standing::Absent);
        }
        if self.has("released") {
            return Ok(Standing::Released);
        }
        let running = !self.has("result") && lock::holder(&self.file("lock"))?.is_some();
        Ok(match (self.has("result"), running) {
            (true, _) => Standing::Ended,
            (false, true) => Standing::Running { begun: self.has("broker") },
            (false, false) if self.is_claimed() => Standing::Lost,
            (false, false) => Standing::Prepared,
        })
    }

    /// Does as [`Self::standing`], but waits while a supervisor has yet to start its broker or give up: that takes
    /// milliseconds, and decides whether there is a run.
    pub(super) fn settled(&self) -> io::Result<Standing> {
        let until = Instant::now() + SETTLE;
        loop {
            match self.standing()? {
                Standing::Running { begun: false } if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Standing::Running { begun: false } => {
                    let what = "its supervisor neither starts its broker nor gives up";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, what));
                }
                settled => return Ok(settled),
            }
        }
    }

    // What a supervisor does.

    pub(super) fn lock(&self) -> io::Result<Option<Lock>> {
        Lock::take(&self.file("lock"))
    }

    pub(super) fn is_claimed(&self) -> bool {
        self.has("started")
    }

    /// Claims the only start that this run has; `false` if it was claimed before. For a supervisor that
    /// is about to start a broker, with the session in which that will be found.
    pub(super) fn claim(&self, session: Option<&Identity>) -> io::Result<bool> {
        durable::mark(&self.file("started"), &json(&session)?)
    }

    /// Gives the start back, because nothing was started.
    pub(super) fn unclaim(&self) -> io::Result<()> {
        durable::unmark(&self.file("started"))
    }

    /// Writes what was ordered; durable with the claim that follows.
    pub(super) fn write_about(&self, about: &About) -> io::Result<()> {
        durable::stage(&self.file("run.json"), &json(about)?)
    }

    /// Records that the broker was started, and which processes are its, if that is known: else those of the
    /// session count as its. Not durable: after a loss of power there are none.
    pub(super) fn write_broker(&self, broker: Option<&Identity>) -> io::Result<()> {
        std::fs::write(self.file("broker"), json(&broker)?)
    }

    /// Writes the redacted log; durable with the result that follows.
    pub(super) fn write_log(&self, log: &str) -> io::Result<()> {
        durable::stage(&self.file("stderr.log"), log.as_bytes())
    }

    /// Writes the end of the run for people; durable with the result that follows.
    pub(super) fn write_exit(&self, note: &ExitNote) -> io::Result<()> {
        durable::stage(&self.file("exit.json"), &json(note)?)
    }

    pub(super) fn write_result(&self, sealed: &[u8]) -> io::Result<()> {
        durable::write(&self.file("result"), sealed)
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.has("cancel")
    }

    // What a server does.

    pub(super) fn about(&self) -> io::Result<Option<About>> {
        self.read_json("run.json")
    }

    pub(super) fn result(&self) -> io::Result<Option<Vec<u8>>> {
        durable::read(&self.file("result"), usize::MAX)
    }

    /// The redacted log, once the run has ended.
    pub(super) fn log(&self) -> io::Result<Option<String>> {
        let log = durable::read(&self.file("stderr.log"), usize::MAX)?;
        Ok(log.map(|log| String::from_utf8_lossy(&log).into_owned()))
    }

    /// Asks for the end of the run: creates the file `cancel`, then wakes the supervisor. A supervisor that finds the
    /// file before it starts the broker does not start it at all.
    pub(super) fn cancel(&self) -> io::Result<()> {
        durable::mark(&self.file("cancel"), b"")?;
        lock::signal_holder(&self.file("lock"), Signal::TERM).map(drop)
    }

    /// Ends the processes that a killed supervisor left behind: the broker's, or, if that was not recorded yet, those
    /// left in the session.
    pub(super) fn end_broker(&self) -> io::Result<()> {
        for note in ["broker", "started"] {
            match self.read_json::<Option<Identity>>(note) {
                Ok(Some(Some(processes))) => return processes.end(),
                Ok(None | Some(None)) => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes the result, and everything else that nobody reads any more.
    pub(super) fn release(&self) -> io::Result<()> {
        durable::mark(&self.file("released"), b"")?;
        for name in ["result", "result.new", "lock", "broker", "cancel"] {
            durable::remove(&self.file(name))?;
        }
        Ok(())
    }

    /// The time at which the run was released.
    pub(super) fn released_at(&self) -> Option<std::time::SystemTime> {
        self.file("released").metadata().ok()?.modified().ok()
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        durable::remove_all(&self.path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn has(&self, name: &str) -> bool {
        self.file(name).exists()
    }

    /// Reads a JSON file. One that this version does not write is [`io::ErrorKind::InvalidData`], and the error repeats
    /// nothing of it.
    fn read_json<T: DeserializeOwned>(&self, name: &str) -> io::Result<Option<T>> {
        let Some(content) = durable::read(&self.file(name), usize::MAX)? else { return Ok(None) };
        serde_json::from_slice(&content).map(Some).map_err(|_| {
            let what = format!("{name} is damaged, or was written by another version");
            io::Error::new(io::ErrorKind::InvalidData, what)
        })
    }
}

fn json(value: &impl Serialize) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(value)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> (tempfile::TempDir, RunDirectory) {
        let runs = tempfile::tempdir().unwrap();
        let run = RunDirectory::at(runs.path().join("provision-a-1"));
        (runs, run)
    }

    #[test]
    fn what_is_there_says_where_the_run_stands() {
        let (_runs, run) = run();
        assert_eq!(run.standing().unwrap(), Standing::Absent);
        run.prepare().unwrap();
        assert_eq!(run.standing().unwrap(), Standing::Prepared);
        assert!(run.claim(None).unwrap());
        assert_eq!(run.standing().unwrap(), Standing::Lost);
        run.write_result(b"x").unwrap();
        assert_eq!(run.standing().unwrap(), Standing::Ended);
        run.release().unwrap();
        assert_eq!(run.standing().unwrap(), Standing::Released);
        assert_eq!(run.result().unwrap(), None);
        assert!(!run.claim(None).unwrap(), "a released run is not started again");
    }

    #[test]
    fn a_start_is_claimed_once() {
        let (_runs, run) = run();
        run.prepare().unwrap();
        run.prepare().unwrap();
        assert!(run.claim(None).unwrap());
        assert!(!run.claim(None).unwrap());
        run.unclaim().unwrap();
        assert!(run.claim(None).unwrap());
    }

    #[test]
    fn a_half_written_note_of_the_broker_does_not_keep_a_run_from_being_lost() {
        let (_runs, run) = run();
        run.prepare().unwrap();
        std::fs::write(run.file("broker"), b"{\"sess").unwrap();
        run.end_broker().unwrap();
    }
}
