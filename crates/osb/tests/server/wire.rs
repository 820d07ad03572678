//! The server over TCP and TLS: what only bytes can show.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use osb::server::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use osb::server::rustls::{ClientConfig, RootCertStore, ServerConfig, crypto};
use osb::server::{Limits, Settings, TlsSource, serve};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use crate::support::{AUTHORIZATION, Heard, Mood, Rig, provision_with, settings};

struct Served {
    rig: Rig,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    end: JoinHandle<usize>,
}

async fn served(settings: Settings, limits: Limits, tls: Option<TlsSource>) -> Served {
    let rig = Rig::with(settings);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let shutdown = async { drop(stopped.await) };
    let end = tokio::spawn(serve(listener, rig.router.clone(), tls, limits, shutdown));
    Served { rig, address, stop, end }
}

async fn plain() -> Served {
    served(settings(), Limits::default(), None).await
}

/// A request's head, with credentials and a version.
fn head(line: &str, headers: &str) -> String {
    format!(
        "{line} HTTP/1.1\r\nhost: x\r\nauthorization: {AUTHORIZATION}\r\nx-broker-api-version: 2.17\r\n{headers}\r\n"
    )
}

fn with_body(line: &str, headers: &str, body: &str) -> String {
    head(line, &format!("content-length: {}\r\n{headers}", body.len())) + body
}

/// The longest that a busy machine takes over an answer that does not wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);

async fn read_all(mut stream: impl AsyncRead + Unpin) -> String {
    let mut answer = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("it ends").unwrap();
    String::from_utf8(answer).unwrap()
}

/// Sends bytes and reads until the server closes.
async fn ask(address: SocketAddr, bytes: impl AsRef<[u8]>) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes.as_ref()).await.unwrap();
    read_all(stream).await
}

/// Reads one answer of a connection that stays open.
async fn read_one(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let read = async {
        loop {
            let mut byte = [0];
            stream.read_exact(&mut byte).await.unwrap();
            answer.push(byte[0]);
            if answer.ends_with(b"\r\n\r\n") {
                break;
            }
        }
        let text = String::from_utf8(answer).unwrap();
        let length = text
            .to_ascii_lowercase()
            .split("content-length: ")
            .nth(1)
            .map_or(0, |rest| rest.split("\r\n").next().unwrap().parse::<usize>().unwrap());
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        text + &String::from_utf8(body).unwrap()
    };
    timeout(PATIENCE, read).await.expect("an answer")
}

#[track_caller]
fn assert_refused(answer: &str, status: u16, word: &str) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    assert!(answer.contains(&format!(r#""error":"{word}""#)), "{answer}");
}

#[tokio::test]
async fn item_10_dots_and_slashes_arrive_as_the_client_wrote_them() {
    let served = plain().await;
    let body = provision_with(json!({})).to_string();
    for (encoded, id) in
        [(".", "."), ("..", ".."), ("%2e%2e", ".."), ("a%2Fb", "a/b"), ("a%2F..%2Fb", "a/../b")]
    {
        let request = with_body(
            &format!("PUT /v2/service_instances/{encoded}"),
            "connection: close\r\n",
            &body,
        );
        let answer = ask(served.address, request).await;
        assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
        let [Heard::Provision(heard, _)] = &served.rig.heard()[..] else { panic!("one provision") };
        assert_eq!(heard.as_str(), id);
    }
    let absolute = head("GET http://broker.example/v2/catalog", "connection: close\r\n");
    assert!(ask(served.address, absolute).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_request_has_exactly_one_host() {
    let served = plain().await;
    let one = head("GET /v2/catalog", "connection: close\r\n");
    let with = |host: &str| one.replacen("host: x\r\n", host, 1);
    for (name, request, status) in [
        ("one", one.clone(), 200),
        ("an empty one", with("host:\r\n"), 200),
        ("none", with(""), 400),
        ("two", with("host: x\r\nhost: y\r\n"), 400),
        ("the same twice", with("host: x\r\nHost: x\r\n"), 400),
        ("none, of HTTP/1.0", with("").replacen("HTTP/1.1", "HTTP/1.0", 1), 200),
        (
            "two, of HTTP/1.0",
            with("host: x\r\nhost: y\r\n").replacen("HTTP/1.1", "HTTP/1.0", 1),
            400,
        ),
    ] {
        let answer = ask(served.address, request).await;
        assert!(answer.contains(&format!(" {status} ")), "{name}: {answer}");
        let names_host = answer.contains("Host: must be sent exactly once");
        assert_eq!(names_host, status == 400, "{name}: {answer}");
    }
}

#[tokio::test]
async fn headers_sent_twice_are_400_naming_them() {
    let served = plain().await;
    for (name, value) in [
        ("Authorization", AUTHORIZATION),
        ("X-Broker-API-Version", "2.17"),
        ("Content-Type", "application/json"),
        ("X-Broker-API-Originating-Identity", "cloudfoundry e30="),
        ("X-Broker-API-Request-Identity", "r"),
    ] {
        let once = !["Authorization", "X-Broker-API-Version"].contains(&name);
        let twice = format!("connection: close\r\n{name}: {value}\r\n").repeat(1)
            + &if once { format!("{}: {value}\r\n", name.to_uppercase()) } else { String::new() };
        let answer = ask(served.address, head("GET /v2/catalog", &twice)).await;
        assert_refused(&answer, 400, "BadRequest");
        assert!(answer.contains(&format!("{name}: must not be sent more than once")), "{answer}");
    }
}

#[tokio::test]
async fn a_body_that_is_slow_is_408() {
    let quick = Settings { body_timeout: Duration::from_millis(200), ..settings() };
    let served = served(quick, Limits::default(), None).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let request = head(
        "PUT /v2/service_instances/i",
        "content-length: 100\r\nx-broker-api-request-identity: r\r\n",
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.write_all(b"{\"service").await.unwrap();
    let answer = read_all(stream).await;
    assert_refused(&answer, 408, "RequestTimeout");
    assert!(answer.contains("x-broker-api-request-identity: r"), "{answer}");
    assert_eq!(served.rig.heard(), []);
}

#[tokio::test]
async fn a_body_over_the_limit_is_413_and_its_sender_can_read_that() {
    let served = plain().await;
    let body = format!(r#"{{"parameters":{{"x":"{}"}}}}"#, "y".repeat(3 * 1024 * 1024));
    let sized = with_body("PUT /v2/service_instances/i", "", &body);
    let chunked = head("PUT /v2/service_instances/i", "transfer-encoding: chunked\r\n")
        + &format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for request in [sized, chunked] {
        let answer = ask(served.address, request).await;
        assert_refused(&answer, 413, "PayloadTooLarge");
        assert!(answer.contains("1048576 bytes"), "{answer}");
    }
    assert_eq!(served.rig.heard(), []);
    let fits = provision_with(json!({"context": {"x": "y".repeat(1024 * 1024 - 200)}})).to_string();
    let answer = ask(
        served.address,
        with_body("PUT /v2/service_instances/i", "connection: close\r\n", &fits),
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
}

#[tokio::test]
async fn a_body_said_to_be_over_the_limit_is_not_waited_for() {
    let served = plain().await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let request = head("PUT /v2/service_instances/i", "content-length: 2000000\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    assert_refused(&read_one(&mut stream).await, 413, "PayloadTooLarge");
}

#[tokio::test]
async fn a_client_that_still_sends_after_the_answer_is_not_reset() {
    let served = plain().await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let request = head("PUT /v2/service_instances/i", "content-length: 2000000\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    for _ in 0..10 {
        sleep(Duration::from_millis(30)).await;
        stream.write_all(&[b'x'; 100_000]).await.expect("the connection is still read");
    }
    assert_refused(&read_all(stream).await, 413, "PayloadTooLarge");
}

#[tokio::test]
async fn item_02_who_is_not_known_is_refused_before_the_body_is_read() {
    let served = plain().await;
    // The body never comes: the answer does not wait for it.
    let unknown = "PUT /v2/service_instances/i HTTP/1.1\r\nhost: x\r\ncontent-length: 500000\r\n";
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    stream.write_all(format!("{unknown}expect: 100-continue\r\n\r\n").as_bytes()).await.unwrap();
    assert_refused(&read_one(&mut stream).await, 401, "Unauthorized");
    // It comes: the answer can be read all the same.
    let answer = ask(served.address, format!("{unknown}\r\n{}", "x".repeat(500_000))).await;
    assert_refused(&answer, 401, "Unauthorized");
}

#[tokio::test]
async fn a_body_that_is_cut_short_reaches_nobody_and_the_server_goes_on() {
    let served = plain().await;
    let body = provision_with(json!({})).to_string();
    let cut =
        head("PUT /v2/service_instances/i", &format!("content-length: {}\r\n", body.len() + 1))
            + &body;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    stream.write_all(cut.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    read_all(stream).await;
    assert_eq!(served.rig.heard(), []);
    assert!(
        ask(served.address, head("GET /v2/catalog", "connection: close\r\n"))
            .await
            .starts_with("HTTP/1.1 200 ")
    );
}

#[tokio::test]
async fn heads_that_are_large_slow_or_no_http_are_cut_off() {
    let limits = Limits { head_bytes: 8 * 1024, ..Limits::default() };
    let hasty = Limits { head: Duration::from_millis(300), ..limits };
    let hasty = served(settings(), hasty, None).await;
    let served = served(settings(), limits, None).await;
    let large = head("GET /v2/catalog", &format!("x-large: {}\r\n", "x".repeat(9000)));
    let too_large = "RequestHeaderFieldsTooLarge";
    assert_refused(&ask(served.address, large).await, 431, too_large);
    let many =
        head("GET /v2/catalog", &(0..200).map(|n| format!("x-{n}: 1\r\n")).collect::<String>());
    assert_refused(&ask(served.address, many).await, 431, too_large);
    let no_http = ask(served.address, "\x16\x03\x01 hello\r\n\r\n").await;
    assert_refused(&no_http, 400, "BadRequest");
    assert_eq!(ask(hasty.address, "GET /v2/catalog HTTP/1.1\r\nhost:").await, "");
}

#[tokio::test]
async fn one_connection_serves_many_requests_even_pipelined() {
    let served = plain().await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let request =
        with_body("PUT /v2/service_instances/i", "", &provision_with(json!({})).to_string());
    for _ in 0..3 {
        stream.write_all(request.as_bytes()).await.unwrap();
        assert!(read_one(&mut stream).await.starts_with("HTTP/1.1 201 "));
    }
    stream.write_all((request.clone() + &request).as_bytes()).await.unwrap();
    assert!(read_one(&mut stream).await.starts_with("HTTP/1.1 201 "));
    assert!(read_one(&mut stream).await.starts_with("HTTP/1.1 201 "));
    stream.write_all(head("HEAD /v2/catalog", "connection: close\r\n").as_bytes()).await.unwrap();
    assert!(read_all(stream).await.ends_with("\r\n\r\n"));
}

async fn until(what: impl Fn() -> bool) {
    let come = async {
        while !what() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, come).await.expect("it comes to pass");
}

/// A connection whose provision is under way.
async fn provisioning(served: &Served) -> (TcpStream, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    served.rig.mood(Mood::Waiting(Arc::clone(&gate)));
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let request =
        with_body("PUT /v2/service_instances/i", "", &provision_with(json!({})).to_string());
    stream.write_all(request.as_bytes()).await.unwrap();
    until(|| !served.rig.backend.heard.lock().unwrap().is_empty()).await;
    (stream, gate)
}

#[tokio::test]
async fn a_connection_that_is_reset_cancels_nothing() {
    let served = plain().await;
    let (stream, gate) = provisioning(&served).await;
    drop(stream);
    sleep(Duration::from_millis(50)).await;
    gate.add_permits(1);
    until(|| served.rig.backend.finished.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn connections_over_the_limit_wait_and_are_served() {
    let served = served(settings(), Limits { connections: 1, ..Limits::default() }, None).await;
    let (mut first, gate) = provisioning(&served).await;
    let address = served.address;
    let second = tokio::spawn(async move {
        ask(address, head("GET /v2/catalog", "connection: close\r\n")).await
    });
    sleep(Duration::from_millis(200)).await;
    assert!(!second.is_finished());
    gate.add_permits(1);
    assert!(read_one(&mut first).await.starts_with("HTTP/1.1 201 "));
    drop(first);
    assert!(second.await.unwrap().starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn idle_connections_give_their_places_to_those_who_wait() {
    let served = served(settings(), Limits { connections: 3, ..Limits::default() }, None).await;
    let (mut working, gate) = provisioning(&served).await;
    let mut quiet = TcpStream::connect(served.address).await.unwrap();
    quiet.write_all(head("GET /v2/catalog", "").as_bytes()).await.unwrap();
    assert!(read_one(&mut quiet).await.starts_with("HTTP/1.1 200 "));
    let silent = TcpStream::connect(served.address).await.unwrap();
    sleep(Duration::from_millis(1100)).await;
    let request = head("GET /v2/catalog", "connection: close\r\n");
    assert!(ask(served.address, request).await.starts_with("HTTP/1.1 200 "));
    assert_eq!(read_all(quiet).await + &read_all(silent).await, "", "they were ended");
    gate.add_permits(1);
    assert!(read_one(&mut working).await.starts_with("HTTP/1.1 201 "), "it was not idle");
}

#[tokio::test]
async fn a_client_that_takes_no_answers_does_not_keep_its_connection() {
    let limits = Limits { connections: 1, write: Duration::from_millis(300), ..Limits::default() };
    let served = served(settings(), limits, None).await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut deaf = socket.connect(served.address).await.unwrap();
    let requests = head("GET /v2/catalog", "").repeat(1000);
    let stuck = async { while deaf.write_all(requests.as_bytes()).await.is_ok() {} };
    // It ends because the server hangs up, not because of the time.
    timeout(PATIENCE, stuck).await.expect("the connection ends");
    let request = head("GET /v2/catalog", "connection: close\r\n");
    assert!(ask(served.address, request).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_shutdown_lets_requests_end_and_takes_no_new_ones() {
    let served = plain().await;
    let (stream, gate) = provisioning(&served).await;
    let idle = TcpStream::connect(served.address).await.unwrap();
    sleep(Duration::from_millis(50)).await;
    served.stop.send(()).unwrap();
    assert_eq!(read_all(idle).await, "");
    assert!(TcpStream::connect(served.address).await.is_err());
    gate.add_permits(1);
    let answer = read_all(stream).await;
    assert!(
        answer.starts_with("HTTP/1.1 201 ") && answer.contains("connection: close"),
        "{answer}"
    );
    assert_eq!(timeout(PATIENCE, served.end).await.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn a_shutdown_cuts_off_at_its_deadline_but_not_the_work() {
    let limits = Limits { drain: Duration::from_millis(200), ..Limits::default() };
    let served = served(settings(), limits, None).await;
    let (stream, gate) = provisioning(&served).await;
    served.stop.send(()).unwrap();
    assert_eq!(timeout(PATIENCE, served.end).await.unwrap().unwrap(), 1);
    assert_eq!(read_all(stream).await, "");
    gate.add_permits(1);
    until(|| served.rig.backend.finished.load(Ordering::SeqCst) == 1).await;
}

struct Authority {
    config: Arc<ServerConfig>,
    certificate: CertificateDer<'static>,
}

fn authority() -> Authority {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    Authority { config: Arc::new(config), certificate }
}

async fn ask_securely(address: SocketAddr, trusted: &Authority) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.certificate.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    stream.write_all(head("GET /v2/catalog", "connection: close\r\n").as_bytes()).await?;
    Ok(read_all(stream).await)
}

#[tokio::test]
async fn tls_serves_and_takes_a_renewed_certificate_for_the_next_connection() {
    let (old, new) = (authority(), authority());
    let current = Arc::new(Mutex::new(Arc::clone(&old.config)));
    let source = Arc::clone(&current);
    let tls: TlsSource = Arc::new(move || source.lock().unwrap().clone());
    let hasty = Limits { handshake: Duration::from_millis(300), ..Limits::default() };
    let hasty = served(settings(), hasty, Some(Arc::clone(&tls))).await;
    let served = served(settings(), Limits::default(), Some(tls)).await;
    assert!(ask_securely(served.address, &old).await.unwrap().starts_with("HTTP/1.1 200 "));
    *current.lock().unwrap() = Arc::clone(&new.config);
    assert!(ask_securely(served.address, &old).await.is_err());
    assert!(ask_securely(served.address, &new).await.unwrap().starts_with("HTTP/1.1 200 "));
    // Neither plain text nor silence holds a connection.
    let plain = ask(served.address, head("GET /v2/catalog", "")).await.into_bytes();
    assert!(!plain.starts_with(b"HTTP"));
    let silent = TcpStream::connect(hasty.address).await.unwrap();
    assert_eq!(read_all(silent).await, "");
    served.stop.send(()).unwrap();
    assert_eq!(timeout(PATIENCE, served.end).await.unwrap().unwrap(), 0);
}
