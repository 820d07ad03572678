//! A directory that stands for a pod: an image with a broker, the shared volume, mounts, the log.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use agent::{
    AGENT_FILE, Answer, GIVEN_VARIABLE, Given, KeyPair, KeySet, Message, ORDER_VARIABLE, Order,
    Report,
};
use engine::names::RunName;
use engine::ports::{Run, RunFailure};
use osb::jobs::contract::Capability;
use osb::{Action, Output};
use serde_json::{Value, json};

pub(crate) struct Pod {
    directory: tempfile::TempDir,
    pub(crate) keys: KeyPair,
}

/// How a container ended.
pub(crate) struct Ended {
    /// Of the agent.
    pub(crate) code: Option<i32>,
    pub(crate) message: String,
    /// Stdout and stderr, as a container's log has them.
    pub(crate) log: String,
    keys: KeySet,
    run: String,
}

impl Pod {
    /// With a broker: the body of a shell script, or one that begins with `#!`.
    pub(crate) fn new(script: &str) -> Self {
        let pod = Self { directory: tempfile::tempdir().unwrap(), keys: KeyPair::generate() };
        for directory in ["image", "volume", "config", "secret", "given"] {
            fs::create_dir(pod.path(directory)).unwrap();
        }
        fs::write(pod.path("message"), "").unwrap();
        let script = match script.starts_with("#!") {
            true => script.to_owned(),
            false => format!("#!/bin/sh\n{script}\n"),
        };
        pod.set_broker(script.as_bytes(), 0o755);
        pod
    }

    pub(crate) fn set_broker(&self, content: &[u8], mode: u32) {
        fs::write(self.path("image/broker"), content).unwrap();
        fs::set_permissions(self.path("image/broker"), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn key_file(&self, directory: &str, key: &str, value: &str) {
        fs::write(self.path(directory).join(key), value).unwrap();
    }

    /// The order of a run, with what this pod has.
    pub(crate) fn order_of(&self, run: &Run) -> (Order, Given) {
        let (order, given) = Order::of(run, self.keys.public().clone()).unwrap();
        (self.of_this_pod(order), given)
    }

    pub(crate) fn of_this_pod(&self, order: Order) -> Order {
        Order {
            program: self.path("image/broker"),
            config_dir: Some(self.path("config")),
            secret_dir: Some(self.path("secret")),
            message: self.path("message"),
            grace: Duration::from_millis(300),
            ..order
        }
    }

    /// The order of a plain provision.
    pub(crate) fn order(&self) -> Order {
        self.order_of(&run(Action::Provision, &[])).0
    }

    /// The init container. What is given is mounted as Kubernetes mounts a Secret.
    pub(crate) fn install(&self, given: &Given) {
        let mount = self.path("given");
        let version = mount.join("..2026_11_21");
        fs::create_dir_all(&version).unwrap();
        let _ = symlink("..2026_11_21", mount.join("..data"));
        for (name, content) in given.files() {
            fs::write(version.join(name), content).unwrap();
            let _ = symlink(Path::new("..data").join(name), mount.join(name));
        }
        let installed = Command::new(env!("CARGO_BIN_EXE_manciple-agent"))
            .arg("install")
            .arg(self.path("volume"))
            .env(GIVEN_VARIABLE, &mount)
            .status();
        assert!(installed.unwrap().success());
    }

    /// Starts the container.
    pub(crate) fn start(&self, order: &Order) -> Child {
        self.command(order).spawn().unwrap()
    }

    pub(crate) fn command(&self, order: &Order) -> Command {
        if !self.path("volume").join(AGENT_FILE).exists() {
            self.install(&Given::default());
        }
        let log = OpenOptions::new().append(true).create(true).open(self.path("log")).unwrap();
        let mut command = Command::new(self.path("volume").join(AGENT_FILE));
        command
            .arg("run")
            .env(ORDER_VARIABLE, order.to_variable().unwrap())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        command
    }

    pub(crate) fn ended(&self, mut agent: Child, order: &Order) -> Ended {
        let code = agent.wait().unwrap().code();
        Ended {
            code,
            message: fs::read_to_string(self.path("message")).unwrap_or_default(),
            log: fs::read_to_string(self.path("log")).unwrap(),
            keys: KeySet::from_iter([self.keys.clone()]),
            run: order.run.clone(),
        }
    }

    pub(crate) fn run(&self, order: &Order) -> Ended {
        self.ended(self.start(order), order)
    }

    /// Runs a run, with what is given.
    pub(crate) fn run_of(&self, run: &Run) -> Ended {
        let (order, given) = self.order_of(run);
        self.install(&given);
        self.run(&order)
    }

    /// Waits for a file that the broker writes.
    pub(crate) fn wait_for(&self, name: &str) -> String {
        let until = Instant::now() + Duration::from_secs(120);
        while Instant::now() < until {
            match fs::read_to_string(self.path(name)) {
                Ok(text) if !text.is_empty() => return text,
                _ => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        panic!("{name} did not come about");
    }
}

impl Ended {
    pub(crate) fn report(&self) -> Report {
        assert!(self.message.len() <= agent::MAX_MESSAGE_BYTES);
        match Message::parse(&self.message) {
            Ok(Message::Sealed(sealed)) => sealed.report(&self.keys, &self.run).unwrap(),
            Ok(Message::Logged(logged)) => logged.report(&self.log, &self.keys, &self.run).unwrap(),
            other => panic!("{other:?}: {}", self.log),
        }
    }

    pub(crate) fn output(&self) -> Output {
        assert_eq!(self.code, Some(0), "{:?} {}", self.report(), self.log);
        match self.report().answer {
            Answer::Work(result) => result.unwrap(),
            answer => panic!("{answer:?}"),
        }
    }

    pub(crate) fn failure(&self) -> RunFailure {
        assert_eq!(self.code, Some(1), "{}", self.log);
        self.report().answer.failure().unwrap().clone()
    }

    /// What it says, and that it has this reason.
    pub(crate) fn failed(&self, reason: engine::record::Reason) -> String {
        let failure = self.failure();
        assert_eq!(failure.reason, reason, "{failure:?}");
        failure.failure.description
    }
}

pub(crate) fn run(action: Action, capabilities: &[Capability]) -> Run {
    run_with(action, capabilities, &json!({}))
}

/// With members of the request.
pub(crate) fn run_with(action: Action, capabilities: &[Capability], members: &Value) -> Run {
    let mut work = json!({
        "action": action,
        "service_id": "the-service",
        "plan_id": "the-plan",
        "instance_id": "the-instance",
        "operation_id": "provision-abc",
        "attempt": 1,
    });
    if matches!(action, Action::Bind | Action::Unbind) {
        work["binding_id"] = json!("the-binding");
    }
    work.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    Run {
        name: RunName::attempt("provision-abc", 1),
        work: serde_json::from_value(work).unwrap(),
        timeout: Duration::from_secs(60),
        capabilities: capabilities.to_vec(),
        removes: None,
    }
}

pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}
