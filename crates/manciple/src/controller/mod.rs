//! `manciple controller`: runs QuarksJobs, and makes TemplateInstances.
//!
//! ```text
//! flags, environment ─▶ Cluster ─▶ Lead ─▶ quarks::Controller, templates::Controller     HTTP: probes, metrics
//! ```
//!
//! Several replicas may run: one of them acts. The flags and variables of the original operator are taken; what
//! has no meaning here is passed over, and said.

mod args;
mod http;
mod webhook;

use std::io::ErrorKind;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use engine::vital;
use kubernetes::{Client, Delivery, Lead, quarks, templates};
use osb::server::Limits;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub(crate) use args::ControllerArgs;
use args::Which;
use http::Controllers;

use crate::serve::{LINGER, UNDONE, identity, log, told_to_end, whole};

/// What the keys and the Lease are named by.
const NAME: &str = "quarks";
/// Where probes and metrics are answered, unless somebody says where.
const LISTEN: &str = "0.0.0.0:8080";

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: &ControllerArgs) -> anyhow::Result<()> {
    log(&args.log())?;
    args.check()?;
    args.passed_over().for_each(|flag| tracing::warn!("--{flag} has no meaning here: passed over"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the threads could not be started")?;
    runtime.block_on(attend(args))
}

/// Looks after what it is to look after, until it is told to end.
async fn attend(args: &ControllerArgs) -> anyhow::Result<()> {
    // Caught before anything is begun: unhandled, each of them ends the process.
    let end = told_to_end()?;
    let cluster = args.cluster();
    let client = kubernetes::client(cluster.kubeconfig.as_deref()).await?;
    // As for kubectl: where nobody says which, it is that of the kubeconfig's context.
    let namespace = cluster.namespace_or(Some(client.default_namespace()))?;
    if args.apply_crd {
        install(args, &client).await.context("--apply-crd")?;
    }
    let name = format!("{NAME}/{}", args.monitored_id);
    let lead = Arc::new(Lead::new(client.clone(), &namespace, &name, &identity()?));
    let webhook = webhook::serve(&args.webhook, &client, &namespace, templates::NAME).await?;
    let mut controllers = open(args, &client, &namespace, &name).await?;
    controllers.admission = webhook.as_ref().map(|it| Arc::clone(&it.admission));
    let listener = listen(args.listen.as_deref(), cluster.is_in_a_pod()).await?;
    let monitors = &args.monitored_id;
    tracing::info!(address = %listener.local_addr()?, namespace, monitors, "serving");
    let mut tasks = begin(&controllers, &lead);
    let end = async {
        tokio::select! {
            () = end => tracing::info!("told to end; Jobs go on, and another replica takes over"),
            () = lead.undone() => {}
            () = vital::until_panicked() => {}
        }
    };
    osb::server::serve(listener, http::routes(controllers), None, Limits::default(), end).await;
    tasks.shutdown().await;
    lead.give_back().await;
    if let Some(webhook) = webhook {
        // In a pod: without an answer what people order is refused. One that is to be begun anew is so the sooner.
        if cluster.kubeconfig.is_none() && !lead.is_undone() && whole().is_ok() {
            tokio::time::sleep(LINGER).await;
        }
        webhook.end().await;
    }
    ensure!(!lead.is_undone(), UNDONE);
    whole()
}

/// Listens where it is told to. Where nobody has said where, and the usual port is taken, on another: several may be
/// begun by hand on one machine, and nobody probes them there.
async fn listen(told: Option<&str>, in_a_pod: bool) -> anyhow::Result<TcpListener> {
    let address = told.unwrap_or(LISTEN);
    match TcpListener::bind(address).await {
        Err(error)
            if told.is_none() && !in_a_pod && error.kind() == ErrorKind::AddrInUse =>
        {
            tracing::warn!("{address} is taken: another port is listened on");
            Ok(TcpListener::bind("0.0.0.0:0").await?)
        }
        bound => bound.with_context(|| format!("--listen: {address} cannot be listened on: name an address and a port that are free, as 0.0.0.0:8080")),
    }
}

/// The controllers that are asked for.
async fn open(
    args: &ControllerArgs,
    client: &Client,
    namespace: &str,
    name: &str,
) -> anyhow::Result<Controllers> {
    let mut controllers = Controllers::default();
    if args.looks_after(Which::Quarks) {
        let delivery = args.cluster().delivery(client, namespace).await?;
        let settings = quarks_settings(args, namespace, name, delivery)?;
        controllers.quarks = Some(quarks::Controller::open(client.clone(), settings).await?);
    }
    if args.looks_after(Which::Templates) {
        let settings = templates::Settings {
            namespace: namespace.to_owned(),
            name: templates::NAME.to_owned(),
            requesters: args.requesters.into(),
            watched: args.instance_namespaces.clone(),
            workers: usize::try_from(args.max_workers)?,
            drift: args.drift.into(),
            drift_interval: args.drift_interval.0,
            translation: args.translation(),
            longest_call: templates::LONGEST_CALL,
        };
        let templates = templates::Controller::open(client.clone(), settings).await?;
        controllers.templates = Some(templates);
    }
    Ok(controllers)
}

/// What they do for as long as they are there; one replica of several.
fn begin(controllers: &Controllers, lead: &Arc<Lead>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let keeps = Arc::clone(lead);
    tasks.spawn(vital::task("the Lease", async move { keeps.keep().await }));
    if let Some(quarks) = controllers.quarks.clone() {
        let run = quarks.run(Arc::clone(lead));
        tasks.spawn(vital::task("the controller of QuarksJobs", run));
    }
    if let Some(templates) = controllers.templates.clone() {
        let run = templates.run(Arc::clone(lead));
        tasks.spawn(vital::task("the controller of templates", run));
    }
    tasks
}

fn quarks_settings(
    args: &ControllerArgs,
    namespace: &str,
    name: &str,
    delivery: Delivery,
) -> anyhow::Result<quarks::Settings> {
    Ok(quarks::Settings {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        monitored: args.monitored(),
        delivery,
        agent_resources: args.agent_resources.clone(),
        settle: args.settle.0,
        workers: usize::try_from(args.max_workers)?,
        key_rotation: args.key_rotation.0,
        wraps: !args.always_sidecar,
        strict: args.strict,
        verbatim_prefixes: args.verbatim_name_prefix,
        mends_definitions: args.apply_crd,
    })
}

/// The definitions of what is looked after. Those of templates only where they are not served otherwise: OpenShift has
/// them itself.
async fn install(args: &ControllerArgs, client: &Client) -> anyhow::Result<()> {
    if args.looks_after(Which::Quarks) {
        quarks::install(client.clone()).await?;
    }
    if args.looks_after(Which::Templates) && !templates::are_served_otherwise(client).await? {
        templates::install(client.clone()).await?;
    }
    Ok(())
}
