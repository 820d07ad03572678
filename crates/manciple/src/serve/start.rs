//! Starts a server from a configuration, and ends it in order on a signal.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use axum::Router;
use engine::{Engine, Ports, vital};
use kubernetes::Lead;
use kubernetes::brokers::Share;
use osb::Backend;
use osb::server::{Bodies, Settings, TlsSource};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::access::Access;
use super::adapters::{Adapters, Refusing, open_store};
use super::cluster::Connected;
use super::config::{Cluster, Config, Period, Several};
use super::groups::{self, Groups, Serving};
use super::metrics::{Exchanges, Metrics, Operations};
use super::probes::{self, Probes};
use super::secrets::{Callers, First};
use super::templates::{self, ClusterContext};
use super::tls::Certificate;
use crate::admin::routes::{self, Admin};
use crate::log::log;
use crate::process::{
    EVERYWHERE, LINGER, bind, identity, is_an_address, keep_lease, told_to_end, whole,
};

/// How often the server looks whether files of secrets and certificates have changed.
const LOOK_AT_FILES: Duration = Duration::from_secs(10);
/// How often the catalog is read again, unless said otherwise.
const REFRESH: Duration = Duration::from_secs(600);

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(config: &Config) -> anyhow::Result<()> {
    log(&config.log)?;
    let policy = config.policy();
    let pod = config.kubernetes.as_ref().is_some_and(Cluster::is_in_a_pod);
    let (listen, usual) = listen(config.listen.as_deref(), pod, config.auth.disabled)?;
    is_an_address("listen", listen, usual)?;
    let certificate = config.tls.as_ref().map(Certificate::open).transpose()?;
    let data_dir = config.data_dir.clone().unwrap_or_else(|| PathBuf::from("data"));
    // One machine's store is opened before anything else is begun: it may have much to say.
    let machine = match &config.kubernetes {
        None => Some(Arc::new(open_store(config, &data_dir)?)),
        Some(_) => None,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the threads could not be started")?;
    let ended = runtime.block_on(async {
        // Caught before anything is begun: unhandled, each of them ends the process.
        let end = told_to_end(1)?;
        let hangup = signal(SignalKind::hangup()).context("SIGHUP")?;
        let callers = callers(config, &policy.broker, &data_dir).await?;
        let metrics = Metrics::new();
        let bodies = Bodies::default();
        let parts = Parts { config: config.clone(), policy, callers, metrics, bodies };
        let Served { serving, lead, refusing, router } = match machine {
            Some(store) => parts.one(Adapters::machine(config, &data_dir, store).await?).await?,
            None => parts.cluster().await?,
        };
        let router = router.merge(parts.probes(serving.clone(), &refusing));
        let resumed = match &serving {
            Serving::One(engine) if engine.drives() => engine.resume().await?,
            _ => 0,
        };
        let watch = watch(hangup, Arc::clone(&parts.callers), certificate.clone(), serving.clone());
        tokio::spawn(vital::task("the look at files", watch));
        let listener = bind("listen", listen, usual).await?;
        let address = listener.local_addr()?;
        if config.auth.disabled {
            tracing::warn!(
                %address,
                "auth.disabled: whoever reaches this address orders, reads credentials and repairs as an \
                 operator does"
            );
        }
        tracing::info!(%address, tls = certificate.is_some(), resumed, "serving");
        let tls: Option<TlsSource> = certificate.map(|certificate| {
            let source: TlsSource = Arc::new(move || certificate.current());
            source
        });
        let end = over(end, give_back(lead.as_deref(), &serving), lead.as_deref(), pod);
        let end = Box::pin(end);
        let cut = osb::server::serve(listener, router, tls, config.http.limits(), end).await;
        tracing::info!(cut, in_progress = serving.in_progress(), "ended; runs go on");
        give_back(lead.as_deref(), &serving).await;
        whole(lead.as_deref())
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
    ended
}

/// Reads the callers who may send requests.
async fn callers(config: &Config, broker: &str, data_dir: &Path) -> anyhow::Result<Arc<Callers>> {
    let (first, access) = match &config.kubernetes {
        None => (First::Folder(data_dir.to_owned()), Access::default()),
        Some(cluster) => {
            let first = match config.auth.is_configured() {
                true => First::Nobody,
                false => First::Password(cluster.first_password(broker).await?),
            };
            (first, cluster.access(&config.auth).await?)
        }
    };
    Callers::open(&config.auth, first, access)
}

/// Waits until the server has to stop taking requests: a while after `end` in a pod, and at once if the API server went
/// back to an earlier time or a vital task panicked. In that while this process gives the lead away: its successor has
/// the newest settings, where those of this process may have been revoked.
async fn over(
    end: impl Future<Output = ()>,
    give_back: impl Future<Output = ()>,
    lead: Option<&Lead>,
    pod: bool,
) {
    tokio::select! {
        () = end => {}
        () = undone(lead) => return,
        () = vital::until_panicked() => return,
    }
    if pod {
        // Where nobody answers, it is given back at the end.
        let given_back = tokio::time::timeout(LINGER, give_back);
        let _ = tokio::join!(tokio::time::sleep(LINGER), given_back);
    }
    tracing::info!("told to end: answering what was asked, taking nothing new");
}

/// Gives the lead to another replica, which goes on with what is in progress; called again, it does nothing.
async fn give_back(lead: Option<&Lead>, serving: &Serving) {
    let Some(lead) = lead else { return };
    serving.engines().iter().for_each(|engine| engine.set_driving(false));
    lead.give_back().await;
}

/// The address to listen on, and the usual one here.
fn listen(given: Option<&str>, pod: bool, open: bool) -> anyhow::Result<(&str, &'static str)> {
    // Whoever asks a pod, and probes it, is elsewhere.
    let usual = if pod { EVERYWHERE } else { "127.0.0.1:8080" };
    ensure!(
        given.is_some() || !pod || !open,
        "auth.disabled: whoever reaches this pod would order, read credentials and repair as an operator \
         does; leave it out, or, if something else keeps strangers away, say listen: {usual:?} too"
    );
    Ok((given.unwrap_or(usual), usual))
}

/// The parts that are common to all engines of this server.
#[derive(Clone)]
pub(crate) struct Parts {
    config: Config,
    pub(crate) policy: engine::Policy,
    callers: Arc<Callers>,
    metrics: Arc<Metrics>,
    /// The room for request bodies, which all engines share.
    bodies: Bodies,
}

/// A server that was put together, but for its probes.
struct Served {
    serving: Serving,
    /// The lead among several replicas, if there may be several.
    lead: Option<Arc<Lead>>,
    /// A function that says why the store takes no writes, if it takes none.
    refusing: Refusing,
    /// The routes, but for the probes.
    router: Router,
}

impl Parts {
    /// Serves one broker, or several as one.
    async fn one(&self, adapters: Adapters) -> anyhow::Result<Served> {
        let engine = self.engine(&adapters, self.policy.clone());
        // The saved catalog first. One of a file is read now, and its faults end the start; the broker may
        // take its time.
        engine.load_catalog().await?;
        if self.config.catalog.file.is_some() {
            engine.refresh_catalog().await.context("catalog.file")?;
        }
        tokio::spawn(vital::task("the catalog", adapters.keep_catalog(&engine, self.refresh())));
        tokio::spawn(vital::task("the sweep of records", engine.clone().sweep()));
        let lead = adapters.leadership.as_ref().map(|leadership| {
            tokio::spawn(vital::task("the part of a leader", leadership.take_part(&engine)));
            leadership.stand()
        });
        let router = self.routes(&engine, &adapters);
        Ok(Served { serving: Serving::One(engine), lead, refusing: adapters.refusing, router })
    }

    /// Serves on a cluster: brokers, templates, or both.
    async fn cluster(&self) -> anyhow::Result<Served> {
        let cluster = self.config.kubernetes.clone().unwrap_or_default();
        if let Some(of) = cluster.templates.as_ref().filter(|_| cluster.is_of_templates()) {
            let client = kubernetes::client(cluster.kubeconfig.as_deref()).await?;
            let namespace = cluster.namespace()?;
            let broker = &self.policy.broker;
            let lead = Arc::new(Lead::new(client.clone(), &namespace, broker, &identity()?));
            tokio::spawn(keep_lease(Arc::clone(&lead)));
            let ground = ClusterContext { client, namespace, lead: Arc::clone(&lead) };
            let (market, routes) = templates::open(self, of, ground).await?;
            let serving = Serving::Templates(market, None);
            // There is no other: it is at the root, too.
            let router = routes.clone().merge(templates::nested(routes));
            return Ok(Served { serving, lead: Some(lead), refusing: nothing_refuses(), router });
        }
        let connected = cluster.connect(&self.config, &self.policy.broker).await?;
        let (client, namespace) = (connected.client.clone(), connected.namespace().to_owned());
        let ground = ClusterContext { client, namespace, lead: Arc::clone(&connected.lead) };
        let served = self.brokers(&cluster, connected).await?;
        let Some(of) = &cluster.templates else { return Ok(served) };
        let (market, routes) = templates::open(self, of, ground).await?;
        let serving = Serving::Templates(market, Some(Box::new(served.serving)));
        let router = served.router.merge(templates::nested(routes));
        Ok(Served { serving, router, ..served })
    }

    /// Serves the brokers of a cluster, without templates.
    async fn brokers(&self, cluster: &Cluster, connected: Connected) -> anyhow::Result<Served> {
        let apart = (cluster.brokers == Some(Several::Apart)).then(|| connected.registry.clone());
        let Some(registry) = apart.flatten() else {
            let adapters = Adapters::cluster(&connected, &self.policy.broker, Share::All).await?;
            return self.one(adapters).await;
        };
        let lead = Arc::clone(&connected.lead);
        let parts = self.clone();
        let serve = move |adapters: Adapters, name: &str, tasks: &mut JoinSet<()>| {
            let mut policy = parts.policy.clone();
            policy.broker = format!("{}/{name}", policy.broker);
            let engine = parts.engine(&adapters, policy);
            let catalog = adapters.keep_catalog(&engine, parts.refresh());
            tasks.spawn(vital::task("a catalog", catalog));
            tasks.spawn(vital::task("a sweep of records", engine.clone().sweep()));
            if let Some(leadership) = &adapters.leadership {
                let part = leadership.take_part(&engine);
                tasks.spawn(vital::task("a part of a leader", part));
            }
            let router = parts.routes(&engine, &adapters);
            (engine, router)
        };
        let groups = Groups::new(connected, registry, &self.policy.broker, Box::new(serve));
        groups.begin().await?;
        tokio::spawn(vital::task("the groups of Brokers", Arc::clone(&groups).keep()));
        tokio::spawn(keep_lease(Arc::clone(&lead)));
        let serving = Serving::Apart(Arc::clone(&groups));
        let router = groups::routes(groups, self.settings());
        Ok(Served { serving, lead: Some(lead), refusing: nothing_refuses(), router })
    }

    pub(crate) fn engine(&self, adapters: &Adapters, mut policy: engine::Policy) -> Engine {
        if let Some(home) = &adapters.home {
            policy.broker = format!("{} of {home}", policy.broker);
        }
        let operations =
            Operations { metrics: Arc::clone(&self.metrics), broker: adapters.broker() };
        let ports = Ports {
            store: Arc::clone(&adapters.store),
            runner: Arc::clone(&adapters.runner),
            clock: Arc::clone(&adapters.clock),
            observer: adapters.observer(Arc::new(operations)),
        };
        let engine = Engine::new(policy, ports);
        engine.set_driving(adapters.leadership.is_none());
        engine
    }

    fn refresh(&self) -> Duration {
        Period::or(self.config.catalog.refresh, REFRESH)
    }

    fn probes(&self, serving: Serving, refusing: &Refusing) -> Router {
        let open = self.config.http.open_metrics;
        probes::routes(Probes {
            serving,
            refusing: Arc::clone(refusing),
            metrics: Arc::clone(&self.metrics),
            authentication: (!open).then(|| self.callers.authentication()),
        })
    }

    /// The routes of an engine: the Open Service Broker API, and the operator's.
    fn routes(&self, engine: &Engine, adapters: &Adapters) -> Router {
        self.routes_of(Arc::new(engine.clone()), engine, adapters)
    }

    /// Does as [`Self::routes`], with another backend before the engine.
    pub(crate) fn routes_of(
        &self,
        backend: Arc<dyn Backend>,
        engine: &Engine,
        adapters: &Adapters,
    ) -> Router {
        let admin = Admin {
            engine: engine.clone(),
            authentication: self.callers.authentication(),
            backup: Arc::clone(&adapters.backup),
        };
        routes::routes(admin).merge(osb::server::router(backend, self.settings()))
    }

    /// The settings with which the Open Service Broker API is served, for every engine.
    fn settings(&self) -> Settings {
        let http = &self.config.http;
        let mut settings = Settings::new(self.callers.authentication());
        settings.missing_version = http.missing_version.into();
        settings.body_limit = http.body_limit.unwrap_or(settings.body_limit);
        settings.body_timeout = Period::or(http.body_timeout, settings.body_timeout);
        settings.bodies = self.bodies.clone();
        settings.changes_in_flight = http.changes_in_flight.unwrap_or(settings.changes_in_flight);
        settings.observer = Some(Arc::new(Exchanges(Arc::clone(&self.metrics))));
        settings
    }
}

/// The function for stores on a cluster, which always says that writes are taken: the API server refuses each write
/// itself.
fn nothing_refuses() -> Refusing {
    Arc::new(|| None)
}

/// Takes up changed passwords, tokens and certificates, and has the catalogs read again on SIGHUP.
async fn watch(
    mut hangup: Signal,
    callers: Arc<Callers>,
    certificate: Option<Arc<Certificate>>,
    serving: Serving,
) {
    let due = Arc::new(Notify::new());
    let read = read_catalogs(serving, Arc::clone(&due));
    tokio::spawn(vital::task("the catalogs on demand", read));
    loop {
        let asked = tokio::select! {
            _ = hangup.recv() => true,
            () = tokio::time::sleep(LOOK_AT_FILES) => false,
        };
        if let Err(error) = callers.reload() {
            tracing::error!("the secrets from before stay in force: {error:#}");
        }
        match certificate.as_ref().map(|certificate| certificate.reload()) {
            Some(Ok(true)) => tracing::info!("a new certificate is in force"),
            Some(Err(error)) => {
                tracing::error!("the certificate from before stays in force: {error:#}");
            }
            _ => {}
        }
        if asked {
            due.notify_one();
        }
    }
}

/// Reads the catalogs again whenever that is due, all at once, in a task of its own: a broker may take minutes, for
/// which revoked credentials must not wait. If it falls due while they are read, they are read once more.
async fn read_catalogs(serving: Serving, due: Arc<Notify>) {
    loop {
        due.notified().await;
        let mut reads = JoinSet::new();
        for engine in serving.engines() {
            reads.spawn(async move {
                match engine.refresh_catalog().await {
                    Ok(_) => tracing::info!("the catalog was read again"),
                    Err(error) => {
                        tracing::error!("the catalog from before stays in force: {error}");
                    }
                }
            });
        }
        while reads.join_next().await.is_some() {}
    }
}

/// Waits until the API server went back to an earlier time.
async fn undone(lead: Option<&Lead>) {
    match lead {
        Some(lead) => lead.undone().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_let_in_unasked_from_elsewhere_unless_somebody_says_where_to_listen() {
        for (case, given, pod, open, expected) in [
            ("on one machine", None, false, false, Some("127.0.0.1:8080")),
            ("on one machine, asking nobody", None, false, true, Some("127.0.0.1:8080")),
            ("in a pod", None, true, false, Some("[::]:8080")),
            ("in a pod, asking nobody", None, true, true, None),
            ("as it is said", Some("[::]:80"), false, true, Some("[::]:80")),
            ("in a pod, as it is said", Some("[::]:80"), true, true, Some("[::]:80")),
        ] {
            let found = listen(given, pod, open).ok().map(|(listen, _)| listen);
            assert_eq!(found, expected, "{case}");
        }
    }

    async fn panics() {
        panic!("planted");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_is_told_to_end_leads_no_more_before_it_takes_nothing_new() {
        let began = tokio::time::Instant::now();
        let mut given_back = None;
        let give_back = async { given_back = Some(began.elapsed()) };
        over(std::future::ready(()), give_back, None, true).await;
        assert_eq!((given_back, began.elapsed()), (Some(Duration::ZERO), LINGER));
        let silent = over(std::future::ready(()), std::future::pending(), None, true);
        tokio::time::timeout(LINGER * 2, silent).await.expect("it waits for nobody");
    }

    #[tokio::test]
    async fn a_panic_of_a_task_that_all_else_relies_on_ends_the_process_with_words() {
        let task = tokio::spawn(vital::task("a planted one", panics()));
        assert!(task.await.is_err());
        let over = over(std::future::pending(), std::future::ready(()), None, true);
        tokio::time::timeout(LINGER / 2, over).await.expect("it goes on");
        let words = whole(None).unwrap_err().to_string();
        assert!(words.contains("a planted one") && words.contains("anew"), "{words}");
    }
}
