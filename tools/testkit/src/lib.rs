//! What the tests of several crates share, and no product needs.
//!
//! - [`cluster`]: where the test cluster is.
//! - [`postgres`]: a real PostgreSQL server for the length of a test.

pub mod cluster;
pub mod postgres;
