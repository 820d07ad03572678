//! The clocks keep their contract.

use std::sync::Arc;

use engine::SystemClock;
use engine::testing::{TestClock, clock_contract};

#[tokio::test]
async fn the_systems_clock_keeps_the_contract() {
    clock_contract::run(Arc::new(SystemClock)).await;
}

#[tokio::test(start_paused = true)]
async fn the_clock_of_tests_keeps_the_contract() {
    clock_contract::run(Arc::new(TestClock::default())).await;
}
