//! The runner: runs brokers as Jobs.
//!
//! ```text
//! start ──▶ Secret, Job ──▶ pod: agent ──▶ /bin/broker
//!                            └─ termination message ──▶ watch ──▶ observe ──▶ Finished
//! ```
//!
//! There is one Job for each run, under the run's name: starting it twice starts it once. The outcome is in the pod's
//! status, sealed, and stays there until the Job is released.

pub(crate) mod agents;
mod architecture;
pub(crate) mod delivery;
mod ending;
pub(crate) mod keys;
mod labels;
mod look;
mod making;
mod manifest;
mod mounts;
mod needs;
mod places;
mod progress;
mod readings;
mod reminding;
mod report;
mod seen;
mod settings;
mod stage;
mod standing;
mod watch;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use engine::contract;
use engine::names::RunName;
use engine::ports::{Clock, Offer, Run, RunFailure, RunState, Runner, RunnerError, StartError};
use engine::record::Key;
use engine::vital;
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod, Secret};
use kube::Client;
use kube::api::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watcher;
use tokio::task::JoinSet;

use self::agents::Agents;
pub use self::delivery::{Delivery, PackedAgent, PackedError};
pub(crate) use self::delivery::{OUR_MOUNTS, OUR_VOLUMES};
use self::keys::Keys;
use self::mounts::Mounts;
use self::places::{Places, Right};
use self::progress::Followed;
use self::readings::Readings;
use self::seen::{Fence, Periods, SeenJob, SeenPod};
pub use self::settings::{JobSettings, PodPolicy};
use self::watch::KnownRuns;
use crate::brokers::{Brokers, Nobody};
use crate::calls::{Again, call, watching};
use crate::lease::Lead;
use crate::names;
use crate::server_time::ServerTime;
use crate::store::KubernetesStore;
use crate::text::{PAGE, Text};
use crate::versions::{forgets_pods, makes_second_pods};

/// How many brokers are asked for their catalogs at once, each by a Job.
const ASKED_AT_ONCE: usize = 16;

/// How long [`Runner::changed`] waits at most.
const CHANGED: Duration = Duration::from_secs(2);

/// The runner of brokers as Jobs. A cheap handle; several processes may share the same runs.
#[derive(Clone)]
pub struct JobRunner {
    shared: Arc<Shared>,
    _tasks: Arc<JoinSet<()>>,
}

struct Shared {
    client: Client,
    time: Arc<ServerTime>,
    /// The value of the broker label, for the broker or the group.
    label: String,
    /// The namespaces in which Jobs may be, the home first.
    namespaces: Vec<String>,
    source: Source,
    /// The periods of Jobs that do not name their own.
    periods: Periods,
    /// How the agent gets into pods, for all brokers.
    delivery: Delivery,
    key_rotation: Duration,
    linger: Duration,
    keys: Keys,
    /// Whether a kubelet may ignore the deletion of a pod that it is just making.
    forgets_pods: bool,
    /// Whether a Job may be given a second pod while the first one is only asked to go.
    makes_second_pods: bool,
    known: Arc<KnownRuns>,
    followed: Followed,
    readings: Readings,
    mounts: Mounts,
    agents: Agents,
    places: Places,
    bonds: Bonds,
}

/// The store and the lead to which the runs of a runner are bound.
#[derive(Clone, Default)]
pub struct Bonds {
    /// The store whose resources own the Secrets given to runs: they go, at the latest, with the resource of their
    /// record, so nothing confidential is left where a process died between the Secret and the Job. Without it they go
    /// with the Job alone.
    pub store: Option<Arc<KubernetesStore>>,
    /// The Lease: a Job is made only while nobody else may lead. A process that was held up for long would otherwise
    /// make it again after another one has carried out the run and removed its Job. Without it, as where one process is
    /// all there is, a Job is made at any time.
    pub lead: Option<Arc<Lead>>,
}

/// The brokers whose runs these are.
enum Source {
    /// One broker, for every service.
    One(Box<JobSettings>),
    /// Several brokers; each run is of the one that has its service.
    Many(Arc<Brokers>),
}

/// Why a runner cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("runs cannot be made in namespace {namespace}: {why}")]
pub struct RunnerOpenError {
    namespace: String,
    why: String,
}

impl JobRunner {
    /// Opens the runner of a broker: reads or makes the keys, and lists the present runs.
    ///
    /// # Errors
    /// If the API server does not answer, or denies access.
    pub async fn open(
        client: Client,
        settings: JobSettings,
        bonds: Bonds,
    ) -> Result<Self, RunnerOpenError> {
        let base = settings.clone();
        Self::begin(client, &base, Vec::new(), Source::One(Box::new(settings)), bonds).await
    }

    /// Opens the runner of a group of brokers: each run is of the broker that has its service.
    ///
    /// # Errors
    /// As [`Self::open`], for each namespace that may have Jobs.
    pub async fn open_group(
        client: Client,
        brokers: Arc<Brokers>,
        bonds: Bonds,
    ) -> Result<Self, RunnerOpenError> {
        let base = brokers.base().clone();
        let further = brokers.namespaces().to_vec();
        Self::begin(client, &base, further, Source::Many(brokers), bonds).await
    }

    async fn begin(
        client: Client,
        base: &JobSettings,
        further: Vec<String>,
        source: Source,
        bonds: Bonds,
    ) -> Result<Self, RunnerOpenError> {
        let home = base.namespace.clone();
        let mut namespaces = further;
        namespaces.retain(|namespace| *namespace != home);
        namespaces.insert(0, home.clone());
        let failed = |why: String| RunnerOpenError { namespace: namespaces.join(", "), why };
        let (client, time) = ServerTime::of(&client, &home);
        let keys = Keys::open(client.clone(), Arc::clone(&time), &home, &base.broker).await;
        let keys = keys.map_err(|error| failed(error.to_string()))?;
        let version = call(client.apiserver_version()).await;
        let version = version.unwrap_or_default();
        let shared = Arc::new(Shared {
            client,
            time,
            label: names::broker_label(&base.broker),
            namespaces: namespaces.clone(),
            source,
            periods: Periods::of(base),
            delivery: base.delivery.clone(),
            key_rotation: base.key_rotation,
            linger: base.linger,
            keys,
            forgets_pods: forgets_pods(&version),
            makes_second_pods: makes_second_pods(&version),
            known: Arc::default(),
            followed: Followed::default(),
            readings: Readings::default(),
            mounts: Mounts::default(),
            agents: Agents::default(),
            places: Places::default(),
            bonds,
        });
        let mut tasks = JoinSet::new();
        shared.watch(&mut tasks);
        let missing = shared.known.complete(&namespaces).await;
        if !missing.is_empty() {
            let missing = missing.join(", ");
            return Err(failed(format!("Jobs and pods cannot be listed in {missing}")));
        }
        shared.known.refused().iter().for_each(|namespace| {
            shared.places.note_forbidden(namespace, Right::Jobs, "Jobs and pods cannot be listed");
        });
        // The guard catches up on what happened while nobody watched.
        for job in shared.known.jobs() {
            Arc::clone(&shared).guard(&job.run);
        }
        shared.watch_warnings(&mut tasks);
        tasks.spawn(vital::task("the sweep of Jobs", Arc::clone(&shared).sweep()));
        let keys = Arc::clone(&shared);
        let keeps = async move { keys.keys.keep(keys.key_rotation).await };
        tasks.spawn(vital::task("the keys of reports", keeps));
        Ok(Self { shared, _tasks: Arc::new(tasks) })
    }

    /// The API server's time, which all replicas agree on, whatever their own clocks say.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.shared.time) as _
    }

    /// Asks a broker for its catalog, by a Job of its own, unless it is in a file. Meanwhile `waits` is told now and
    /// then what the question waits for, and says whether it is still wanted.
    ///
    /// # Errors
    /// If there is no answer, or the answer is no catalog.
    pub async fn ask(
        &self,
        settings: &JobSettings,
        waits: impl Fn(Option<&str>) -> bool + Send + Sync,
    ) -> Result<Offer, RunFailure> {
        let shared = &self.shared;
        if let Some(file) = &settings.catalog_file {
            return contract::of_file(file);
        }
        let name = catalog_name(&shared.label)
            .ok_or_else(|| RunFailure::not_started("no random numbers to be had"))?;
        let manifest = manifest::of_catalog(settings, &shared.keys.newest(), name.as_str())
            .map_err(|error| RunFailure::not_started(error.to_string()))?;
        if let Err(error) = shared.make(&name, &settings.namespace, manifest, None).await {
            // The name of the question is not used again.
            shared.places.forget_refusal(&name);
            return Err(RunFailure::not_started(error.to_string()));
        }
        let offer = shared.offered(&name, waits).await;
        if let Err(error) = shared.release(&name).await {
            tracing::warn!(run = %name, %error, "the run of a catalog cannot be removed");
        }
        offer
    }

    /// Removes the ConfigMaps of other agents than ours that are older than `old` and that no Job of their namespace
    /// uses, at most twenty at a time. Returns how many others are left. A replica that still needs one makes it again.
    ///
    /// # Errors
    /// If the API server does not answer, or denies access.
    pub async fn tidy_agents(&self, old: Duration) -> Result<usize, RunnerError> {
        Ok(self.shared.tidy_agents(old).await?)
    }
}

#[async_trait]
impl Runner for JobRunner {
    async fn start(&self, run: &Run) -> Result<(), StartError> {
        let known = self.shared.known.get(&run.name).job;
        if known.is_some_and(|job| job.is_deleted() && job.released.is_none()) {
            return Ok(());
        }
        let key = self.shared.keys.newest();
        let settings = self.shared.settings(run)?;
        let manifest = manifest::of_run(&settings, &key, &settings.in_time(run))?;
        let place = &settings.namespace;
        if let Some(job) = self.shared.made_elsewhere(&run.name, place, &manifest).await? {
            return self.shared.take_over(Some(job));
        }
        let lead = self.shared.bonds.lead.as_ref();
        self.shared.make(&run.name, &settings.namespace, manifest, lead).await
    }

    async fn observe(&self, name: &RunName) -> Result<RunState, RunnerError> {
        self.shared.make_known(name).await?;
        self.shared.attend(name).await
    }

    async fn glance(&self, name: &RunName) -> Result<RunState, RunnerError> {
        self.shared.attend(name).await
    }

    async fn changed(&self, name: &RunName) {
        let now = self.shared.known.get(name);
        // What came while the run was attended to is news, too.
        let was = now.answered.unwrap_or_else(|| now.versions());
        self.shared.known.changed(name, CHANGED, |seen| seen.versions() != was).await;
    }

    async fn cancel(&self, name: &RunName) -> Result<(), RunnerError> {
        self.shared.make_known(name).await?;
        Ok(self.shared.fence(name, &Fence::Cancelled).await?)
    }

    async fn release(&self, name: &RunName) -> Result<(), RunnerError> {
        Ok(self.shared.release(name).await?)
    }

    async fn unreleased(&self) -> Result<Vec<(RunName, Key)>, RunnerError> {
        let jobs = self.shared.known.jobs().into_iter();
        let held = jobs.filter(|job| job.released.is_none());
        Ok(held.filter_map(|job| Some((job.run, job.record?))).collect())
    }

    /// Whether Secrets of runs whose Jobs were never made may be left: at home the record's resource owns them,
    /// elsewhere nothing does. Secrets are not listed.
    fn hides_leftovers(&self) -> bool {
        !self.shared.further().is_empty()
    }

    async fn log(&self, name: &RunName) -> Result<Option<String>, RunnerError> {
        Ok(self.shared.log(name).await?)
    }

    async fn offer(&self) -> Result<Offer, RunFailure> {
        match &self.shared.source {
            Source::One(settings) => self.ask(settings, |_| true).await,
            Source::Many(brokers) => {
                let asked = brokers.all().into_iter().map(|(name, edition, settings)| async move {
                    let answer = self.ask(&settings, |_| true).await;
                    let failed = answer.as_ref().err().cloned();
                    brokers.answered(&name, &edition, answer);
                    failed.map_or(Ok(()), Err)
                });
                let asked: Vec<_> = asked.collect();
                let asked: Vec<_> =
                    stream::iter(asked).buffer_unordered(ASKED_AT_ONCE).collect().await;
                let is_news = asked.is_empty() || asked.iter().any(Result::is_ok);
                let mut failures = asked.into_iter().filter_map(Result::err);
                // Where no broker has answered nothing is new, and the caller has to know why.
                failures.next().filter(|_| !is_news).map_or_else(|| Ok(brokers.merged()), Err)
            }
        }
    }
}

impl Shared {
    /// The namespace of our own resources, such as the keys of reports.
    fn home(&self) -> &str {
        &self.namespaces[0]
    }

    /// The namespaces beside the home in which Jobs may be.
    fn further(&self) -> &[String] {
        &self.namespaces[1..]
    }

    fn jobs(&self, namespace: &str) -> Api<Job> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The API of a kind whose objects stay text until they are parsed.
    fn texts<K>(&self, namespace: &str) -> Api<Text<K>>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The settings by which a run is made; an error if no broker has its service.
    fn settings(&self, run: &Run) -> Result<Cow<'_, JobSettings>, StartError> {
        match &self.source {
            Source::One(settings) => Ok(Cow::Borrowed(settings)),
            Source::Many(brokers) => {
                let settings = brokers.settings(&run.work.service_id, &run.work.plan_id);
                settings.map(Cow::Owned).map_err(|nobody| match nobody {
                    Nobody::Unread(why) => StartError::Unready(why),
                    Nobody::Has(why) if brokers.are_settled() => StartError::Permanent(why),
                    // A watch may be behind, or a catalog on its way.
                    Nobody::Has(why) => StartError::Transient(why),
                })
            }
        }
    }

    fn periods(&self, job: Option<&SeenJob>) -> Periods {
        job.and_then(|job| job.periods).unwrap_or(self.periods)
    }

    fn watch(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        let selector = format!("{}={},{}", names::BROKER, self.label, labels::RUN);
        let config = watching().labels(&selector).page_size(PAGE);
        for namespace in &self.namespaces {
            let jobs = watcher(self.texts::<Job>(namespace), config.clone());
            let jobs = jobs.backoff(Again::default());
            let place = || namespace.clone();
            let follow = watch::follow(Arc::clone(self), place(), jobs, SeenJob::of_text);
            tasks.spawn(vital::task("a watch of Jobs", follow));
            let pods = watcher(self.texts::<Pod>(namespace), config.clone());
            let pods = pods.backoff(Again::default());
            let follow = watch::follow(Arc::clone(self), place(), pods, SeenPod::of_text);
            tasks.spawn(vital::task("a watch of pods", follow));
        }
    }

    /// Starts the watches of warnings: mostly only an event says why a run does not begin. Whose the events are is
    /// known only after the first lists.
    fn watch_warnings(&self, tasks: &mut JoinSet<()>) {
        for namespace in &self.namespaces {
            let events = self.texts::<Event>(namespace);
            let config = watching().fields("type=Warning").page_size(PAGE);
            let warnings = watcher(events, config).backoff(Again::default());
            let (known, namespace) = (Arc::clone(&self.known), namespace.clone());
            let follow = watch::follow_warnings(known, namespace, warnings);
            tasks.spawn(vital::task("a watch of Events", follow));
        }
    }
}

/// A unique name for the question for a catalog.
fn catalog_name(label: &str) -> Option<RunName> {
    RunName::parse(&format!("catalog-{}-{}", &label[..8], names::random_word()?))
}
