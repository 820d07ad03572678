//! At which of its calls somebody dies.

use testkit::number;

/// Lives take most of the time of a test run: who is to die at each call says so.
const EVERY: u64 = 8;

/// A call, from 1 on, and whether it takes effect before whoever made it dies.
pub(crate) type Point = (u64, bool);

/// One for every eighth of so many calls: before the one takes effect, after the next. Which is the first is the life's, so
/// what several lives have in common is met at more of its calls, and by both. With `MANCIPLE_CALLS=1` there are both
/// for each call.
pub(crate) fn points(life: &str, calls: u64) -> Vec<Point> {
    if number("MANCIPLE_CALLS") == Some(1) {
        return (1..=calls).flat_map(|call| [(call, false), (call, true)]).collect();
    }
    let first: u64 = life.bytes().map(u64::from).sum();
    let turn = |call: u64| ((call + first) / EVERY).is_multiple_of(2);
    let calls = (1..=calls).filter(|call| (call + first).is_multiple_of(EVERY));
    calls.map(|call| (call, turn(call))).collect()
}

/// Sees that most died where they were to: no two lives are of as many calls, for Leases are kept meanwhile.
pub(crate) fn assert_most(life: &str, died: usize, lives: usize) {
    println!("{life}: {died} deaths in {lives} lives");
    let spared = lives - died;
    assert!(spared <= (lives / 5).max(1), "{life}: only {died} deaths in {lives} lives");
    assert!(died > 0, "{life}: nobody died");
}
