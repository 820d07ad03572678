//! The accept loop of the server: connections within limits, TLS whose certificate can change, an orderly end.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, Version, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::{TlsAcceptor, rustls};
use tower_service::Service;

use super::error_response;
use super::malformed::Explained;
use super::patience::Patient;
use super::places::{Activity, Answer, Places, Told};
use crate::error::Error;

/// A source of TLS configurations, asked at each new connection, so that a certificate
/// can be renewed while the server runs; connections keep the one that they began with.
pub type TlsSource = Arc<dyn Fn() -> Arc<rustls::ServerConfig> + Send + Sync>;

/// The limits of the accept loop.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How many connections may be open at once. Further ones wait in the kernel's queue, and those that
    /// are idle are ended for them after a second.
    pub connections: usize,
    /// How long a TLS handshake may take.
    pub handshake: Duration,
    /// How long a connection may take to send a request's head, from when it opened or had its last
    /// answer: also how long it may be idle.
    pub head: Duration,
    /// The largest head of a request, in bytes; a larger one is answered 431.
    pub head_bytes: usize,
    /// How long a client may take to read any of an answer; then its connection ends.
    pub write: Duration,
    /// How long requests under way may take after the shutdown began.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(30),
            head_bytes: 32 * 1024,
            write: Duration::from_secs(30),
            drain: Duration::from_secs(25),
        }
    }
}

/// How long to wait when no further connection can be accepted: the process is out of descriptors,
/// and only time brings some back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown` is ready, then takes no further connection, lets those under way have
/// their answers, and ends those that are idle. Returns how many had to be cut off at the deadline
/// of [`Limits::drain`]; what the backend does for them goes on as long as the runtime.
///
/// HTTP/1.1 only, as every platform speaks it.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<TlsSource>,
    limits: Limits,
    shutdown: impl Future<Output = ()> + Send,
) -> usize {
    let mut places = Places::new(limits.connections);
    let mut refused = Told::default();
    let (stop, stopped) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        // Whoever comes while there is no place waits, and is not dropped.
        let next = async {
            let stream = accept(&listener, &places, &mut refused).await;
            (places.place().await, stream)
        };
        let (place, stream) = tokio::select! {
            biased;
            () = &mut shutdown => break,
            next = next => next,
        };
        while connections.try_join_next().is_some() {}
        let (router, tls, stopped) = (router.clone(), tls.clone(), stopped.clone());
        let held = places.held();
        connections.spawn(async move {
            let activity = held.activity.clone();
            tokio::select! {
                biased;
                () = connection(stream, router, tls, limits, activity, stopped) => {}
                () = held.given_up() => tracing::debug!("an idle connection gave up its place"),
            }
            drop(place);
        });
    }
    drop(listener);
    drop(stop);
    let drained = async { while connections.join_next().await.is_some() {} };
    let drained = timeout(limits.drain, drained).await.is_ok();
    if drained {
        return 0;
    }
    let cut = connections.len();
    tracing::warn!(connections = cut, "cut off at the deadline of the shutdown");
    connections.shutdown().await;
    cut
}

/// Accepts the next connection. Faults of one connection or of the moment do not end the loop.
async fn accept(listener: &TcpListener, places: &Places, refused: &mut Told) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                if refused.is_due() {
                    tracing::warn!(%error, "cannot accept a connection now; trying again");
                }
                places.ask();
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

async fn connection(
    stream: TcpStream,
    router: Router,
    tls: Option<TlsSource>,
    limits: Limits,
    activity: Activity,
    stopped: watch::Receiver<()>,
) {
    // Answers are small and whole: waiting for more to send only delays them.
    let _ = stream.set_nodelay(true);
    match tls {
        None => exchanges(stream, router, limits, activity, stopped).await,
        // Apart, as it is larger than all the rest of a connection without it.
        Some(tls) => Box::pin(over_tls(stream, &tls, router, limits, activity, stopped)).await,
    }
}

async fn over_tls(
    stream: TcpStream,
    tls: &TlsSource,
    router: Router,
    limits: Limits,
    activity: Activity,
    stopped: watch::Receiver<()>,
) {
    match timeout(limits.handshake, TlsAcceptor::from(tls()).accept(stream)).await {
        Ok(Ok(stream)) => Box::pin(exchanges(stream, router, limits, activity, stopped)).await,
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

/// Whether a request has to be refused for its `Host` (RFC 9112, section 3.2): an intermediary
/// between its sender and this server may have read another one, or none. HTTP/1.0 needs none.
fn lacks_host(request: &Request<Incoming>) -> bool {
    let hosts = request.headers().get_all(header::HOST).iter().count();
    hosts > 1 || (hosts == 0 && request.version() >= Version::HTTP_11)
}

async fn exchanges<C>(
    stream: C,
    router: Router,
    limits: Limits,
    activity: Activity,
    mut stopped: watch::Receiver<()>,
) where
    C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (mut router, activity) = (router.clone(), activity.clone());
        async move {
            let working = activity.begin();
            let answer = match lacks_host(&request) {
                true => error_response(Error::bad_request("Host: must be sent exactly once")),
                false => router.call(request.map(Body::new)).await?,
            };
            Ok::<_, Infallible>(answer.map(|body| Answer::new(body, working)))
        }
    });
    let stream = Explained::new(Patient::new(stream, limits.write), limits.head_bytes);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_header_size(limits.head_bytes)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        // The sender is only ever dropped.
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke off");
    }
}
