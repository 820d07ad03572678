//! Skips a test that cannot be tried where it runs.

/// Says why a test is skipped, to whoever runs it.
///
/// # Panics
///
/// In continuous integration (`CI` is set): what passes there without having been tried would be taken for
/// tested.
#[expect(clippy::print_stderr, reason = "who skips a test says so to whoever runs it")]
#[expect(clippy::panic, reason = "that is how a test fails")]
pub fn skipped(why: &str) {
    match std::env::var_os("CI") {
        Some(_) => panic!("skipped, which no test may be where CI is set: {why}"),
        None => eprintln!("skipped: {why}"),
    }
}
