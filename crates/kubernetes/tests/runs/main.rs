//! Seeded schedules of QuarksJobs on a real API server: users trigger them and change what they refer to
//! while controllers are killed at their n-th call, calls fail, get lost or are late, watches lag and break,
//! and two lead at once. Then every trigger has had its run, each run one Job, and its output one Secret; no
//! run was for nothing, and nothing is left behind.
//!
//! `MANCIPLE_SCHEDULES=5000` runs more of them, `MANCIPLE_SEED=17` one, `MANCIPLE_AT_ONCE=4` so many at once;
//! `MANCIPLE_LOG=1` shows what the controllers say.

mod outages;
mod town;
mod users;

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures_util::{FutureExt, StreamExt};
use testkit::plane::ControlPlane;
use town::{Place, Tally, schedule};

/// How many schedules run when nobody says otherwise.
const SCHEDULES: u64 = 150;
/// How many at once: they wait most of the time.
const AT_ONCE: u64 = 16;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// With `MANCIPLE_LOG` set everything is said.
fn log() {
    if std::env::var_os("MANCIPLE_LOG").is_some() {
        let _ = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).try_init();
    }
}

#[test]
fn no_schedule_of_failures_loses_repeats_or_invents_a_run() {
    let seeds = match number("MANCIPLE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..number("MANCIPLE_SCHEDULES").unwrap_or(SCHEDULES) + 1,
    };
    log();
    let plane = ControlPlane::start(&kubernetes::resources::definitions()).unwrap();
    let place = Place::of(&plane);
    let begun = Instant::now();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let at_once = usize::try_from(number("MANCIPLE_AT_ONCE").unwrap_or(AT_ONCE)).unwrap();
    let (tally, failed) = runtime.block_on(async {
        let all = futures_util::stream::iter(seeds.clone()).map(|seed| {
            let place = place.clone();
            async move {
                let begun = Instant::now();
                let running =
                    tokio::spawn(AssertUnwindSafe(schedule(place, seed, false)).catch_unwind());
                let ended = running.await.expect("it is not aborted");
                println!("seed {seed}: {:.1?}, {}", begun.elapsed(), ended.is_ok());
                (seed, ended.ok())
            }
        });
        let mut all = all.buffer_unordered(at_once);
        let (mut tally, mut failed) = (Tally::default(), Vec::new());
        while let Some((seed, ended)) = all.next().await {
            match ended {
                Some(ended) => tally.add(&ended),
                None => failed.push(seed),
            }
        }
        (tally, failed)
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    println!("{} schedules in {:.0?}: {tally:?}", seeds.end - seeds.start, begun.elapsed());
    assert!(failed.is_empty(), "these seeds failed: {failed:?}");
    let many = seeds.end - seeds.start >= 10;
    assert!(!many || tally.deaths > 0, "no controller died: the schedules test nothing");
}
