//! The adapters of the engine's ports, to this machine or to a cluster.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use async_trait::async_trait;
use engine::in_process::InProcess;
use engine::ports::{Clock, Runner, Store};
use engine::record::Record;
use engine::{Engine, Observer, SystemClock};
use kubernetes::brokers::{Brokers, Keeper, Registry, Share};
use kubernetes::templates::broker::{self as templates, TemplateBroker};
use kubernetes::{Client, Events, JobRunner, KubernetesStore, Lead, StoreSettings};
use osb::{Error, ErrorKind};
use standalone::process::{ProcessRunner, ProcessSettings, RunnerKey, has_runs};
use standalone::store::{EmbeddedStore, Options};

use super::cluster::{Connected, Opened};
use super::config::{Config, Period};
use super::keys;
use crate::admin::routes::Backup;
use crate::process::keep_lease;

/// A function that says why the store takes no writes or is damaged; `None`: it works.
pub(crate) type Refusing = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Background work, to be spawned.
pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The ports of an engine, and what else the server needs to know of its adapters.
pub(crate) struct Adapters {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) runner: Arc<dyn Runner>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) backup: Arc<dyn Backup>,
    /// The reason why the store takes no writes, if it takes none.
    pub(crate) refusing: Refusing,
    /// The leadership, where several processes share the work.
    pub(crate) leadership: Option<Leadership>,
    /// The group of brokers, where several share the catalog.
    group: Option<Grouped>,
    /// The namespace of this release, if Jobs may be in further ones: another release may have Jobs of the same names
    /// there.
    pub(crate) home: Option<String>,
    /// The label value by which operations are counted if no `Broker` gives one; empty, as if there were none, if there
    /// is only one broker.
    name: &'static str,
}

/// The `Broker`s that are served as one.
struct Grouped {
    runner: JobRunner,
    brokers: Arc<Brokers>,
    registry: Arc<Registry>,
    share: Share,
}

impl Adapters {
    /// Keeps the catalog up to date, for ever. To be spawned.
    pub(crate) fn keep_catalog(&self, engine: &Engine, refresh: Duration) -> Task {
        let engine = engine.clone();
        match &self.group {
            None => Box::pin(engine.keep_catalog(refresh)),
            Some(Grouped { runner, brokers, registry, share }) => Box::pin(
                Keeper {
                    engine,
                    runner: runner.clone(),
                    brokers: Arc::clone(brokers),
                    registry: Arc::clone(registry),
                    share: share.clone(),
                    refresh,
                }
                .keep(),
            ),
        }
    }

    /// A function that gives the name of a record's `Broker`; `name`, if no `Broker` is served.
    pub(crate) fn broker(&self) -> Arc<dyn Fn(&Record) -> String + Send + Sync> {
        match &self.group {
            None => {
                let name = self.name;
                Arc::new(move |_| name.to_owned())
            }
            Some(Grouped { share: Share::One(name), .. }) => {
                let name = name.clone();
                Arc::new(move |_| name.clone())
            }
            Some(Grouped { brokers, .. }) => {
                let brokers = Arc::clone(brokers);
                Arc::new(move |record| {
                    brokers.owner(&record.ordered.service_id).unwrap_or_else(|| "none".to_owned())
                })
            }
        }
    }

    /// The store of records as resources, if there is one.
    pub(crate) fn resources(&self) -> Option<Arc<KubernetesStore>> {
        self.leadership.as_ref().map(|leadership| Arc::clone(&leadership.store))
    }

    /// The observer of ended operations: `first`, and those of the adapters.
    pub(crate) fn observer(&self, first: Arc<dyn Observer>) -> Arc<dyn Observer> {
        match &self.leadership {
            Some(leadership) => Arc::new(Events::new(Arc::clone(&leadership.store), first)),
            None => first,
        }
    }
}

/// The part of this replica among others.
pub(crate) struct Leadership {
    store: Arc<KubernetesStore>,
    lead: Arc<Lead>,
}

impl Leadership {
    /// Carries out operations whenever this process leads.
    /// To be spawned.
    pub(crate) fn take_part(&self, engine: &Engine) -> Task {
        let (store, lead) = (Arc::clone(&self.store), Arc::clone(&self.lead));
        Box::pin(kubernetes::control(engine.clone(), store, lead))
    }

    /// Begins to compete for the Lease.
    pub(crate) fn stand(&self) -> Arc<Lead> {
        tokio::spawn(keep_lease(Arc::clone(&self.lead)));
        Arc::clone(&self.lead)
    }
}

impl Adapters {
    /// The adapters to this machine.
    pub(crate) async fn machine(
        config: &Config,
        data_dir: &Path,
        store: Arc<EmbeddedStore>,
    ) -> anyhow::Result<Self> {
        let runner = open_runner(config, data_dir, &store).await?;
        let copies = Copies(Arc::clone(&store));
        if let Err(error) = store.look_through() {
            tracing::warn!(%error, "the store cannot be looked through for damage");
        }
        let asked = Arc::clone(&store);
        let refusing = move || match asked.refusing() {
            _ if asked.is_damaged() => Some("the store is damaged: restore a backup".to_owned()),
            why => why.map(|why| format!("the store cannot be written: {why}")),
        };
        Ok(Self {
            store,
            runner: Arc::new(runner),
            clock: Arc::new(SystemClock),
            backup: Arc::new(copies),
            refusing: Arc::new(refusing),
            leadership: None,
            group: None,
            home: None,
            name: "",
        })
    }

    /// The adapters to a cluster, for the records of a broker's name.
    pub(crate) async fn cluster(
        cluster: &Connected,
        broker: &str,
        share: Share,
    ) -> anyhow::Result<Self> {
        let Opened { store, runner, brokers } = cluster.open(broker).await?;
        let registry = cluster.registry.clone();
        let group = brokers.zip(registry).map(|(brokers, registry)| {
            let runner = runner.clone();
            Grouped { runner, brokers, registry, share }
        });
        Ok(Self {
            store: Arc::clone(&store) as _,
            clock: runner.clock(),
            runner: Arc::new(runner),
            backup: Arc::new(NoCopies),
            refusing: Arc::new(|| None),
            leadership: Some(Leadership { store, lead: Arc::clone(&cluster.lead) }),
            group,
            home: (!cluster.further().is_empty()).then(|| cluster.namespace().to_owned()),
            name: "",
        })
    }
}

impl Adapters {
    /// The adapters to a cluster for templates, whose broker runs in this process.
    pub(crate) async fn templates(
        client: Client,
        namespace: &str,
        name: &str,
        broker: TemplateBroker,
        lead: &Arc<Lead>,
    ) -> anyhow::Result<Self> {
        let settings = StoreSettings { namespace: namespace.to_owned(), broker: name.to_owned() };
        let store = Arc::new(KubernetesStore::open(client, settings).await?);
        Ok(Self {
            store: TemplateBroker::store(Arc::clone(&store) as _),
            clock: Arc::new(SystemClock),
            runner: Arc::new(InProcess::new(broker)),
            backup: Arc::new(NoCopies),
            refusing: Arc::new(|| None),
            leadership: Some(Leadership { store, lead: Arc::clone(lead) }),
            group: None,
            home: None,
            name: templates::NAME,
        })
    }
}

/// Opens the store of this machine.
pub(crate) fn open_store(config: &Config, data_dir: &Path) -> anyhow::Result<EmbeddedStore> {
    let keys = keys::choose(&config.encryption, data_dir)?;
    let mut options = Options::new(data_dir, keys.current);
    options.previous_key = keys.previous;
    // Whoever opens a store leaves its lock behind.
    let was_opened = data_dir.join("lock").exists();
    let is_empty = |metadata: std::fs::Metadata| metadata.len() == 0;
    if was_opened && data_dir.join("manciple.db").metadata().map_or(true, is_empty) {
        let runs = data_dir.join("runs");
        ensure!(
            !has_runs(&runs).with_context(|| runs.display().to_string())?,
            "{}: there was a store, but manciple.db is missing or empty, and runs are there that are known by it alone: \
             put it back, or restore a backup; to begin anew without them, move {} away",
            data_dir.display(),
            runs.display()
        );
        tracing::warn!(
            data_dir = %data_dir.display(),
            "there was a store, but manciple.db is missing or empty: beginning anew, without the \
             instances of before; if the file is lost, stop and restore a backup"
        );
    }
    Ok(EmbeddedStore::open(&options)?)
}

async fn open_runner(
    config: &Config,
    data_dir: &Path,
    store: &EmbeddedStore,
) -> anyhow::Result<ProcessRunner> {
    let broker = &config.broker;
    let command = broker.command.clone().unwrap_or_else(|| PathBuf::from("/bin/broker"));
    let key = RunnerKey::new(*store.runner_key().await.context("the runner's key")?);
    let own = std::env::current_exe().context("the path of this program")?;
    let supervisor = vec![own.into_os_string(), "supervise".into()];
    let mut settings = ProcessSettings::new(command, data_dir.join("runs"), key, supervisor);
    settings.config_dir.clone_from(&broker.config_dir);
    settings.secret_dir.clone_from(&broker.secret_dir);
    settings.catalog_file.clone_from(&config.catalog.file);
    settings.catalog_timeout = Period::or(config.catalog.timeout, settings.catalog_timeout);
    settings.pass_environment.clone_from(&broker.pass_env);
    settings.grace = Period::or(broker.grace, settings.grace);
    settings.output_limit = broker.output_limit.unwrap_or(settings.output_limit);
    settings.log_limit = broker.log_limit.unwrap_or(settings.log_limit);
    Ok(ProcessRunner::open(settings)?)
}

/// The backup of a store on this machine.
struct Copies(Arc<EmbeddedStore>);

#[async_trait]
impl Backup for Copies {
    async fn backup(&self) -> Result<File, Error> {
        self.0.backup().await.map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("the backup could not be made: {error}"))
        })
    }
}

/// The backup of a cluster, which is refused: a cluster is backed up in its own way.
struct NoCopies;

#[async_trait]
impl Backup for NoCopies {
    async fn backup(&self) -> Result<File, Error> {
        Err(Error::bad_request(
            "on a cluster the records are resources: back up etcd. Exported and created again, resources lose \
             their status, and Secrets whose owner has another uid are removed",
        ))
    }
}
