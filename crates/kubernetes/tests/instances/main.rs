//! Seeded schedules of TemplateInstances on a real API server: instances are ordered and deleted while two controllers
//! are killed at their n-th call, calls fail, get lost, are late or are sent twice, watches lag and break.
//! Then each that was not deleted is ready with one password, each of its objects once, and of the others nothing is
//! left, in no namespace.
//!
//! `MANCIPLE_SCHEDULES=500` runs more of them, `MANCIPLE_SEED=17` one, `MANCIPLE_AT_ONCE=4` so many at once;
//! `MANCIPLE_LOG=1` shows what the controllers say. With `MANCIPLE_BOTH_LEAD=1` both lead all the time, which nothing but
//! a Lease prevents: one that is killed between an object that nothing owns and the look at an instance that is gone by
//! then may leave that object.

mod town;

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures_util::{FutureExt, StreamExt};
use kubernetes::templates::definition;
use kubernetes::templates::names::Kind;
use testkit::plane::ControlPlane;
use town::{Tally, schedule};

/// How many schedules run when nobody says otherwise.
const SCHEDULES: u64 = 30;
/// How many at once: they wait most of the time.
const AT_ONCE: u64 = 8;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn no_schedule_of_failures_makes_anything_twice_or_leaves_anything() {
    let seeds = match number("MANCIPLE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..number("MANCIPLE_SCHEDULES").unwrap_or(SCHEDULES) + 1,
    };
    if std::env::var_os("MANCIPLE_LOG").is_some() {
        let _ = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).try_init();
    }
    let plane = ControlPlane::start(&Kind::ALL.map(definition)).unwrap();
    let kubeconfig = plane.kubeconfig();
    let begun = Instant::now();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let at_once = usize::try_from(number("MANCIPLE_AT_ONCE").unwrap_or(AT_ONCE)).unwrap();
    let (tally, failed) = runtime.block_on(async {
        let all = futures_util::stream::iter(seeds.clone()).map(|seed| {
            let kubeconfig = kubeconfig.clone();
            async move {
                let begun = Instant::now();
                let running = AssertUnwindSafe(schedule(kubeconfig, seed)).catch_unwind();
                let ended = tokio::spawn(running).await.expect("it is not aborted");
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
