//! Runs as Jobs.
//!
//! ```text
//! start ──▶ Secret, Job ──▶ pod: agent ──▶ /bin/broker
//!                            └─ termination message ──▶ watch ──▶ observe ──▶ Finished
//! ```
//!
//! One Job for each run, under the run's name: to start it twice is to start it once. What came of it is in
//! the pod's status, sealed, and stays there until the Job is released.

mod keys;
mod manifest;
mod report;
mod seen;
mod settings;
mod standing;
mod watch;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use data_encoding::{BASE32_NOPAD, BASE64};
use engine::names::RunName;
use engine::ports::{Offer, Run, RunFailure, RunState, Runner, RunnerError, StartError};
use engine::record::{Key, Reason};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod, Secret};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use osb::Failure;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::keys::Keys;
use self::manifest::{ENDED, Manifest, RELEASED};
use self::seen::{Ended, SeenJob, SeenPod, Stage};
pub use self::settings::{JobSettings, PodPolicy};
use self::standing::{Standing, standing};
use self::watch::{Known, Seen};
use crate::calls::{CallError, call, find};
use crate::names;

/// The longest that [`Runner::changed`] waits.
const CHANGED: Duration = Duration::from_secs(2);
/// How often Jobs that were kept long enough are looked for.
const SWEEP: Duration = Duration::from_secs(30);
/// How long a pod may take to go, beside the grace of its broker.
const OVER: Duration = Duration::from_secs(20);
/// How long a pod is waited for that is about to begin.
const BEGUN: Duration = Duration::from_secs(10);
/// How long after its time a pod may still be there, in seconds.
const LATE: i64 = 2;
/// How long after its time a pod that never began is taken for one that never will.
const NEVER: i64 = 8;
const PAGE: u32 = 100;

/// Runs brokers as Jobs of a namespace. A cheap handle; several processes may use the same runs.
#[derive(Clone)]
pub struct JobRunner {
    shared: Arc<Shared>,
    _tasks: Arc<JoinSet<()>>,
}

struct Shared {
    client: Client,
    settings: JobSettings,
    keys: Keys,
    known: Arc<Known>,
}

/// Why there is no runner.
#[derive(Debug, thiserror::Error)]
#[error("runs cannot be made in namespace {namespace}: {why}")]
pub struct OpenError {
    namespace: String,
    why: String,
}

impl JobRunner {
    /// Opens the runs of a broker: reads the keys, or makes them, and what runs there are.
    ///
    /// # Errors
    /// If the API server does not answer, or does not let us.
    pub async fn open(client: Client, settings: JobSettings) -> Result<Self, OpenError> {
        let namespace = settings.namespace.clone();
        let failed = |why: String| OpenError { namespace: namespace.clone(), why };
        let keys = Keys::open(client.clone(), &settings.namespace, &settings.broker).await;
        let keys = keys.map_err(|error| failed(error.to_string()))?;
        let known = Arc::new(Known::default());
        let shared = Arc::new(Shared { client, settings, keys, known });
        let mut tasks = JoinSet::new();
        shared.watch(&mut tasks);
        if !shared.known.complete().await {
            return Err(failed("Jobs and pods cannot be listed".to_owned()));
        }
        tasks.spawn(Arc::clone(&shared).sweep());
        Ok(Self { shared, _tasks: Arc::new(tasks) })
    }

    /// Makes a new key for the runs to come; those that go on keep theirs.
    ///
    /// # Errors
    /// If the Secret cannot be written.
    pub async fn rotate_keys(&self) -> Result<(), RunnerError> {
        self.shared.keys.rotate().await.map_err(|error| RunnerError(error.to_string()))
    }
}

#[async_trait]
impl Runner for JobRunner {
    async fn start(&self, run: &Run) -> Result<(), StartError> {
        let key = self.shared.keys.newest();
        let manifest = manifest::of_run(&self.shared.settings, &key, run)?;
        self.shared.make(&run.name, manifest).await
    }

    async fn observe(&self, name: &RunName) -> Result<RunState, RunnerError> {
        self.shared.find(name).await?;
        self.shared.observe(name).await
    }

    async fn glance(&self, name: &RunName) -> Result<RunState, RunnerError> {
        self.shared.observe(name).await
    }

    async fn changed(&self, name: &RunName) {
        let now = self.shared.known.get(name);
        let version = |seen: &Seen| {
            let pods: u64 = seen.pods.iter().map(|pod| pod.version).sum();
            (seen.job.as_ref().map(|job| job.version), pods)
        };
        let was = version(&now);
        self.shared.known.changed(name, CHANGED, |seen| version(seen) != was).await;
    }

    async fn cancel(&self, name: &RunName) -> Result<(), RunnerError> {
        self.shared.find(name).await?;
        let ended = self.shared.fence(name, &Ended::Cancelled).await;
        ended.map_err(|error| RunnerError(error.to_string()))
    }

    async fn release(&self, name: &RunName) -> Result<(), RunnerError> {
        self.shared.release(name).await.map_err(|error| RunnerError(error.to_string()))
    }

    async fn unreleased(&self) -> Result<Vec<(RunName, Key)>, RunnerError> {
        let jobs = self.shared.known.jobs().into_iter();
        let held = jobs.filter(|job| job.released.is_none() && !job.going);
        Ok(held.filter_map(|job| Some((job.run, job.record?))).collect())
    }

    async fn log(&self, name: &RunName) -> Result<Option<String>, RunnerError> {
        self.shared.log(name).await.map_err(|error| RunnerError(error.to_string()))
    }

    async fn offer(&self) -> Result<Offer, RunFailure> {
        let shared = Arc::clone(&self.shared);
        let not_started =
            |why: String| RunFailure { reason: Reason::NotStarted, failure: Failure::failed(why) };
        let name = catalog_name(&shared.settings.broker)
            .ok_or_else(|| not_started("no random numbers to be had".to_owned()))?;
        let manifest = manifest::of_catalog(&shared.settings, &shared.keys.newest(), name.as_str())
            .map_err(|error| not_started(error.to_string()))?;
        shared.make(&name, manifest).await.map_err(|error| not_started(error.to_string()))?;
        let offer = shared.offered(&name).await;
        if let Err(error) = shared.release(&name).await {
            tracing::warn!(run = %name, %error, "the run of a catalog cannot be removed");
        }
        offer
    }
}

impl Shared {
    fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.client.clone(), &self.settings.namespace)
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.settings.namespace)
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.settings.namespace)
    }

    fn watch(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        let selector = format!(
            "{}={},{}",
            names::BROKER,
            names::broker_label(&self.settings.broker),
            manifest::RUN
        );
        let config = watcher::Config::default().labels(&selector).page_size(PAGE);
        let jobs = watcher(self.jobs(), config.clone()).default_backoff();
        tasks.spawn(watch::follow(Arc::clone(&self.known), jobs, SeenJob::of, |_| {}));
        let pods = watcher(self.pods(), config).default_backoff();
        let shared = Arc::downgrade(self);
        let guard = move |pod: &SeenPod| {
            if let Some(shared) = shared.upgrade() {
                shared.guard(pod);
            }
        };
        tasks.spawn(watch::follow(Arc::clone(&self.known), pods, SeenPod::of, guard));
    }

    /// A pod that somebody deletes is followed by another on servers before 1.28, which would do the work
    /// a second time: the Job is fenced off before that one's image has begun to run.
    fn guard(self: Arc<Self>, pod: &SeenPod) {
        let seen = self.known.get(&pod.run);
        let ended = seen
            .job
            .as_ref()
            .is_some_and(|job| job.ended.is_some() || job.going || job.released.is_some());
        let second = seen.pods.iter().any(|other| other.uid != pod.uid);
        if !ended && (pod.going.is_some() || second) {
            let run = pod.run.clone();
            tokio::spawn(async move {
                let why = "its pod was deleted: by hand, or because its node was drained";
                if let Err(error) = self.fence(&run, &Ended::Lost(why.to_owned())).await {
                    tracing::warn!(%run, %error, "a second pod of a run may not be fenced off");
                }
            });
        }
    }

    /// Makes the Secret and the Job; `Ok` too if the Job is there and not one of a former life.
    async fn make(&self, name: &RunName, manifest: Manifest) -> Result<(), StartError> {
        let Manifest { job, given } = manifest;
        let job: Job = serde_json::from_value(job)
            .map_err(|error| StartError::Permanent(error.to_string()))?;
        if !given.is_empty() {
            self.give(name, &job, &given).await.map_err(refused)?;
        }
        match call(self.jobs().create(&PostParams::default(), &job)).await {
            Ok(made) => SeenJob::of(&made).into_iter().for_each(|job| self.known.learn(job)),
            Err(CallError::Exists) => {
                let found = find(self.jobs().get(name.as_str())).await.map_err(refused)?;
                let found = found.as_ref().and_then(SeenJob::of);
                if found.as_ref().is_none_or(|job| job.released.is_some() || job.going) {
                    if let Some(job) = &found {
                        self.delete(job).await.map_err(refused)?;
                    }
                    let why = "a former run of this name is still being removed";
                    return Err(StartError::Transient(why.to_owned()));
                }
                found.into_iter().for_each(|job| self.known.learn(job));
            }
            Err(error) => return Err(refused(error)),
        }
        Ok(())
    }

    async fn give(
        &self,
        name: &RunName,
        job: &Job,
        given: &[(&'static str, Vec<u8>)],
    ) -> Result<(), CallError> {
        let data: serde_json::Map<String, Value> = given
            .iter()
            .map(|(key, bytes)| ((*key).to_owned(), json!(BASE64.encode(bytes))))
            .collect();
        let secret = json!({
            "metadata": {"name": name.as_str(), "labels": job.metadata.labels},
            "immutable": true,
            "data": data,
        });
        let secret: Secret = serde_json::from_value(secret)
            .map_err(|error| CallError::Refused(error.to_string()))?;
        match call(self.secrets().create(&PostParams::default(), &secret)).await {
            // Of this run, by its name: we were ended before the Job was made.
            Ok(_) | Err(CallError::Exists) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Looks for a run that is not known of: a watch is behind what others do.
    async fn find(&self, name: &RunName) -> Result<(), RunnerError> {
        if self.known.get(name).job.is_some() {
            return Ok(());
        }
        let found = find(self.jobs().get(name.as_str())).await;
        let found = found.map_err(|error| RunnerError(error.to_string()))?;
        let Some(job) = found.as_ref().and_then(SeenJob::of) else { return Ok(()) };
        self.known.learn(job);
        let selector = format!("{}={name}", manifest::RUN);
        let pods = call(self.pods().list(&ListParams::default().labels(&selector))).await;
        for pod in pods.map_err(|error| RunnerError(error.to_string()))? {
            SeenPod::of(&pod).into_iter().for_each(|pod| self.known.learn(pod));
        }
        Ok(())
    }

    fn standing(&self, seen: &Seen) -> Standing {
        standing(seen.job.as_ref(), &seen.pods, self.settings.start_timeout, now())
    }

    async fn observe(&self, name: &RunName) -> Result<RunState, RunnerError> {
        let seen = self.known.get(name);
        self.remind(&seen).await.map_err(|error| RunnerError(error.to_string()))?;
        let failed = |reason, why: &str| {
            let failure = Failure::failed(why);
            RunState::Finished(Err(RunFailure { reason, failure }))
        };
        Ok(match self.standing(&seen) {
            Standing::Absent => RunState::Absent,
            Standing::Going { broker: true, .. } => {
                RunState::Running { progress: self.progress(name, &seen).await }
            }
            Standing::Going { said, .. } => {
                let said = self.explained(&seen, said).await;
                RunState::Running { progress: said }
            }
            Standing::Reported(message) => self.reported(name, &seen, &message).await?,
            Standing::NeverBegan(why) => failed(Reason::NotStarted, &why),
            Standing::Hopeless(why) => {
                let fenced = self.fence(name, &Ended::Hopeless(why)).await;
                fenced.map_err(|error| RunnerError(error.to_string()))?;
                RunState::Running { progress: None }
            }
            Standing::Halted => failed(Reason::Halted, "it was ended before it had done its work"),
            Standing::TimedOut(said) => {
                failed(Reason::Timeout, &format!("its time was up: {said}"))
            }
            Standing::Lost(why) => RunState::Lost { why },
        })
    }

    /// What Kubernetes says of a Job without a pod: a quota that is used up, an admission that refused it.
    async fn explained(&self, seen: &Seen, said: Option<String>) -> Option<String> {
        let job = seen.job.as_ref().filter(|_| said.is_some() && seen.pods.is_empty());
        let Some(job) = job else { return said };
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.settings.namespace);
        let of = format!("involvedObject.uid={}", job.uid);
        let found = call(events.list(&ListParams::default().fields(&of))).await;
        let warning = found.ok().and_then(|events| {
            let warnings =
                events.items.into_iter().filter(|event| event.type_.as_deref() == Some("Warning"));
            warnings.filter_map(|event| event.message).next_back()
        });
        warning.map(|message| format!("Kubernetes makes no pod for it: {message}")).or(said)
    }

    /// Lets no pod of a run go on, and none begin: those there are, are ended politely. The first reason
    /// stays. What is not there needs no end.
    async fn fence(&self, name: &RunName, why: &Ended) -> Result<(), CallError> {
        if *why == Ended::Cancelled {
            self.until_begun(name).await;
        }
        let Some(job) = self.known.get(name).job else { return Ok(()) };
        if job.ended.is_some() || job.released.is_some() {
            return Ok(());
        }
        let why = serde_json::to_string(why).unwrap_or_default();
        let patch = Patch::Merge(json!({
            "metadata": {"uid": job.uid, "annotations": {ENDED: why}},
            "spec": {"parallelism": 0},
        }));
        match self.patch(name, &patch).await {
            Ok(patched) => patched.into_iter().for_each(|job| self.known.learn(job)),
            Err(CallError::NotFound | CallError::Conflict) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Waits until a pod has begun, or does not for a reason: a kubelet of 1.20 may leave alone for ever what
    /// is deleted while it is being made.
    async fn until_begun(&self, name: &RunName) {
        let begun = async {
            loop {
                let seen = self.known.get(name);
                let making = |pod: &SeenPod| pod.stage == Stage::Waiting(None);
                let over =
                    seen.job.as_ref().is_none_or(|job| job.ended.is_some() || job.failed.is_some());
                if over || seen.pods.first().is_some_and(|pod| !making(pod)) {
                    return;
                }
                self.known.changed(name, CHANGED, |_| false).await;
            }
        };
        let _ = tokio::time::timeout(BEGUN, begun).await;
    }

    /// A kubelet of 1.20 takes a pod that is deleted in the moment in which its container begins for one that
    /// has ended, and leaves it alone until the pod changes: it is deleted again; for good, if it never began.
    async fn remind(&self, seen: &Seen) -> Result<(), CallError> {
        for pod in &seen.pods {
            let late = pod.going.map_or(0, |end| now().saturating_sub(end));
            let grace = match pod.stage {
                Stage::Waiting(_) if late > NEVER => 0,
                Stage::Running | Stage::Waiting(_) if late > LATE => 1,
                _ => continue,
            };
            let params =
                DeleteParams { grace_period_seconds: Some(grace), ..DeleteParams::default() };
            match call(self.pods().delete(&pod.name, &params)).await {
                Ok(_) | Err(CallError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn patch(
        &self,
        name: &RunName,
        patch: &Patch<Value>,
    ) -> Result<Option<SeenJob>, CallError> {
        let jobs = self.jobs();
        let patched = call(jobs.patch(name.as_str(), &PatchParams::default(), patch)).await?;
        Ok(SeenJob::of(&patched))
    }

    /// Ends what goes on, and keeps the rest for inspection, for as long as the settings say.
    async fn release(&self, name: &RunName) -> Result<(), CallError> {
        let seen = self.known.get(name);
        let Some(job) = &seen.job else {
            return match find(self.jobs().get(name.as_str())).await?.as_ref().and_then(SeenJob::of)
            {
                Some(job) if job.released.is_none() => self.delete(&job).await,
                _ => Ok(()),
            };
        };
        if job.released.is_some() {
            return Ok(());
        }
        if matches!(self.standing(&seen), Standing::Going { .. }) {
            self.fence(name, &Ended::Cancelled).await?;
            self.until_over(name).await?;
        }
        let kept = match self.standing(&seen) {
            Standing::Absent | Standing::Going { .. } => Duration::ZERO,
            Standing::Reported(_) if succeeded(&seen) => self.settings.keep_succeeded,
            _ => self.settings.keep_failed,
        };
        if kept.is_zero() {
            return self.delete(job).await;
        }
        let until = now().saturating_add(i64::try_from(kept.as_secs()).unwrap_or(i64::MAX));
        let patch = Patch::Merge(json!({
            "metadata": {"annotations": {RELEASED: until.to_string()}},
            "spec": {"parallelism": 0},
        }));
        match self.patch(name, &patch).await {
            Ok(job) => job.into_iter().for_each(|job| self.known.learn(job)),
            Err(CallError::NotFound) => {}
            Err(error) => return Err(error),
        }
        if job.given { self.take_back(name).await } else { Ok(()) }
    }

    /// Waits for the end of a run that was fenced off.
    async fn until_over(&self, name: &RunName) -> Result<(), CallError> {
        let patience = self.settings.grace + OVER;
        let over = async {
            while matches!(self.standing(&self.known.get(name)), Standing::Going { .. }) {
                self.known.changed(name, CHANGED, |_| false).await;
                self.remind(&self.known.get(name)).await?;
            }
            Ok(())
        };
        let late = |_| CallError::Refused(format!("the run {name} does not end"));
        tokio::time::timeout(patience, over).await.map_err(late)?
    }

    /// Deletes a Job, with its pods, and what was given to it.
    async fn delete(&self, job: &SeenJob) -> Result<(), CallError> {
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(job.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::background()
        };
        match call(self.jobs().delete(job.run.as_str(), &params)).await {
            Ok(_) | Err(CallError::NotFound | CallError::Conflict) => {}
            Err(error) => return Err(error),
        }
        self.known.change(&job.run, |seen| *seen = Seen::default());
        if job.given { self.take_back(&job.run).await } else { Ok(()) }
    }

    async fn take_back(&self, name: &RunName) -> Result<(), CallError> {
        match call(self.secrets().delete(name.as_str(), &DeleteParams::default())).await {
            Ok(_) | Err(CallError::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes Jobs that were kept long enough, for ever.
    async fn sweep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SWEEP).await;
            for job in self.known.jobs() {
                let over = job.released.is_some_and(|until| until <= now()) && !job.going;
                if over && let Err(error) = self.delete(&job).await {
                    tracing::warn!(run = %job.run, %error, "a Job cannot be removed");
                }
            }
        }
    }
}

fn succeeded(seen: &Seen) -> bool {
    seen.pods.iter().any(|pod| matches!(&pod.stage, Stage::Ended(end) if end.exit_code == 0))
}

/// What the API server said to a Job, and whether it may say otherwise later.
fn refused(error: CallError) -> StartError {
    match error {
        CallError::Invalid(why) => StartError::Permanent(format!("the Job was refused: {why}")),
        error => StartError::Transient(error.to_string()),
    }
}

fn catalog_name(broker: &str) -> Option<RunName> {
    use ring::rand::{SecureRandom, SystemRandom};
    let mut bytes = [0; 10];
    SystemRandom::new().fill(&mut bytes).ok()?;
    let word = BASE32_NOPAD.encode(&bytes).to_ascii_lowercase();
    let broker = names::broker_label(broker);
    RunName::parse(&format!("catalog-{}-{word}", &broker[..8]))
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
