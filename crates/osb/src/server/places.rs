//! The places of connections: a limited number, which idle connections give up when others wait.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{self as http_body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout};

/// How long a connection may be idle while others wait for its place.
const IDLE: Duration = Duration::from_secs(1);
/// How often idle connections are asked for their places while somebody waits for one.
const ASK: Duration = Duration::from_millis(100);
/// How often the same trouble is logged.
const TELL: Duration = Duration::from_secs(60);

/// The places for connections.
pub(super) struct Places {
    permits: Arc<Semaphore>,
    all: usize,
    /// Changes when somebody waits.
    wanted: watch::Sender<()>,
    crowded: Told,
}

impl Places {
    pub(super) fn new(all: usize) -> Self {
        let all = all.min(Semaphore::MAX_PERMITS);
        let permits = Arc::new(Semaphore::new(all));
        Self { permits, all, wanted: watch::Sender::new(()), crowded: Told::default() }
    }

    /// A place, as soon as there is one; it is free again when this is dropped.
    pub(super) async fn place(&mut self) -> OwnedSemaphorePermit {
        loop {
            if let Ok(Ok(place)) = timeout(ASK, Arc::clone(&self.permits).acquire_owned()).await {
                return place;
            }
            self.ask();
            if self.crowded.is_due() {
                tracing::warn!(
                    connections = self.all,
                    "all connections are taken: those that are idle for a second are ended"
                );
            }
        }
    }

    /// Asks idle connections to give up their places.
    pub(super) fn ask(&self) {
        self.wanted.send_replace(());
    }

    /// Registers a new connection.
    pub(super) fn held(&self) -> Held {
        let activity = Activity { opened: Instant::now(), idle_since: Arc::default() };
        Held { wanted: self.wanted.subscribe(), activity }
    }
}

/// A connection that holds a place.
pub(super) struct Held {
    wanted: watch::Receiver<()>,
    pub(super) activity: Activity,
}

impl Held {
    /// Resolves when the place is wanted and its connection idle.
    pub(super) async fn given_up(mut self) {
        while self.wanted.changed().await.is_ok() {
            if self.activity.is_idle() {
                return;
            }
        }
        // Nobody accepts any more: those who are left have their own time.
        std::future::pending::<()>().await;
    }
}

/// The activity of a connection: whether requests are under way, and since when none is.
#[derive(Clone)]
pub(super) struct Activity {
    opened: Instant,
    /// The time since which the connection is idle, in milliseconds since it was opened; [`BUSY`] while it is not.
    idle_since: Arc<AtomicU64>,
}

/// The value of `idle_since` while a connection is not idle.
const BUSY: u64 = u64::MAX;

impl Activity {
    /// Notes that a request came. It goes on until the body of its answer is dropped.
    pub(super) fn begin(&self) -> Working {
        self.idle_since.store(BUSY, Ordering::Relaxed);
        Working(self.clone())
    }

    fn is_idle(&self) -> bool {
        let since = self.idle_since.load(Ordering::Relaxed);
        since != BUSY && self.opened.elapsed() >= Duration::from_millis(since) + IDLE
    }
}

/// A guard for a request that is under way.
pub(super) struct Working(Activity);

impl Drop for Working {
    fn drop(&mut self) {
        let now = u64::try_from(self.0.opened.elapsed().as_millis()).unwrap_or_default();
        self.0.idle_since.store(now, Ordering::Relaxed);
    }
}

/// The body of an answer, which keeps its request under way until it is sent.
pub(super) struct Answer {
    body: Body,
    _working: Working,
}

impl Answer {
    pub(super) fn new(body: Body, working: Working) -> Self {
        Self { body, _working: working }
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The time at which some trouble was last logged.
#[derive(Default)]
pub(super) struct Told(Option<Instant>);

impl Told {
    /// Whether it is time to log the trouble again; if so, it counts as logged now.
    pub(super) fn is_due(&mut self) -> bool {
        let is_due = self.0.is_none_or(|last| last.elapsed() >= TELL);
        if is_due {
            self.0 = Some(Instant::now());
        }
        is_due
    }
}
