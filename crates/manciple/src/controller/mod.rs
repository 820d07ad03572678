//! `manciple controller`: runs QuarksJobs, and makes TemplateInstances.
//!
//! ```text
//! flags, environment ─▶ Cluster ─▶ quarks::Controller, templates::Controller, a Lead each     HTTP: probes, metrics
//! ```
//!
//! Several replicas may run: one of them acts. The flags and variables of the original operator are accepted; those
//! that have no meaning here are ignored, and logged.

mod args;
mod http;
mod webhook;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use engine::vital;
use kubernetes::{Client, Delivery, Lead, quarks, templates};
use osb::server::Limits;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

pub(crate) use args::ControllerArgs;
use args::Which;
use http::Controllers;

use crate::log::log;
use crate::process::{EVERYWHERE, LINGER, bind, identity, keep_lease, told_to_end, whole};

/// What keys and Lease of the controller of QuarksJobs are named by, before the id of what it monitors. One of templates alone
/// has a Lease by their name: of two in one namespace each may look after something else.
const QUARKS: &str = "quarks";

/// How long an answer that is under way may take at the end.
const LAST_ANSWER: Duration = Duration::from_secs(1);

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: &ControllerArgs) -> anyhow::Result<()> {
    args.check()?;
    log(&args.log())?;
    if let Some(flags) = args.passed_over() {
        tracing::warn!(flags, "what has no meaning here is passed over");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the threads could not be started")?;
    runtime.block_on(attend(args))
}

/// Runs the controllers until the process is told to end.
async fn attend(args: &ControllerArgs) -> anyhow::Result<()> {
    // Caught before anything is begun: unhandled, each of them ends the process.
    let end = told_to_end(1)?;
    let cluster = args.cluster();
    let client = kubernetes::client(cluster.kubeconfig.as_deref()).await?;
    // As for kubectl: where nobody says which, it is that of the kubeconfig's context.
    let namespace = cluster.namespace_or(Some(client.default_namespace()))?;
    if args.apply_crd {
        install(args, &client).await.context("--apply-crd")?;
    }
    let webhook = webhook::serve(&args.webhook, &client, &namespace, templates::NAME).await?;
    let first = if args.looks_after(Which::Quarks) { QUARKS } else { templates::NAME };
    let name = format!("{first}/{}", args.monitored_id);
    let lead = Arc::new(Lead::new(client.clone(), &namespace, &name, &identity()?));
    let mut controllers = open(args, &client, &namespace, &name, &lead).await?;
    controllers.admission = webhook.as_ref().map(|it| Arc::clone(&it.admission));
    let listener = listen(args.listen.as_deref(), cluster.is_in_a_pod()).await?;
    let monitors = &args.monitored_id;
    tracing::info!(address = %listener.local_addr()?, namespace, monitors, "serving");
    let mut tasks = begin(&controllers);
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async move { drop(stopped.await) };
    let routes = http::routes(controllers);
    let probes = osb::server::serve(listener, routes, None, Limits::default(), stopped);
    let probes = tokio::spawn(probes);
    tokio::select! {
        () = end => tracing::info!("told to end; Jobs go on, and another replica takes over"),
        () = lead.undone() => {}
        () = vital::until_panicked() => {}
    }
    tasks.shutdown().await;
    drop(stop);
    let lingers = cluster.kubeconfig.is_none() && whole(Some(&lead)).is_ok();
    let webhook_ends = async {
        let Some(webhook) = webhook else { return };
        // In a pod: without an answer what people order is refused. A process that is to be begun anew ends the sooner.
        if lingers {
            tokio::time::sleep(LINGER).await;
        }
        webhook.end().await;
    };
    tokio::join!(lead.give_back(), webhook_ends);
    // Whoever asks for a probe, or has sent half a question, holds the end up no longer.
    let _ = tokio::time::timeout(LAST_ANSWER, probes).await;
    whole(Some(&lead))
}

/// Listens on the given address. If none is given, and the usual port is taken, it listens on another: several
/// controllers may be started by hand on one machine, and nobody probes them there.
async fn listen(told: Option<&str>, in_a_pod: bool) -> anyhow::Result<TcpListener> {
    let address = told.unwrap_or(EVERYWHERE);
    match bind("--listen", address, EVERYWHERE).await {
        Err(error) if told.is_none() && !in_a_pod && is_taken(&error) => {
            tracing::warn!("{address} is taken: another port is listened on");
            Ok(bind("--listen", "[::]:0", EVERYWHERE).await?)
        }
        bound => bound,
    }
}

fn is_taken(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::AddrInUse)
}

/// Opens the controllers that are asked for.
async fn open(
    args: &ControllerArgs,
    client: &Client,
    namespace: &str,
    name: &str,
    lead: &Arc<Lead>,
) -> anyhow::Result<Controllers> {
    let lead = Arc::clone(lead);
    let mut controllers = Controllers { lead, quarks: None, templates: None, admission: None };
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

/// Begins the work of the controllers; of several replicas one does it.
fn begin(controllers: &Controllers) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let lead = &controllers.lead;
    tasks.spawn(keep_lease(Arc::clone(lead)));
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
        immutable_versions: !args.mutable_versions,
        mends_definitions: args.apply_crd,
    })
}

/// Installs the definitions of the controlled resources. Those of templates are only installed where the cluster does
/// not serve them otherwise: OpenShift has them itself.
async fn install(args: &ControllerArgs, client: &Client) -> anyhow::Result<()> {
    if args.looks_after(Which::Quarks) {
        quarks::install(client.clone()).await?;
    }
    if args.looks_after(Which::Templates) && !templates::are_served_otherwise(client).await? {
        templates::install(client.clone()).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ffi::OsStr;

    use clap::{CommandFactory as _, Parser as _};
    use serde_json::json;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: ControllerArgs,
    }

    /// What no flag decides here: the cluster does, and where this runs.
    const GIVEN: [&str; 3] = ["namespace", "name", "delivery"];

    /// Each member of the settings by its name, where this is said and nothing else.
    fn members(word: Option<&str>) -> [(&'static str, String); 13] {
        let line = Line::try_parse_from(["controller"].into_iter().chain(word)).unwrap();
        let image = "registry/manciple:1".to_owned();
        let delivery =
            Delivery::InitContainer { image, path: "/agent".to_owned(), resources: None };
        // Whoever adds a member says here, and in the table, which flag it comes from.
        let quarks::Settings {
            namespace,
            name,
            monitored,
            delivery,
            agent_resources,
            settle,
            workers,
            key_rotation,
            wraps,
            strict,
            verbatim_prefixes,
            immutable_versions,
            mends_definitions,
        } = quarks_settings(&line.args, "manciple", "quarks/default", delivery).unwrap();
        [
            ("namespace", namespace),
            ("name", name),
            ("monitored", format!("{monitored:?}")),
            ("delivery", format!("{delivery:?}")),
            ("agent_resources", format!("{agent_resources:?}")),
            ("settle", format!("{settle:?}")),
            ("workers", workers.to_string()),
            ("key_rotation", format!("{key_rotation:?}")),
            ("wraps", wraps.to_string()),
            ("strict", strict.to_string()),
            ("verbatim_prefixes", verbatim_prefixes.to_string()),
            ("immutable_versions", immutable_versions.to_string()),
            ("mends_definitions", mends_definitions.to_string()),
        ]
    }

    #[test]
    fn each_flag_changes_its_member_alone_and_has_its_variable() {
        let plain = members(None);
        let line = Line::command();
        let resources = json!({"limits": {"memory": "32Mi"}});
        let asks = format!("--agent-resources={resources}");
        let asked = format!("{:?}", Some(&resources));
        let mut decided = BTreeSet::from(GIVEN);
        for (word, variable, member, expected) in [
            ("--monitored-id=a", "MONITORED_ID", "monitored", "Labelled(\"a\")"),
            ("--monitored=marked", "MANCIPLE_MONITORED", "monitored", "Marked(\"default\")"),
            ("--monitored=all", "MANCIPLE_MONITORED", "monitored", "All"),
            (asks.as_str(), "MANCIPLE_AGENT_RESOURCES", "agent_resources", asked.as_str()),
            ("--settle=5s", "MANCIPLE_SETTLE", "settle", "5s"),
            ("--max-workers=3", "MAX_WORKERS", "workers", "3"),
            ("--key-rotation=2h", "MANCIPLE_KEY_ROTATION", "key_rotation", "7200s"),
            ("--always-sidecar", "MANCIPLE_ALWAYS_SIDECAR", "wraps", "false"),
            ("--strict", "MANCIPLE_STRICT", "strict", "true"),
            (
                "--verbatim-name-prefix",
                "MANCIPLE_VERBATIM_NAME_PREFIX",
                "verbatim_prefixes",
                "true",
            ),
            ("--mutable-versions", "MANCIPLE_MUTABLE_VERSIONS", "immutable_versions", "false"),
            ("--apply-crd", "APPLY_CRD", "mends_definitions", "true"),
            ("--apply-crd=true", "APPLY_CRD", "mends_definitions", "true"),
        ] {
            let both = members(Some(word)).into_iter().zip(&plain);
            let changed: Vec<_> =
                both.filter(|(now, before)| now != *before).map(|(now, _)| now).collect();
            assert_eq!(changed, [(member, expected.to_owned())], "{word}");
            let flag = word.trim_start_matches("--").split('=').next();
            let argument = line.get_arguments().find(|it| it.get_long() == flag);
            let read = argument.and_then(clap::Arg::get_env);
            assert_eq!(read, Some(OsStr::new(variable)), "{word}");
            decided.insert(member);
        }
        let all: BTreeSet<&str> = plain.iter().map(|(name, _)| *name).collect();
        assert_eq!(decided, all);
    }

    #[test]
    fn what_nobody_says_has_its_default() {
        let plain = members(None);
        let of = |member: &str| plain.iter().find(|(name, _)| *name == member).map(|it| &*it.1);
        for (member, expected) in [
            ("monitored", "Labelled(\"default\")"),
            ("agent_resources", "None"),
            ("settle", "1s"),
            ("workers", "20"),
            ("key_rotation", "2592000s"),
            ("wraps", "true"),
            ("strict", "false"),
            ("verbatim_prefixes", "false"),
            ("mends_definitions", "false"),
        ] {
            assert_eq!(of(member), Some(expected), "{member}");
        }
    }
}
