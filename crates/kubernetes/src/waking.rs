//! Time that also passes while the machine sleeps. Timers, and the clocks of the standard library, stand still then;
//! other machines do not, nor do the times agreed with them.

use std::time::Duration;

/// How long the machine has been up, asleep or not: since some time before this process began.
#[cfg(not(test))]
pub(crate) fn uptime() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

/// How long ago an [`uptime`] was.
pub(crate) fn since(then: Duration) -> Duration {
    uptime().saturating_sub(then)
}

/// In tests the uptime is that of timers, which can be paused, and of a machine that has slept.
#[cfg(test)]
pub(crate) use tests::uptime;

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use tokio::time::Instant;

    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
    static SLEPT: AtomicU64 = AtomicU64::new(0);

    pub(crate) fn uptime() -> Duration {
        BEGUN.elapsed() + Duration::from_secs(SLEPT.load(Ordering::Relaxed))
    }

    /// The machine sleeps for so many seconds, of which its timers know nothing.
    pub(crate) fn sleep(seconds: u64) {
        SLEPT.fetch_add(seconds, Ordering::Relaxed);
    }
}
