//! `manciple controller`: runs QuarksJobs.
//!
//! ```text
//! flags, environment ─▶ Cluster ─▶ Lead ─▶ quarks::Controller     HTTP: probes, metrics
//! ```
//!
//! Several replicas may run: one of them acts. The flags and variables of the original operator are taken; what
//! has no meaning here is passed over, and said.

mod args;
mod http;

use std::sync::Arc;

use anyhow::Context as _;
use kubernetes::Lead;
use kubernetes::quarks::{Controller, Settings};
use osb::server::Limits;
use tokio::net::TcpListener;

pub(crate) use args::ControllerArgs;

use crate::serve::{identity, log, told_to_end};

/// What the keys and the Lease are named by.
const NAME: &str = "quarks";

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: &ControllerArgs) -> anyhow::Result<()> {
    log(&args.log())?;
    args.check()?;
    args.passed_over().for_each(|flag| tracing::warn!("--{flag} has no meaning here: passed over"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the threads could not be started")?;
    runtime.block_on(async {
        // Caught before anything is begun: unhandled, each of them ends the process.
        let end = told_to_end()?;
        let cluster = args.cluster();
        let namespace = cluster.namespace()?;
        let client = kubernetes::client(cluster.kubeconfig.as_deref()).await?;
        if args.apply_crd {
            kubernetes::quarks::install(client.clone()).await.context("--apply-crd")?;
        }
        let delivery = cluster.delivery(&client, &namespace).await?;
        let name = format!("{NAME}/{}", args.monitored_id);
        let settings = Settings {
            namespace: namespace.clone(),
            name: name.clone(),
            monitored: args.monitored(),
            delivery,
            settle: args.settle.0,
            workers: usize::try_from(args.max_workers)?,
            key_rotation: args.key_rotation.0,
            wraps: !args.always_sidecar,
            strict: args.strict,
            verbatim_prefixes: args.verbatim_name_prefix,
        };
        let lead = Arc::new(Lead::new(client.clone(), &namespace, &name, &identity()?));
        let controller = Controller::open(client, settings).await?;
        let listener = TcpListener::bind(&args.listen)
            .await
            .with_context(|| format!("--listen: {} cannot be listened on", args.listen))?;
        let monitors = &args.monitored_id;
        tracing::info!(address = %listener.local_addr()?, namespace, monitors, "serving");
        let keeps = Arc::clone(&lead);
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move { keeps.keep().await });
        tasks.spawn(Arc::clone(&controller).run(Arc::clone(&lead)));
        osb::server::serve(listener, http::routes(controller), None, Limits::default(), end).await;
        tracing::info!("told to end; Jobs go on, and another replica takes over");
        tasks.shutdown().await;
        lead.give_back().await;
        anyhow::Ok(())
    })
}
