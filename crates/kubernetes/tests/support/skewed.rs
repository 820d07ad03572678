//! A clock that is wrong.

use std::time::Duration;

use async_trait::async_trait;
use engine::SystemClock;
use engine::ports::Clock;
use engine::record::Timestamp;

/// Ahead of the machine's by so many milliseconds, or behind.
pub(crate) struct Skewed(pub(crate) i64);

#[async_trait]
impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        Timestamp(SystemClock.now().0.saturating_add_signed(self.0))
    }

    async fn sleep(&self, duration: Duration) {
        SystemClock.sleep(duration).await;
    }
}
