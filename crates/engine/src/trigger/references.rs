//! What a job refers to, as it was and as it is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// By kind and name, as `secret/name`; a versioned one by the name that its versions have in common.
pub type References = BTreeMap<String, Held>;

/// What something referred to holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Held {
    /// A digest of its data.
    Data(String),
    /// The highest of its versions, each of which never changes.
    Version(u64),
    /// It is not there, and need not be.
    Nothing(()),
}

/// Whether a run should see what is there now, after one that saw something else. A version that is lower is
/// no change: somebody has removed the highest.
pub fn differ(before: &References, now: &References) -> bool {
    let changed = |(name, held): (&String, &Held)| match (before.get(name), held) {
        (Some(Held::Version(before)), Held::Version(now)) => now > before,
        // It was removed: what comes in its place is compared with what was there.
        (Some(Held::Data(_) | Held::Version(_)), Held::Nothing(())) => false,
        (before, now) => before != Some(now),
    };
    now.iter().any(changed) || before.keys().any(|name| !now.contains_key(name))
}

/// What is to be recorded: what is gone for the moment is remembered as it was.
pub(super) fn remembered(before: Option<&References>, now: &References) -> References {
    let of = |(name, held): (&String, &Held)| {
        let known = before.and_then(|before| before.get(name));
        let held = match (held, known) {
            (Held::Nothing(()), Some(known)) => known,
            _ => held,
        };
        (name.clone(), held.clone())
    };
    now.iter().map(of).collect()
}
