//! Bookkeeping for Jobs in several namespaces: a further one may be gone, and with it all rights in it; and the Secret
//! of a run stays in one namespace when its Job is made in another after all.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::names::RunName;
use tokio::time::Instant;

/// How long a refusal may last before it counts: rights may be missing for a moment while they are changed.
const MOMENT: Duration = Duration::from_secs(60);
/// After how long without a further refusal a later one counts as new. The watches ask every five seconds at least.
const ANOTHER_TIME: Duration = Duration::from_secs(15);
/// How many runs are remembered. Those of a replica that does not lead any more are another's to release.
const MOST: usize = 10_000;

/// What this process knows of the namespaces.
#[derive(Default)]
pub(super) struct Places {
    /// The refusals, by namespace and right.
    forbidden: Mutex<HashMap<(String, Right), Forbidden>>,
    /// The namespaces in which a Secret was given to a run, and no Job was made.
    given: Mutex<HashMap<RunName, BTreeSet<String>>>,
    /// The namespace in which the Job of a run was forbidden.
    refused: Mutex<HashMap<RunName, String>>,
}

/// A right that may be missing in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Right {
    /// To read Jobs.
    Jobs,
    /// To remove the Secrets of runs.
    Secrets,
    /// To list and remove agents of other versions.
    Agents,
}

struct Forbidden {
    since: Instant,
    last: Instant,
    /// Whether it was logged.
    is_told: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Places {
    /// Notes that a right is missing. Returns whether that has been so for longer than [`MOMENT`]; `why` is logged once
    /// for a namespace, because when it is gone all rights in it are.
    pub(super) fn note_forbidden(&self, namespace: &str, right: Right, why: &str) -> bool {
        let mut forbidden = lock(&self.forbidden);
        forbidden.retain(|_, known| known.last.elapsed() < ANOTHER_TIME);
        let is_told =
            forbidden.iter().any(|((place, _), known)| place == namespace && known.is_told);
        if !is_told {
            tracing::warn!(
                namespace,
                why,
                "a namespace of Jobs cannot be looked into: give the rights there, or, if it is gone, leave it out of \
                 kubernetes.job_namespaces"
            );
        }
        let now = Instant::now();
        let known = forbidden.entry((namespace.to_owned(), right));
        let known = known.or_insert(Forbidden { since: now, last: now, is_told: false });
        known.last = now;
        known.is_told |= !is_told;
        // Rights go with their namespace: the refusals of the watches hold for rights that are seldom needed, too.
        [right, Right::Jobs].iter().any(|right| is_lost(&forbidden, namespace, *right))
    }

    /// Whether reading Jobs in a namespace has been forbidden for longer than [`MOMENT`], and still is.
    pub(super) fn is_known_to_be_lost(&self, namespace: &str) -> bool {
        is_lost(&lock(&self.forbidden), namespace, Right::Jobs)
    }

    /// Notes that a right is there again.
    pub(super) fn note_allowed(&self, namespace: &str, right: Right) {
        let mut forbidden = lock(&self.forbidden);
        if !forbidden.is_empty() {
            forbidden.remove(&(namespace.to_owned(), right));
        }
    }

    /// Notes that the Job of a run may not be made in a namespace.
    pub(super) fn refuse(&self, run: &RunName, namespace: &str) {
        *remember(&mut lock(&self.refused), run) = namespace.to_owned();
    }

    /// Whether making the Job of a run in a namespace was forbidden: there is nothing to look for.
    pub(super) fn was_refused(&self, run: &RunName, namespace: &str) -> bool {
        lock(&self.refused).get(run).is_some_and(|place| place == namespace)
    }

    /// Forgets the refusal: the run has its Job, or is over.
    pub(super) fn forget_refusal(&self, run: &RunName) {
        lock(&self.refused).remove(run);
    }

    /// Notes that a Secret was given to a run in a namespace.
    pub(super) fn gave(&self, run: &RunName, namespace: &str) {
        remember(&mut lock(&self.given), run).insert(namespace.to_owned());
    }

    /// Forgets the Secret of a run in a namespace: a Job names it, or it is gone.
    pub(super) fn settle(&self, run: &RunName, namespace: &str) {
        let mut given = lock(&self.given);
        if let Some(places) = given.get_mut(run) {
            places.remove(namespace);
            if places.is_empty() {
                given.remove(run);
            }
        }
    }

    /// The namespaces with a Secret of a run that no Job names.
    pub(super) fn left(&self, run: &RunName) -> BTreeSet<String> {
        lock(&self.given).get(run).cloned().unwrap_or_default()
    }
}

fn is_lost(forbidden: &HashMap<(String, Right), Forbidden>, namespace: &str, right: Right) -> bool {
    let known = forbidden.get(&(namespace.to_owned(), right));
    known.is_some_and(|it| it.last.elapsed() < ANOTHER_TIME && it.since.elapsed() >= MOMENT)
}

/// The entry of a run, an empty one if it is new; all others are forgotten when there are too many.
fn remember<'m, T: Default>(all: &'m mut HashMap<RunName, T>, run: &RunName) -> &'m mut T {
    if all.len() >= MOST && !all.contains_key(run) {
        all.clear();
    }
    all.entry(run.clone()).or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_namespace_is_lost_when_it_was_forbidden_for_a_while_without_a_break() {
        let places = Places::default();
        let forbidden = || places.note_forbidden("jobs", Right::Jobs, "no");
        let wait = tokio::time::advance;
        // As watches ask.
        let asks = async || {
            for _ in 0..12 {
                forbidden();
                wait(MOMENT / 12).await;
            }
        };
        assert!(!forbidden(), "it may be a moment");
        places.note_allowed("jobs", Right::Secrets);
        wait(MOMENT / 12).await;
        assert!(!forbidden() && !places.is_known_to_be_lost("jobs"));
        asks().await;
        assert!(forbidden() && places.is_known_to_be_lost("jobs"));
        assert!(!places.note_forbidden("others", Right::Jobs, "no"), "it is another");
        assert!(
            places.note_forbidden("jobs", Right::Secrets, "no"),
            "it goes with the right to look"
        );
        places.note_allowed("jobs", Right::Jobs);
        assert!(!forbidden(), "it was there");
        asks().await;
        wait(MOMENT / 2).await;
        assert!(!places.is_known_to_be_lost("jobs"), "nobody has said so for a while");
        assert!(!forbidden(), "this is another time");
        wait(MOMENT * 60).await;
        assert!(!forbidden(), "what was an hour ago is not now");
    }

    #[test]
    fn what_is_forbidden_is_told_once_of_a_namespace_and_what_is_left_when_the_rest_is_allowed() {
        let places = Places::default();
        let told = |place: &str, right| {
            places.note_forbidden(place, right, "no");
            lock(&places.forbidden)[&(place.to_owned(), right)].is_told
        };
        assert!(told("jobs", Right::Jobs));
        assert!(!told("jobs", Right::Agents), "it is the same namespace");
        assert!(told("others", Right::Agents), "it is another");
        places.note_allowed("jobs", Right::Jobs);
        assert!(told("jobs", Right::Agents), "this is why now");
    }

    #[test]
    fn what_was_given_is_left_until_a_job_says_so_in_the_same_place() {
        let (places, run) = (Places::default(), RunName::parse("bind-1").unwrap());
        places.gave(&run, "a");
        places.gave(&run, "b");
        places.settle(&run, "b");
        assert_eq!(places.left(&run), BTreeSet::from(["a".to_owned()]));
        places.settle(&run, "a");
        assert!(places.left(&run).is_empty());
        assert!(lock(&places.given).is_empty(), "nothing is remembered of it");
    }

    #[test]
    fn no_more_runs_are_remembered_than_there_is_room_for() {
        let places = Places::default();
        for number in 0..=MOST {
            let run = RunName::parse(&format!("bind-{number}")).unwrap();
            places.gave(&run, "a");
            places.refuse(&run, "a");
            assert!(places.was_refused(&run, "a") && !places.left(&run).is_empty());
        }
        assert_eq!((lock(&places.given).len(), lock(&places.refused).len()), (1, 1));
    }
}
