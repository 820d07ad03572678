//! The server against the acceptance list: `item_NN_…` is item NN of it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "tests, and their helpers, which the exemption for tests does not reach"
)]

mod authentication;
mod bind;
mod bodies;
mod catalog;
mod changes;
mod delete;
mod fetch;
mod headers;
mod hostile;
mod provision;
mod routes;
mod support;
mod update;
mod wire;
