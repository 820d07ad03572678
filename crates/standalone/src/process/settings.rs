//! The settings of the process runner.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use zeroize::Zeroizing;

/// The key from which the keys of results are derived. The store keeps it, sealed, so that it exists nowhere else.
#[derive(Clone)]
pub struct RunnerKey(Zeroizing<[u8; 32]>);

impl RunnerKey {
    /// Wraps 32 bytes that nobody can guess.
    pub fn new(key: [u8; 32]) -> Self {
        Self(Zeroizing::new(key))
    }

    pub(super) fn expose(&self) -> &[u8] {
        self.0.as_ref()
    }
}

impl fmt::Debug for RunnerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunnerKey")
    }
}

/// The settings of a process runner.
#[derive(Debug, Clone)]
pub struct ProcessSettings {
    /// The broker's executable: a path, or a name to be looked for in `PATH`.
    pub command: PathBuf,
    /// Arguments that come before the subcommand.
    pub arguments: Vec<OsString>,
    /// A directory with a file for each key of the configuration.
    pub config_dir: Option<PathBuf>,
    /// A directory with a file for each secret key: these win over keys of the same name, and are removed from logs.
    pub secret_dir: Option<PathBuf>,
    /// The directory of the runs' directories, on a disk that survives a restart.
    pub runs: PathBuf,
    /// The root of the exchange directories, in which runs work; default: a directory in `/dev/shm`, or
    /// `<runs>/.exchange` where there is no `/dev/shm`.
    pub exchange: Option<PathBuf>,
    /// The key from which the keys of results are derived.
    pub key: RunnerKey,
    /// The program that calls [`supervisor::main`](super::supervisor::main) with the path that is added
    /// to these arguments.
    pub supervisor: Vec<OsString>,
    /// The time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// The time that `catalog` has.
    pub catalog_timeout: Duration,
    /// A file that is read for the catalog, instead of asking the broker.
    pub catalog_file: Option<PathBuf>,
    /// The most that a broker may print on stdout, in bytes.
    pub output_limit: usize,
    /// How much of a log is kept, in bytes: half of it from its beginning.
    pub log_limit: usize,
    /// The variables of this process's environment that brokers see, beside `PATH`, `HOME`, `LANG`, `TZ` and
    /// `TMPDIR`.
    pub pass_environment: Vec<String>,
    /// How many released runs are kept for inspection.
    pub keep_runs: usize,
    /// How long released runs are kept for inspection.
    pub keep_for: Duration,
}

impl ProcessSettings {
    /// The default settings: 10 s of grace, 60 s for the catalog, 1 MiB of output and of log, 1000 runs for seven
    /// days.
    pub fn new(
        command: impl Into<PathBuf>,
        runs: impl Into<PathBuf>,
        key: RunnerKey,
        supervisor: Vec<OsString>,
    ) -> Self {
        Self {
            command: command.into(),
            arguments: Vec::new(),
            config_dir: None,
            secret_dir: None,
            runs: runs.into(),
            exchange: None,
            key,
            supervisor,
            grace: Duration::from_secs(10),
            catalog_timeout: Duration::from_secs(60),
            catalog_file: None,
            output_limit: 1024 * 1024,
            log_limit: 1024 * 1024,
            pass_environment: Vec::new(),
            keep_runs: 1000,
            keep_for: Duration::from_secs(7 * 24 * 60 * 60),
        }
    }
}

/// The error with which a runner could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
pub struct OpenError {
    /// The message: what could not be done.
    pub what: String,
    /// The error of the system.
    pub source: std::io::Error,
}
