//! A served broker: the real binary on a port of its own, with a folder that outlives it.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod brokers;
pub(crate) mod builds;
pub(crate) mod deaths;
pub(crate) mod described;
pub(crate) mod heard;
pub(crate) mod platform;
pub(crate) mod said;
pub(crate) mod slow;
pub(crate) mod town;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A folder with a broker in it.
pub(crate) struct Site {
    folder: tempfile::TempDir,
    /// What goes into `manciple.yaml` beside the broker's command.
    pub(crate) settings: String,
    /// Where it listens; a free port by default.
    pub(crate) listen: String,
}

/// A server process. Dropping it kills it, as `kill -9` would.
pub(crate) struct Served {
    child: Child,
    /// `127.0.0.1:PORT`.
    pub(crate) address: String,
    log: Arc<Mutex<String>>,
}

impl Site {
    /// A folder with this script as its broker.
    pub(crate) fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings = "auth:\n  disabled: true\n".to_owned();
        let site = Self { folder, settings, listen: "127.0.0.1:0".to_owned() };
        site.script(script);
        site
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    /// Replaces the broker.
    pub(crate) fn script(&self, script: &str) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path().join("broker");
        let fresh = self.path().join("broker.new");
        std::fs::write(&fresh, script).unwrap();
        std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(fresh, path).unwrap();
    }

    /// Writes a file that only its owner can read, as secrets have to be.
    pub(crate) fn write(&self, name: &str, content: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap_or_default()
    }

    /// A client command, not yet started, of the same binary.
    pub(crate) fn client(&self, url: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_manciple"));
        command.args(arguments).env("MANCIPLE_URL", url).current_dir(self.path());
        command
    }

    /// The command of a server, not yet started.
    pub(crate) fn command(&self) -> Command {
        let config = self.path().join("manciple.yaml");
        std::fs::write(&config, &self.settings).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_manciple"));
        command
            .args(["serve", "--listen", &self.listen, "--log-format", "json", "--config"])
            .arg(&config)
            .arg("--broker-command")
            .arg(self.path().join("broker"))
            .arg("--data-dir")
            .arg(self.data())
            .env_remove("MANCIPLE_ENCRYPTION_KEY")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn serve(&self) -> Served {
        Served::start(&mut self.command()).unwrap_or_else(|log| panic!("no server: {log}"))
    }
}

/// A variable for [`Served::start`]: the log is read until the server listens, then nobody reads it.
pub(crate) const UNHEARD: &str = "TEST_UNHEARD";

impl Served {
    /// Starts a server and waits until it says where it listens.
    ///
    /// # Errors
    /// Its log, if it ended before.
    pub(crate) fn start(command: &mut Command) -> Result<Self, String> {
        let unheard = command.get_envs().any(|(name, _)| name == UNHEARD);
        Self::begun(command.spawn().unwrap(), unheard)
    }

    /// As [`Self::start`], of one that was started by somebody who may want to kill it before it listens.
    pub(crate) fn begun(mut child: Child, unheard: bool) -> Result<Self, String> {
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut seen = String::new();
        let address = loop {
            let Some(Ok(line)) = lines.next() else {
                let _ = child.wait();
                return Err(seen);
            };
            seen.push_str(&line);
            seen.push('\n');
            let record: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            if record["message"] == "serving" {
                break record["address"].as_str().unwrap().to_owned();
            }
        };
        let log = Arc::new(Mutex::new(seen));
        let kept = Arc::clone(&log);
        if unheard {
            drop(lines);
            return Ok(Self { child, address, log });
        }
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let mut log = kept.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        Ok(Self { child, address, log })
    }

    /// Starts a server that is expected to refuse: its exit code and what it said.
    pub(crate) fn refused(command: &mut Command) -> (Option<i32>, String) {
        let mut child = command.spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let said = std::thread::spawn(move || std::io::read_to_string(stderr).unwrap_or_default());
        let ended = within(20, || child.try_wait().unwrap());
        let _ = child.kill();
        let _ = child.wait();
        (ended.and_then(|status| status.code()), said.join().unwrap())
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let id = i32::try_from(self.id()).unwrap();
        let id = rustix::process::Pid::from_raw(id).unwrap();
        rustix::process::kill_process(id, signal).unwrap();
    }

    /// Waits until its log has these words.
    pub(crate) fn says(&self, words: &str) {
        let said = within(30, || self.log().contains(words).then_some(()));
        assert!(said.is_some(), "never said {words:?}:\n{}", self.log());
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The most that it ever had resident.
    pub(crate) fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end, for longer than it may take to answer what was asked; `None` if it did not end by then.
    pub(crate) fn wait(&mut self) -> Option<std::process::ExitStatus> {
        within(30, || self.child.try_wait().unwrap())
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How many times as long as on an idle machine something may take: others keep it busy.
const BUSY: u64 = 3;

/// How soon what is waited for is looked at again, at first and in the end.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
const SELDOM: Duration = Duration::from_millis(500);

/// Asks again and again until there is something, for what takes no more than so many seconds on an idle machine: three
/// times as long.
pub(crate) fn within<T>(seconds: u64, look: impl FnMut() -> Option<T>) -> Option<T> {
    for_seconds(BUSY * seconds, look)
}

/// Asks again and again, for so many seconds, until there is something: for what may come, or is not to. The longer it
/// lasts the seldomer: who asks takes time from who is waited for.
pub(crate) fn for_seconds<T>(seconds: u64, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        let elapsed = begun.elapsed();
        if elapsed > Duration::from_secs(seconds) {
            return None;
        }
        std::thread::sleep((elapsed / 4).clamp(LOOK_AGAIN, SELDOM));
    }
}

/// Orders as a platform sends them, of the service `s`.
pub(crate) mod order {
    use serde_json::{Value, json};

    use super::{Served, http, within};

    /// The path of an instance.
    pub(crate) fn path(instance: &str) -> String {
        format!("/v2/service_instances/{instance}")
    }

    /// The members that every order of an instance has.
    pub(crate) fn body(plan: &str) -> Value {
        json!({ "service_id": "s", "plan_id": plan, "organization_guid": "o", "space_guid": "s" })
    }

    pub(crate) fn provision(server: &Served, instance: &str, body: &Value) -> http::Answer {
        let path = format!("{}?accepts_incomplete=true", path(instance));
        http::send(&server.address, "PUT", &path, Some(body)).expect("an answer")
    }

    pub(crate) fn bind(
        server: &Served,
        instance: &str,
        binding: &str,
        body: &Value,
    ) -> http::Answer {
        let path = format!("{}/service_bindings/{binding}", path(instance));
        http::send(&server.address, "PUT", &path, Some(body)).expect("an answer")
    }

    pub(crate) fn last_operation(server: &Served, instance: &str) -> Value {
        let path = format!("{}/last_operation", path(instance));
        http::get(&server.address, &path).expect("an answer").body
    }

    /// Waits for the end of an instance's operation, and answers how it ended. Where the API server was away, Kubernetes
    /// may make no pod for a minute.
    pub(crate) fn settled(server: &Served, instance: &str) -> Value {
        let ended = || {
            let answer = last_operation(server, instance);
            (answer["state"] != "in progress").then_some(answer)
        };
        within(90, ended).unwrap_or_else(|| panic!("{instance} never ends:\n{}", server.log()))
    }

    /// Provisions and waits: how it ended.
    pub(crate) fn provisioned(server: &Served, instance: &str, body: &Value) -> Value {
        let answer = provision(server, instance, body);
        assert!(matches!(answer.status, 200..=202), "{answer:?}");
        settled(server, instance)
    }

    /// Waits until the server has a catalog.
    pub(crate) fn ready(server: &Served) {
        let ready = || (http::get(&server.address, "/readyz")?.status == 200).then_some(());
        assert!(within(40, ready).is_some(), "never ready:\n{}", server.log());
    }
}

/// A client of a server without authentication.
pub(crate) mod http {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Duration;

    use serde_json::Value;

    /// An answer.
    #[derive(Debug, Clone)]
    pub(crate) struct Answer {
        pub(crate) status: u16,
        pub(crate) head: String,
        pub(crate) body: Value,
    }

    /// Sends bytes as they are and reads the answer; `None` if there was none.
    pub(crate) fn raw(address: &str, bytes: &[u8]) -> Option<Answer> {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(70))).ok()?;
        stream.write_all(bytes).ok()?;
        let mut text = Vec::new();
        stream.read_to_end(&mut text).ok()?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let body = serde_json::from_str(body).unwrap_or(Value::String(body.to_owned()));
        Some(Answer { status, head: head.to_owned(), body })
    }

    pub(crate) fn send(
        address: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Option<Answer> {
        send_with(address, method, path, body, "")
    }

    /// As [`send`], with further header lines, each with its `\r\n`.
    pub(crate) fn send_with(
        address: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
        headers: &str,
    ) -> Option<Answer> {
        let body = body.map(ToString::to_string).unwrap_or_default();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             X-Broker-API-Version: 2.17\r\nContent-Type: application/json\r\n{headers}\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        raw(address, request.as_bytes())
    }

    pub(crate) fn get(address: &str, path: &str) -> Option<Answer> {
        send(address, "GET", path, None)
    }
}
