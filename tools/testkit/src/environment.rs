//! What whoever runs a test says of it.

/// A number from the environment, such as that of a seed or of schedules; `None` where nobody says one.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}
