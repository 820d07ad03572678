//! Pods as triggers: a run for each pod that has come into the state that is waited for.
//!
//! A pod may have left that state, or be gone, by the time that its run may begin: while a trigger waits, pods that
//! come into the state are recorded as due, one write for each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The pods that a job follows, as they are now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FollowedPods {
    /// The selection of the pods, as its user wrote it.
    pub of: String,
    /// Whether the pods' end is waited for, instead of a state.
    pub deletion: bool,
    /// By uid.
    pub pods: BTreeMap<String, Pod>,
    /// The version of the newest pod that was heard of in their namespace: a pod that is not here and was older is
    /// gone.
    pub newest: u64,
}

/// How many bytes of the 256 KiB of all annotations the pods may take that are remembered only for their run: some
/// hundreds of pods. A further one has a run only if it is still in the state when the run may begin; one whose end is
/// waited for has none.
const ROOM: usize = 96 * 1024;
/// How many bytes a remembered pod takes beside its uid and its name.
const BESIDE: usize = 32;

/// The pods that a job follows, as they were when the record was written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedPods {
    /// The selection of the pods, as its user wrote it.
    pub of: String,
    /// By uid.
    #[serde(default)]
    pub pods: BTreeMap<String, Pod>,
    /// The names, by uid, of pods that have come into the state and had no run for it yet, even if they have left it or
    /// are gone. Empty where the pods' end is waited for: they stay in `pods`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub due: BTreeMap<String, String>,
    /// The version of the newest pod that was heard of when the record was written: a pod that is not in `pods` and is
    /// no newer was gone by then, and only a process whose watch is behind sees it. 0: not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub newest: u64,
}

/// A pod that is followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// Whether the pod is in the state that is waited for.
    pub is: bool,
    /// The version in which the pod was seen: an older one is no news. 0: not known.
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
    /// The next pod to have a run: the first one that is due, or has come into the state since the record was written.
    pub(super) fn next(&self, recorded: &RecordedPods) -> Option<PodRef> {
        let came = self.came(recorded).map(|(uid, pod)| (uid, &pod.name));
        let next = recorded.due.iter().chain(came).next();
        next.map(|(uid, name)| PodRef { name: name.clone(), uid: uid.clone() })
    }

    /// The pods that are there. Where this process sees an older version than the record has, the record counts: also
    /// for a pod that is not seen yet, and a pod that is not recorded any more is gone.
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

    /// The pods that have come into the state, or ended, since the record was written.
    fn came<'a>(
        &'a self,
        recorded: &'a RecordedPods,
    ) -> impl Iterator<Item = (&'a String, &'a Pod)> {
        let was = |uid: &String| recorded.pods.get(uid).is_some_and(|before| before.is);
        let there = self.there(recorded).into_iter();
        let came = there.filter(move |(uid, pod)| !self.deletion && pod.is && !was(uid));
        came.chain(self.went(recorded))
    }

    /// The pods whose end is waited for and has come.
    fn went<'a>(
        &'a self,
        recorded: &'a RecordedPods,
    ) -> impl Iterator<Item = (&'a String, &'a Pod)> {
        let went = |uid: &String| self.deletion && !self.pods.contains_key(uid);
        recorded.pods.iter().filter(move |(uid, _)| went(uid))
    }

    /// The record to write: all pods as they are. Of those that have come into the state, `taken` has its run now; the
    /// others are due.
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

    /// Whether the record has to be written so that later changes can be seen. Pods that are gone are no reason: they
    /// are forgotten with the next write.
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

/// Takes room for another pod; `false`: there is not enough left.
fn fits(room: &mut usize, uid: &str, name: &str) -> bool {
    let left = room.checked_sub(uid.len() + name.len() + BESIDE);
    *room = left.unwrap_or_default();
    left.is_some()
}
