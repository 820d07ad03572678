//! Why a run that goes on does not begin, or may never end: for people.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::seen::SeenPod;
use super::table::{Key, Table};
use crate::nodes::{self, UNHEARD};
use crate::warnings::Warned;

impl Table {
    /// What keeps the runs of one, at this time; and when there may be more to say of a kubelet that is silent.
    pub(super) fn trouble_of(&self, key: &Key, now: Timestamp) -> Trouble {
        let mut trouble = Trouble::default();
        let Some(entry) = self.entries.get(key) else { return trouble };
        let Some(resource) = entry.resource.as_ref() else { return trouble };
        for job in entry.jobs.values().filter(|job| resource.is_open(job.run)) {
            let warning = entry.warnings.get(&job.run);
            let of = |uid: &str| warning.filter(|(of, _)| of == uid).map(|(_, why)| why.clone());
            let stopped =
                || job.wants.stopped().map(|why| format!("its Job does not begin: {why}"));
            let mut pods = self.pods(job).peekable();
            if pods.peek().is_none() {
                trouble.words = trouble.words.or_else(|| stopped().or_else(|| of(&job.uid)));
            }
            for pod in pods.filter(|pod| !pod.gone && !pod.over) {
                let of_pod = of_pod(pod, of(&pod.uid), now.as_second());
                trouble.words = trouble.words.or(of_pod.words);
                trouble.again = trouble.again.into_iter().chain(of_pod.again).min();
            }
        }
        trouble
    }

    /// Takes a warning; whom it concerns, if anybody.
    pub(super) fn warn(&mut self, warned: Warned) -> Option<Key> {
        let of_pod = |(_, pods): &(_, &BTreeMap<Arc<str>, _>)| pods.contains_key(&*warned.uid);
        let job: Arc<str> = match warned.of_pod {
            true => Arc::clone(self.pods.iter().find(of_pod)?.0),
            false => warned.uid.as_str().into(),
        };
        let key = self.owners.get(&job)?.clone();
        let entry = self.entries.get_mut(&key)?;
        let run = entry.jobs.values().find(|known| known.uid == job)?.run;
        let known = entry.warnings.get(&run);
        if !entry.resource.as_ref()?.is_open(run)
            || known.is_some_and(|(uid, _)| warned.vague && *uid == warned.uid)
        {
            return None;
        }
        entry.warnings.insert(run, (warned.uid, warned.why));
        Some(key)
    }
}

/// What keeps something.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Trouble {
    /// For people.
    pub(super) words: Option<String>,
    /// When it is to be looked at again though nothing happens.
    pub(super) again: Option<Timestamp>,
}

/// Of a pod, of which this was warned.
fn of_pod(pod: &SeenPod, warned: Option<String>, now: i64) -> Trouble {
    if pod.silent {
        let words = Some(nodes::silent(pod.node.as_deref()));
        return Trouble { words, again: None };
    }
    let until = pod.unheard_since.map(|since| since.saturating_add(UNHEARD));
    let is_unheard = until.is_some_and(|until| until < now);
    let unheard = || Some(nodes::unheard(pod.node.as_deref().filter(|_| is_unheard)?));
    let why = pod.trouble.clone().or(warned.filter(|_| !pod.began)).or_else(unheard);
    let again = until.filter(|_| !is_unheard && why.is_none()).map(|until| until.saturating_add(1));
    Trouble {
        words: why.map(|why| format!("its pod does not begin: {why}")),
        again: again.and_then(|again| Timestamp::from_second(again).ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::pod;
    use super::*;

    #[test]
    fn a_node_that_is_not_heard_of_is_named_at_once_and_a_kubelet_that_takes_no_pod_after_a_moment()
    {
        let on = |silent: bool, unheard_since: Option<i64>, trouble: Option<&str>| SeenPod {
            node: Some("n".into()),
            silent,
            unheard_since,
            trouble: trouble.map(str::to_owned),
            ..pod(&[("c", None)], None)
        };
        for (name, pod, words, again) in [
            ("it runs", on(false, None, None), None, None),
            ("not heard of", on(true, None, None), Some("the node n is not heard of: "), None),
            ("given just now", on(false, Some(100), None), None, Some(106)),
            (
                "not taken up",
                on(false, Some(94), None),
                Some("its pod does not begin: the node n has not said a word of its pod: "),
                None,
            ),
            (
                "it is known why",
                on(false, Some(94), Some("why")),
                Some("its pod does not begin: why"),
                None,
            ),
        ] {
            let trouble = of_pod(&pod, None, 100);
            let said = trouble.words.as_deref();
            let is_said = match words {
                Some(words) => said.is_some_and(|said| said.starts_with(words)),
                None => said.is_none(),
            };
            assert!(is_said, "{name}: {trouble:?}");
            assert_eq!(trouble.again.map(Timestamp::as_second), again, "{name}");
        }
    }
}
