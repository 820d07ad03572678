//! The Open Service Broker API 2.17: its types, a server, a client, and the interface of a broker.
//!
//! A platform speaks HTTP; an author writes a [`Broker`]; between them stands a [`Backend`], which
//! keeps the state:
//!
//! ```text
//! platform ──HTTP──▶ server ──▶ Backend (the engine) ──runs──▶ Broker, or /bin/broker
//! ```
//!
//! The [`server`] (feature `server`) enforces every rule of the specification that can be decided
//! from the request and the catalog; the `Backend` those that need state; the author writes only the
//! work itself.
//!
//! Section names in these docs are those of the specification, version 2.17.

pub mod backend;
pub mod broker;
pub mod catalog;
mod decode;
pub mod error;
mod fields;
pub mod jobs;
pub mod model;

#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "server")]
pub mod server;
pub mod weight;

pub use backend::{Backend, Call, Reply};
pub use broker::{Action, Broker, Failure, FailureKind, Output, Progress, Standing, Work};
pub use catalog::CompiledCatalog;
pub use error::{Error, ErrorKind};
pub use model::*;

/// The version of the API that this crate speaks.
pub const API_VERSION: &str = "2.17";

/// Our own OpenAPI 3.1 description of the API, served at `/openapi.json`.
#[cfg(feature = "server")]
pub const OPENAPI: &str = include_str!("../openapi.json");
