//! How many runs may be alive at once, and who waits for a place.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::ports::Clock;

/// In how long somebody has to have come to a place for the queue to be taken to move.
const MOVES: Duration = Duration::from_secs(10);
/// How often one that waits in a queue that moves lets it go without a word.
const SILENT: u32 = 6;

/// Places for runs.
pub(crate) struct Permits {
    places: Arc<Semaphore>,
    most: usize,
    /// How many were given away, ever.
    given: AtomicU64,
}

/// What came of waiting.
pub(crate) enum Waited {
    /// A place.
    For(OwnedSemaphorePermit),
    /// It was woken first: the record may have changed.
    Woken,
    /// Nobody comes to a place any more, or not for long: that is to be told.
    Long,
}

impl Permits {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        let most = most.max(1);
        Arc::new(Self { places: Arc::new(Semaphore::new(most)), most, given: AtomicU64::new(0) })
    }

    /// How many there are.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// A place, if one is free.
    pub(crate) fn try_acquire(&self) -> Option<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        self.given.fetch_add(1, Ordering::Relaxed);
        Some(place)
    }

    /// A place, in the order in which they were asked for. `told`: that it takes long was said.
    pub(crate) async fn acquire(&self, clock: &dyn Clock, wake: &Notify, told: bool) -> Waited {
        let place = Arc::clone(&self.places).acquire_owned();
        tokio::pin!(place);
        let mut given = self.given.load(Ordering::Relaxed);
        let mut silent = 0;
        loop {
            tokio::select! {
                biased;
                place = &mut place => {
                    self.given.fetch_add(1, Ordering::Relaxed);
                    // It is never closed.
                    return place.map_or(Waited::Woken, Waited::For);
                }
                () = wake.notified() => return Waited::Woken,
                () = clock.sleep(MOVES), if !told => {
                    let before = std::mem::replace(&mut given, self.given.load(Ordering::Relaxed));
                    silent += 1;
                    if before == given || silent == SILENT {
                        return Waited::Long;
                    }
                }
            }
        }
    }
}
