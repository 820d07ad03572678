//! Properties that hold for every input: one function for each parser that reads what a stranger wrote.
//!
//! ```text
//! fuzz/seeds/<name>/* ──▶ fuzz/targets/<name>.rs (libFuzzer: `cargo xtask fuzz`) ──┐
//!                    └──▶ tests/seeds.rs (seeds and some mutations: every test run) ┴▶ properties::<name>
//! ```
//!
//! A property takes bytes and panics if it does not hold. Inputs are text where a person may want to
//! write one: see the head of each module.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a property fails by panicking"
)]

mod broker_output;
mod catalog;
mod readiness;
mod records;
mod reports;
mod requests;
mod templates;
mod translation;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use broker_output::broker_output;
pub use catalog::catalog;
pub use readiness::readiness_of as readiness;
pub use records::records;
pub use reports::reports;
pub use requests::requests;
pub use templates::templates;
pub use translation::translation;

/// A property, by the name of its target and its seeds.
pub type Property = (&'static str, fn(&[u8]));

/// All properties.
pub const ALL: [Property; 8] = [
    ("requests", requests),
    ("broker_output", broker_output),
    ("catalog", catalog),
    ("records", records),
    ("reports", reports),
    ("templates", templates),
    ("readiness", readiness),
    ("translation", translation),
];

/// The text that seeds have in the place of a secret.
const PLANTED: &str = "pl4nted-s3cret";

/// Asserts that a value can be written, and is the same when it is read again.
fn assert_kept<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T) {
    let written = serde_json::to_vec(value).unwrap();
    let read: T = serde_json::from_slice(&written).unwrap_or_else(|error| {
        panic!("cannot be read again: {error}: {}", String::from_utf8_lossy(&written))
    });
    assert_eq!(read, *value);
}

/// Whether a string is the planted secret, somewhere in a value.
fn plants(value: &Value) -> bool {
    match value {
        Value::String(text) => text == PLANTED,
        Value::Array(items) => items.iter().any(plants),
        Value::Object(members) => members.values().any(plants),
        _ => false,
    }
}
