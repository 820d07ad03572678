//! Counts how often each fault occurred: without the counts, a test without faults would look like one that withstood
//! all.

use std::collections::BTreeMap;

/// The names of all faults that a plan may have beside deaths. A custom resource that is not served yet is not among
/// these: it takes the place of some of the 500s.
const ALL: [&str; 10] =
    ["refused", "429", "500", "503", "twice", "lost", "late", "behind", "cut", "410"];

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
        ALL.iter().all(|fault| self.0.contains_key(*fault))
    }
}
