//! Secrets that cannot be logged by mistake: the type says what they are.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A value that must not reach a log, an error or a metric: parameters, contexts, credentials.
///
/// Serialises as the value itself (it has to travel to the broker and to the platform), but its
/// `Debug` prints only `[redacted]`, so that a structure that holds one can be logged.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sensitive<T>(T);

impl<T> Sensitive<T> {
    /// Marks a value as sensitive.
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// The value, for the code that must use it.
    pub fn expose(&self) -> &T {
        &self.0
    }

    /// Takes the value out.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> From<T> for Sensitive<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

impl<T> fmt::Debug for Sensitive<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}
