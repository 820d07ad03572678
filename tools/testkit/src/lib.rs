//! Code that the tests of several crates share, and no product needs.
//!
//! - [`attempts`]: which Jobs there were.
//! - [`cluster`]: where the test cluster is.
//! - [`kubelet`]: runs pods that run nothing.
//! - [`number`]: what whoever runs a test says of it.
//! - [`plane`]: a control plane of a test's own.
//! - [`postgres`]: a real PostgreSQL server for the length of a test.
//! - [`processor`]: a clock without what nobody had a processor for.
//! - [`proxy`]: an API server that fails.
//! - [`random`]: numbers that are the same everywhere.
//! - [`skipped`]: for a test that cannot be tried here.

#[cfg(feature = "plane")]
pub mod attempts;
pub mod cluster;
mod environment;
#[cfg(feature = "plane")]
pub mod kubelet;
#[cfg(feature = "plane")]
pub mod plane;
pub mod postgres;
pub mod processor;
#[cfg(feature = "plane")]
pub mod proxy;
pub mod random;
mod skip;

pub use environment::number;
pub use skip::skipped;
