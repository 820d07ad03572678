//! How often each thing went wrong: that nothing did would look the same as that all was withstood.

use std::collections::BTreeMap;

/// What a plan of everything has go wrong beside deaths, by the names that it is counted by. A custom resource that is
/// not served yet is beside these: it takes the place of some of the 500s.
const ALL: [&str; 10] =
    ["refused", "429", "500", "503", "twice", "lost", "late", "behind", "cut", "410"];

/// How often each thing went wrong.
#[derive(Debug, Clone, Default)]
pub struct Faults(BTreeMap<String, u64>);

impl Faults {
    /// Something went wrong.
    pub(super) fn note(&mut self, fault: &str) {
        *self.0.entry(fault.to_owned()).or_default() += 1;
    }

    /// Adds those of somebody else.
    pub fn add(&mut self, other: &Self) {
        for (fault, times) in &other.0 {
            *self.0.entry(fault.clone()).or_default() += times;
        }
    }

    /// Whether there was at least one of each kind.
    pub fn are_of_all_kinds(&self) -> bool {
        ALL.iter().all(|fault| self.0.contains_key(*fault))
    }
}
