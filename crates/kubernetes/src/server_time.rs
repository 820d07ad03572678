//! The API server's time: the times at which objects were made are compared only with this.
//!
//! Each answer has the time at which it was given. Our clock counts as right as long as it agrees with that; where it
//! does not, it is corrected by as little as needed. So replicas whose clocks are wrong decide like the others.
//!
//! Kubernetes cannot meet deadlines while its API server answers nobody: so it is also remembered since when the API
//! server answers again.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use engine::SystemClock;
use engine::ports::Clock;
use engine::record::Timestamp;
use http::HeaderMap;
use kube::Client;
use kube::client::Body;

use crate::answers::{self, Says};

/// After how many milliseconds without an answer to any of our calls the API server counts as away.
const AWAY: i64 = 5_000;

/// How many milliseconds pass at least between log messages about corrections of our clock: two API servers behind one
/// address, whose clocks differ, correct it with each answer.
const SAID_EVERY: i64 = 60_000;

/// The API server's time: our clock, and how far it is behind.
pub(crate) struct ServerTime {
    clock: Arc<dyn Clock>,
    /// How many milliseconds our clock is behind.
    behind: AtomicI64,
    /// When a correction was last logged, by our clock; 0: never.
    said: AtomicI64,
    /// When a call was last answered, by our clock.
    heard: AtomicI64,
    /// Since when no call was answered, by our clock; 0: the last call was.
    silent: AtomicI64,
    /// Since when the API server is known to answer, in milliseconds since 1970 by its own time; 0: it was not asked
    /// yet.
    back: AtomicI64,
}

/// A call without an answer yet. If it is dropped after a long wait, it had none.
struct Asked {
    time: Arc<ServerTime>,
    sent: i64,
    is_of_a_node: bool,
    is_answered: bool,
}

impl ServerTime {
    /// Wraps a client so that this learns the time from each answer.
    pub(crate) fn of(client: &Client, namespace: &str) -> (Client, Arc<Self>) {
        Self::by(Arc::new(SystemClock), client, namespace)
    }

    /// Like [`ServerTime::of`], with a given clock.
    pub(crate) fn by(
        clock: Arc<dyn Clock>,
        client: &Client,
        namespace: &str,
    ) -> (Client, Arc<Self>) {
        let time = Arc::new(Self::new(clock));
        let (base, learns) = (client.clone(), Arc::clone(&time));
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let base = base.clone();
            let is_of_a_node = answers::is_of_a_node(request.uri().path());
            let (sent, time) = (learns.ours(), Arc::clone(&learns));
            let asked = Asked { time, sent, is_of_a_node, is_answered: false };
            async move { asked.answer(base.send(request)).await }
        });
        (Client::new(service, namespace), time)
    }

    fn new(clock: Arc<dyn Clock>) -> Self {
        let [behind, said, heard, silent, back] = std::array::from_fn(|_| AtomicI64::default());
        Self { clock, behind, said, heard, silent, back }
    }

    /// [`Self::back_millis`], in seconds since 1970.
    pub(crate) fn back_seconds(&self) -> i64 {
        self.back_millis() / 1000
    }

    /// Since when the API server answers, in milliseconds since 1970: now, while it has been away for longer than
    /// [`AWAY`]; otherwise since it was last away, or since it was first asked, because a process that has just started
    /// cannot know more. Only a process whose calls had no answer notices that the API server is away.
    pub(crate) fn back_millis(&self) -> i64 {
        let silent = self.silent.load(Ordering::Acquire);
        let is_away = silent != 0 && self.ours().saturating_sub(silent) >= AWAY;
        if is_away { self.now_millis() } else { self.back.load(Ordering::Relaxed) }
    }

    fn learn(&self, says: Says, sent: i64, received: i64) {
        match says {
            Says::There => self.answered(received),
            Says::Away => self.unanswered(sent),
            Says::Nothing => {}
        }
    }

    fn answered(&self, received: i64) {
        // Not the maximum of all: our clock may have been set back.
        self.heard.store(received, Ordering::Relaxed);
        let silent = self.silent.load(Ordering::Acquire);
        let behind = self.behind.load(Ordering::Relaxed);
        if silent != 0 && received.saturating_sub(silent) >= AWAY {
            self.back.store(received.saturating_add(behind), Ordering::Relaxed);
            let seconds = received.saturating_sub(silent) / 1000;
            tracing::info!(seconds, "the API server answers again");
        } else if self.back.load(Ordering::Relaxed) == 0 {
            self.back.store(received.saturating_add(behind), Ordering::Relaxed);
        }
        // Cleared last: a reader that finds it cleared also finds since when.
        self.silent.store(0, Ordering::Release);
    }

    fn unanswered(&self, sent: i64) {
        // Other calls may have been answered while this one waited: then the API server was not away.
        let since = sent.max(self.heard.load(Ordering::Relaxed));
        // Unchanged, if an earlier call was not answered.
        let _ = self.silent.compare_exchange(0, since, Ordering::Release, Ordering::Relaxed);
    }

    /// [`Self::now_millis`], in seconds since 1970.
    pub(crate) fn now_seconds(&self) -> i64 {
        self.now_millis() / 1000
    }

    /// The API server's time, in milliseconds since 1970.
    pub(crate) fn now_millis(&self) -> i64 {
        self.ours().saturating_add(self.behind.load(Ordering::Relaxed))
    }

    fn ours(&self) -> i64 {
        i64::try_from(self.clock.now().0).unwrap_or(i64::MAX)
    }

    fn hear(&self, headers: &HeaderMap, sent: i64, received: i64) {
        let said = headers.get(http::header::DATE).and_then(|date| date.to_str().ok());
        let said = said.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
        let Some(said) = said.map(|date| date.timestamp().as_millisecond()) else { return };
        let known = self.behind.load(Ordering::Relaxed);
        let behind = corrected(known, said, sent, received);
        if behind != known {
            self.behind.store(behind, Ordering::Relaxed);
            if self.is_to_be_said(received) {
                tracing::warn!(
                    milliseconds = behind,
                    "our clock is not the API server's: it is corrected"
                );
            }
        }
    }

    /// Whether a correction is to be logged: none was for [`SAID_EVERY`], or the last one is in the future, because our
    /// clock was set back.
    fn is_to_be_said(&self, now: i64) -> bool {
        let said = self.said.load(Ordering::Relaxed);
        let is_due = said == 0 || !(0..SAID_EVERY).contains(&now.saturating_sub(said));
        is_due
            && self.said.compare_exchange(said, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// The answer to a call.
type Answer = http::Response<Body>;

impl Asked {
    /// Waits for the answer, and learns from it.
    async fn answer(
        mut self,
        answer: impl Future<Output = Result<Answer, kube::Error>>,
    ) -> Result<Answer, kube::Error> {
        let answer = self.read(answer).await;
        self.is_answered = true;
        if answer.is_err() {
            self.time.learn(answers::by_none(self.is_of_a_node), self.sent, self.time.ours());
        }
        answer
    }

    /// Reads the answer, with its whole body, if that says why it failed.
    async fn read(
        &self,
        answer: impl Future<Output = Result<Answer, kube::Error>>,
    ) -> Result<Answer, kube::Error> {
        let (head, mut body) = answer.await?.into_parts();
        self.time.hear(&head.headers, self.sent, self.time.ours());
        let mut why = Vec::new();
        if head.status.is_server_error() {
            why = body.collect_bytes().await?.to_vec();
            body = Body::from(why.clone());
        }
        let says = answers::by(head.status, &why, self.is_of_a_node);
        self.time.learn(says, self.sent, self.time.ours());
        Ok(Answer::from_parts(head, body))
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let waited = self.time.ours().saturating_sub(self.sent);
        if !self.is_answered && waited >= AWAY {
            self.time.learn(answers::by_none(self.is_of_a_node), self.sent, self.time.ours());
        }
    }
}

#[async_trait]
impl Clock for ServerTime {
    fn now(&self) -> Timestamp {
        Timestamp(u64::try_from(self.now_millis()).unwrap_or_default())
    }

    async fn sleep(&self, duration: Duration) {
        self.clock.sleep(duration).await;
    }
}

/// The milliseconds to be added to our clock: as before if that fits, else the nearest value that does. The server
/// noted its time, cut to seconds, between our sending and our receiving.
fn corrected(known: i64, said: i64, sent: i64, received: i64) -> i64 {
    let least = said.saturating_sub(received);
    let most = said.saturating_add(999).saturating_sub(sent).max(least);
    known.clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_corrected_by_as_little_as_needed() {
        for (name, known, said, sent, received, expected) in [
            ("it is right", 0, 60_000, 60_400, 60_500, 0),
            ("the answer took long", 0, 60_000, 45_000, 65_000, 0),
            ("ten minutes ahead", 0, 60_000, 660_400, 660_500, -599_401),
            ("a minute behind", 0, 120_000, 60_400, 60_500, 59_500),
            ("known to be behind, and it is", 59_700, 120_000, 60_400, 60_500, 59_700),
            ("it was set right", 59_700, 120_000, 120_400, 120_500, 599),
        ] {
            assert_eq!(corrected(known, said, sent, received), expected, "{name}");
        }
    }

    #[test]
    fn it_is_not_said_by_each_answer_that_two_clocks_differ() {
        let time = ServerTime::new(Arc::new(SystemClock));
        let heard =
            [("once", 1_000, true), ("again", 1_001, false), ("within a minute", 60_999, false)];
        let later = [("after a minute", 61_000, true), ("our clock was set back", 2_000, true)];
        for (name, now, expected) in heard.into_iter().chain(later) {
            assert_eq!(time.is_to_be_said(now), expected, "{name}");
        }
    }

    #[test]
    fn an_answer_says_when_it_was_given() {
        let time = ServerTime::new(Arc::new(SystemClock));
        let mut headers = HeaderMap::new();
        headers.insert("date", "Sat, 21 Nov 2026 19:38:45 GMT".parse().unwrap());
        let said = 1_795_289_925_000;
        time.hear(&headers, said + 600_000, said + 600_010);
        assert_eq!(time.behind.load(Ordering::Relaxed), 999 - 600_000);
        headers.insert("date", "yesterday".parse().unwrap());
        time.hear(&headers, 0, 0);
        assert_eq!(
            time.behind.load(Ordering::Relaxed),
            999 - 600_000,
            "what is no date says nothing"
        );
    }

    /// When a call was sent and its answer received, and what was said.
    type Call = (i64, i64, Option<http::StatusCode>);

    #[test]
    fn it_is_remembered_since_when_it_answers_again() {
        use http::StatusCode;
        let (ok, down) = (StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE);
        let cases: [(&str, &[Call], i64); 8] = [
            ("always there", &[(1_000, 1_010, Some(ok)), (90_000, 90_001, Some(ok))], 1_010),
            (
                "one call hangs, and others are answered",
                &[(20_000, 20_010, Some(ok)), (1_000, 21_000, None), (21_050, 21_100, Some(ok))],
                20_010,
            ),
            ("one call failed", &[(1_000, 1_010, None), (1_500, 1_510, Some(ok))], 1_510),
            ("never answered", &[(1_000, 1_010, None)], 0),
            (
                "away",
                &[(1_000, 1_010, None), (3_000, 3_010, None), (6_500, 6_510, Some(ok))],
                6_510,
            ),
            ("its store away", &[(1_000, 1_010, Some(down)), (31_000, 31_010, Some(ok))], 31_010),
            (
                "404 is an answer",
                &[(1_000, 1_010, None), (9_000, 9_010, Some(StatusCode::NOT_FOUND))],
                9_010,
            ),
            (
                "failing now and then",
                &[
                    (1_000, 1_010, None),
                    (2_000, 2_010, Some(ok)),
                    (8_000, 8_010, None),
                    (9_000, 9_010, Some(ok)),
                ],
                2_010,
            ),
        ];
        for (name, calls, expected) in cases {
            let time = ServerTime::new(Arc::new(SystemClock));
            for &(sent, received, status) in calls {
                let by = |status| answers::by(status, b"", false);
                let says = status.map_or_else(|| answers::by_none(false), by);
                time.learn(says, sent, received);
            }
            assert_eq!(time.back.load(Ordering::Relaxed), expected, "{name}");
        }
    }

    /// A clock that stands until it is set.
    #[derive(Default)]
    struct Still(AtomicI64);

    impl Still {
        fn goes_on(&self, milliseconds: i64) {
            self.0.fetch_add(milliseconds, Ordering::Relaxed);
        }
    }

    #[async_trait]
    impl Clock for Still {
        fn now(&self) -> Timestamp {
            Timestamp(self.0.load(Ordering::Relaxed).unsigned_abs())
        }

        async fn sleep(&self, _: Duration) {}
    }

    #[tokio::test]
    async fn a_client_learns_from_each_call_whether_the_api_server_is_there() {
        let server = tower::service_fn(|request: http::Request<Body>| async move {
            let status = match request.uri().path() {
                "/there" => 200,
                "/store-away" => 503,
                "/away" => return Err(std::io::Error::other("nobody listens")),
                _ => std::future::pending().await,
            };
            Ok(http::Response::builder().status(status).body(Body::empty()).unwrap())
        });
        let clock = Arc::new(Still::default());
        clock.goes_on(1_000_000);
        let base = Client::new(server, "n");
        let (client, time) = ServerTime::by(Arc::clone(&clock) as _, &base, "n");
        let ask = |path: &str| {
            let request = http::Request::get(path).body(Body::empty()).unwrap();
            let client = client.clone();
            async move { client.send(request).await.map(|answer| answer.status().as_u16()) }
        };
        assert_eq!(time.back_millis(), 0, "nobody has asked it");
        assert_eq!(ask("/there").await.unwrap(), 200);
        assert_eq!(time.back_millis(), 1_000_000);
        for path in ["/away", "/store-away", "/hangs"] {
            clock.goes_on(60_000);
            ask("/there").await.unwrap();
            let before = time.back_millis();
            clock.goes_on(1_000);
            if path == "/hangs" {
                // A client hands its calls to a task of its own.
                let a_while = Duration::from_millis(100);
                let mut hanging = Box::pin(ask(path));
                assert!(tokio::time::timeout(a_while, &mut hanging).await.is_err());
                clock.goes_on(AWAY);
                drop(hanging);
            } else {
                let _ = ask(path).await;
                assert_eq!(time.back_millis(), before, "{path}, just now");
                clock.goes_on(AWAY);
            }
            assert_eq!(time.back_millis(), Clock::now(&*clock).0.cast_signed(), "{path}");
            clock.goes_on(10);
            let back = Clock::now(&*clock).0.cast_signed();
            ask("/there").await.unwrap();
            clock.goes_on(1_000);
            assert_eq!(time.back_millis(), back, "{path}: it answers again");
        }
    }

    #[tokio::test]
    async fn a_node_or_a_webhook_that_does_not_answer_is_not_the_api_server() {
        const FAILED: &str = r#"{"message": "failed calling webhook \"a.b\": EOF"}"#;
        let log = |name: &str| format!("/api/v1/namespaces/n/pods/{name}/log");
        let server = tower::service_fn(|request: http::Request<Body>| async move {
            let path = request.uri().path().to_owned();
            let (status, body) = match path.as_str() {
                "/there" => (200, "{}"),
                "/webhook" => (500, FAILED),
                path if path.ends_with("unreachable/log") => (500, "dial tcp: i/o timeout"),
                path if path.ends_with("broken/log") => {
                    return Err(std::io::Error::other("the connection was closed"));
                }
                _ => std::future::pending().await,
            };
            let body = Body::from(body.as_bytes().to_vec());
            Ok(http::Response::builder().status(status).body(body).unwrap())
        });
        let clock = Arc::new(Still::default());
        clock.goes_on(1_000_000);
        let base = Client::new(server, "n");
        let (client, time) = ServerTime::by(Arc::clone(&clock) as _, &base, "n");
        let ask = |path: String| {
            let request = http::Request::get(path).body(Body::empty()).unwrap();
            let client = client.clone();
            async move { client.send(request).await }
        };
        ask("/there".to_owned()).await.unwrap();
        for path in [log("unreachable"), log("broken"), "/webhook".to_owned(), log("slow")] {
            clock.goes_on(60_000);
            let mut asked = Box::pin(ask(path.clone()));
            if path == log("slow") {
                let a_while = Duration::from_millis(100);
                assert!(tokio::time::timeout(a_while, &mut asked).await.is_err());
            } else if let Ok(answer) = (&mut asked).await {
                let body = answer.into_body().collect_bytes().await.unwrap();
                assert!(!body.is_empty(), "{path}: who asked reads it, too");
            }
            clock.goes_on(AWAY);
            drop(asked);
            assert_eq!(time.back_millis(), 1_000_000, "{path}");
            ask("/there".to_owned()).await.unwrap();
            assert_eq!(time.back_millis(), 1_000_000, "{path}: it was there all the time");
        }
    }

    #[test]
    fn while_it_is_away_it_is_back_now() {
        let time = ServerTime::new(Arc::new(SystemClock));
        let now = time.ours();
        time.unanswered(now - 1_000);
        assert_eq!(time.back_millis(), 0, "one call, just now");
        time.answered(now - 2 * AWAY);
        time.unanswered(now - AWAY);
        assert!(time.back_millis() >= now, "{}", time.back_millis());
    }

    #[test]
    fn who_waits_no_more_had_no_answer_if_they_waited_for_long() {
        for (waited, is_of_a_node, expected) in
            [(10, false, false), (AWAY, false, true), (AWAY, true, false)]
        {
            let time = Arc::new(ServerTime::new(Arc::new(SystemClock)));
            let sent = time.ours() - waited;
            drop(Asked { time: Arc::clone(&time), sent, is_of_a_node, is_answered: false });
            let is_silent = time.silent.load(Ordering::Relaxed) != 0;
            assert_eq!(is_silent, expected, "{waited} ms, of a node: {is_of_a_node}");
        }
    }
}
