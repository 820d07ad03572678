//! The state of a run: what is known of it, and, where that does not suffice, what the API server says now; and what
//! has to be done about the run then.

use std::sync::Arc;
use std::time::Duration;

use engine::names::RunName;
use engine::ports::{RunState, RunnerError};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;

use super::places::Right;
use super::seen::{Fence, Presence, Seen, SeenJob, SeenPod};
use super::standing::{Standing, standing};
use super::watch::Watched as _;
use super::{Shared, ending, labels};
use crate::calls::{CallError, find};
use crate::text::each;

impl Shared {
    /// Reads a run that is not known: a watch may be behind other replicas.
    pub(super) async fn make_known(&self, name: &RunName) -> Result<(), RunnerError> {
        if self.known.get(name).job.is_some_and(|job| !job.unsure) {
            return Ok(());
        }
        Ok(self.look_up(name).await?)
    }

    /// Reads a run as it is now.
    pub(super) async fn look_up(&self, name: &RunName) -> Result<(), CallError> {
        let Some(job) = self.find_job(name).await? else {
            self.known.change(name, |seen| match (&mut seen.job, seen.pods.first()) {
                (Some(job), _) if job.unsure => job.presence = Presence::Deleted,
                (Some(_), _) | (None, None) => {}
                (none, Some(pod)) => *none = Some(SeenJob::deleted(pod)),
            });
            return Ok(());
        };
        let namespace = job.namespace.clone();
        self.known.learn(job);
        let selector = format!("{}={name}", labels::RUN);
        let of = ListParams::default().labels(&selector);
        let before = self.known.get(name).pods;
        let pods = each(&self.texts::<Pod>(&namespace), of, SeenPod::of_text).await?;
        let mut uids: Vec<_> = pods.iter().map(|pod| pod.uid.clone()).collect();
        pods.into_iter().for_each(|pod| self.known.learn(pod));
        self.known.change(name, |seen| {
            // A pod that was made after the list, and reported before it came, is in no list.
            let is_new = |pod: &&SeenPod| before.iter().all(|known| known.uid != pod.uid);
            uids.extend(seen.pods.iter().filter(is_new).map(|pod| pod.uid.clone()));
            SeenPod::keep(seen, &namespace, &uids);
        });
        Ok(())
    }

    /// Reads the Job of a run in all namespaces where it may be, mostly one. If a further namespace is gone, so is the
    /// right to ask there: after some time in which that was forbidden it is skipped.
    pub(super) async fn find_job(&self, name: &RunName) -> Result<Option<SeenJob>, CallError> {
        self.find_job_where(name, |namespace, why| {
            self.places.was_refused(name, namespace)
                || self.note_forbidden(namespace, Right::Jobs, why)
        })
        .await
    }

    /// Reads the Job of a run; `lost` says in which namespaces a refusal does not matter.
    pub(super) async fn find_job_where(
        &self,
        name: &RunName,
        lost: impl Fn(&str, &str) -> bool,
    ) -> Result<Option<SeenJob>, CallError> {
        for namespace in &self.namespaces {
            let found = match find(self.texts::<Job>(namespace).get(name.as_str())).await {
                Err(CallError::Forbidden(why)) if lost(namespace, &why) => None,
                Err(error) => return Err(error),
                Ok(found) => {
                    self.places.note_allowed(namespace, Right::Jobs);
                    found
                }
            };
            if let Some(job) = found.as_ref().and_then(SeenJob::of_text) {
                return Ok(Some(job));
            }
        }
        Ok(None)
    }

    /// Whether a namespace for which a right is forbidden is a further one, and has been forbidden for long.
    pub(super) fn note_forbidden(&self, namespace: &str, right: Right, why: &str) -> bool {
        self.home() != namespace && self.places.note_forbidden(namespace, right, why)
    }

    /// The API server's time, in seconds since 1970.
    pub(super) fn now_seconds(&self) -> i64 {
        self.time.now_seconds()
    }

    pub(super) fn standing(&self, seen: &Seen) -> Standing {
        let periods = self.periods(seen.job.as_ref());
        let start_timeout = Duration::from_secs(periods.start_timeout);
        standing(seen, start_timeout, self.now_seconds(), self.time.back_seconds())
    }

    /// What is known of a run. If that is its end without a report, the API server is asked: one watch may be slower
    /// than another, and the Job's may say that all is over before the pod's says how. Likewise if a run is to be ended
    /// because it does not begin, because a watch whose connection is dead says nothing for a minute; and if it is to
    /// be ended because its pod is gone, because a list may be older than a pod that was reported otherwise.
    async fn sure(&self, name: &RunName) -> Result<Seen, CallError> {
        let seen = self.known.get(name);
        let over = |seen: &Seen| {
            matches!(
                self.standing(seen),
                Standing::Lost(_)
                    | Standing::Halted
                    | Standing::TimedOut(_)
                    | Standing::NeverBegan(_)
                    | Standing::ToEnd(Fence::Hopeless(_) | Fence::Lost(_))
            )
        };
        if over(&seen) {
            return match self.look_up(name).await {
                // Rights go with their namespace, and the watches will not bring more.
                Ok(()) | Err(CallError::Forbidden(_)) => Ok(self.known.get(name)),
                Err(error) => Err(error),
            };
        }
        Ok(seen)
    }

    /// What is known of a run, with the reason why its pod does not begin, if that was unknown and something that it
    /// mounts is missing.
    pub(super) async fn look_at(&self, name: &RunName) -> Result<Seen, CallError> {
        let seen = self.sure(name).await?;
        if self.is_overcome(&seen).await {
            self.known.change(name, |seen| seen.warning = None);
            return Ok(self.known.get(name));
        }
        let Some(warning) = self.look_for_mounts(&seen, self.now_seconds()).await else {
            return Ok(seen);
        };
        self.known.warn(warning);
        Ok(self.known.get(name))
    }

    /// Does what a run needs to go on, or to end, and returns its state.
    pub(super) async fn attend(self: &Arc<Self>, name: &RunName) -> Result<RunState, RunnerError> {
        let seen = self.look_at(name).await?;
        let standing = self.act(name, &seen).await?;
        let state = match (standing.state(), &standing) {
            (Some(state), _) => state,
            (None, Standing::Reported(end)) => self.reported(name, &seen, end).await?,
            (None, _) => RunState::Running { progress: self.progress(name, &seen) },
        };
        if !standing.goes_on() {
            self.followed.end(name);
        }
        self.known.answered(name, seen.versions());
        Ok(match state {
            RunState::Lost { why } => RunState::Lost { why: self.why_lost(name, seen, why).await },
            state => state,
        })
    }

    /// Helps the pods of a run to begin and to end, and fences it off if it has to be ended. Returns the standing of
    /// the run by what was `seen`.
    async fn act(&self, name: &RunName, seen: &Seen) -> Result<Standing, CallError> {
        // A failure of these hinders neither the answer nor the end of the run.
        for done in [self.mend_agent(seen).await, self.remind(seen).await] {
            done.unwrap_or_else(
                |error| tracing::warn!(run = %name, %error, "its pod cannot be helped"),
            );
        }
        let standing = self.standing(seen);
        if let Standing::ToEnd(why) = &standing {
            match self.fence_off(name, why.clone()).await {
                // Rights go with their namespace: then the whole run is being ended.
                Ok(()) | Err(CallError::Forbidden(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(standing)
    }

    /// The reason why a run is lost; if its Job was deleted, or its pod by force, with what is known of its namespace,
    /// and the same each time.
    async fn why_lost(&self, name: &RunName, seen: Seen, why: String) -> String {
        // The process that fenced the run off may have got no answer about the namespace, may have had no right to ask
        // any more, or no time: when a namespace goes, the ends of its pods may be reported together, as they are for
        // pods that are removed by force.
        let by_force = seen.pods.first().is_some_and(ending::was_forced);
        let open = seen.job.as_ref().is_some_and(|job| {
            (job.is_deleted() || by_force) && matches!(job.fenced, None | Some(Fence::Lost(_)))
        });
        if !open {
            return why;
        }
        let namespace = seen.job.map(|job| job.namespace).unwrap_or_default();
        let why = self.namespace_goes(&namespace).await.unwrap_or(why);
        self.known.change(name, |seen| {
            seen.job.iter_mut().for_each(|job| job.fenced = Some(Fence::Lost(why.clone())));
        });
        why
    }
}
