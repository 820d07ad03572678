//! What a broker asks for that wants to be left alone for a while: whoever carries its operation on, the pause is kept.

use std::collections::BTreeSet;
use std::time::Duration;

use testkit::kubelet::{End, Ledger};

use crate::script::question;

/// Clocks of processes and of the test are read one after the other.
const READING: Duration = Duration::from_millis(5);

/// Fails if an attempt or a question began before the pause was over that the one before it had asked for. Says how many
/// pauses there were.
pub(crate) fn check(ledger: &Ledger, taken: &BTreeSet<String>) -> usize {
    let mut count = 0;
    for (run, entry) in ledger {
        let (Some(end), Some(seconds), Some((_, ended))) = (&entry.end, entry.again, entry.ran)
        else {
            continue;
        };
        let Some(next) = next(run, end).filter(|_| !entry.halted && !taken.contains(run)) else {
            continue;
        };
        let Some((began, _)) = ledger.get(&next).and_then(|entry| entry.ran) else { continue };
        let pause = began.saturating_duration_since(ended);
        assert!(
            pause + READING >= Duration::from_secs(seconds),
            "{next} began {pause:?} after {run}, which had asked for {seconds} s"
        );
        count += 1;
    }
    count
}

/// The run after one that is to be tried or asked again, of the same operation.
fn next(run: &str, end: &End) -> Option<String> {
    match (question(run), end) {
        (Some((attempt, number)), End::Elsewhere(_) | End::Transient(_)) => {
            Some(format!("{attempt}-p{}", number + 1))
        }
        (None, End::Elsewhere(_)) => Some(format!("{run}-p1")),
        (None, End::Transient(_)) => {
            let (operation, attempt) = run.rsplit_once('-')?;
            Some(format!("{operation}-{}", attempt.parse::<u64>().ok()? + 1))
        }
        _ => None,
    }
}
