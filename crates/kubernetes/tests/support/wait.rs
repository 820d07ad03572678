//! Waits for what has to become so.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// What a look has at least.
const LEAST: Duration = Duration::from_secs(5);

/// Looks at once, and again and again until it is so; what was found then. Fails with `what`, and with what was there last
/// instead, if it is not so `within` this time.
// Not an `AsyncFnMut`: nobody can say of its futures that they are `Send`, as they have to be in a task.
pub(crate) async fn until<T, E: Debug, F: Future<Output = Result<T, E>>>(
    what: &str,
    within: Duration,
    mut look: impl FnMut() -> F,
) -> T {
    let begun = Instant::now();
    loop {
        // A call that hangs is no way out of the time; one that is begun late may be answered.
        let patience = within.saturating_sub(begun.elapsed()).max(LEAST);
        match timeout(patience, look()).await {
            Ok(Ok(found)) => return found,
            Ok(Err(instead)) => assert!(begun.elapsed() < within, "{what}: {instead:#?}"),
            Err(_) => panic!("{what}: no look at it ends"),
        }
        sleep(LOOK).await;
    }
}
