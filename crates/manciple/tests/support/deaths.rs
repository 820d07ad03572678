//! Lives that each end at a call of their own, beside each other.

use std::sync::Mutex;

/// At every how manieth call one dies when nobody says otherwise; `MANCIPLE_CALLS=1`: at each.
const EVERY: usize = 6;
/// So many lives go on beside each other.
const LIVES_AT_ONCE: usize = 6;

/// Has one life for each of these calls, once before it takes effect and once after it. `live` says whether it died there.
/// A life that made fewer calls than `least` was not lived.
pub(crate) fn at_calls(calls: u64, least: u64, live: impl Fn((u64, bool)) -> bool + Sync) {
    assert!(calls >= least, "only {calls} calls");
    let every = std::env::var("MANCIPLE_CALLS").ok().and_then(|text| text.parse().ok());
    let points: Vec<(u64, bool)> = (1..=calls)
        .step_by(every.unwrap_or(EVERY))
        .flat_map(|call| [(call, false), (call, true)])
        .collect();
    let next = Mutex::new(points.iter());
    let killed = std::thread::scope(|scope| {
        let lives = [(); LIVES_AT_ONCE].map(|()| {
            scope.spawn(|| {
                let mut killed = 0;
                loop {
                    let Some(point) = next.lock().unwrap().next() else { return killed };
                    killed += usize::from(live(*point));
                }
            })
        });
        lives.map(|life| life.join().unwrap()).iter().sum::<usize>()
    });
    println!("{calls} calls, {killed} deaths in {} lives", points.len());
    // No two lives are of as many calls, for Leases are kept meanwhile.
    assert!(killed * 10 >= points.len() * 8, "only {killed} deaths in {} lives", points.len());
}
