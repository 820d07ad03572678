//! The API server's time: what it says of when things were made is compared with nothing else.
//!
//! Each answer says when it was given. Our clock is right as long as it agrees with that; where it does not,
//! it is corrected by as little as needed. So replicas whose clocks are wrong decide as the others do.

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

/// Our clock, and how far it is behind the API server's.
pub(crate) struct ServerTime {
    clock: Arc<dyn Clock>,
    /// In milliseconds.
    behind: AtomicI64,
}

impl ServerTime {
    /// A client that learns from each answer what time it is.
    pub(crate) fn of(client: &Client, namespace: &str) -> (Client, Arc<Self>) {
        Self::by(Arc::new(SystemClock), client, namespace)
    }

    /// The same, where this is our clock.
    pub(crate) fn by(
        clock: Arc<dyn Clock>,
        client: &Client,
        namespace: &str,
    ) -> (Client, Arc<Self>) {
        let time = Arc::new(Self { clock, behind: AtomicI64::default() });
        let (base, learns) = (client.clone(), Arc::clone(&time));
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (base, learns) = (base.clone(), Arc::clone(&learns));
            async move {
                let sent = learns.ours();
                let answer = base.send(request).await;
                if let Ok(answer) = &answer {
                    learns.hear(answer.headers(), sent, learns.ours());
                }
                answer
            }
        });
        (Client::new(service, namespace), time)
    }

    /// Milliseconds since 1970.
    pub(crate) fn now(&self) -> i64 {
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
            tracing::warn!(
                milliseconds = behind,
                "our clock is not the API server's: it is corrected"
            );
        }
    }
}

#[async_trait]
impl Clock for ServerTime {
    fn now(&self) -> Timestamp {
        Timestamp(u64::try_from(Self::now(self)).unwrap_or_default())
    }

    async fn sleep(&self, duration: Duration) {
        self.clock.sleep(duration).await;
    }
}

/// What has to be added to our clock: as before if that fits, else the nearest that does. The server said
/// its time, cut to seconds, between what our clock said when we asked and when we heard.
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
    fn an_answer_says_when_it_was_given() {
        let clock = Arc::new(SystemClock);
        let time = ServerTime { clock, behind: AtomicI64::default() };
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
}
