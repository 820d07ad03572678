//! The Secrets, ConfigMaps and other things that a job refers to, as they were and as they are.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The things that a job refers to, by kind and name, as `secret/name`; a versioned one as `secret/name-v*`, by the
/// name that its versions have in common.
pub type References = BTreeMap<String, Held>;

/// The content of something that a job refers to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Held {
    /// A digest of its data.
    Data(String),
    /// The highest of its versions.
    Version(HeldVersion),
    /// The thing is not there, and need not be.
    Nothing(()),
}

/// One version of a versioned thing. A version seldom changes, but it can be removed, and another made with its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldVersion {
    /// Its number, from 1.
    pub number: u64,
    /// A digest of its data.
    pub data: String,
    /// When it was made, in seconds since 1970 by the clock of whoever keeps it.
    pub made: i64,
}

impl HeldVersion {
    /// Whether a run should see this version after one that saw `before`. A lower number is mostly what is left where
    /// the highest was removed; where it is younger, whatever makes the versions has begun to count anew.
    fn is_news_after(&self, before: &Self) -> bool {
        let is_other = self.data != before.data;
        match self.number.cmp(&before.number) {
            Ordering::Greater => true,
            Ordering::Equal => is_other,
            Ordering::Less => is_other && self.made > before.made,
        }
    }
}

/// The version of each of [`References`]: a number that grows with each change of it, in every place where it is
/// watched. A thing that is not there has none.
pub type Versions = BTreeMap<String, u64>;

/// The references and versions that were recorded before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Before<'r> {
    pub(super) references: &'r References,
    pub(super) versions: &'r Versions,
}

impl Before<'_> {
    /// Whether a run should see what is there now, after one that saw what was recorded. An older version is no change:
    /// this process's watch is then behind the one by which the record was written.
    pub(super) fn differs(&self, now: &References, versions: &Versions) -> bool {
        let is_other = |name: &String, held: &Held| match (self.references.get(name), held) {
            (Some(Held::Version(before)), Held::Version(now)) => now.is_news_after(before),
            // It was removed: what comes in its place is compared with what was there.
            (Some(Held::Data(_) | Held::Version(_)), Held::Nothing(())) => false,
            (before, now) => before != Some(now),
        };
        let changed =
            |(name, held): (&String, &Held)| is_other(name, held) && !self.is_newer(name, versions);
        now.iter().any(changed) || self.references.keys().any(|name| !now.contains_key(name))
    }

    fn is_newer(&self, name: &str, than: &Versions) -> bool {
        let known = self.versions.get(name).zip(than.get(name));
        known.is_some_and(|(before, now)| now < before)
    }

    /// The references to record: a thing that is gone for the moment, or was recorded in a newer version, is remembered
    /// as it was.
    pub(super) fn remembered(&self, now: &References, versions: &Versions) -> References {
        let of = |(name, held): (&String, &Held)| {
            let known = self.references.get(name);
            let kept = match held {
                Held::Nothing(()) => true,
                Held::Data(_) => self.is_newer(name, versions),
                // The run is told the name of this one, be there a newer one of another number or not.
                Held::Version(now) => {
                    let same = matches!(known, Some(Held::Version(it)) if it.number == now.number);
                    same && self.is_newer(name, versions)
                }
            };
            (name.clone(), known.filter(|_| kept).unwrap_or(held).clone())
        };
        now.iter().map(of).collect()
    }

    /// The versions to record: of each reference the newer of what was recorded and what is there.
    pub(super) fn newest(&self, now: &References, versions: &Versions) -> Versions {
        let of = |name: &String| {
            let newest = self.versions.get(name).max(versions.get(name))?;
            Some((name.clone(), *newest))
        };
        now.keys().filter_map(of).collect()
    }
}
