//! Ends, keeps and removes runs.

use std::sync::Arc;
use std::time::Duration;

use engine::names::RunName;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::labels::{FENCED, RELEASED};
use super::places::Right;
use super::seen::{Fence, Presence, Seen, SeenJob, SeenPod};
use super::stage::Stage;
use super::standing::{Standing, is_open, why_to_fence};
use super::{CHANGED, Shared};
use crate::calls::{self, CallError, call, find, in_background, only};
use crate::conditions::JobEnd;

/// How often Jobs are looked for that have been kept long enough.
const SWEEP: Duration = Duration::from_secs(30);
/// How long a pod may take to go, beside the grace period of its broker. One without a node is removed by the pod
/// garbage collector, from Kubernetes 1.26 on, which runs every 20 s.
const GONE_WITHIN: Duration = Duration::from_secs(45);
/// How long a cancellation waits for a pod that is about to begin.
const BEGUN: Duration = Duration::from_secs(10);
/// How long a call may take that only improves a message.
const QUICK: Duration = Duration::from_secs(3);

impl Shared {
    /// Guards against a second pod of a run. Servers before 1.29 replace a pod that is being deleted, and any server
    /// may make one too many: if that could do the work a second time, the Job is fenced off before the broker in the
    /// second pod has begun.
    pub(super) fn guard(self: Arc<Self>, run: &RunName) {
        let (seen, now) = (self.known.get(run), self.now_seconds());
        let why = why_to_fence(&seen, now);
        // A pod without a node is replaced by another until the Job is fenced off. Where the first one has ended,
        // fencing takes another call.
        let waits = why.is_some() && seen.pods.first().is_some_and(SeenPod::has_ended);
        let (late, at_once): (Vec<_>, Vec<_>) =
            second_pods(&seen, now).into_iter().partition(|pod| waits && pod.node.is_none());
        for pod in at_once {
            let shared = Arc::clone(&self);
            tokio::spawn(async move { shared.strike(&pod).await });
        }
        let Some(why) = why else { return };
        let run = run.clone();
        tokio::spawn(async move {
            if let Err(error) = self.fence_off(&run, why).await {
                tracing::warn!(%run, %error, "a second pod of a run may not be fenced off");
            }
            for pod in late {
                self.strike(&pod).await;
            }
        });
    }

    /// Like [`Shared::guard`], for runs that were missing from a list, which may have been outdated: they are read
    /// before anything is done.
    pub(super) fn guard_after_a_list(self: Arc<Self>, run: &RunName) {
        let seen = self.known.get(run);
        if why_to_fence(&seen, self.now_seconds()).is_none()
            && second_pods(&seen, self.now_seconds()).is_empty()
        {
            return;
        }
        let run = run.clone();
        tokio::spawn(async move {
            match self.look_up(&run).await {
                Ok(()) => self.guard(&run),
                // It is tried again at the next event of the run, or when somebody waits for it.
                Err(error) => tracing::warn!(%run, %error, "a second pod of a run may begin"),
            }
        });
    }

    /// Deletes a second pod without grace: a kubelet that has begun to make a pod only checks whether it exists at all,
    /// and only until it has mounted the volumes, some tenths of a second.
    async fn strike(&self, pod: &SeenPod) {
        let params = only(Some(pod.uid.clone()), None).grace_period(0);
        match calls::delete(&self.pods(&pod.namespace), &pod.name, &params).await {
            Ok(()) | Err(CallError::Conflict) => {}
            // A watch may have missed the pod, and never report its end.
            Err(CallError::NotFound) => self.known.change(&pod.run, |seen| {
                let its = seen.pods.iter_mut().filter(|it| it.uid == pod.uid);
                its.for_each(SeenPod::miss);
            }),
            Err(error) => {
                tracing::warn!(run = %pod.run, %error, "a second pod of a run may begin");
            }
        }
    }

    /// Fences off a run; if its pod was deleted, with the reason that its namespace may give.
    pub(super) async fn fence_off(&self, run: &RunName, why: Fence) -> Result<(), CallError> {
        let seen = self.known.get(run);
        // A pod that is deleted by force makes room at once: no time is to be lost on a better message.
        let is_taken = |pod: &SeenPod| pod.is_leaving() && !was_forced(pod);
        let job = seen.job.filter(|_| seen.pods.first().is_some_and(is_taken));
        let (Some(job), Fence::Lost(_)) = (job, &why) else { return self.fence(run, &why).await };
        let goes = self.namespace_goes(&job.namespace).await;
        // The run may have ended meanwhile.
        if !self.known.get(run).job.is_some_and(|job| is_open(&job, self.now_seconds())) {
            return Ok(());
        }
        self.fence(run, &goes.map_or(why, Fence::Lost)).await
    }

    /// A message, if a namespace is being deleted, or is gone.
    pub(super) async fn namespace_goes(&self, name: &str) -> Option<String> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let found = tokio::time::timeout(QUICK, find(namespaces.get(name))).await.ok()?;
        let goes = match found {
            Ok(found) => found.is_none_or(|found| found.metadata.deletion_timestamp.is_some()),
            // Rights go with their namespace.
            Err(CallError::Forbidden(_)) => {
                return Some(format!(
                    "what it ran in was deleted, the namespace {name} perhaps: the right to look at that \
                     was taken away too, or never given (namespaces: get)"
                ));
            }
            Err(_) => return None,
        };
        goes.then(|| format!("the namespace {name} was deleted, with all that was in it"))
    }

    /// Fences off a run: no pod of it may go on or begin. Present pods are ended with their grace period. The first
    /// reason stays. A run without a Job needs no end.
    pub(super) async fn fence(&self, name: &RunName, why: &Fence) -> Result<(), CallError> {
        if *why == Fence::Cancelled && self.forgets_pods {
            self.until_begun(name).await;
        }
        let Some(job) = self.known.get(name).job else { return Ok(()) };
        if job.fenced.is_some() || job.released.is_some() {
            return Ok(());
        }
        if job.is_deleted() {
            return self.end_orphans(name, why).await;
        }
        let why = serde_json::to_string(why).unwrap_or_default();
        let patch = Patch::Merge(json!({
            "metadata": {"uid": job.uid, "annotations": {FENCED: why}},
            "spec": {"parallelism": 0},
        }));
        match self.patch(&job, &patch).await {
            Ok(patched) => patched.into_iter().for_each(|job| self.known.learn(job)),
            Err(CallError::NotFound) => {}
            // Another has this name, or the API server gave up beside other writers of this one: it is asked again.
            Err(error) => return Err(error),
        }
        // The Job controller ignores a Job that is being deleted.
        if job.is_leaving() { self.end_pods(name).await } else { Ok(()) }
    }

    /// Ends the pods of a Job that does not exist any more, so that the reason cannot be written to it.
    async fn end_orphans(&self, name: &RunName, why: &Fence) -> Result<(), CallError> {
        self.known.change(name, |seen| {
            seen.job.iter_mut().for_each(|job| job.fenced = Some(why.clone()));
        });
        self.end_pods(name).await
    }

    async fn end_pods(&self, name: &RunName) -> Result<(), CallError> {
        for pod in self.known.get(name).pods.iter().filter(|pod| !pod.gone) {
            let params = DeleteParams::default();
            match calls::delete(&self.pods(&pod.namespace), &pod.name, &params).await {
                Ok(()) | Err(CallError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits until a pod has begun, or there is a reason why it does not: a kubelet of 1.20 may ignore for ever a pod
    /// that is deleted while it is being made.
    async fn until_begun(&self, name: &RunName) {
        let begun = async {
            loop {
                let seen = self.known.get(name);
                let making =
                    |pod: &SeenPod| pod.stage == Stage::Waiting(None) && seen.warning.is_none();
                let over = seen.job.as_ref().is_none_or(|job| {
                    let has_failed = matches!(job.end, Some(JobEnd::Failed { .. }));
                    job.fenced.is_some() || has_failed || job.is_deleted()
                });
                if over || seen.pods.first().is_some_and(|pod| !making(pod)) {
                    return;
                }
                self.known.changed(name, CHANGED, |_| false).await;
            }
        };
        let _ = tokio::time::timeout(BEGUN, begun).await;
    }

    async fn patch(
        &self,
        job: &SeenJob,
        patch: &Patch<Value>,
    ) -> Result<Option<SeenJob>, CallError> {
        let jobs = self.texts::<Job>(&job.namespace);
        let patched = call(jobs.patch(job.run.as_str(), &PatchParams::default(), patch)).await?;
        Ok(SeenJob::of_text(&patched))
    }

    /// Releases a run: ends it, and keeps its Job for inspection, for as long as the settings say. Secrets that were
    /// given where there is no Job are removed in any case.
    pub(super) async fn release(&self, name: &RunName) -> Result<(), CallError> {
        self.readings.leave(name);
        for namespace in self.places.left(name) {
            self.take_back(&namespace, name).await?;
            self.places.settle(name, &namespace);
        }
        self.release_job(name).await?;
        self.places.forget_refusal(name);
        Ok(())
    }

    async fn release_job(&self, name: &RunName) -> Result<(), CallError> {
        let seen = self.known.get(name);
        let Some(job) = &seen.job else { return self.release_unseen(name).await };
        if job.released.is_some() {
            return Ok(());
        }
        self.followed.end(name);
        if self.standing(&seen).goes_on() {
            match self.fence(name, &Fence::Cancelled).await {
                // Its end would not be reported.
                Err(error) if self.goes_with_it(&job.namespace, &error) => {
                    return self.let_go(job).await;
                }
                fenced => fenced?,
            }
            self.until_over(name).await?;
        }
        let kept = match self.standing(&seen) {
            _ if job.is_deleted() => Duration::ZERO,
            Standing::Absent | Standing::Going { .. } | Standing::ToEnd(_) => Duration::ZERO,
            Standing::Reported(_) if succeeded(&seen) => {
                Duration::from_secs(self.periods(Some(job)).succeeded)
            }
            _ => Duration::from_secs(self.periods(Some(job)).failed),
        };
        if kept <= self.linger { self.let_go(job).await } else { self.keep_for(job, kept).await }
    }

    /// Releases a run whose Job was not seen.
    async fn release_unseen(&self, name: &RunName) -> Result<(), CallError> {
        match self.find_job(name).await? {
            // The run may go on, and is ended then.
            Some(job) if job.released.is_none() => {
                self.known.learn(job);
                Box::pin(self.release_job(name)).await
            }
            Some(_) => Ok(()),
            // Its Secret may exist: the process that was to start the run was ended, or refused.
            None => {
                for namespace in &self.namespaces {
                    self.take_back(namespace, name).await?;
                }
                Ok(())
            }
        }
    }

    /// Keeps a Job for inspection, without its Secret.
    async fn keep_for(&self, job: &SeenJob, kept: Duration) -> Result<(), CallError> {
        let until =
            self.now_seconds().saturating_add(i64::try_from(kept.as_secs()).unwrap_or(i64::MAX));
        let patch = Patch::Merge(json!({
            "metadata": {"annotations": {RELEASED: until.to_string()}},
            "spec": {"parallelism": 0},
        }));
        match self.patch(job, &patch).await {
            Ok(job) => job.into_iter().for_each(|job| self.known.learn(job)),
            Err(CallError::NotFound) => {}
            Err(error) if self.goes_with_it(&job.namespace, &error) => self.until(&job.run, until),
            Err(error) => return Err(error),
        }
        if job.given { self.take_back(&job.namespace, &job.run).await } else { Ok(()) }
    }

    /// Releases a Job that is not to be kept: it is removed when its name need not be taken any more. A later process
    /// finds it, and releases it again.
    async fn let_go(&self, job: &SeenJob) -> Result<(), CallError> {
        if job.is_deleted() || self.linger.is_zero() {
            return self.delete(job).await;
        }
        if job.given {
            self.take_back(&job.namespace, &job.run).await?;
        }
        let linger = i64::try_from(self.linger.as_secs()).unwrap_or(i64::MAX);
        let until = self.now_seconds().saturating_add(linger);
        self.until(&job.run, until);
        Ok(())
    }

    /// Notes until when the Job of a run is kept, whatever the Job itself says.
    fn until(&self, run: &RunName, until: i64) {
        self.known.change(run, |seen| {
            if let Some(job) = &mut seen.job {
                job.released = Some(until);
            }
        });
    }

    /// Waits for the end of a run that was fenced off.
    async fn until_over(&self, name: &RunName) -> Result<(), CallError> {
        let periods = self.periods(self.known.get(name).job.as_ref());
        let patience = Duration::from_secs(periods.grace).saturating_add(GONE_WITHIN);
        let over = async {
            while self.standing(&self.known.get(name)).goes_on() {
                self.known.changed(name, CHANGED, |_| false).await;
                self.remind(&self.known.get(name)).await?;
            }
            Ok(())
        };
        let late = |_| CallError::Hindered(format!("the run {name} does not end"));
        tokio::time::timeout(patience, over).await.map_err(late)?
    }

    /// Deletes the Secret given to a Job, and then the Job, with its pods: as long as the Job exists, a process finds
    /// that there is something to do.
    pub(super) async fn delete(&self, job: &SeenJob) -> Result<(), CallError> {
        if job.given {
            self.take_back(&job.namespace, &job.run).await?;
        }
        let params = in_background(Some(job.uid.clone()), None);
        match calls::delete(&self.jobs(&job.namespace), job.run.as_str(), &params).await {
            Ok(()) | Err(CallError::NotFound | CallError::Conflict) => {}
            // The removal is tried again: rights may come back.
            Err(error) if self.goes_with_it(&job.namespace, &error) => return Ok(()),
            Err(error) => return Err(error),
        }
        if job.is_deleted() {
            self.end_orphans(&job.run, &Fence::Cancelled).await?;
        }
        // Its pods go a moment later, and are not to be taken for another run's.
        self.known.change(&job.run, |seen| {
            if let Some(job) = &mut seen.job {
                job.released = Some(0);
                job.presence = Presence::Deleted;
            }
        });
        Ok(())
    }

    /// Whether a call was forbidden because its namespace is lost, as the watches know; a webhook may forbid as well.
    fn goes_with_it(&self, namespace: &str, error: &CallError) -> bool {
        matches!(error, CallError::Forbidden(_)) && self.places.is_known_to_be_lost(namespace)
    }

    /// Removes the Secret given to a run. In a lost namespace it is not ours any more.
    pub(super) async fn take_back(&self, namespace: &str, run: &RunName) -> Result<(), CallError> {
        let secrets = self.secrets(namespace);
        let removed = call(secrets.delete(run.as_str(), &DeleteParams::default())).await;
        match removed.map_err(CallError::of_a_secret) {
            Ok(_) | Err(CallError::NotFound) => {
                self.places.note_allowed(namespace, Right::Secrets);
                Ok(())
            }
            Err(CallError::Forbidden(why))
                if self.note_forbidden(namespace, Right::Secrets, &why) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Removes Jobs that were kept long enough, and checks those that were missing from a list, for ever.
    pub(super) async fn sweep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SWEEP.min(self.linger.max(Duration::from_secs(1)))).await;
            self.sweep_agents().await;
            for job in self.known.jobs() {
                if job.unsure && self.make_known(&job.run).await.is_err() {
                    continue;
                }
                // The process that asked a question for the catalog is unknown, and may be gone.
                let until = job.released.or(job.until.filter(|_| job.record.is_none()));
                if until.is_some_and(|until| until <= self.now_seconds())
                    && !job.is_leaving()
                    && let Err(error) = self.delete(&job).await
                {
                    tracing::warn!(run = %job.run, %error, "a Job cannot be removed");
                }
            }
        }
    }
}

/// Whether a pod that has a node, and has not ended, was deleted without grace; other pods always are.
pub(super) fn was_forced(pod: &SeenPod) -> bool {
    !pod.has_ended() && pod.node.is_some() && pod.deletion.is_some_and(|it| it.until == it.asked)
}

/// The second pods of a run: made in place of one that is being deleted, or beside one that has ended, not begun, and
/// able to begin at any moment. One without a node waits for the first to end, and would be replaced by another.
pub(super) fn second_pods(seen: &Seen, now: i64) -> Vec<SeenPod> {
    let (Some(job), Some(first)) = (&seen.job, seen.pods.first()) else { return Vec::new() };
    let is_lost = matches!(job.fenced, Some(Fence::Lost(_))) && job.released.is_none();
    let is_closed = is_lost || why_to_fence(seen, now).is_some();
    let is_over = first.has_ended() || (is_closed && first.gone);
    let goes = is_closed && first.is_leaving();
    let others = seen.pods.iter().skip(1).filter(|pod| is_over || (goes && pod.node.is_some()));
    others.filter(|pod| !pod.gone && matches!(pod.stage, Stage::Waiting(_))).cloned().collect()
}

fn succeeded(seen: &Seen) -> bool {
    seen.pods.iter().any(|pod| matches!(&pod.stage, Stage::Ended(end) if end.exit_code == 0))
}
