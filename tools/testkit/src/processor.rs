//! A clock that measures how long something lasted, without the time in which the machine gave no process a processor.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

const LOOK: Duration = Duration::from_millis(20);
/// The most time that is counted between two looks of the clock: if a look comes later, the clock had no processor, as
/// little as others had.
const LATE: Duration = Duration::from_millis(200);

/// A clock that stands still when its process does, from when it is made until it is dropped.
pub struct Processor {
    began: SystemTime,
    looks: Arc<Mutex<Vec<SystemTime>>>,
    over: Arc<AtomicBool>,
}

impl Processor {
    /// Starts the clock.
    #[must_use]
    pub fn now() -> Self {
        let began = SystemTime::now();
        let (looks, over) = (Arc::new(Mutex::new(vec![began])), Arc::<AtomicBool>::default());
        let (seen, is_over) = (Arc::clone(&looks), Arc::clone(&over));
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK);
                let now = SystemTime::now();
                seen.lock().unwrap_or_else(PoisonError::into_inner).push(now);
            }
        });
        Self { began, looks, over }
    }

    /// The counted time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.between(self.began, SystemTime::now())
    }

    /// The counted time between two times since the start.
    #[must_use]
    pub fn between(&self, from: SystemTime, to: SystemTime) -> Duration {
        had(&self.looks.lock().unwrap_or_else(PoisonError::into_inner), from, to)
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn had(looks: &[SystemTime], from: SystemTime, to: SystemTime) -> Duration {
    let within = |pair: &[SystemTime]| {
        let (begins, ends) = (pair[0].max(from), pair[1].min(to));
        ends.duration_since(begins).unwrap_or_default().min(LATE)
    };
    looks.windows(2).map(within).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_looked_at_is_counted_for_no_longer_than_a_late_look() {
        let at = |ms: u64| SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
        let looks = [0, 20, 40, 5040, 5060].map(at);
        for (from, to, expected) in
            [(0, 5060, 260), (0, 40, 40), (30, 40, 10), (40, 5040, 200), (5050, 9000, 10)]
        {
            let lasted = had(&looks, at(from), at(to));
            assert_eq!(lasted, Duration::from_millis(expected), "{from} to {to}");
        }
    }
}
