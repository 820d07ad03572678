//! What the tests of several crates share, and no product needs.
//!
//! - [`postgres`]: a real PostgreSQL server for the length of a test.

pub mod postgres;
