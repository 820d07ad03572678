//! Pods of runs that have not ended, by the QuarksJob that they name: plain state.
//!
//! A run is over once its end is certain, and a pod of it may still go on then: it was told to end and takes its time,
//! or its Job was deleted by hand. Where runs may not go on at once, the next run waits for it. Pods of a deleted
//! QuarksJob of this name count, too.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::ending::SLACK;
use super::pod::SeenPod;
use super::table::Table;
use crate::quarks::api::dialect::Dialect;
use crate::quarks::api::key::Key;
use crate::quarks::api::naming::label;

/// The QuarksJob that a pod's labels name: its namespace, its kind, and its name as the value of a label.
pub(crate) type PodOwner = (Arc<str>, Dialect, Arc<str>);

/// Pods that have not ended, by uid, with when each is to be gone, in seconds since 1970, if it is being deleted.
type Pods = BTreeMap<Arc<str>, Option<i64>>;

/// The pods that have not ended of all QuarksJobs.
#[derive(Default)]
pub(crate) struct Lasting(HashMap<PodOwner, Pods>);

/// Until when pods of runs that are over are waited for; ordered, the longest wait is the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Until {
    /// For a while: no such pod is known, and one may still be made.
    Unseen,
    /// Until this second since 1970: a pod that does not say by then that it has ended never will.
    Second(i64),
    /// Until the pods have ended: nobody has told them to.
    End,
}

impl Until {
    pub(crate) fn time(self) -> Option<Timestamp> {
        match self {
            Self::Second(at) => Timestamp::from_second(at).ok(),
            Self::End | Self::Unseen => None,
        }
    }
}

impl Table {
    /// Takes a pod as a watch has told of it. Returns the key of its QuarksJob if the pod has now ended, or is to be
    /// gone at another time than was known.
    pub(crate) fn note_lasting(&mut self, pod: &SeenPod) -> Option<Key> {
        let (dialect, name) = pod.of.clone()?;
        let of = (Arc::clone(&pod.namespace), dialect, name);
        if !(pod.is_over() || pod.gone) {
            let pods = self.lasting.0.entry(of.clone()).or_default();
            let known = pods.insert(Arc::clone(&pod.uid), pod.deletion);
            return known.filter(|known| *known != pod.deletion).and_then(|_| self.labelled(&of));
        }
        let pods = self.lasting.0.get_mut(&of)?;
        pods.remove(&pod.uid)?;
        if pods.is_empty() {
            self.lasting.0.remove(&of);
        }
        self.labelled(&of)
    }

    /// Takes the end of a list of pods. Returns the keys of the QuarksJobs of those that it lacks, which are gone.
    pub(crate) fn keep_lasting(
        &mut self,
        scope: Option<&str>,
        listed: &HashSet<Arc<str>>,
    ) -> Vec<Key> {
        let mut gone = Vec::new();
        self.lasting.0.retain(|of, pods| {
            let known = pods.len();
            if scope.is_none_or(|scope| *scope == *of.0) {
                pods.retain(|uid, _| listed.contains(uid));
            }
            if pods.len() < known {
                gone.push(of.clone());
            }
            !pods.is_empty()
        });
        gone.iter().filter_map(|of| self.labelled(of)).collect()
    }

    /// Forgets the pods of a namespace.
    pub(crate) fn leave_lasting(&mut self, namespace: &str) {
        self.lasting.0.retain(|of, _| *of.0 != *namespace);
    }

    /// Until when the pods of a QuarksJob of this name are waited for; `None`: there are none. Where none is known,
    /// `unseen` says whether there may be some.
    pub(crate) fn lasts(&self, key: &Key, unseen: bool, now: i64) -> Option<Until> {
        let of = (Arc::clone(&key.namespace), key.dialect, label(&key.name).into());
        let Some(pods) = self.lasting.0.get(&of) else { return unseen.then_some(Until::Unseen) };
        let until = pods.values().map(|deletion| match deletion {
            Some(at) => Until::Second(at.saturating_add(SLACK)),
            None => Until::End,
        });
        until.filter(|until| *until > Until::Second(now)).max()
    }

    /// The key of the QuarksJob whose name gives this value of a label: the name as it is, or a long one that was cut.
    fn labelled(&self, (namespace, dialect, value): &PodOwner) -> Option<Key> {
        let [namespace, name] = [namespace, value].map(Arc::clone);
        let key = Key { dialect: *dialect, namespace, name };
        if self.entries.contains_key(&key) {
            return Some(key);
        }
        let mut keys = self.entries.keys();
        let is_it = |it: &&Key| {
            it.name.len() > value.len()
                && (&it.namespace, it.dialect) == (&key.namespace, key.dialect)
                && *label(&it.name) == **value
        };
        keys.find(is_it).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::pod::PodWork;
    use super::*;
    use crate::quarks::tests::pod;

    const NOW: i64 = 1000;
    const OURS: Dialect = Dialect::QuarksJob;
    const FAILED: PodWork = PodWork::Over { well: false, lingers: false };

    fn of(name: &str, uid: &str, deletion: Option<i64>) -> SeenPod {
        let of = Some((OURS, label(name).into()));
        SeenPod {
            uid: uid.into(),
            namespace: "n".into(),
            deletion,
            of,
            ..pod(&[("c", None)], None)
        }
    }

    fn key(name: &str) -> Key {
        Key { dialect: OURS, namespace: "n".into(), name: name.into() }
    }

    #[test]
    fn pods_are_waited_for_until_they_have_ended_or_their_time_is_long_past() {
        let ended = |pod: SeenPod| SeenPod { work: FAILED, ..pod };
        let gone = |pod: SeenPod| SeenPod { gone: true, ..pod };
        let other = SeenPod { of: Some((Dialect::ExtendedJob, "a".into())), ..of("a", "p", None) };
        let elsewhere = SeenPod { namespace: "m".into(), ..of("a", "p", None) };
        let running = || of("a", "p", None);
        let told = |at| of("a", "p", Some(at));
        for (name, pods, expected) in [
            ("none", vec![], None),
            ("one goes on", vec![running()], Some(Until::End)),
            ("it is told to go", vec![running(), told(1030)], Some(Until::Second(1030 + SLACK))),
            ("its time is up", vec![told(NOW - 1)], Some(Until::Second(NOW - 1 + SLACK))),
            ("it is long up", vec![told(NOW - SLACK)], None),
            ("it has ended", vec![running(), ended(running())], None),
            ("it is gone", vec![running(), gone(running())], None),
            (
                "one of two is gone",
                vec![running(), of("a", "q", None), gone(running())],
                Some(Until::End),
            ),
            ("one has no end", vec![told(1030), of("a", "q", None)], Some(Until::End)),
            ("it is of another", vec![of("b", "p", None)], None),
            ("it is of the other kind", vec![other], None),
            ("it is in another namespace", vec![elsewhere], None),
            ("it says not whose it is", vec![SeenPod { of: None, ..running() }], None),
        ] {
            let mut table = Table::new(2, b"key");
            pods.iter().for_each(|pod| drop(table.note_lasting(pod)));
            assert_eq!(table.lasts(&key("a"), false, NOW), expected, "{name}");
            table.keep_lasting(Some("m"), &HashSet::new());
            assert_eq!(table.lasts(&key("a"), false, NOW), expected, "{name}: another list");
            // What is known decides: of a dead node no more comes.
            let others = table.lasts(&key("a"), true, NOW);
            let is_known = table.lasting.0.contains_key(&("n".into(), OURS, "a".into()));
            assert_eq!(others, if is_known { expected } else { Some(Until::Unseen) }, "{name}");
            table.keep_lasting(None, &HashSet::new());
            assert_eq!(table.lasts(&key("a"), false, NOW), None, "{name}: a list without it");
        }
    }

    #[test]
    fn whoever_waits_for_a_pod_is_told_of_its_end() {
        let long = "l".repeat(100);
        for name in ["a", &long] {
            let mut table = Table::new(2, b"key");
            table.entries.entry(key(name)).or_default();
            table.entries.entry(key(&"l".repeat(101))).or_default();
            let running = of(name, "p", None);
            assert_eq!(table.note_lasting(&running), None, "{name}");
            let told = of(name, "p", Some(1030));
            assert_eq!(table.note_lasting(&told), Some(key(name)), "it is waited for until then");
            assert_eq!(table.note_lasting(&told), None, "{name}: that was known");
            let ended = SeenPod { work: FAILED, ..running.clone() };
            assert_eq!(table.note_lasting(&ended), Some(key(name)));
            assert_eq!(table.note_lasting(&ended), None, "{name}: that was known");
            table.note_lasting(&running);
            assert_eq!(table.keep_lasting(None, &HashSet::from(["p".into()])), []);
            assert_eq!(table.keep_lasting(None, &HashSet::new()), [key(name)]);
            table.note_lasting(&running);
            table.leave_lasting("n");
            assert_eq!(
                table.lasts(&key(name), false, NOW),
                None,
                "{name}: nobody looks there any more"
            );
        }
    }
}
