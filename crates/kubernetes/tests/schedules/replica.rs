//! A replica in this process: a runtime of its own, behind a proxy of its own, so that it can be killed at
//! any call.

use std::sync::Arc;
use std::time::Duration;

use engine::{Engine, Policy, Ports};
use kubernetes::brokers::{Brokers, Keeper, Registry, Share};
use kubernetes::{
    Bonds, Delivery, Events, JobRunner, JobSettings, KubernetesStore, Lead, PackedAgent,
    StoreSettings, control,
};
use testkit::proxy::{Plan, Proxy};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::brokers::NAMES;
use crate::skewed::Skewed;
use crate::world::{BROKER, Sells, World, policy};

/// How long the Lease lasts, so that not much is waited for.
const LEASE: Duration = Duration::from_secs(2);
/// The same where it is freed for whoever comes after: on a slow machine, too, few calls renew it.
pub(crate) const LONG_LEASE: Duration = Duration::from_secs(15);
/// How long a replica may take to open: on a busy machine each of its first lists takes its time.
const OPENING: Duration = Duration::from_secs(180);
/// How long a question for a catalog may take where there are several brokers: what nobody waits for any more is to go
/// while the test looks. On a busy machine it takes seconds, and whoever does not wait for them asks anew, which makes the
/// machine busier.
const CATALOG: Duration = Duration::from_secs(15);

/// What a replica is like.
#[derive(Debug, Clone)]
pub(crate) struct Character {
    /// What goes wrong between it and the API server.
    pub(crate) plan: Plan,
    /// Its clock is ahead, in milliseconds, or behind.
    pub(crate) skew: i64,
    /// The Lease that it wants: replicas that want different ones lead at once.
    pub(crate) lease: String,
    /// How long that lasts.
    pub(crate) lasts: Duration,
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
            lasts: LEASE,
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

/// What answers: one engine for all, or one for each `Broker`, by its name.
#[derive(Clone)]
pub(crate) struct Engines(Vec<(&'static str, Engine)>);

impl Engines {
    /// That of a service, which has the name of its broker where there are several.
    pub(crate) fn of(&self, service: &str) -> &Engine {
        let own = self.0.iter().find(|(name, _)| *name == service);
        own.or(self.0.first()).map(|(_, engine)| engine).expect("there is one")
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Engine> {
        self.0.iter().map(|(_, engine)| engine)
    }
}

/// A running replica. Dropping it kills it.
pub(crate) struct Replica {
    pub(crate) engines: Engines,
    pub(crate) proxy: Arc<Proxy>,
    process: Process,
}

impl Replica {
    /// Starts one.
    pub(crate) async fn open(world: &World, character: Character) -> Result<Self, Unopened> {
        let proxy = Proxy::start(world.client.clone(), character.plan.clone()).await.unwrap();
        proxy.know_logs(world.kubelet.logs());
        let proxy = Arc::new(proxy);
        let kubeconfig = world.file(&proxy.kubeconfig());
        let process = Process::start(Arc::clone(&proxy));
        let opening = engines(kubeconfig, world.namespace.clone(), world.sells, character);
        let opening = process.handle().spawn(opening);
        tokio::select! {
            () = proxy.died() => Err(Unopened::Died),
            opened = tokio::time::timeout(OPENING, opening) => match opened {
                Ok(Ok(Some(engines))) => Ok(Self { engines, proxy, process }),
                _ => Err(Unopened::GaveUp),
            },
        }
    }

    pub(crate) fn handle(&self) -> Handle {
        self.process.handle()
    }

    /// What a platform is answered by.
    pub(crate) fn answers(&self) -> (Engines, Handle) {
        (self.engines.clone(), self.handle())
    }
}

/// What a replica runs in. Dropped, it is killed, also where nobody waits any more until the replica has opened.
struct Process {
    runtime: Option<Runtime>,
    proxy: Arc<Proxy>,
}

impl Process {
    fn start(proxy: Arc<Proxy>) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Self { runtime: Some(runtime), proxy }
    }

    fn handle(&self) -> Handle {
        self.runtime.as_ref().unwrap().handle().clone()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.proxy.die();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn engines(
    kubeconfig: std::path::PathBuf,
    namespace: String,
    sells: Sells,
    character: Character,
) -> Option<Engines> {
    let client = kubernetes::client(Some(&kubeconfig)).await.unwrap();
    let identity = format!("replica-{}", kubeconfig.display());
    let registry = match sells.several {
        true => Some(Registry::open(client.clone(), &namespace).await.ok()?),
        false => None,
    };
    let place = Place { client, namespace, identity, sells, registry, character };
    let names = if sells.apart { &NAMES[..] } else { &[BROKER] };
    let mut engines = Vec::new();
    for &name in names {
        engines.push((name, place.engine(name).await?));
    }
    Some(Engines(engines))
}

/// Where engines are.
struct Place {
    client: kube::Client,
    namespace: String,
    identity: String,
    sells: Sells,
    registry: Option<Arc<Registry>>,
    character: Character,
}

impl Place {
    /// Of all brokers; or, where they are apart, of the one of this name.
    async fn engine(&self, name: &str) -> Option<Engine> {
        let (character, namespace) = (&self.character, &self.namespace);
        let broker = self.sells.group(name);
        let (lease, share) = match self.sells.apart {
            true => (format!("{}/{name}", character.lease), Share::One(name.to_owned())),
            false => (character.lease.clone(), Share::All),
        };
        let settings = StoreSettings { namespace: namespace.clone(), broker: broker.clone() };
        let store = KubernetesStore::open(self.client.clone(), settings).await.ok()?;
        let store = Arc::new(store);
        let delivery = character.delivery.clone();
        let mut jobs = JobSettings::new(namespace, &broker, "broker", delivery);
        jobs.grace = Duration::from_secs(1);
        jobs.keep_failed = character.keep_failed;
        jobs.linger = character.linger;
        let bonds = Bonds { store: Some(Arc::clone(&store)), lead: None };
        let (runner, group) = match &self.registry {
            None => (JobRunner::open(self.client.clone(), jobs, bonds).await.ok()?, None),
            Some(registry) => {
                (jobs.catalog_timeout, jobs.start_timeout) = (CATALOG, character.start_timeout);
                let brokers = Brokers::new(jobs, Vec::new());
                let group = Arc::clone(&brokers);
                let runner = JobRunner::open_group(self.client.clone(), group, bonds).await.ok()?;
                (runner, Some((brokers, Arc::clone(registry))))
            }
        };
        let ports = Ports {
            store: Arc::clone(&store) as _,
            runner: Arc::new(runner.clone()),
            clock: Arc::new(Skewed(character.skew)),
            observer: Arc::new(Events::new(Arc::clone(&store), Arc::new(()))),
        };
        let policy = Policy { broker, ..character.policy.clone() };
        let engine = Engine::new(policy, ports);
        engine.set_driving(false);
        let is_known = engine.load_catalog().await.ok()?;
        match group {
            Some((brokers, registry)) => {
                let (engine, refresh) = (engine.clone(), Duration::ZERO);
                let keeper = Keeper { engine, runner, brokers, registry, share, refresh };
                tokio::spawn(keeper.keep());
            }
            None if is_known => {}
            None => drop(engine.set_offer(self.sells.offer()).await.ok()?),
        }
        let lead = Lead::new(self.client.clone(), namespace, &lease, &self.identity);
        let lead = Arc::new(lead.lasting(character.lasts));
        tokio::spawn(control(engine.clone(), store, Arc::clone(&lead)));
        tokio::spawn(async move { lead.keep().await });
        Some(engine)
    }
}
