//! Runs seeded schedules, several at once, and says which failed.

use std::fmt::Debug;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures_util::{FutureExt, StreamExt};
use testkit::number;

/// What happened in schedules.
pub(crate) trait Sum: Debug + Default {
    fn add(&mut self, other: &Self);
    /// How many processes were killed.
    fn deaths(&self) -> u64;
    /// Whether there was at least one of each thing that is to be tested.
    fn is_of_everything(&self) -> bool;
}

/// How many schedules run when nobody says otherwise.
pub(crate) struct Usual {
    pub(crate) schedules: u64,
    /// How many at once: they wait most of the time.
    pub(crate) at_once: u64,
    /// In so many there is at least one of each thing that is to be tested.
    pub(crate) of_everything: u64,
}

/// Runs those that `MANCIPLE_SCHEDULES` or `MANCIPLE_SEED` say, or so many from that seed on where both do,
/// `MANCIPLE_AT_ONCE`; with `MANCIPLE_LOG` set everything is said.
pub(crate) fn run<T, F>(usual: &Usual, schedule: impl Fn(u64) -> F)
where
    T: Sum + Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let seeds = match (number("MANCIPLE_SEED"), number("MANCIPLE_SCHEDULES")) {
        (Some(first), count) => first..first + count.unwrap_or(1),
        (None, count) => 1..count.unwrap_or(usual.schedules) + 1,
    };
    log();
    let begun = Instant::now();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let at_once = number("MANCIPLE_AT_ONCE").unwrap_or(usual.at_once);
    let at_once = usize::try_from(at_once).unwrap();
    let (sum, failed) = runtime.block_on(async {
        let all = futures_util::stream::iter(seeds.clone()).map(|seed| {
            let running = AssertUnwindSafe(schedule(seed)).catch_unwind();
            async move {
                let begun = Instant::now();
                let ended = tokio::spawn(running).await.expect("it is not aborted");
                println!("seed {seed}: {:.1?}, {}", begun.elapsed(), ended.is_ok());
                (seed, ended.ok())
            }
        });
        let mut all = all.buffer_unordered(at_once);
        let (mut sum, mut failed) = (T::default(), Vec::new());
        while let Some((seed, ended)) = all.next().await {
            match ended {
                Some(ended) => sum.add(&ended),
                None => failed.push(seed),
            }
        }
        (sum, failed)
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    println!("{} schedules in {:.0?}: {sum:?}", seeds.end - seeds.start, begun.elapsed());
    assert!(failed.is_empty(), "these seeds failed: {failed:?}");
    let count = seeds.end - seeds.start;
    assert!(count < 20 || sum.deaths() > 0, "nobody died: the schedules test nothing");
    let is_of_few = count < usual.of_everything;
    assert!(is_of_few || sum.is_of_everything(), "something never happened, and was not tested");
}

/// With `MANCIPLE_LOG` set everything is said.
pub(crate) fn log() {
    if std::env::var_os("MANCIPLE_LOG").is_some() {
        let _ = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).try_init();
    }
}
