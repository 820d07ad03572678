//! A directory of its own for each test: a broker, its configuration, a ledger, and the runs.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use engine::names::RunName;
use engine::ports::{Run, RunFailure, RunState, Runner};
use engine::testing::runner_contract::{self, BROKER, Behaviour, Harness};
use osb::jobs::contract::Capability;
use osb::{InstanceId, Output};
use standalone::process::{ProcessRunner, ProcessSettings, RunnerKey};

/// The state of a process runner, and what is around it.
pub(crate) struct Fixture {
    directory: tempfile::TempDir,
}

impl Fixture {
    /// With the broker of the contract's cases.
    pub(crate) fn new() -> Self {
        Self::with_broker(BROKER)
    }

    /// With a broker of the test's own: the body of a shell script, or one that begins with `#!`.
    pub(crate) fn with_broker(script: &str) -> Self {
        let fixture = Self { directory: tempfile::tempdir().unwrap() };
        for directory in ["ledger", "config", "secret"] {
            fs::create_dir(fixture.path(directory)).unwrap();
        }
        let ledger = fixture.path("ledger");
        fs::write(fixture.path("config/ledger"), ledger.to_str().unwrap()).unwrap();
        fixture.set_broker(script);
        fixture
    }

    pub(crate) fn set_broker(&self, script: &str) {
        let script = match script.starts_with("#!") {
            true => script.to_owned(),
            false => format!("#!/bin/sh\n{script}\n"),
        };
        // Under another name first: a script that is open for writing cannot be executed.
        fs::write(self.path("broker.new"), script).unwrap();
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.path("broker.new"), mode).unwrap();
        fs::rename(self.path("broker.new"), self.path("broker")).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn settings(&self) -> ProcessSettings {
        let key = RunnerKey::new([7; 32]);
        ProcessSettings {
            config_dir: Some(self.path("config")),
            secret_dir: Some(self.path("secret")),
            exchange: Some(self.path("exchange")),
            grace: Duration::from_secs(1),
            ..ProcessSettings::new(self.path("broker"), self.path("runs"), key, supervisor())
        }
    }

    /// A runner, as after a restart.
    pub(crate) fn runner(&self) -> ProcessRunner {
        ProcessRunner::open(self.settings()).unwrap()
    }

    /// A runner with settings of the test's own.
    pub(crate) fn runner_with(&self, change: impl FnOnce(&mut ProcessSettings)) -> ProcessRunner {
        let mut settings = self.settings();
        change(&mut settings);
        ProcessRunner::open(settings).unwrap()
    }

    pub(crate) fn effects_of(&self, name: &str) -> usize {
        let ledger = self.path("ledger").join(name);
        fs::read_to_string(ledger).map_or(0, |ledger| ledger.lines().count())
    }

    pub(crate) fn run_file(&self, run: &RunName, file: &str) -> PathBuf {
        self.path("runs").join(run.as_str()).join(file)
    }
}

impl Drop for Fixture {
    /// What a failed test leaves running.
    fn drop(&mut self) {
        for pid in pids_with(self.directory.path()) {
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

#[async_trait]
impl Harness for Fixture {
    async fn runner(&self) -> Arc<dyn Runner> {
        Arc::new(Fixture::runner(self))
    }

    async fn effects(&self, instance: &InstanceId) -> usize {
        self.effects_of(instance.as_str())
    }

    async fn lose(&self, run: &RunName) {
        kill_supervisor(&self.path("runs").join(run.as_str()));
    }
}

/// The program that the tests run as supervisor.
pub(crate) fn program() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().unwrap().parent().unwrap().join("examples/process_runner");
    assert!(program.exists(), "{} is not built: cargo build --examples", program.display());
    program
}

pub(crate) fn supervisor() -> Vec<OsString> {
    vec![program().into(), "supervise".into()]
}

/// A run of a script that looks at nothing.
pub(crate) fn run(name: &str) -> Run {
    Run { capabilities: Vec::new(), ..runner_contract::run(Behaviour::Succeeds, name) }
}

pub(crate) fn run_with(name: &str, capabilities: &[Capability]) -> Run {
    Run { capabilities: capabilities.to_vec(), ..run(name) }
}

/// Starts a run and waits for its end.
pub(crate) async fn finish(runner: &ProcessRunner, run: &Run) -> Result<Output, RunFailure> {
    runner.start(run).await.unwrap();
    runner_contract::until_finished(runner, &run.name).await
}

pub(crate) async fn until_lost(runner: &ProcessRunner, run: &Run) -> String {
    let lost = |state: &RunState| matches!(state, RunState::Lost { .. });
    match runner_contract::until(runner, &run.name, lost).await {
        RunState::Lost { why } => why,
        state => panic!("{state:?}"),
    }
}

/// Waits for something that a script or the system does, for two minutes.
pub(crate) async fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..6000 {
        if let Some(found) = look() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what} did not come about");
}

/// Every process whose command line has this path in it.
pub(crate) fn pids_with(path: &Path) -> Vec<i32> {
    let path = path.to_str().unwrap();
    all_pids().filter(|pid| command_line(*pid).contains(path)).collect()
}

pub(crate) fn all_pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
}

pub(crate) fn command_line(pid: i32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// The supervisor of a run.
pub(crate) fn supervisor_of(run: &Path) -> Option<i32> {
    let is_supervisor = |pid: &i32| command_line(*pid).contains("supervise ");
    pids_with(run).into_iter().find(is_supervisor)
}

pub(crate) fn kill_supervisor(run: &Path) {
    let pid = supervisor_of(run).expect("a supervisor");
    kill(pid);
}

pub(crate) fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// Whether a process is there and not a zombie.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}
