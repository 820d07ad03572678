//! How long something lasted, without what nobody had a processor for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(20);
/// Of a look that comes later than this after the one before, so much is counted: for longer, whoever looks had no
/// processor, as little as others had.
const LATE: Duration = Duration::from_millis(200);

/// A clock that stands still when its process does. Begins when it is made.
pub(crate) struct Processor {
    /// In microseconds.
    lasted: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

impl Processor {
    pub(crate) fn now() -> Self {
        let (lasted, over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (sum, is_over) = (Arc::clone(&lasted), Arc::clone(&over));
        std::thread::spawn(move || {
            let mut last = Instant::now();
            while !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK);
                let now = Instant::now();
                let had = now.duration_since(last).min(LATE).as_micros();
                sum.fetch_add(u64::try_from(had).unwrap_or(u64::MAX), Ordering::Relaxed);
                last = now;
            }
        });
        Self { lasted, over }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_micros(self.lasted.load(Ordering::Relaxed))
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}
