//! The client commands, as a person runs them: the built binary against a broker of canned answers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the stub is part of the tests")]

#[path = "../support/clock.rs"]
mod clock;
mod conformance;
mod documents;
mod exits;
mod hints;
mod jobs;
mod lint;
mod logs;
mod operator;
mod orders;
mod restore;
mod secrets;
mod stub;
#[path = "../support/mod.rs"]
mod support;
mod templates;
mod wrapper;
