//! Tells our sidecars, which go on until then, that all other containers in their pod have ended. A native sidecar is
//! told only where a container that was put into the pod goes on: else the kubelet ends it.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::calls::{CallError, call};
use crate::quarks::Controller;
use crate::quarks::api::key::Key;
use crate::quarks::api::pod::TOLD_ENDED;
use crate::quarks::api::resource::Resource;
use crate::quarks::state::waiting_sidecars::Waiting;
use crate::queue::Looked;

/// How often stray sidecars are told, whose run is over or whose Job is gone.
const STRAYS: Duration = Duration::from_secs(2);
/// How soon that is done again if there are more strays than are told in one pass.
const SOON: Duration = Duration::from_millis(200);

/// How many strays are told at the same time.
const AT_A_TIME: usize = 8;
/// How many strays of one namespace are told in one pass: where a webhook does not answer, each of them takes as long
/// as a call may.
const OF_ONE: usize = 4;
/// The longest pause before a stray is told again that could not be.
const LONGEST: Duration = Duration::from_secs(300);

/// The strays that could not be told: when each is told again, and the pause before that, by the uid of the pod.
#[derive(Default)]
struct Refused(HashMap<Arc<str>, (Instant, Duration)>);

impl Refused {
    /// The strays among these whose pause is over, and whether there are more of them. Pods that are no strays any more
    /// are forgotten.
    fn due(&mut self, strays: Vec<Waiting>, now: Instant) -> (Vec<Waiting>, bool) {
        let known: HashSet<&Arc<str>> = strays.iter().map(|stray| &stray.uid).collect();
        self.0.retain(|uid, _| known.contains(uid));
        let mut taken: HashMap<Arc<str>, usize> = HashMap::new();
        let is_due = |stray: &Waiting| self.0.get(&stray.uid).is_none_or(|(at, _)| *at <= now);
        let (due, later): (Vec<_>, Vec<_>) = strays.into_iter().filter(is_due).partition(|stray| {
            let taken = taken.entry(Arc::clone(&stray.namespace)).or_default();
            *taken += 1;
            *taken <= OF_ONE
        });
        (due, !later.is_empty())
    }

    /// Notes that a stray could not be told. Returns the pause until it is told again, twice as long as the one before.
    fn note(&mut self, stray: &Waiting, now: Instant) -> Duration {
        let before = self.0.get(&stray.uid).map(|(_, pause)| *pause * 2);
        let pause = before.unwrap_or(STRAYS).min(LONGEST);
        self.0.insert(Arc::clone(&stray.uid), (now + pause, pause));
        pause
    }
}

impl Controller {
    /// Tells the sidecars of a QuarksJob's runs that go on.
    pub(crate) async fn end_sidecars(
        &self,
        key: &Key,
        resource: &Resource,
    ) -> Result<(), CallError> {
        let waiting: Vec<_> = {
            let table = self.table();
            let Some(entry) = table.get(key) else { return Ok(()) };
            let open = entry.jobs.values().filter(|job| resource.is_open(job.run));
            open.flat_map(|job| table.pods(job)).filter_map(Waiting::of).collect()
        };
        let mut told = Ok(());
        for waiting in waiting {
            // If a policy refuses one, the others are told all the same.
            told = self.end_sidecar(&waiting).await.and(told);
        }
        told
    }

    /// Tells the sidecars of a QuarksJob that is being deleted and that somebody's finalizer holds: its pods stay with
    /// it, and nothing else is done for it any more.
    pub(crate) async fn let_end(&self, key: &Key) -> Looked {
        let resource = self.table().get(key).and_then(|entry| entry.resource.clone());
        let Some(resource) = resource.filter(|it| it.deleting) else { return Looked::Idle };
        self.end_sidecars(key, &resource).await.map_or(Looked::FAILED, |()| Looked::Idle)
    }

    /// Tells stray sidecars, for ever: those of pods whose Job is gone or whose run is over. Kubernetes is to delete
    /// such a pod, and until it does nobody else would end it.
    pub(crate) async fn end_stray_sidecars(self: Arc<Self>) {
        let mut refused = Refused::default();
        let mut pause = STRAYS;
        loop {
            tokio::time::sleep(mem::replace(&mut pause, STRAYS)).await;
            if !self.leads() {
                continue;
            }
            let strays = self.table().strays();
            let (due, are_more) = refused.due(strays, Instant::now());
            if are_more {
                pause = SOON;
            }
            let due = due.into_iter().map(|stray| async {
                let told = if self.leads() { self.end_sidecar(&stray).await } else { Ok(()) };
                (stray, told)
            });
            // A webhook that does not answer in one namespace holds the others up no longer than that.
            let mut told = futures_util::stream::iter(due).buffer_unordered(AT_A_TIME);
            while let Some((stray, told)) = told.next().await {
                if let Err(error) = told {
                    let again = refused.note(&stray, Instant::now());
                    let (namespace, name) = (&*stray.namespace, &*stray.name);
                    let words = "a sidecar was not told that it may end";
                    tracing::warn!(namespace, name, %error, ?again, "{words}");
                }
            }
        }
    }

    async fn end_sidecar(&self, waiting: &Waiting) -> Result<(), CallError> {
        let Waiting { namespace, name, uid, .. } = waiting;
        let patch = json!({"metadata": {"uid": &**uid, "annotations": {TOLD_ENDED: "true"}}});
        let pods = self.api::<Pod>(namespace);
        match call(pods.patch_metadata(name, &PatchParams::default(), &Patch::Merge(patch))).await {
            Ok(_) | Err(CallError::NotFound) => {
                self.table().told(uid);
                Ok(())
            }
            // Somebody has just written the pod: a watch tells of it.
            Err(CallError::Conflict) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_cannot_be_told_is_tried_after_longer_and_longer_pauses() {
        let stray = |uid: &str| {
            let [namespace, name, uid, job] = ["n", "a", uid, "j"].map(Arc::from);
            Waiting { namespace, name, uid, job }
        };
        let start = Instant::now();
        let mut refused = Refused::default();
        let mut told = Vec::new();
        // A day of ticks, of which each is a refusal for one and none for the other.
        for tick in 0..43_200 {
            let now = start + STRAYS * tick;
            let (due, _) = refused.due(vec![stray("refused"), stray("told")], now);
            assert!(due.contains(&stray("told")));
            if due.contains(&stray("refused")) {
                told.push(now.duration_since(start).as_secs());
                refused.note(&stray("refused"), now);
            }
        }
        assert_eq!(told[..5], [0, 2, 6, 14, 30]);
        assert!(told.windows(2).all(|pair| pair[1] - pair[0] <= LONGEST.as_secs()), "{told:?}");
        assert!(told.len() < 300, "{}", told.len());
        assert_eq!(refused.due(Vec::new(), start), (vec![], false));
        let again = refused.due(vec![stray("refused")], start);
        assert_eq!(again, (vec![stray("refused")], false), "it was forgotten");
    }

    #[test]
    fn those_of_one_namespace_let_those_of_others_be_told() {
        let stray = |namespace: &str, number: usize| {
            let [namespace, name, job] = [namespace, "a", "j"].map(Arc::from);
            Waiting { namespace, name, uid: number.to_string().into(), job }
        };
        let mut strays: Vec<_> = (0..100).map(|number| stray("many", number)).collect();
        strays.push(stray("few", 100));
        let (due, are_more) = Refused::default().due(strays, Instant::now());
        let of = |namespace: &str| due.iter().filter(|it| &*it.namespace == namespace).count();
        assert_eq!((of("many"), of("few"), are_more), (OF_ONE, 1, true));
    }
}
