//! The processes that are measured, and what `/proc` says of them.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::ports::Store;
use engine::record::{Lifecycle, Phase, Record};
use engine::testing::store_contract::sample;
use standalone::seal::KeySource;
use standalone::store::{EmbeddedStore, Options};

/// A folder with a broker, its catalog and the secrets of a server.
pub(crate) struct Site {
    folder: tempfile::TempDir,
    sync: Duration,
}

/// A server process; ended when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
}

/// What the store does when nobody else asks anything of the machine.
pub(crate) struct Commits {
    /// Records by second.
    pub(crate) rate: f64,
    /// User and system time for each, in microseconds.
    pub(crate) cpu: f64,
}

/// While the file `hold` is there, a run takes half a minute; otherwise it is done at once.
const BROKER: &str = r#"#!/bin/sh
here=${0%/*}
case $1 in
catalog) exec cat "$here/catalog.json" ;;
esac
[ -e "$here/hold" ] && exec sleep 30
echo '{}'
"#;

/// One service with ten plans; the parameters of each have a schema.
const CATALOG: &str = r#"{"services": [{"id": "service", "name": "database", "description": "A database",
 "bindable": true, "plan_updateable": true, "plans": [PLANS]}]}"#;
const PLAN: &str = r#"{"id": "plan-N", "name": "pN", "description": "A plan", "schemas":
 {"service_instance": {"create": {"parameters": {"$schema": "http://json-schema.org/draft-07/schema#",
  "type": "object", "properties": {"size": {"type": "integer", "minimum": 1}}}}}}}"#;

impl Site {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let site = Self { folder, sync: Duration::ZERO };
        let plans: Vec<_> = (0..10).map(|n| PLAN.replace('N', &n.to_string())).collect();
        site.write("catalog.json", &CATALOG.replace("PLANS", &plans.join(",")), 0o600);
        site.write("broker", BROKER, 0o700);
        site.write("password", "secret", 0o600);
        site.write(
            "key",
            &(10..42).map(|byte: u8| format!("{byte:02x}")).collect::<String>(),
            0o600,
        );
        site.write(
            "manciple.yaml",
            "listen: 127.0.0.1:0\ndata_dir: data\nbroker: {command: broker}\n\
             encryption: {key_file: key}\n\
             auth: {users: [{name: platform, password_file: password}]}\n\
             operations: {max_in_progress: 10000000, max_runs: 4}\nlog: {format: json}\n",
            0o600,
        );
        site
    }

    /// Whatever is started here takes this much longer for each sync.
    pub(crate) fn with_sync(mut self, sync: Duration) -> Self {
        self.sync = sync;
        self
    }

    fn slowed<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        if self.sync.is_zero() {
            return command;
        }
        let shim = crate::slow::shim(self.folder.path());
        command.env("LD_PRELOAD", shim).env("SLOW_SYNC_MS", self.sync.as_millis().to_string())
    }

    /// What the store alone commits for so many writers, in a process of its own.
    pub(crate) fn commits(&self, writers: usize, period: Duration) -> Commits {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("commits").arg(self.path("own")).arg(self.path("key"));
        command.args([writers.to_string(), period.as_millis().to_string()]);
        let output = self.slowed(&mut command).stderr(Stdio::inherit()).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let [rate, cpu] = said.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{said}") };
        Commits { rate: rate.parse().unwrap(), cpu: cpu.parse().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &str, mode: u32) {
        std::fs::write(self.path(name), content).unwrap();
        std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// The store of the site; no server may have it open.
    fn store(&self) -> Arc<EmbeddedStore> {
        let options = Options::new(self.path("data"), KeySource::File(self.path("key")));
        Arc::new(EmbeddedStore::open(&options).unwrap())
    }

    /// Writes records, 64 at once.
    pub(crate) fn fill(&self, records: impl Iterator<Item = Record>) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let store = self.store();
        let records: Vec<_> = records.map(Arc::new).collect();
        runtime.block_on(async {
            for some in records.chunks(64) {
                let writes = some.iter().map(|record| {
                    let (store, record) = (Arc::clone(&store), Arc::clone(record));
                    tokio::spawn(async move { store.write(record, None).await.unwrap() })
                });
                for write in writes.collect::<Vec<_>>() {
                    write.await.unwrap();
                }
            }
        });
    }

    pub(crate) fn serve(&self) -> Server {
        // A program that is linked statically takes no library that slows its syncs.
        let given = std::env::var_os("SERVE_BINARY").filter(|_| self.sync.is_zero());
        let mut command = Command::new(given.unwrap_or(env!("CARGO_BIN_EXE_manciple").into()));
        command.arg("serve").arg("--config").arg(self.path("manciple.yaml"));
        Server::start(self.slowed(&mut command))
    }
}

impl Server {
    /// Starts a process that says on stderr where it listens.
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = String::new();
        let address = loop {
            let Some(Ok(line)) = lines.next() else { panic!("the server ended: {said}") };
            said += &line;
            if let Some((_, rest)) = line.split_once(r#""address":""#) {
                break rest.split('"').next().unwrap().to_owned();
            }
        };
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    /// The bare handler, in a process of its own.
    pub(crate) fn bare(answer: &str) -> Self {
        Self::start(Command::new(std::env::current_exe().unwrap()).args(["bare", answer]))
    }

    /// User and system time so far, without that of children.
    pub(crate) fn cpu(&self) -> Duration {
        cpu(&self.child.id().to_string())
    }

    /// A line of `/proc/PID/status`, in MB: millions of bytes, as the aim is.
    pub(crate) fn memory(&self, line: &str) -> f64 {
        let status = proc(&self.child.id().to_string(), "status");
        let kib = status.lines().find_map(|found| found.strip_prefix(line)).unwrap();
        kib.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<f64>().unwrap()
            * 1.024e-3
    }

    /// Tells it to end, and waits.
    pub(crate) fn end(mut self) {
        let id = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &id]).status().unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline && self.child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A file that the system keeps about a process: its number, or `self`.
fn proc(process: &str, file: &str) -> String {
    std::fs::read_to_string(Path::new("/proc").join(process).join(file)).unwrap()
}

/// User and system time of a process so far, without that of children.
pub(crate) fn cpu(process: &str) -> Duration {
    let stat = proc(process, "stat");
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    // A tick is 10 ms on every Linux that Rust runs on.
    Duration::from_millis(ticks * 10)
}

/// Answers everything with the same JSON, behind the same HTTP library and as many threads.
pub(crate) fn serve_bare(answer: &str) {
    let answer: bytes::Bytes = answer.to_owned().into();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        #[expect(clippy::print_stderr, reason = "where the bench looks for it")]
        {
            eprintln!(r#"{{"address":"{}"}}"#, listener.local_addr().unwrap());
        }
        let handler = move || {
            let answer = answer.clone();
            async move { ([(http::header::CONTENT_TYPE, "application/json")], answer) }
        };
        let router = axum::Router::new().fallback(handler);
        let never = std::future::pending();
        osb::server::serve(listener, router, None, osb::server::Limits::default(), never).await;
    });
}

/// What the server writes for an order of the bench: in progress, with its parameters and context.
fn ordered(n: u64) -> Record {
    let object = |value: serde_json::Value| serde_json::from_value(value).unwrap();
    let body: serde_json::Value = serde_json::from_str(crate::parts::BODY).unwrap();
    let mut record = sample(&crate::parts::id(n));
    record.lifecycle = Lifecycle::Creating;
    record.ordered.plan_id = osb::PlanId::new("plan-3").unwrap();
    record.ordered.parameters = object(body["parameters"].clone());
    record.ordered.context = object(body["context"].clone());
    record.ordered.organization_guid = body["organization_guid"].as_str().map(str::to_owned);
    record.ordered.space_guid = body["space_guid"].as_str().map(str::to_owned);
    record.operation.id = format!("provision-{n:026}");
    record.operation.request_hash = format!("{n:064}");
    record.operation.phase = Phase::Pending { not_before: None };
    record.operation.ended_at = None;
    record
}

/// `DIR KEY WRITERS MILLISECONDS`: writes records one after the other from as many tasks, and prints
/// how many by second, and the CPU of each in microseconds.
pub(crate) fn print_commit_rate(arguments: &[String]) {
    let [dir, key, writers, period] = arguments else { panic!("{arguments:?}") };
    let writers: usize = writers.parse().unwrap();
    let period = Duration::from_millis(period.parse().unwrap());
    let options = Options::new(dir, KeySource::File(key.into()));
    let store = Arc::new(EmbeddedStore::open(&options).unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let next = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let tasks: Vec<_> = (0..writers)
        .map(|_| {
            let (store, next) = (Arc::clone(&store), Arc::clone(&next));
            runtime.spawn(async move {
                while begun.elapsed() < period {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    store.write(Arc::new(ordered(n)), None).await.unwrap();
                }
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
    let written = next.load(Ordering::Relaxed) as f64;
    println!(
        "{} {}",
        written / begun.elapsed().as_secs_f64(),
        cpu("self").as_secs_f64() * 1e6 / written
    );
}
