//! A directory that stands for a pod with one container, `app`, which leaves files in `out`.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use agent::{Content, GATHERING_VARIABLE, Gathered, Gathering, KeyPair, KeySet, Message, Outputs};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const RUN: &str = "job-abc-1";
/// Root may look at anything; here it is nobody in particular.
pub(crate) const NOBODY: [&str; 2] = ["--user", "--map-user=1000"];
/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Pod {
    directory: tempfile::TempDir,
    pub(crate) keys: KeyPair,
}

/// How a container ended.
pub(crate) struct Ended {
    /// Of the agent.
    pub(crate) code: Option<i32>,
    pub(crate) message: String,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    keys: KeySet,
}

impl Pod {
    pub(crate) fn new() -> Self {
        let pod = Self { directory: tempfile::tempdir().unwrap(), keys: KeyPair::generate() };
        fs::create_dir(pod.path("out")).unwrap();
        fs::write(pod.path("message"), "").unwrap();
        pod
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The agent is told to gather these files.
    pub(crate) fn gathering(&self, files: &[&str]) -> Gathering {
        let files = files.iter().map(|&name| name.to_owned()).collect();
        let outputs = Outputs { directory: self.path("out"), files, stdout: None };
        let outputs = BTreeMap::from([("app".to_owned(), outputs)]);
        let gathering = Gathering::new(RUN, outputs, self.keys.public().clone());
        Gathering { message: self.path("message"), ..gathering }
    }

    /// The agent with what it prints in files, in the directory of the outputs.
    pub(crate) fn agent(&self, gathering: &Gathering, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_manciple-agent"));
        command
            .args(arguments)
            .env(GATHERING_VARIABLE, gathering.to_variable().unwrap())
            .current_dir(self.path("out"))
            .stdout(self.open("stdout"))
            .stderr(self.open("stderr"));
        command
    }

    pub(crate) fn open(&self, name: &str) -> File {
        OpenOptions::new().append(true).create(true).open(self.path(name)).unwrap()
    }

    pub(crate) fn ended(&self, agent: &mut Child) -> Ended {
        let read = |name| fs::read_to_string(self.path(name)).unwrap();
        Ended {
            code: wait(agent).code(),
            message: read("message"),
            stdout: read("stdout"),
            stderr: read("stderr"),
            keys: KeySet::from_iter([self.keys.clone()]),
        }
    }

    pub(crate) fn run(&self, mut agent: Command) -> Ended {
        self.ended(&mut agent.spawn().unwrap())
    }

    /// Wraps a script whose files these are.
    pub(crate) fn wrap(&self, files: &[&str], script: &str) -> Ended {
        self.run(self.wrapping(files, script))
    }

    pub(crate) fn wrapping(&self, files: &[&str], script: &str) -> Command {
        self.agent(&self.gathering(files), &["wrap", "--", "sh", "-c", script])
    }

    /// Waits for a file that somebody writes.
    pub(crate) fn wait_for(&self, name: &str) -> String {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            match fs::read_to_string(self.path(name)) {
                Ok(text) if !text.is_empty() => return text,
                _ => sleep(Duration::from_millis(10)),
            }
        }
        panic!("{name} did not come about");
    }
}

impl Ended {
    /// As the controller has it: one for both streams.
    pub(crate) fn log(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    pub(crate) fn report(&self) -> Gathered {
        match Message::parse(&self.message) {
            Ok(Message::Sealed(sealed)) => sealed.gathered(&self.keys, RUN).unwrap(),
            Ok(Message::Logged(logged)) => logged.gathered(&self.log(), &self.keys, RUN).unwrap(),
            other => panic!("{other:?}: {}", self.stderr),
        }
    }

    /// What was found of the only container's file.
    pub(crate) fn content(&self, name: &str) -> Content {
        self.report().outputs["app"][name].clone()
    }
}

pub(crate) fn text(text: &str) -> Content {
    Content::Text(text.to_owned())
}

pub(crate) fn signal(agent: &Child, signal: Signal) {
    kill_process(Pid::from_child(agent), signal).unwrap();
}

/// Waits until it catches SIGTERM.
pub(crate) fn wait_until_it_waits(agent: &Child) {
    let term = 1_u64 << (Signal::TERM.as_raw() - 1);
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        let status = fs::read_to_string(format!("/proc/{}/status", agent.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).unwrap();
        if u64::from_str_radix(caught, 16).unwrap() & term != 0 {
            return;
        }
        sleep(Duration::from_millis(5));
    }
    panic!("it does not catch SIGTERM");
}

/// Waits for its end, not for ever.
pub(crate) fn wait(agent: &mut Child) -> std::process::ExitStatus {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if let Some(status) = agent.try_wait().unwrap() {
            return status;
        }
        sleep(Duration::from_millis(5));
    }
    agent.kill().unwrap();
    panic!("the agent does not end");
}

pub(crate) fn is_allowed(unshare: &[&str]) -> bool {
    let allowed = Command::new("unshare").args(unshare).arg("true").output();
    let allowed = allowed.is_ok_and(|output| output.status.success());
    if !allowed {
        testkit::skipped("no namespaces to be had");
    }
    allowed
}

/// The same command in namespaces of its own, its words after `before`.
pub(crate) fn unshared(unshare: &[&str], before: &[&str], agent: &Command, pod: &Pod) -> Command {
    let mut command = Command::new("unshare");
    command.args(unshare).args(before).arg(agent.get_program()).args(agent.get_args());
    command.envs(agent.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(agent.get_current_dir().unwrap_or(Path::new("/")));
    command.stdout(pod.open("stdout")).stderr(pod.open("stderr"));
    command
}
