//! Why the work of a run that goes on does not begin, or may never end: for people.

use std::sync::Arc;

use jiff::Timestamp;

use crate::nodes::{self, UNHEARD};
use crate::quarks::api::key::Key;
use crate::quarks::state::pod::{BEGUN_AGAIN, SeenPod};
use crate::quarks::state::table::Table;
use crate::warnings::Warned;

impl Table {
    /// What keeps the open runs of a QuarksJob from going on, at this time.
    pub(crate) fn obstacle_of(&self, key: &Key, now: Timestamp) -> Obstacle {
        let mut trouble = Obstacle::default();
        let Some(entry) = self.get(key) else { return trouble };
        let Some(resource) = entry.resource.as_ref() else { return trouble };
        for job in entry.jobs.values().filter(|job| resource.is_open(job.run)) {
            let warning = entry.warnings.get(&job.run);
            let of = |uid: &str| warning.filter(|(of, _)| of == uid).map(|(_, why)| why.clone());
            let stopped =
                || job.wants.stopped().map(|why| format!("its Job does not begin: {why}"));
            let mut pods = self.pods(job).peekable();
            if pods.peek().is_none() {
                let due = job.created.saturating_add(TAKEN_UP);
                // Pods of other controllers are not watched.
                let wants_pods =
                    job.end.is_none() && !job.noted.inherited && !job.wants.is_anothers;
                let none = || (wants_pods && due < now.as_second()).then(|| NO_POD.to_owned());
                let words = stopped().or_else(|| of(&job.uid)).or_else(none);
                if words.is_none() && wants_pods {
                    trouble.look_again(due);
                }
                trouble.words = trouble.words.or(words);
            }
            for pod in pods.filter(|pod| !pod.gone && !pod.is_over()) {
                let of_pod = of_pod(pod, of(&pod.uid), now.as_second());
                trouble.words = trouble.words.or(of_pod.words);
                trouble.again = trouble.again.into_iter().chain(of_pod.again).min();
            }
        }
        trouble
    }

    /// Takes a warning of Kubernetes. Returns the key of the QuarksJob that it concerns, if it is news.
    pub(crate) fn warn(&mut self, warned: Warned) -> Option<Key> {
        let job: Arc<str> = match warned.of_pod {
            true => Arc::clone(self.job_of_pod(&warned.uid)?),
            false => warned.uid.as_str().into(),
        };
        let key = self.owner_of(&job).filter(|key| *key.namespace == *warned.namespace)?.clone();
        let entry = self.get_mut(&key)?;
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

/// How many seconds Kubernetes may take to make a Job's pod, and a scheduler to look at it, before people are told.
const TAKEN_UP: i64 = 30;
const NO_POD: &str = "Kubernetes has no pod for its Job: its controller manager is stopped or busy, somebody deletes its \
                      pods, or it refuses them, which the Job's events tell";
const NO_SCHEDULER: &str = "no scheduler has said a word of it: none of its schedulerName runs, or it waits, as for a volume";

/// What keeps runs or a pod from going on.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Obstacle {
    /// The reason, for people.
    pub(crate) words: Option<String>,
    /// When to look again though nothing happens.
    pub(crate) again: Option<Timestamp>,
}

impl Obstacle {
    /// Notes that it is to be looked at again after this second.
    fn look_again(&mut self, after: i64) {
        let again = Timestamp::from_second(after.saturating_add(1)).ok();
        self.again = self.again.into_iter().chain(again).min();
    }
}

/// What keeps a pod; `warned` is what Kubernetes warned of.
fn of_pod(pod: &SeenPod, warned: Option<String>, now: i64) -> Obstacle {
    let mut trouble = Obstacle::default();
    if pod.silent {
        trouble.words = Some(nodes::silent(pod.node.as_deref()));
        return trouble;
    }
    let patience = if pod.node.is_some() { UNHEARD } else { TAKEN_UP };
    let until = pod.unheard_since.map(|since| since.saturating_add(patience));
    let is_unheard = until.is_some_and(|until| until < now);
    let unheard = || match pod.node.as_deref() {
        Some(node) => nodes::unheard(node),
        None => NO_SCHEDULER.to_owned(),
    };
    let why = pod.trouble.clone().or(warned.filter(|_| !pod.began));
    let why = why.or_else(|| is_unheard.then(unheard));
    if let Some(until) = until.filter(|_| why.is_none()) {
        trouble.look_again(until);
    }
    trouble.words = why.map(|why| match why.ends_with(BEGUN_AGAIN) {
        true => format!("its pod does not get on: {why}"),
        false => format!("its pod does not begin: {why}"),
    });
    trouble
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quarks::tests::pod;

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
            (
                "no scheduler has seen it yet",
                SeenPod { node: None, ..on(false, Some(80), None) },
                None,
                Some(111),
            ),
            (
                "none sees it",
                SeenPod { node: None, ..on(false, Some(60), None) },
                Some("its pod does not begin: no scheduler has said a word of it: "),
                None,
            ),
            (
                "it ends too often",
                on(
                    false,
                    None,
                    Some(
                        "container c: it ends with 1 and is begun again, each time after a longer pause",
                    ),
                ),
                Some("its pod does not get on: container c: it ends with 1 "),
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
