//! A replica in this process: a runtime of its own, behind a proxy of its own, so that it can be killed at
//! any call.

use std::sync::Arc;
use std::time::Duration;

use engine::{Engine, Policy, Ports};
use kubernetes::brokers::{Brokers, Keeper, Registry, Share};
use kubernetes::{
    Delivery, Events, JobRunner, JobSettings, KubernetesStore, Lead, PackedAgent, Settings, control,
};
use testkit::proxy::{Plan, Proxy};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::skewed::Skewed;
use crate::world::{BROKER, Sells, World, policy};

/// How long the Lease lasts, so that not much is waited for.
const LEASE: Duration = Duration::from_secs(2);
/// How long a replica may take to open.
const OPENING: Duration = Duration::from_secs(90);
/// How long a question for a catalog may take where there are several brokers: what nobody waits for any more is to go
/// while the test looks.
const CATALOG: Duration = Duration::from_secs(2);

/// What a replica is like.
#[derive(Debug, Clone)]
pub(crate) struct Character {
    /// What goes wrong between it and the API server.
    pub(crate) plan: Plan,
    /// Its clock is ahead, in milliseconds, or behind.
    pub(crate) skew: i64,
    /// The Lease that it wants: replicas that want different ones lead at once.
    pub(crate) lease: String,
    pub(crate) policy: Policy,
    /// How long it waits for pods to begin, where there are several brokers.
    pub(crate) start_timeout: Duration,
    /// How runs get the agent.
    pub(crate) delivery: Delivery,
    /// For how long the Job of a run that failed is kept.
    pub(crate) keep_failed: Duration,
    /// For how long the name of a Job is taken when its run is over.
    pub(crate) linger: Duration,
}

/// How long a replica waits for pods to begin.
pub(crate) const BEGIN: Duration = Duration::from_secs(20);
/// The same where the API server was away: whoever makes the pods of Jobs looks for it after pauses that double, up to a
/// minute.
pub(crate) const BEGIN_LATE: Duration = Duration::from_secs(70);

/// An agent that comes by a ConfigMap, or with an init container. Whoever plays the kubelet runs neither.
pub(crate) fn delivery(by_config_map: bool) -> Delivery {
    if !by_config_map {
        return "agent".into();
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"\x7FELF of nothing").unwrap();
    PackedAgent::read(file.path()).unwrap().into()
}

impl Character {
    /// One that nothing goes wrong with.
    pub(crate) fn well(lease: &str) -> Self {
        Self {
            plan: Plan::calm(),
            skew: 0,
            lease: lease.to_owned(),
            policy: policy(),
            start_timeout: BEGIN,
            delivery: delivery(true),
            keep_failed: Duration::ZERO,
            linger: Duration::ZERO,
        }
    }
}

/// Why a replica never answered anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unopened {
    /// At the call at which it was to.
    Died,
    /// What it asked for first was refused, or did not come.
    GaveUp,
}

/// A running replica. Dropping it kills it.
pub(crate) struct Replica {
    pub(crate) engine: Engine,
    pub(crate) proxy: Arc<Proxy>,
    runtime: Option<Runtime>,
}

impl Replica {
    /// Starts one.
    pub(crate) async fn open(world: &World, character: Character) -> Result<Self, Unopened> {
        let proxy = Proxy::start(world.client.clone(), character.plan.clone()).await.unwrap();
        proxy.know_logs(world.kubelet.logs());
        let proxy = Arc::new(proxy);
        let kubeconfig = world.file(&proxy.kubeconfig());
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let opening = engine(kubeconfig, world.namespace.clone(), world.sells, character);
        let opening = runtime.spawn(opening);
        let opened = async {
            tokio::select! {
                () = proxy.died() => Err(Unopened::Died),
                opened = tokio::time::timeout(OPENING, opening) => match opened {
                    Ok(Ok(Some(engine))) => Ok(engine),
                    _ => Err(Unopened::GaveUp),
                },
            }
        };
        match opened.await {
            Ok(engine) => Ok(Self { engine, proxy, runtime: Some(runtime) }),
            Err(unopened) => {
                runtime.shutdown_background();
                Err(unopened)
            }
        }
    }

    pub(crate) fn handle(&self) -> Handle {
        self.runtime.as_ref().unwrap().handle().clone()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.proxy.die();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn engine(
    kubeconfig: std::path::PathBuf,
    namespace: String,
    sells: Sells,
    character: Character,
) -> Option<Engine> {
    let client = kubernetes::client(Some(&kubeconfig)).await.unwrap();
    let settings = Settings { namespace: namespace.clone(), broker: BROKER.to_owned() };
    let store = Arc::new(KubernetesStore::open(client.clone(), settings).await.ok()?);
    let mut jobs = JobSettings::new(&namespace, BROKER, "broker", character.delivery);
    jobs.grace = Duration::from_secs(1);
    jobs.keep_failed = character.keep_failed;
    jobs.linger = character.linger;
    let (runner, group) = match sells.several {
        false => (JobRunner::open(client.clone(), jobs).await.ok()?, None),
        true => {
            (jobs.catalog_timeout, jobs.start_timeout) = (CATALOG, character.start_timeout);
            let brokers = Brokers::new(jobs, Vec::new());
            let runner = JobRunner::open_group(client.clone(), Arc::clone(&brokers)).await.ok()?;
            let registry = Registry::open(client.clone(), &namespace).await.ok()?;
            (runner, Some((brokers, registry)))
        }
    };
    runner.belongs_to(&store);
    let ports = Ports {
        store: Arc::clone(&store) as _,
        runner: Arc::new(runner.clone()),
        clock: Arc::new(Skewed(character.skew)),
        observer: Arc::new(Events::new(Arc::clone(&store), Arc::new(()))),
    };
    let engine = Engine::new(character.policy, ports);
    engine.set_driving(false);
    let is_known = engine.load_catalog().await.ok()?;
    match group {
        Some((brokers, registry)) => {
            let (share, refresh) = (Share::All, Duration::ZERO);
            let engine = engine.clone();
            let keeper = Keeper { engine, runner, brokers, registry, share, refresh };
            tokio::spawn(keeper.keep());
        }
        None if is_known => {}
        None => drop(engine.set_offer(sells.offer()).await.ok()?),
    }
    let identity = format!("replica-{}", kubeconfig.display());
    let lead = Arc::new(Lead::new(client, &namespace, &character.lease, &identity).lasting(LEASE));
    tokio::spawn(control(engine.clone(), store, Arc::clone(&lead)));
    tokio::spawn(async move { lead.keep().await });
    Some(engine)
}
