//! A replica: answers, and carries out what is ordered while it leads.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use engine::in_process::InProcess;
use engine::policy::OnLost;
use engine::{Engine, Policy, Ports, SystemClock, vital};
use kube::Client;
use kubernetes::{Events, KubernetesStore, Lead};
use osb::Backend;
use osb::server::{Authentication, Limits, TlsSource};
use tokio::net::TcpListener;

use crate::broker::{NAME, Settings};

/// How often the catalog is asked for again.
const CATALOG: Duration = Duration::from_secs(600);

/// What a replica is told.
pub struct Replica {
    /// Where everything is: the records, the Lease, what is made.
    pub namespace: String,
    /// Its name among others, which no two have at once: that of its pod.
    pub identity: String,
    /// Who may order.
    pub authentication: Authentication,
    /// Without it, it speaks plain HTTP.
    pub tls: Option<TlsSource>,
}

/// Serves until `end`.
///
/// # Errors
/// If the cluster cannot be asked, or the kinds of `manciple.dev` are not installed; or if a snapshot of its etcd was restored
/// meanwhile, after which this process knows too much.
pub async fn serve(
    client: Client,
    replica: Replica,
    listener: TcpListener,
    end: impl Future<Output = ()> + Send,
) -> anyhow::Result<()> {
    let Replica { namespace, identity, authentication, tls } = replica;
    let mut end = pin!(end);
    let settings =
        kubernetes::StoreSettings { namespace: namespace.clone(), broker: NAME.to_owned() };
    let store = tokio::select! {
        store = KubernetesStore::open(client.clone(), settings) => Arc::new(store?),
        () = &mut end => return Ok(()),
    };
    let lead = Arc::new(Lead::new(client.clone(), &namespace, NAME, &identity));
    // Work that was under way in a replica that is gone is begun again: it may be, as ours is the same
    // however often it is done.
    let policy = Policy { broker: NAME.to_owned(), lost: OnLost::Retry, ..Policy::default() };
    let ports = Ports {
        store: Arc::clone(&store) as _,
        runner: Arc::new(InProcess::new(Settings::new(client, &namespace))),
        clock: Arc::new(SystemClock),
        observer: Arc::new(Events::new(Arc::clone(&store), Arc::new(()))),
    };
    let engine = Engine::new(policy, ports);
    engine.set_driving(false);
    engine.load_catalog().await?;
    tokio::spawn(vital::task("the catalog", engine.clone().keep_catalog(CATALOG)));
    tokio::spawn(vital::task("the sweep of records", engine.clone().sweep()));
    let control = tokio::spawn(kubernetes::control(engine.clone(), store, Arc::clone(&lead)));
    let keep = tokio::spawn({
        let lead = Arc::clone(&lead);
        async move { lead.keep().await }
    });
    let backend: Arc<dyn Backend> = Arc::new(engine.clone());
    let settings = osb::server::Settings::new(authentication);
    let router = probes(engine.clone()).merge(osb::server::router(backend, settings));
    let end = async {
        tokio::select! {
            () = end => {}
            () = lead.undone() => {}
        }
    };
    osb::server::serve(listener, router, tls, Limits::default(), end).await;
    engine.set_driving(false);
    keep.abort();
    control.abort();
    lead.give_back().await;
    ensure!(
        !lead.is_undone(),
        "the API server went back to an earlier time: begin this process anew"
    );
    Ok(())
}

/// `/healthz`, and `/readyz`: ready once there is a catalog, which the replica that leads makes.
fn probes(engine: Engine) -> Router {
    let ready = async |State(engine): State<Engine>| match engine.catalog() {
        Some(_) => (StatusCode::OK, "ok\n"),
        None => (StatusCode::SERVICE_UNAVAILABLE, "there is no catalog yet: the log says why\n"),
    };
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .with_state(engine)
}
