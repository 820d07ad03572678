//! Runs seeded schedules, several at once, and says which failed.

use std::fmt::Debug;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant, SystemTime};

use futures_util::{FutureExt, StreamExt};
use testkit::number;

/// What happened in schedules.
pub(crate) trait Sum: Debug + Default {
    fn add(&mut self, other: &Self);
    /// How many processes were killed.
    fn deaths(&self) -> u64;
    /// Whether there was at least one of each thing that is to be tested, in so many schedules.
    fn is_of_everything(&self, schedules: usize) -> bool;
}

/// What runs when nobody says otherwise.
pub(crate) struct Usual {
    /// Few, and chosen so that each thing that is to be tested happens in two of them at least.
    pub(crate) seeds: &'static [u64],
    /// How many at once: they wait most of the time.
    pub(crate) at_once: u64,
    /// How many of those from the first on run as well, as long as `MANCIPLE_UNTIL` says that there is time.
    pub(crate) of_the_first: u64,
    /// In so many, whichever they are, each of these things happens too.
    pub(crate) of_everything: usize,
}

/// Runs those that `MANCIPLE_SCHEDULES` or `MANCIPLE_SEED` say, or so many from that seed on where both do,
/// `MANCIPLE_AT_ONCE`; with `MANCIPLE_LOG` set everything is said. Of what is usual, those that are not chosen are begun
/// until `MANCIPLE_UNTIL`, in seconds since 1970.
pub(crate) fn run<T, F>(usual: &Usual, schedule: impl Fn(u64) -> F)
where
    T: Sum + Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let (seeds, further, is_usual) = match (number("MANCIPLE_SEED"), number("MANCIPLE_SCHEDULES")) {
        (Some(first), count) => ((first..first + count.unwrap_or(1)).collect(), 0, false),
        (None, Some(count)) => ((1..=count).collect(), 0, false),
        (None, None) => (usual.seeds.to_vec(), usual.of_the_first, true),
    };
    let seeds: Vec<u64> = seeds;
    let further = (1..=further).filter(|seed| !seeds.contains(seed)).take_while(|_| is_time());
    log();
    let begun = Instant::now();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let at_once = number("MANCIPLE_AT_ONCE").unwrap_or(usual.at_once);
    let at_once = usize::try_from(at_once).unwrap();
    let (sum, count, failed) = runtime.block_on(async {
        let all = seeds.iter().copied().chain(further);
        let all = futures_util::stream::iter(all).map(|seed| {
            let running = AssertUnwindSafe(schedule(seed)).catch_unwind();
            async move {
                let begun = Instant::now();
                let ended = tokio::spawn(running).await.expect("it is not aborted").ok();
                // Of those of each test run, only how many there were is worth a line.
                if !is_usual || ended.is_none() {
                    println!("seed {seed}: {:.1?}, {ended:?}", begun.elapsed());
                }
                (seed, ended)
            }
        });
        let mut all = all.buffer_unordered(at_once);
        let (mut sum, mut count, mut failed) = (T::default(), 0, Vec::new());
        while let Some((seed, ended)) = all.next().await {
            count += 1;
            match ended {
                Some(ended) => sum.add(&ended),
                None => failed.push(seed),
            }
        }
        (sum, count, failed)
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    println!("{count} schedules in {:.0?}: {sum:?}", begun.elapsed());
    assert!(failed.is_empty(), "these seeds failed: {failed:?}");
    let is_whole = |least: usize| is_usual || count >= least;
    assert!(sum.deaths() > 0 || !is_whole(20), "nobody died: the schedules test nothing");
    let has_all = sum.is_of_everything(count) || !is_whole(usual.of_everything);
    assert!(has_all, "something never happened, and was not tested");
}

/// Whether one that was not chosen may still begin.
fn is_time() -> bool {
    let until = number("MANCIPLE_UNTIL").unwrap_or(0);
    SystemTime::UNIX_EPOCH.elapsed().is_ok_and(|now| now.as_secs() < until)
}

/// With `MANCIPLE_LOG` set everything is said.
pub(crate) fn log() {
    if std::env::var_os("MANCIPLE_LOG").is_some() {
        let _ = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).try_init();
    }
}
