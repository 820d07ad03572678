//! A proxy before a real API server that makes calls fail, by a seed.
//!
//! ```text
//! replica ──▶ proxy ── refuse · say 5xx · delay · send twice · lose the answer · cut a watch ──▶ API server
//!               └─ at the n-th call, before or after its effect: nothing is answered any more
//! ```
//!
//! The last is what `kill -9` looks like from outside, for whoever ends the replica when [`Proxy::died`]
//! says so.

mod faults;

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use futures_util::stream::unfold;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

pub use self::faults::Faults;
use crate::kubelet::Logs;
use crate::plane;
use crate::random::Random;

/// The plan of faults: what goes wrong, and how often.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The random numbers that decide.
    pub random: Random,
    /// How many calls in a thousand fail in some way.
    pub failing: u64,
    /// The longest delay of a call, in milliseconds.
    pub delay: u64,
    /// The longest life of a watch, in milliseconds; zero: it is not cut.
    pub watches: u64,
    /// The longest that a watch is behind, in milliseconds.
    pub lag: u64,
    /// The call at which everything ends.
    pub death: Option<u64>,
    /// Whether that call takes effect; `None`: `random` decides.
    pub effect: Option<bool>,
    /// The counts of faults, which several plans may share.
    pub faults: Arc<Mutex<Faults>>,
}

impl Plan {
    /// A plan in which nothing goes wrong.
    pub fn calm() -> Self {
        Self {
            random: Random::new(0),
            failing: 0,
            delay: 0,
            watches: 0,
            lag: 0,
            death: None,
            effect: None,
            faults: Arc::default(),
        }
    }
}

/// A proxy on a port of its own, until it is dropped.
pub struct Proxy {
    address: String,
    gate: Arc<Gate>,
    _tasks: JoinSet<()>,
}

struct Gate {
    server: Client,
    plan: Mutex<(Plan, u64)>,
    faults: Arc<Mutex<Faults>>,
    /// The calls that were made, watches left out.
    made: Mutex<Vec<String>>,
    dead: watch::Sender<bool>,
    /// Which calls are held up on their way.
    held_up: watch::Sender<fn(&str) -> bool>,
    /// Which watches tell nothing, by path.
    silenced: watch::Sender<fn(&str) -> bool>,
    /// Which custom resources are not served, by path.
    forgotten: watch::Sender<fn(&str) -> bool>,
    /// The logs that the API server would ask a kubelet for.
    logs: Mutex<Option<Logs>>,
    /// Whether a kubelet does not know of its pods.
    knows_no_pods: AtomicBool,
}

/// What the proxy does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Pass,
    /// The connection is closed before anything is sent on.
    Refuse,
    Say(StatusCode),
    /// The call takes effect, and the connection is closed.
    Lose,
    /// The call is sent twice, as by something in between; the second answer counts.
    Twice,
    /// Nothing is answered any more, to nobody.
    Die {
        effect: bool,
    },
}

type Answer = Response<UnsyncBoxBody<Bytes, Lost>>;

/// The error that the connection ends without an answer.
#[derive(Debug, Clone, Copy)]
struct Lost;

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("lost on purpose")
    }
}

impl std::error::Error for Lost {}

impl Proxy {
    /// Begins to listen, before the API server of this client.
    ///
    /// # Errors
    /// If there is no port.
    pub async fn start(server: Client, plan: Plan) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("a port")?;
        let address = listener.local_addr()?.to_string();
        let dead = watch::Sender::new(false);
        let held_up = watch::Sender::new((|_| false) as fn(&str) -> bool);
        let silenced = watch::Sender::new((|_| false) as fn(&str) -> bool);
        let faults = Arc::clone(&plan.faults);
        let plan = Mutex::new((plan, 0));
        let gate = Arc::new(Gate {
            server,
            plan,
            faults,
            made: Mutex::default(),
            dead,
            held_up,
            silenced,
            forgotten: watch::Sender::new((|_| false) as fn(&str) -> bool),
            logs: Mutex::default(),
            knows_no_pods: AtomicBool::new(false),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(listen(listener, Arc::clone(&gate)));
        Ok(Self { address, gate, _tasks: tasks })
    }

    /// A kubeconfig for a client: plain HTTP, and the credentials are the proxy's.
    pub fn kubeconfig(&self) -> String {
        plane::kubeconfig(&format!("http://{}", self.address))
    }

    /// Waits for the call at which everything ends.
    pub async fn died(&self) {
        let _ = self.gate.dead.subscribe().wait_for(|dead| *dead).await;
    }

    /// Ends everything now: nothing is answered any more.
    pub fn die(&self) {
        self.gate.dead.send_replace(true);
    }

    /// Stops all faults from now on; watches that lag go on lagging.
    pub fn calm(&self) {
        self.gate.lock().0 = Plan::calm();
    }

    /// Answers requests for logs of pods from here: a kubelet that is played is not asked by an API server.
    pub fn know_logs(&self, logs: Logs) {
        *self.gate.logs.lock().unwrap_or_else(PoisonError::into_inner) = Some(logs);
    }

    /// Answers requests for logs as a kubelet that has just started and does not know its pods yet;
    /// `false`: no longer.
    pub fn lose_logs(&self, lost: bool) {
        self.gate.knows_no_pods.store(lost, Ordering::Relaxed);
    }

    /// Answers calls of custom resources whose path is selected as an API server that does not know that kind, until
    /// this is called again.
    pub fn forget_kinds(&self, which: fn(&str) -> bool) {
        self.gate.forgotten.send_replace(which);
    }

    /// Holds up the selected calls, by method and path, until this is called again; a call goes on even if its client
    /// goes.
    pub fn hold_up(&self, which: fn(&str) -> bool) {
        self.gate.held_up.send_replace(which);
    }

    /// Lets watches of the selected paths tell nothing, until this is called again.
    pub fn silence(&self, which: fn(&str) -> bool) {
        self.gate.silenced.send_replace(which);
    }

    /// How many calls there were.
    pub fn calls(&self) -> u64 {
        self.gate.lock().1
    }

    /// The calls since the last time, watches left out: `GET /api/v1/namespaces/n/secrets/s`.
    pub fn made(&self) -> Vec<String> {
        std::mem::take(&mut *self.gate.made.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Gate {
    fn lock(&self) -> std::sync::MutexGuard<'_, (Plan, u64)> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a fault.
    fn note(&self, fault: &str) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).note(fault);
    }

    /// Decides what to do with the next call, and how long it waits before.
    fn decide(&self, watched: bool) -> (Deed, Duration) {
        let mut held = self.lock();
        held.1 += 1;
        let number = held.1;
        let plan = &mut held.0;
        if plan.death == Some(number) {
            let effect = plan.effect.unwrap_or_else(|| plan.random.below(2) == 0);
            return (Deed::Die { effect }, Duration::ZERO);
        }
        let delay = match plan.delay > 0 && plan.random.below(4) == 0 {
            true => plan.random.below(plan.delay),
            false => 0,
        };
        let deed = match plan.random.permille(plan.failing) {
            false => Deed::Pass,
            true if watched => Deed::Refuse,
            true => match plan.random.below(7) {
                0 => Deed::Refuse,
                // Of a custom resource: not served yet.
                1 => Deed::Say(StatusCode::INTERNAL_SERVER_ERROR),
                2 => Deed::Say(StatusCode::SERVICE_UNAVAILABLE),
                3 => Deed::Say(StatusCode::TOO_MANY_REQUESTS),
                4 => Deed::Twice,
                _ => Deed::Lose,
            },
        };
        (deed, Duration::from_millis(delay))
    }

    /// Decides how long a watch lives, how far it is behind, and whether it ends by saying that its version is too
    /// old.
    fn watched(&self) -> (Option<Duration>, Duration, bool) {
        let plan = &mut self.lock().0;
        let mut up_to = |most: u64| match most {
            0 => 0,
            most => plan.random.below(most),
        };
        let (life, lag) = (up_to(plan.watches), up_to(plan.lag));
        let gone = plan.watches > 0 && plan.random.below(4) == 0;
        let life = (plan.watches > 0).then(|| Duration::from_millis(200 + life));
        (life, Duration::from_millis(lag), gone)
    }

    /// The answer to a request for a pod's log, if that is known here. The log is not followed: it ends.
    fn log(&self, path: &str) -> Option<Answer> {
        let pod = path.strip_suffix("/log")?.rsplit_once("/pods/")?.1;
        if self.knows_no_pods.load(Ordering::Relaxed) {
            return Some(unknown_to_its_node(pod));
        }
        let log = self.logs.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.of(pod)?;
        let body = Full::new(Bytes::from(log)).map_err(|never: Infallible| match never {});
        Some(Response::new(body.boxed_unsync()))
    }

    async fn held(&self) {
        let _ = self.dead.subscribe().wait_for(|dead| *dead).await;
        std::future::pending::<()>().await;
    }
}

async fn listen(listener: TcpListener, gate: Arc<Gate>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let gate = Arc::clone(&gate);
        connections.spawn(async move {
            let service = hyper::service::service_fn(move |request| {
                let gate = Arc::clone(&gate);
                async move {
                    tokio::select! {
                        biased;
                        () = gate.held() => Err(Lost),
                        answer = answer(&gate, request) => answer,
                    }
                }
            });
            let connection = hyper::server::conn::http1::Builder::new();
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(gate: &Arc<Gate>, request: Request<Incoming>) -> Result<Answer, Lost> {
    let query = request.uri().query().unwrap_or_default();
    let watched = query.contains("watch=true");
    let call = format!("{} {}", request.method(), request.uri().path());
    if !watched {
        gate.made.lock().unwrap_or_else(PoisonError::into_inner).push(call.clone());
    }
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Lost)?.to_bytes();
    if is_custom(parts.uri.path()) && gate.forgotten.borrow()(parts.uri.path()) {
        return Ok(unserved());
    }
    let (deed, delay) = gate.decide(watched);
    if !delay.is_zero() {
        sleep(delay).await;
        gate.note("late");
    }
    if !watched && gate.held_up.borrow()(&call) {
        let gate = Arc::clone(gate);
        let late = tokio::spawn(async move {
            let _ = gate.held_up.subscribe().wait_for(|held_up| !held_up(&call)).await;
            whole(forward(&gate, &parts, body).await?).await
        });
        return late.await.unwrap_or(Err(Lost));
    }
    let forward = || forward(gate, &parts, body.clone());
    if matches!(deed, Deed::Pass | Deed::Twice)
        && let Some(log) = gate.log(parts.uri.path())
    {
        return Ok(log);
    }
    match deed {
        Deed::Pass if watched => Ok(stream(gate, parts.uri.path(), forward().await?)),
        Deed::Pass => whole(forward().await?).await,
        Deed::Refuse => {
            gate.note("refused");
            Err(Lost)
        }
        Deed::Say(StatusCode::INTERNAL_SERVER_ERROR) if is_custom(parts.uri.path()) => {
            gate.note("unserved");
            Ok(unserved())
        }
        Deed::Say(code) => {
            gate.note(code.as_str());
            Ok(said(code))
        }
        Deed::Lose => {
            if forward().await.is_ok() {
                gate.note("lost");
            }
            Err(Lost)
        }
        Deed::Twice => {
            let _ = whole(forward().await?).await?;
            let again = forward().await?;
            gate.note("twice");
            whole(again).await
        }
        Deed::Die { effect } => {
            if effect {
                let _ = forward().await;
            }
            gate.dead.send_replace(true);
            std::future::pending().await
        }
    }
}

async fn forward(
    gate: &Gate,
    parts: &http::request::Parts,
    body: Bytes,
) -> Result<Response<Body>, Lost> {
    let mut request = Request::builder().method(&parts.method).uri(&parts.uri);
    for (name, value) in &parts.headers {
        let ours = ["host", "authorization", "content-length", "connection", "accept-encoding"];
        if !ours.contains(&name.as_str()) {
            request = request.header(name, value);
        }
    }
    let request = request.body(Body::from(body.to_vec())).map_err(|_| Lost)?;
    gate.server.send(request).await.map_err(|_| Lost)
}

async fn whole(response: Response<Body>) -> Result<Answer, Lost> {
    let (parts, body) = response.into_parts();
    let body = body.collect_bytes().await.map_err(|_| Lost)?;
    Ok(of(&parts, Full::new(body).map_err(|never: Infallible| match never {}).boxed_unsync()))
}

/// The answer to a watch, with its lag and its end.
fn stream(gate: &Arc<Gate>, path: &str, response: Response<Body>) -> Answer {
    let (path, (parts, body)) = (path.to_owned(), response.into_parts());
    let (life, lag, gone) = gate.watched();
    let end = life.map(|life| Instant::now() + life);
    let state = (body, Arc::clone(gate), path, false);
    let frames = unfold(state, move |(mut body, gate, path, over)| async move {
        if over {
            return None;
        }
        let ended = async {
            match end {
                Some(end) => tokio::time::sleep_until(end).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = ended => {
                gate.note(if gone { "410" } else { "cut" });
                let last = if gone { Ok(Frame::data(Bytes::from(too_old()))) } else { Err(Lost) };
                Some((last, (body, gate, path, true)))
            }
            frame = body.frame() => {
                let _ = gate.silenced.subscribe().wait_for(|silenced| !silenced(&path)).await;
                if !lag.is_zero() {
                    sleep(lag).await;
                    gate.note("behind");
                }
                match frame? {
                    Ok(frame) => Some((Ok(frame), (body, gate, path, false))),
                    Err(_) => Some((Err(Lost), (body, gate, path, true))),
                }
            }
        }
    });
    of(&parts, StreamBody::new(frames).boxed_unsync())
}

fn of(parts: &http::response::Parts, body: UnsyncBoxBody<Bytes, Lost>) -> Answer {
    let mut response = Response::new(body);
    *response.status_mut() = parts.status;
    for (name, value) in &parts.headers {
        if !["content-length", "transfer-encoding", "connection"].contains(&name.as_str()) {
            response.headers_mut().append(name, value.clone());
        }
    }
    response
}

fn said(code: StatusCode) -> Answer {
    let reason = code.canonical_reason().unwrap_or_default();
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("on purpose: {reason}"), "reason": reason.replace(' ', ""), "code": code.as_u16(),
    });
    let body = Full::new(Bytes::from(status.to_string()));
    let mut response = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = code;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}

/// Whether a path is of a kind that somebody has defined.
fn is_custom(path: &str) -> bool {
    let group = path.strip_prefix("/apis/").and_then(|rest| rest.split('/').next());
    group.is_some_and(|group| group.contains('.') && !group.ends_with(".k8s.io"))
}

/// The answer of an API server that has just started for a custom kind whose definition it has not read yet.
fn unserved() -> Answer {
    let body = Full::new(Bytes::from_static(b"404 page not found\n"));
    let mut response = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

/// The answer of an API server for a log for which a kubelet answers 404.
fn unknown_to_its_node(pod: &str) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404,
        "message": format!("the server could not find the requested resource ( pods/log {pod})"),
        "reason": "NotFound", "details": {"name": pod, "kind": "pods/log"},
    });
    let body = Full::new(Bytes::from(status.to_string()));
    let mut response = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

fn too_old() -> String {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410,
    });
    format!("{}\n", json!({"type": "ERROR", "object": status}))
}
