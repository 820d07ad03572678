//! Waits for what has to become so.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use tokio::time::sleep;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);

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
        match look().await {
            Ok(found) => return found,
            Err(instead) => assert!(begun.elapsed() < within, "{what}: {instead:#?}"),
        }
        sleep(LOOK).await;
    }
}
