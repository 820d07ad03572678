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

/// How new each of [`References`] is: a number that grows with each change of it, in every place where it is watched.
/// What is not there has none.
pub type Versions = BTreeMap<String, u64>;

/// What was recorded, and how new it was.
#[derive(Debug, Clone, Copy)]
pub(super) struct Before<'r> {
    pub(super) references: &'r References,
    pub(super) versions: &'r Versions,
}

impl Before<'_> {
    /// Whether a run should see what is there now, after one that saw this. A version that is lower is no change:
    /// somebody has removed the highest. Nor is what is older than this: a watch is behind the one that this was
    /// written by.
    pub(super) fn differs(&self, now: &References, versions: &Versions) -> bool {
        let changed = |(name, held): (&String, &Held)| match (self.references.get(name), held) {
            (Some(Held::Version(before)), Held::Version(now)) => now > before,
            // It was removed: what comes in its place is compared with what was there.
            (Some(Held::Data(_) | Held::Version(_)), Held::Nothing(())) => false,
            (before, now) => before != Some(now) && !self.is_newer(name, versions),
        };
        now.iter().any(changed) || self.references.keys().any(|name| !now.contains_key(name))
    }

    fn is_newer(&self, name: &str, than: &Versions) -> bool {
        let known = self.versions.get(name).zip(than.get(name));
        known.is_some_and(|(before, now)| now < before)
    }

    /// What is to be recorded: what is gone for the moment, or was seen as newer before, is remembered as it was.
    pub(super) fn remembered(&self, now: &References, versions: &Versions) -> References {
        let of = |(name, held): (&String, &Held)| {
            let known = self.references.get(name);
            // The version of versions before the highest is lower, whatever is newer.
            let is_newer = || matches!(held, Held::Data(_)) && self.is_newer(name, versions);
            let kept = *held == Held::Nothing(()) || is_newer();
            (name.clone(), known.filter(|_| kept).unwrap_or(held).clone())
        };
        now.iter().map(of).collect()
    }

    /// How new that is.
    pub(super) fn newest(&self, now: &References, versions: &Versions) -> Versions {
        let of = |name: &String| {
            let newest = self.versions.get(name).max(versions.get(name))?;
            Some((name.clone(), *newest))
        };
        now.keys().filter_map(of).collect()
    }
}
