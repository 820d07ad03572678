//! Serves brokers apart: each `Broker` has an engine of its own, with its own records, under `/brokers/NAME`.
//!
//! ```text
//! Broker comes ──▶ Group: store, runner, engine, routes ──▶ /brokers/NAME/v2, /brokers/NAME/admin/v1
//! Broker goes  ──▶ nothing is sold ──▶ no record is left, for a while ──▶ the group goes
//! ```
//!
//! A broker that cannot be opened now is not gone: requests for it are told to come again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use engine::Engine;
use engine::ports::{Filter, Kind, Query, StoreError};
use http::Uri;
use http::uri::PathAndQuery;
use kubernetes::brokers::{Registry, Share};
use kubernetes::own::OwnError;
use kubernetes::templates::Counts;
use kubernetes::{KubernetesStore, own};
use osb::server::{Settings, refuse};
use osb::{Backend, Error, ErrorKind};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower_service::Service;

use super::adapters::Adapters;
use super::cluster::Connected;
use super::templates::ServedTemplates;

/// How often a group without a `Broker` is checked for records, and what failed is tried again.
const LOOK: Duration = Duration::from_secs(5);
/// How often the server looks for names that left records behind, which is a list of metadata: a `Broker` may come and
/// go while the watch is dead, and another replica take its orders.
const LEARN: Duration = Duration::from_secs(10 * 60);
/// How long a group without a `Broker` and records is kept. A replica whose watches are dead sells what was withdrawn
/// until they are begun anew, after a minute, and other replicas hear of it as late.
const GRACE: Duration = Duration::from_secs(150);
/// The prefix of a broker's name in a path.
const PREFIX: &str = "/brokers/";

/// The engines that answer: one, or one for each broker.
#[derive(Clone)]
pub(crate) enum Serving {
    /// One engine answers all requests.
    One(Engine),
    /// Each broker's engine answers the requests under the broker's name.
    Apart(Arc<Groups>),
    /// The engine of templates answers, beside what else there is.
    Templates(ServedTemplates, Option<Box<Self>>),
}

impl Serving {
    /// All engines.
    pub(crate) fn engines(&self) -> Vec<Engine> {
        match self {
            Self::One(engine) => vec![engine.clone()],
            Self::Apart(groups) => groups.engines(),
            Self::Templates(market, beside) => {
                let others = beside.as_ref().map(|beside| beside.engines());
                others.into_iter().flatten().chain([market.engine.clone()]).collect()
            }
        }
    }

    /// Whether there is a catalog to serve; of brokers apart each has its own, and none waits for another.
    pub(crate) fn is_ready(&self) -> bool {
        match self {
            Self::One(engine) => engine.catalog().is_some(),
            Self::Apart(_) => true,
            Self::Templates(market, beside) => {
                market.engine.catalog().is_some() && beside.as_ref().is_none_or(|it| it.is_ready())
            }
        }
    }

    /// The counts of TemplateInstances, if they are made here.
    pub(crate) fn instances(&self) -> Option<Counts> {
        match self {
            Self::Templates(market, _) => market.controller.as_ref().map(|it| it.counts()),
            Self::One(_) | Self::Apart(_) => None,
        }
    }

    /// Whether this process carries operations out.
    pub(crate) fn leads(&self) -> bool {
        match self {
            Self::One(engine) => engine.drives(),
            // There may be none to carry out yet.
            Self::Apart(groups) => *groups.cluster.lead.held().borrow(),
            Self::Templates(market, beside) => {
                market.engine.drives() || beside.as_ref().is_some_and(|beside| beside.leads())
            }
        }
    }

    /// How many operations are in progress.
    pub(crate) fn in_progress(&self) -> usize {
        self.engines().iter().map(Engine::in_progress).sum()
    }
}

/// A function that makes an engine and its routes from adapters and a name; the tasks that it starts go into the set.
pub(crate) type Serve =
    dyn Fn(Adapters, &str, &mut JoinSet<()>) -> (Engine, Router) + Send + Sync + 'static;

/// The brokers that are served apart.
pub(crate) struct Groups {
    cluster: Connected,
    registry: Arc<Registry>,
    /// The name under which all records here are; each broker's name is below it.
    name: String,
    serve: Box<Serve>,
    table: RwLock<BTreeMap<String, Group>>,
    /// The names of groups to open: each had a `Broker`, or left records behind. They are opened even if there is no
    /// `Broker` of the name any more.
    due: Mutex<BTreeSet<String>>,
    /// The time since which each group has neither a `Broker` nor a record.
    idle: Mutex<BTreeMap<String, Instant>>,
}

struct Group {
    engine: Engine,
    resources: Option<Arc<KubernetesStore>>,
    router: Router,
    /// The tasks of the group, which end with it.
    _tasks: JoinSet<()>,
}

impl Groups {
    /// The groups, of which none is open yet.
    pub(crate) fn new(
        cluster: Connected,
        registry: Arc<Registry>,
        name: &str,
        serve: Box<Serve>,
    ) -> Arc<Self> {
        let name = name.to_owned();
        let table = RwLock::default();
        let (due, idle) = (Mutex::default(), Mutex::default());
        Arc::new(Self { cluster, registry, name, serve, table, due, idle })
    }

    fn engines(&self) -> Vec<Engine> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.values().map(|group| group.engine.clone()).collect()
    }

    /// Opens and closes groups as `Broker`s come and go, for ever. To be spawned.
    pub(crate) async fn keep(self: Arc<Self>) {
        let mut changes = self.registry.changes();
        let mut learnt = Instant::now();
        loop {
            changes.mark_unchanged();
            if learnt.elapsed() >= LEARN {
                learnt = Instant::now();
                if let Err(error) = self.learn().await {
                    tracing::warn!(
                        %error,
                        "cannot list which brokers left records behind; tried again in {} s",
                        LEARN.as_secs()
                    );
                }
            }
            self.look().await;
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Opens the groups that are not open: of each `Broker`, and of those that left records behind.
    pub(crate) async fn begin(&self) -> anyhow::Result<()> {
        self.learn().await?;
        self.look().await;
        Ok(())
    }

    /// Learns which names left records behind, by the catalogs that were saved.
    async fn learn(&self) -> Result<(), OwnError> {
        let namespace = self.cluster.namespace();
        let saved = own::saved(self.cluster.client.clone(), namespace).await?;
        let below = format!("{}/", self.name);
        let left = saved.iter().filter_map(|name| name.strip_prefix(&below));
        self.due().extend(left.map(str::to_owned));
        Ok(())
    }

    fn due(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look(&self) {
        let brokers = self.registry.all();
        // One may go before it can be opened, and another replica have taken its orders.
        self.due().extend(brokers.keys().cloned());
        let due = self.due().clone();
        for name in &due {
            self.open(name).await;
        }
        let names: Vec<String> = {
            let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
            self.due().retain(|name| !table.contains_key(name));
            table.keys().filter(|name| !brokers.contains_key(*name)).cloned().collect()
        };
        self.idle().retain(|name, _| names.contains(name));
        for name in names {
            match self.is_over(&name).await {
                Ok(true) => self.close(&name).await,
                Ok(false) => {}
                Err(error) => tracing::warn!(
                    broker = name,
                    %error,
                    "cannot tell whether a broker without a Broker resource still has records; tried again in {} s",
                    LOOK.as_secs()
                ),
            }
        }
    }

    async fn open(&self, name: &str) {
        let is_open = self.table.read().unwrap_or_else(PoisonError::into_inner).contains_key(name);
        if is_open {
            return;
        }
        let full = format!("{}/{name}", self.name);
        let adapters = Adapters::cluster(&self.cluster, &full, Share::One(name.to_owned())).await;
        let adapters = match adapters {
            Ok(adapters) => adapters,
            Err(error) => {
                tracing::error!(broker = name, "it cannot be served yet: {error:#}");
                return;
            }
        };
        let mut tasks = JoinSet::new();
        let resources = adapters.resources();
        let (engine, router) = (self.serve)(adapters, name, &mut tasks);
        // The saved catalog first: a start does not wait for the broker.
        if let Err(error) = engine.load_catalog().await {
            tracing::warn!(broker = name, %error, "the saved catalog cannot be read");
        }
        tracing::info!(broker = name, "serving under {PREFIX}{name}");
        let group = Group { engine, resources, router, _tasks: tasks };
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.insert(name.to_owned(), group);
    }

    /// The routes of a broker.
    ///
    /// # Errors
    /// If the broker is not served now, or is unknown.
    fn of(&self, name: &str) -> Result<Router, Error> {
        // Asked first: what is opened meanwhile is in the table then.
        let is_known = self.due().contains(name) || self.registry.has(name);
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.get(name).map(|group| group.router.clone()).ok_or_else(|| absent(is_known))
    }

    fn idle(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a group can be closed: there is nothing to serve, and no replica can have taken an order since that is
    /// not known here.
    async fn is_over(&self, name: &str) -> Result<bool, StoreError> {
        let group = {
            let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
            table.get(name).map(|group| (group.engine.clone(), group.resources.clone()))
        };
        let Some((engine, resources)) = group else { return Ok(false) };
        if has_records(&engine).await? {
            self.idle().remove(name);
            return Ok(false);
        }
        let since = *self.idle().entry(name.to_owned()).or_insert_with(Instant::now);
        if since.elapsed() < GRACE {
            return Ok(false);
        }
        // Our own watches may be dead.
        match resources {
            Some(resources) => Ok(!resources.has_any().await?),
            None => Ok(true),
        }
    }

    async fn close(&self, name: &str) {
        tracing::info!(
            broker = name,
            "its Broker resource is gone and it has no records left: it is served no more"
        );
        let closed = self.table.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        if !closed.is_some_and(|group| group.engine.drives()) {
            return;
        }
        let full = format!("{}/{name}", self.name);
        let client = self.cluster.client.clone();
        let (home, further) = (self.cluster.namespace(), self.cluster.further());
        if let Err(error) = own::forget(client, home, further, &full).await {
            tracing::warn!(
                broker = name,
                %error,
                "what was saved of a broker that is gone could not be removed"
            );
        }
    }
}

/// Whether an engine has records; tombstones count, for platforms may still poll a delete.
async fn has_records(engine: &Engine) -> Result<bool, StoreError> {
    for kind in [Kind::Instances, Kind::Bindings] {
        let query = Query { kind, instance: None, filter: Filter::All, after: None, limit: 1 };
        // One that cannot be read is one.
        if !engine.store().scan(&query).await?.is_empty() {
            return Ok(true);
        }
    }
    Ok(engine.in_progress() > 0)
}

/// The routes of brokers that are served apart, with these settings for each.
pub(crate) fn routes(groups: Arc<Groups>, settings: Settings) -> Router {
    Router::new().fallback(dispatch).with_state((groups, settings))
}

async fn dispatch(
    State((groups, settings)): State<(Arc<Groups>, Settings)>,
    request: Request<Body>,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let found = match below(&parts.uri) {
        Some((name, uri)) => {
            parts.uri = uri;
            groups.of(&name)
        }
        None => Err(absent(false)),
    };
    match found {
        Ok(mut router) => match router.call(Request::from_parts(parts, body)).await {
            Ok(response) => response,
            Err(never) => match never {},
        },
        // Which brokers there are is not for everybody: who asks is judged first.
        Err(error) => refuse(&settings, &parts, error).await,
    }
}

/// The error for a broker that is not served. It is a 404 only if the broker is unknown: to a platform, 404 says that
/// the operation does not exist, and that there is nothing to remove.
fn absent(is_known: bool) -> Error {
    if is_known {
        let words =
            "the broker is not open here yet; come again, and if it stays so, the log says why";
        return Error::new(ErrorKind::Unavailable, words).retry_after(LOOK);
    }
    Error::not_found(
        "there is no such broker: brokers are at /brokers/NAME, by their Broker's name",
    )
}

/// The name of the broker in a path, and the rest of the path as it was sent.
fn below(uri: &Uri) -> Option<(String, Uri)> {
    let rest = uri.path().strip_prefix(PREFIX)?;
    let (name, _) = rest.split_once('/')?;
    let whole = uri.path_and_query()?.as_str();
    let below = PathAndQuery::try_from(&whole[PREFIX.len() + name.len()..]).ok()?;
    Some((name.to_owned(), Uri::from(below)))
}

#[cfg(test)]
mod tests;
