//! Reads the options of a test from the environment.

/// A number from the environment, such as a seed or the number of schedules; `None` if it is not set.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}
