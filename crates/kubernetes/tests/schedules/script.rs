//! What brokers do in a schedule, by its seed.

use std::sync::Arc;
use std::time::Duration;

use agent::Order;
use osb::jobs::contract::Capability;
use testkit::kubelet::{Act, End, Script, progress};

/// How every broker ends its runs, by the seed and their names. `spread`: how much goes wrong in it.
pub(crate) fn script(seed: u64, spread: u64) -> Script {
    Arc::new(move |order: &Order| {
        let turn = turn(seed, &order.run);
        let lasts = match turn % 23 {
            0 => 2500,
            _ => turn % 300,
        };
        let end = match turn % 13 {
            0 if spread > 0 => End::Fails("no disk left".to_owned()),
            1 if spread > 0 => End::Transient("come again".to_owned()),
            2 if spread > 1 => End::Killed,
            _ if goes_on_elsewhere(seed, order) => End::Elsewhere(progress(&order.run)),
            _ => End::Well,
        };
        let begins = Duration::from_millis(turn % 100);
        let again = (turn % 3 == 1).then_some(1);
        Act { begins, lasts: Duration::from_millis(lasts), end, again }
    })
}

/// Whether an attempt leaves its work to somebody else, or a question finds that it goes on: of three attempts one does,
/// and it is over when it was asked after so often, from one to four times.
fn goes_on_elsewhere(seed: u64, order: &Order) -> bool {
    if !order.capabilities.contains(&Capability::LastOperation) {
        return false;
    }
    match question(&order.run) {
        None => turn(seed, &order.run).is_multiple_of(3),
        Some((attempt, number)) => number < 1 + turn(seed, attempt) / 3 % 4,
    }
}

/// Of a question the attempt whose work it is about, and its number.
pub(crate) fn question(run: &str) -> Option<(&str, u64)> {
    let (attempt, number) = run.rsplit_once("-p")?;
    Some((attempt, number.parse().ok()?))
}

fn turn(seed: u64, run: &str) -> u64 {
    run.bytes().fold(seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)))
}
