//! A clock on tokio's time: in a paused runtime, hours pass at once.

use std::time::Duration;

use async_trait::async_trait;

use crate::ports::Clock;
use crate::record::Timestamp;

/// A clock on tokio's time that starts at a fixed date.
pub struct TestClock {
    start: tokio::time::Instant,
}

impl Default for TestClock {
    fn default() -> Self {
        Self { start: tokio::time::Instant::now() }
    }
}

#[async_trait]
impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp(1_700_000_000_000).plus(self.start.elapsed())
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}
