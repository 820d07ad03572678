//! The time that passes whether or not the machine is awake. Timers, and what the standard library measures with, stand
//! still while it sleeps; other machines do not, nor does what they have agreed on.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Since some time before this process began.
pub(crate) fn now() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

/// How long ago that is.
pub(crate) fn since(then: Duration) -> Duration {
    now().saturating_sub(then)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes() {
        let begun = now();
        std::thread::sleep(Duration::from_millis(20));
        assert!(since(begun) >= Duration::from_millis(20));
        assert_eq!(since(now() + Duration::from_secs(60)), Duration::ZERO);
    }
}
