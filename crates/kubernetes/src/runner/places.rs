//! What is to be minded where Jobs may be in several namespaces: a further one may be gone, and with it all rights in it;
//! and what a run is given stays in one, when its Job is made in another after all.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use engine::names::RunName;
use tokio::time::Instant;

/// Rights may be away for a moment while they are changed: for so long it is not known what there is.
const MOMENT: Duration = Duration::from_secs(60);

/// What this process knows of namespaces.
#[derive(Default)]
pub(super) struct Places {
    /// Since when it may not look into these.
    forbidden: Mutex<HashMap<String, Instant>>,
    /// Where something was given to a run, and no Job made.
    given: Mutex<HashMap<RunName, BTreeSet<String>>>,
    /// Where the Job of a run was forbidden.
    refused: Mutex<HashMap<RunName, String>>,
}

impl Places {
    /// It may not be looked into. Says whether that is so for longer than a moment; `why` is told once.
    pub(super) fn is_lost(&self, namespace: &str, why: &str) -> bool {
        let mut forbidden = self.forbidden.lock().unwrap_or_else(PoisonError::into_inner);
        let since = *forbidden.entry(namespace.to_owned()).or_insert_with(|| {
            tracing::warn!(
                namespace,
                why,
                "a namespace of Jobs cannot be looked into: give the rights there, or, if it is gone, leave it out \
                 of kubernetes.job_namespaces"
            );
            Instant::now()
        });
        since.elapsed() >= MOMENT
    }

    /// It was looked into.
    pub(super) fn is_there(&self, namespace: &str) {
        let mut forbidden = self.forbidden.lock().unwrap_or_else(PoisonError::into_inner);
        forbidden.remove(namespace);
    }

    /// No Job of a run may be made there.
    pub(super) fn refuse(&self, run: &RunName, namespace: &str) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.insert(run.clone(), namespace.to_owned());
    }

    /// Whether it was tried there, and forbidden: nothing has to be looked for.
    pub(super) fn was_refused(&self, run: &RunName, namespace: &str) -> bool {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.get(run).is_some_and(|place| place == namespace)
    }

    /// A run is over.
    pub(super) fn forget(&self, run: &RunName) {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).remove(run);
    }

    /// There is something for a run.
    pub(super) fn gave(&self, run: &RunName, namespace: &str) {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.entry(run.clone()).or_default().insert(namespace.to_owned());
    }

    /// A Job says that there is.
    pub(super) fn made(&self, run: &RunName, namespace: &str) {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = given.get_mut(run) {
            places.remove(namespace);
            if places.is_empty() {
                given.remove(run);
            }
        }
    }

    /// Where something is left that no Job speaks of.
    pub(super) fn left(&self, run: &RunName) -> BTreeSet<String> {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.get(run).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_namespace_is_lost_when_it_was_forbidden_for_a_while_without_a_break() {
        let places = Places::default();
        assert!(!places.is_lost("jobs", "no"), "it may be a moment");
        tokio::time::advance(MOMENT / 2).await;
        places.is_there("jobs");
        assert!(!places.is_lost("jobs", "no"));
        tokio::time::advance(MOMENT).await;
        assert!(places.is_lost("jobs", "no"));
        assert!(!places.is_lost("others", "no"), "it is another");
    }

    #[test]
    fn what_was_given_is_left_until_a_job_says_so_in_the_same_place() {
        let (places, run) = (Places::default(), RunName::parse("bind-1").unwrap());
        places.gave(&run, "a");
        places.gave(&run, "b");
        places.made(&run, "b");
        assert_eq!(places.left(&run), BTreeSet::from(["a".to_owned()]));
        places.made(&run, "a");
        assert!(places.left(&run).is_empty());
        assert!(places.given.lock().unwrap().is_empty(), "nothing is remembered of it");
    }
}
