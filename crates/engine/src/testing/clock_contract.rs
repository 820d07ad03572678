//! The contract suite of clocks: what every [`Clock`] must do, as named cases over the port alone.

use std::sync::Arc;
use std::time::Duration;

use crate::ports::Clock;
use crate::record::Timestamp;

/// A pause that is long enough to be told from none, and short enough to be waited for.
const MOMENT: Duration = Duration::from_millis(50);

/// Runs every case.
///
/// # Panics
/// If one fails; the message names it.
pub async fn run(clock: Arc<dyn Clock>) {
    tells_milliseconds_since_1970(&*clock);
    goes_on_while_it_sleeps(&*clock).await;
    does_not_wake_early(&*clock).await;
    sleeps_are_apart(&*clock).await;
    no_time_is_no_wait(&*clock).await;
    a_sleep_may_be_given_up(&*clock).await;
}

/// The time is between 2020 and 2100: seconds or microseconds would lie outside.
fn tells_milliseconds_since_1970(clock: &dyn Clock) {
    let sane = Timestamp(1_577_836_800_000)..Timestamp(4_102_444_800_000);
    assert!(sane.contains(&clock.now()), "tells_milliseconds_since_1970: {:?}", clock.now());
}

async fn goes_on_while_it_sleeps(clock: &dyn Clock) {
    let before = clock.now();
    clock.sleep(MOMENT).await;
    assert!(clock.now() > before, "goes_on_while_it_sleeps");
}

/// A sleep is not shorter than asked for, to a millisecond, the clock's unit.
async fn does_not_wake_early(clock: &dyn Clock) {
    let (before, monotonic) = (clock.now(), tokio::time::Instant::now());
    clock.sleep(MOMENT).await;
    assert!(monotonic.elapsed() >= MOMENT, "does_not_wake_early");
    let told = clock.now().0.saturating_sub(before.0);
    assert!(told + 1 >= 50, "does_not_wake_early: it tells {told} ms");
}

async fn sleeps_are_apart(clock: &dyn Clock) {
    tokio::select! {
        biased;
        () = clock.sleep(MOMENT * 100) => panic!("sleeps_are_apart: the longer ended first"),
        () = clock.sleep(MOMENT) => {}
    }
}

async fn no_time_is_no_wait(clock: &dyn Clock) {
    let begun = tokio::time::Instant::now();
    clock.sleep(Duration::ZERO).await;
    assert!(begun.elapsed() < MOMENT * 100, "no_time_is_no_wait");
}

async fn a_sleep_may_be_given_up(clock: &dyn Clock) {
    let begun = tokio::time::Instant::now();
    let longest = clock.sleep(Duration::from_secs(u64::MAX / 2_000));
    assert!(
        tokio::time::timeout(MOMENT, longest).await.is_err(),
        "a_sleep_may_be_given_up: it is over"
    );
    assert!(begun.elapsed() < MOMENT * 100, "a_sleep_may_be_given_up");
}
