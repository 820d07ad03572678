//! Pods as triggers: a run for each pod that has come to be as it is waited for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Pods that are followed, as they are now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Followed {
    /// What is followed, as its user wrote it.
    pub of: String,
    /// Whether their end is waited for, instead of what they are.
    pub deletion: bool,
    /// By uid.
    pub pods: BTreeMap<String, Pod>,
}

/// Pods that were followed, as they were when this was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// What was followed.
    pub of: String,
    /// By uid.
    #[serde(default)]
    pub pods: BTreeMap<String, Pod>,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// Whether it is as it is waited for.
    pub is: bool,
}

/// The pod that a run is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRef {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

impl Followed {
    /// The first that has come to be so since then.
    pub(super) fn next(&self, known: &Known) -> Option<PodRef> {
        let came = |uid: &str, pod: &Pod| {
            let before = known.pods.get(uid).is_some_and(|before| before.is);
            !self.deletion && pod.is && !before
        };
        let went = |uid: &str| self.deletion && !self.pods.contains_key(uid);
        let came = self.pods.iter().filter(|(uid, pod)| came(uid, pod));
        let went = known.pods.iter().filter(|(uid, _)| went(uid));
        came.chain(went)
            .next()
            .map(|(uid, pod)| PodRef { name: pod.name.clone(), uid: uid.clone() })
    }

    /// What is to be known from now on: all as it is, but of those that have come to be so only the one that is
    /// `taken`.
    pub(super) fn known(&self, before: Option<&Known>, taken: Option<&PodRef>) -> Known {
        let of = self.of.clone();
        let Some(before) = before.filter(|before| before.of == self.of) else {
            return Known { of, pods: self.pods.clone() };
        };
        let is_taken = |uid: &str| taken.is_some_and(|taken| taken.uid == uid);
        let mut pods = BTreeMap::new();
        for (uid, pod) in &self.pods {
            let was = before.pods.get(uid).is_some_and(|before| before.is);
            let waits = !self.deletion && pod.is && !was && !is_taken(uid);
            pods.insert(uid.clone(), Pod { is: pod.is && !waits, ..pod.clone() });
        }
        let gone = before.pods.iter().filter(|(uid, _)| !self.pods.contains_key(*uid));
        // Whose end is waited for is known until its run is.
        let gone = gone.filter(|(uid, _)| self.deletion && !is_taken(uid));
        pods.extend(gone.map(|(uid, pod)| (uid.clone(), pod.clone())));
        Known { of, pods }
    }

    /// Whether something has to be known that is not, for what comes after it to be seen. Those that are gone
    /// are forgotten with the next that is written.
    pub(super) fn is_news(&self, before: Option<&Known>) -> bool {
        let Some(known) = before.filter(|before| before.of == self.of) else { return true };
        let after = self.known(before, None);
        let differs = |(uid, pod): (&String, &Pod)| match known.pods.get(uid) {
            Some(before) => before.is != pod.is,
            // One that is not so yet is as good as one that nobody has seen.
            None => self.deletion || pod.is,
        };
        after.pods.iter().any(differs)
    }
}
