//! Counts how often each fault occurred: without the counts, a test without faults would look like one that withstood
//! all.

use std::collections::BTreeMap;

/// All kinds of faults that a plan may have beside deaths, by the names of the faults of each: of what the API server
/// answers in place of a call a few schedules may not have every status.
const KINDS: [&[&str]; 8] = [
    &["refused"],
    &["429", "500", "503", "unserved"],
    &["twice"],
    &["lost"],
    &["late"],
    &["behind"],
    &["cut"],
    &["410"],
];

/// The counts of faults, by name.
#[derive(Debug, Clone, Default)]
pub struct Faults(BTreeMap<String, u64>);

impl Faults {
    /// Counts a fault.
    pub(super) fn note(&mut self, fault: &str) {
        *self.0.entry(fault.to_owned()).or_default() += 1;
    }

    /// Adds the counts of another.
    pub fn add(&mut self, other: &Self) {
        for (fault, times) in &other.0 {
            *self.0.entry(fault.clone()).or_default() += times;
        }
    }

    /// Whether there was at least one fault of each kind.
    pub fn are_of_all_kinds(&self) -> bool {
        KINDS.iter().all(|kind| kind.iter().any(|fault| self.0.contains_key(*fault)))
    }
}
