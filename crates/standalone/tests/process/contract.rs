//! The contract of every runner.

use crate::harness::Fixture;

engine::runner_contract!(Fixture::new());
