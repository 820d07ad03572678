//! Keep-alive connections that ask one request after the other, on one thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// `platform:secret`.
pub(crate) const AUTHORIZATION: &str = "Basic cGxhdGZvcm06c2VjcmV0";

/// Who asks, and how long.
pub(crate) struct Load {
    pub(crate) address: String,
    pub(crate) connections: usize,
    pub(crate) period: Duration,
}

/// What came of it.
pub(crate) struct Seen {
    pub(crate) count: u64,
    pub(crate) elapsed: Duration,
    /// Answers of another status than the wanted one.
    pub(crate) others: u64,
    latencies: Vec<u32>,
}

impl Seen {
    pub(crate) fn rate(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
        let count = self.count as f64;
        count / self.elapsed.as_secs_f64()
    }

    /// A quantile of the latency, in microseconds.
    pub(crate) fn latency(&self, quantile: f64) -> f64 {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an index"
        )]
        let at = (quantile * (self.latencies.len().max(1) - 1) as f64) as usize;
        self.latencies.get(at).copied().unwrap_or_default().into()
    }
}

/// A request with the headers of a platform.
pub(crate) fn request(method: &str, path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: broker\r\nauthorization: {AUTHORIZATION}\r\n\
         x-broker-api-version: 2.17\r\naccept: application/json\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

impl Load {
    /// Asks until the time is over. `make` makes the nth request; `wanted` is the status expected.
    pub(crate) fn run(
        &self,
        wanted: u16,
        make: impl Fn(u64) -> String + Send + Sync + 'static,
    ) -> Seen {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let make = Arc::new(make);
        let next = Arc::new(AtomicU64::new(0));
        let local = tokio::task::LocalSet::new();
        let begun = Instant::now();
        let until = begun + self.period;
        let clients: Vec<_> = (0..self.connections)
            .map(|_| {
                let (make, next, address) = (make.clone(), next.clone(), self.address.clone());
                local.spawn_local(
                    async move { client(&address, until, wanted, &*make, &next).await },
                )
            })
            .collect();
        let parts = local.block_on(&runtime, async {
            let mut parts = Vec::new();
            for client in clients {
                parts.push(client.await.unwrap());
            }
            parts
        });
        let elapsed = begun.elapsed();
        let others = parts.iter().map(|(_, others)| others).sum();
        let mut latencies: Vec<u32> = parts.into_iter().flat_map(|(seen, _)| seen).collect();
        latencies.sort_unstable();
        Seen { count: latencies.len() as u64, elapsed, others, latencies }
    }
}

async fn client(
    address: &str,
    until: Instant,
    wanted: u16,
    make: &dyn Fn(u64) -> String,
    next: &AtomicU64,
) -> (Vec<u32>, u64) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut seen, mut others) = (Vec::with_capacity(1 << 16), 0);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let begun = Instant::now();
        if begun >= until {
            return (seen, others);
        }
        let request = make(next.fetch_add(1, Ordering::Relaxed));
        stream.write_all(request.as_bytes()).await.unwrap();
        if answer(&mut stream, &mut buffer).await == wanted {
            seen.push(u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX));
        } else {
            others += 1;
        }
    }
}

/// Reads one answer whole; its status.
async fn answer(stream: &mut TcpStream, buffer: &mut [u8]) -> u16 {
    let mut have = 0;
    loop {
        let more = stream.read(&mut buffer[have..]).await.unwrap();
        assert!(more > 0, "the server closed: {}", String::from_utf8_lossy(&buffer[..have]));
        have += more;
        let Some(end) = buffer[..have].windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        let head = std::str::from_utf8(&buffer[..end]).unwrap();
        let length: usize = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse().unwrap());
        if have >= end + 4 + length {
            return head[9..12].parse().unwrap();
        }
    }
}
