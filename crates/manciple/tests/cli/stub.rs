//! A broker of canned answers, and a way to run the command against it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use rcgen::CertificateParams;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use standalone::seal::KeySource;
use standalone::store::{EmbeddedStore, Options};

#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) authorization: Option<String>,
    pub(crate) body: Value,
}

impl Request {
    /// `PUT /v2/…`, without the query.
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Answer {
    status: u16,
    body: Vec<u8>,
    /// Announced, whatever the body's length is.
    length: usize,
}

pub(crate) fn answer(status: u16, body: &Value) -> Answer {
    raw(status, body.to_string().as_bytes())
}

pub(crate) fn raw(status: u16, body: &[u8]) -> Answer {
    Answer { status, body: body.to_vec(), length: body.len() }
}

/// An answer whose connection breaks before its end.
pub(crate) fn cut_short(body: &[u8]) -> Answer {
    Answer { length: body.len() + 10, ..raw(200, body) }
}

type Handler = dyn Fn(&Request) -> Option<Answer> + Send + Sync;

pub(crate) struct Stub {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Stub {
    /// Answers what `handler` answers, and otherwise as a broker that does all at once.
    pub(crate) fn new(
        handler: impl Fn(&Request) -> Option<Answer> + Send + Sync + 'static,
    ) -> Self {
        Self::serving("http://127.0.0.1", handler, Some)
    }

    /// A broker that does all at once, over TLS, and the certificate to trust it by.
    pub(crate) fn over_tls() -> (Self, String) {
        Self::over_tls_with(|_| {})
    }

    /// The same, with something else in its certificate.
    pub(crate) fn over_tls_with(change: impl Fn(&mut CertificateParams)) -> (Self, String) {
        let mut made = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        change(&mut made);
        let pair = rcgen::KeyPair::generate().unwrap();
        let certificate = made.self_signed(&pair).unwrap();
        let key = PrivateKeyDer::try_from(pair.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let config = Arc::new(config);
        let accept = move |stream| {
            let connection = ServerConnection::new(Arc::clone(&config)).ok()?;
            Some(StreamOwned::new(connection, stream))
        };
        (Self::serving("https://localhost", |_| None, accept), certificate.pem())
    }

    fn serving<S: Read + Write + 'static>(
        host: &str,
        handler: impl Fn(&Request) -> Option<Answer> + Send + Sync + 'static,
        accept: impl Fn(TcpStream) -> Option<S> + Send + Sync + 'static,
    ) -> Self {
        let accept = Arc::new(accept);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("{host}:{}", listener.local_addr().unwrap().port());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (handler, log): (Arc<Handler>, _) = (Arc::new(handler), Arc::clone(&requests));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (handler, log) = (Arc::clone(&handler), Arc::clone(&log));
                let accept = Arc::clone(&accept);
                std::thread::spawn(move || serve(accept(stream.unwrap())?, &*handler, &log));
            }
        });
        Self { url, requests }
    }

    /// A broker that does all at once.
    pub(crate) fn at_once() -> Self {
        Self::new(|_| None)
    }

    /// A broker that accepts orders first, and then answers polls in turn; the last one stays.
    pub(crate) fn polled(states: &[Value]) -> Self {
        let states = Mutex::new(states.to_vec());
        Self::new(move |request| {
            if request.path.ends_with("/last_operation") {
                let mut states = states.lock().unwrap();
                let state = if states.len() > 1 { states.remove(0) } else { states[0].clone() };
                return Some(answer(200, &state));
            }
            let order =
                request.path.starts_with("/v2/service_instances") && request.method != "GET";
            order.then(|| answer(202, &json!({"operation": "op-1"})))
        })
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// The request with this line, which must have been sent.
    pub(crate) fn request(&self, line: &str) -> Request {
        let found = self.requests().into_iter().find(|request| request.line() == line);
        found.unwrap_or_else(|| panic!("no {line} in {:#?}", self.requests()))
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_manciple"));
        command
            .args(arguments)
            .env_clear()
            .env("MANCIPLE_URL", &self.url)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        Run::from(self.command(arguments).output().unwrap())
    }

    /// Runs with `--output json`, expects success and reads the result.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let run = self.run(&[arguments, &["--output", "json"]].concat());
        assert_eq!(run.code, 0, "{run:?}");
        assert_eq!(run.stderr, "", "nothing but the result");
        serde_json::from_str(&run.stdout).unwrap()
    }
}

/// What the broker that does all at once sends as its backup, always the same.
pub(crate) fn backup() -> Vec<u8> {
    static BACKUP: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    let make = || {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("key");
        std::fs::write(&key, "0123456789abcdef".repeat(4)).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        saved_store(&key)
    };
    BACKUP.get_or_init(make).clone()
}

/// What a server sends as its backup: a store without records, that opens with this key.
pub(crate) fn saved_store(key: &Path) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let options = Options::new(dir.path().join("store"), KeySource::File(key.to_owned()));
    let store = EmbeddedStore::open(&options).unwrap();
    let path = dir.path().join("backup");
    runtime.block_on(store.backup_to(&path)).unwrap();
    std::fs::read(path).unwrap()
}

#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

fn serve(stream: impl Read + Write, handler: &Handler, log: &Mutex<Vec<Request>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    while let Some(request) = read(&mut reader) {
        log.lock().unwrap().push(request.clone());
        let Answer { status, body, length } =
            handler(&request).unwrap_or_else(|| default(&request));
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        let stream = reader.get_mut();
        if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)).is_err()
            || length != body.len()
        {
            return None;
        }
    }
    None
}

fn read(reader: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (mut length, mut authorization) = (0, None);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap(),
            "authorization" => authorization = Some(value.to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    Some(Request { method, path: path.to_owned(), query: query.to_owned(), authorization, body })
}

pub(crate) fn catalog() -> Value {
    let plan = |id: &str, name: &str| {
        json!({"id": id, "name": name, "description": "d",
               "maintenance_info": {"version": "1.2.3"},
               "schemas": {"service_instance": {"create": {"parameters": {
                   "properties": {"size": {"type": "integer"}}}}}}})
    };
    json!({"services": [{
        "id": "service-id", "name": "db", "description": "A database", "bindable": true,
        "dashboard_client": {"id": "c", "secret": "dashboard-secret"},
        "plans": [plan("small-id", "small"), plan("large-id", "large")],
    }]})
}

/// A record whose operation stands as given.
pub(crate) fn record(
    instance: &str,
    binding: Option<&str>,
    state: &str,
    operation: &Value,
) -> Value {
    let mut record = json!({
        "instance_id": instance, "state": state, "service_id": "service-id",
        "plan_id": "small-id", "created_at": "2026-05-04T12:00:00Z",
        "updated_at": "2026-05-04T12:00:10Z", "operation": operation,
    });
    if let Some(binding) = binding {
        record["binding_id"] = binding.into();
    }
    record
}

pub(crate) fn operation(action: &str, state: &str) -> Value {
    let mut operation = json!({
        "id": format!("{action}-op"), "action": action, "state": state, "attempt": 1,
        "run": format!("{action}-op-1"), "created_at": "2026-05-04T12:00:00Z",
    });
    if state == "succeeded" || state == "failed" {
        operation["ended_at"] = "2026-05-04T12:00:10Z".into();
    }
    if state == "failed" {
        operation["reason"] = "exit-status".into();
        operation["description"] = "no disk left".into();
    }
    operation
}

pub(crate) fn ready(request: &Request) -> Value {
    let binding = request.query.split('&').find_map(|pair| pair.strip_prefix("binding_id="));
    let action = if binding.is_some() { "bind" } else { "provision" };
    record("i", binding, "ready", &operation(action, "succeeded"))
}

/// Of an instance that was made and a binding that was not, as far as they are asked for.
fn operations(request: &Request) -> Value {
    let asked = request.query.split('&').find_map(|pair| pair.strip_prefix("state="));
    let item = |binding: Option<&str>, operation: Value| {
        let mut item = operation;
        item["instance_id"] = "i".into();
        item["service_id"] = "service-id".into();
        item["plan_id"] = "small-id".into();
        if let Some(binding) = binding {
            item["binding_id"] = binding.into();
        }
        item
    };
    let (made, failed) = (operation("provision", "succeeded"), operation("bind", "failed"));
    let items = match asked {
        Some("all") => vec![item(None, made), item(Some("b"), failed)],
        Some("failed") => vec![item(Some("b"), failed)],
        _ => vec![],
    };
    json!({ "items": items })
}

fn default(request: &Request) -> Answer {
    let binding = request.path.contains("/service_bindings/");
    let credentials = json!({"credentials": {"user": "u", "password": "made-secret"}});
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/v2/catalog") => answer(200, &catalog()),
        ("GET", "/admin/v1/record") => answer(200, &ready(request)),
        ("GET", "/admin/v1/instances") => answer(200, &json!({"items": [ready(request)]})),
        ("GET", "/admin/v1/bindings") => {
            let bind = record("i", Some("b"), "broken", &operation("bind", "failed"));
            answer(200, &json!({"items": [bind]}))
        }
        ("GET", "/admin/v1/operations") => answer(200, &operations(request)),
        ("GET", "/admin/v1/logs") => answer(200, &json!({"run": "r-1", "log": "one\ntwo\n"})),
        ("POST", "/admin/v1/retry") => {
            answer(200, &record("i", None, "ready", &operation("provision", "succeeded")))
        }
        ("POST", _) => answer(200, &json!({})),
        ("GET", "/admin/v1/backup") => raw(200, &backup()),
        ("PUT", _) if binding => answer(201, &credentials),
        ("PUT", _) => answer(201, &json!({"dashboard_url": "https://dash"})),
        ("PATCH" | "DELETE", _) => answer(200, &json!({})),
        ("GET", _) if binding => answer(200, &credentials),
        _ => answer(404, &json!({"error": "NotFound", "description": "no such thing"})),
    }
}
