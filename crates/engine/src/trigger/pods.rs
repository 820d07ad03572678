//! Pods as triggers: a run for each pod that has come to be as it is waited for.
//!
//! What is so may be so no more, or gone, by the time that it may have its run: while a trigger waits, those that come
//! to be so are written down as due, one write for each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Pods that are followed, as they are now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FollowedPods {
    /// What is followed, as its user wrote it.
    pub of: String,
    /// Whether their end is waited for, instead of what they are.
    pub deletion: bool,
    /// By uid.
    pub pods: BTreeMap<String, Pod>,
    /// The version of the newest that was heard of in their namespace: what is not there and was older is gone.
    pub newest: u64,
}

/// How many bytes those may take that are remembered for their run alone, of the 256 KiB of all annotations: some
/// hundreds of pods. Of more, each has a run that is still so when it may have one; one whose end is waited for has none.
const ROOM: usize = 96 * 1024;
/// What one takes beside its uid and its name.
const BESIDE: usize = 32;

/// Pods that were followed, as they were when this was written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedPods {
    /// What was followed.
    pub of: String,
    /// By uid.
    #[serde(default)]
    pub pods: BTreeMap<String, Pod>,
    /// Those that have come to be so and have had no run for it yet, be they so no more, or gone: their names, by uid.
    /// Of those whose end is waited for, none: they stay among the others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub due: BTreeMap<String, String>,
    /// The version of the newest that was heard of when this was written: what is not among the pods and is no newer was
    /// gone by then, and only one who is behind sees it. 0: nobody knows.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub newest: u64,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// Whether it is as it is waited for.
    pub is: bool,
    /// As of which version: one who is behind takes an older one for no news. 0: nobody knows.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub version: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(version: &u64) -> bool {
    *version == 0
}

/// The pod that a run is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRef {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

impl FollowedPods {
    /// The first that has come to be so since then, or was due before.
    pub(super) fn next(&self, recorded: &RecordedPods) -> Option<PodRef> {
        let came = self.came(recorded).map(|(uid, pod)| (uid, &pod.name));
        let next = recorded.due.iter().chain(came).next();
        next.map(|(uid, name)| PodRef { name: name.clone(), uid: uid.clone() })
    }

    /// Those that are there. What is seen may be older than what another has written down: then that counts, also of one
    /// that is not seen yet, and one that is not written down any more is gone.
    fn there<'a>(&'a self, recorded: &'a RecordedPods) -> BTreeMap<&'a String, &'a Pod> {
        let is_behind = |(uid, before): &(&String, &Pod)| match self.pods.get(*uid) {
            Some(now) => now.version < before.version,
            None => !self.deletion && self.newest < before.version,
        };
        let is_there = |(uid, pod): &(&String, &Pod)| {
            pod.version == 0 || pod.version > recorded.newest || recorded.pods.contains_key(*uid)
        };
        let seen = self.pods.iter().filter(is_there);
        seen.chain(recorded.pods.iter().filter(is_behind)).collect()
    }

    /// Those that have come to be so since then.
    fn came<'a>(
        &'a self,
        recorded: &'a RecordedPods,
    ) -> impl Iterator<Item = (&'a String, &'a Pod)> {
        let was = |uid: &String| recorded.pods.get(uid).is_some_and(|before| before.is);
        let there = self.there(recorded).into_iter();
        let came = there.filter(move |(uid, pod)| !self.deletion && pod.is && !was(uid));
        came.chain(self.went(recorded))
    }

    /// Those whose end is waited for and has come.
    fn went<'a>(
        &'a self,
        recorded: &'a RecordedPods,
    ) -> impl Iterator<Item = (&'a String, &'a Pod)> {
        let went = |uid: &String| self.deletion && !self.pods.contains_key(uid);
        recorded.pods.iter().filter(move |(uid, _)| went(uid))
    }

    /// What is to be recorded from now on: all as it is, but of those that have come to be so only the one that is
    /// `taken`; the others are due.
    pub(super) fn recorded(
        &self,
        before: Option<&RecordedPods>,
        taken: Option<&PodRef>,
    ) -> RecordedPods {
        let of = self.of.clone();
        let Some(before) = before.filter(|before| before.of == self.of) else {
            return RecordedPods {
                of,
                pods: self.pods.clone(),
                due: BTreeMap::new(),
                newest: self.newest,
            };
        };
        let stays = |uid: &str| taken.is_none_or(|taken| taken.uid != uid);
        let came: BTreeMap<&String, &Pod> =
            self.came(before).filter(|(uid, _)| stays(uid)).collect();
        let is = |uid: &String, pod: &Pod| pod.is && !came.contains_key(uid);
        let there = self.there(before).into_iter();
        let mut pods: BTreeMap<String, Pod> = there
            .map(|(uid, pod)| (uid.clone(), Pod { is: is(uid, pod), ..pod.clone() }))
            .collect();
        // Whose end is waited for is recorded until its run is.
        let went = self.went(before).filter(|(uid, _)| stays(uid));
        let went =
            went.scan(ROOM, |room, (uid, pod)| fits(room, uid, &pod.name).then_some((uid, pod)));
        pods.extend(went.map(|(uid, pod)| (uid.clone(), pod.clone())));
        let due = before.due.iter().filter(|(uid, _)| stays(uid));
        let new = came.iter().filter(|(uid, _)| !self.deletion && !before.due.contains_key(**uid));
        let due = due.chain(new.map(|(uid, pod)| (*uid, &pod.name)));
        let due = due.scan(ROOM, |room, (uid, name)| fits(room, uid, name).then_some((uid, name)));
        let due = due.map(|(uid, name)| (uid.clone(), name.clone())).collect();
        RecordedPods { of, pods, due, newest: before.newest.max(self.newest) }
    }

    /// Whether something has to be recorded that is not, for what comes after it to be seen. Those that are gone
    /// are forgotten with the next that is written.
    pub(super) fn is_news(&self, before: Option<&RecordedPods>) -> bool {
        let Some(recorded) = before.filter(|before| before.of == self.of) else { return true };
        let after = self.recorded(before, None);
        let differs = |(uid, pod): (&String, &Pod)| match recorded.pods.get(uid) {
            Some(before) => before.is != pod.is,
            // One that is not so yet is as good as one that nobody has seen.
            None => self.deletion || pod.is,
        };
        after.due != recorded.due || after.pods.iter().any(differs)
    }
}

/// Whether there is room for another, which it takes then.
fn fits(room: &mut usize, uid: &str, name: &str) -> bool {
    let left = room.checked_sub(uid.len() + name.len() + BESIDE);
    *room = left.unwrap_or_default();
    left.is_some()
}
