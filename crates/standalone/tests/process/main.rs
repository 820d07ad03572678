//! Runs real scripts through the process runner. The supervisor is `examples/process_runner.rs`,
//! which cargo builds along with the tests.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "tests, and their helpers, which the exemption for tests does not reach"
)]

mod contract;
mod crash;
mod failures;
mod given;
mod harness;
mod limits;
mod processes;
mod retention;
mod secrets;
