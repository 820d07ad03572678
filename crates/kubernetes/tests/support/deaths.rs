//! At which of its calls somebody dies.

use testkit::number;

/// A call, from 1 on, and whether it takes effect before whoever made it dies.
pub(crate) type Point = (u64, bool);

/// One for each of so many calls: before the one takes effect, after the next. Which comes first is the life's, so what
/// several lives have in common is met by both. With `MANCIPLE_CALLS=1` there are both for each call.
pub(crate) fn points(life: &str, calls: u64) -> Vec<Point> {
    let both = number("MANCIPLE_CALLS") == Some(1);
    let first = u64::try_from(life.len()).unwrap();
    let is_tried =
        move |(call, effect): &Point| both || (call + first).is_multiple_of(2) == *effect;
    (1..=calls).flat_map(|call| [(call, false), (call, true)]).filter(is_tried).collect()
}

/// Sees that most died where they were to: no two lives are of as many calls, for Leases are kept meanwhile.
pub(crate) fn assert_most(life: &str, died: usize, lives: usize) {
    println!("{life}: {died} deaths in {lives} lives");
    assert!(died * 10 >= lives * 8, "{life}: only {died} deaths in {lives} lives");
}
