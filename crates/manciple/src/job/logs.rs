//! `manciple job logs`: prints the logs of a run's pods, pod after pod, in the order in which they were made.

use std::collections::BTreeSet;
use std::time::Duration;

use engine::trigger::Strategy;
use futures_util::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kubernetes::quarks::view::{RunView, View, containers};

use super::args::LogsArgs;
use super::cluster::Cluster;
use super::reading::{Printer, Reading};
use super::run::waits_for;
use super::{waiting, why};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::output::one_line;

/// How often the command looks for another pod of a run that is followed.
const INTERVAL: Duration = Duration::from_secs(1);

pub(crate) async fn print(cluster: &Cluster, args: &LogsArgs) -> Result<(), Failure> {
    let view = cluster.view(&args.name).await?;
    let run = wanted(cluster, &view, args.run)?;
    let mut job = view.job(run);
    let printer = Printer::new(cluster.out, run);
    let mut seen = BTreeSet::new();
    let mut now = Some(view);
    loop {
        // Before the pods are looked for: the last of them must not be missed.
        let goes_on = now.as_ref().is_some_and(|view| goes_on(view, run));
        let mut pods = cluster.pods(&job).await?;
        if pods.is_empty()
            && seen.is_empty()
            && let Some(view) = &now
            && let Some(other) = cluster.job_of(view, run).await
        {
            job = other;
            pods = cluster.pods(&job).await?;
        }
        for pod in &pods {
            if seen.insert(pod.metadata.uid.clone()) {
                announce(cluster, pod, pods.len().max(seen.len()));
                of_pod(cluster, pod, args, &printer).await?;
            }
        }
        if !args.follow || !goes_on {
            return match seen.is_empty() {
                true => Err(none(cluster, &args.name, run, now.as_ref())),
                false => Ok(()),
            };
        }
        tokio::time::sleep(INTERVAL).await;
        now = still(cluster, &args.name).await?;
    }
}

/// The number of the wanted run: the newest, unless another is named.
fn wanted(cluster: &Cluster, view: &View, run: Option<u64>) -> Result<u64, Failure> {
    let subject = cluster.subject(&view.name);
    match run {
        _ if view.last == 0 => {
            let hint = match (view.strategy, waits_for(view)) {
                (Strategy::Now | Strategy::Once, Some(waits)) => waiting(&waits),
                (Strategy::Now | Strategy::Once, None) => "its trigger is not taken yet".to_owned(),
                _ => format!("begin one: {}", cluster.command("run", &view.name)),
            };
            Err(Failure::missing(format!("{subject} has had no run yet")).hint(one_line(&hint)))
        }
        Some(run) if run > view.last => {
            let message = format!("{subject} has no run {run} yet; the newest is {}", view.last);
            let history = cluster.command("history", &view.name);
            Err(Failure::missing(message).hint(format!("these are known: {history}")))
        }
        Some(run) => Ok(run),
        None => Ok(view.last),
    }
}

fn goes_on(view: &View, run: u64) -> bool {
    view.run(run).is_some_and(|run| run.end.is_none())
}

/// Reads the QuarksJob again; `None`: somebody deleted it.
async fn still(cluster: &Cluster, name: &str) -> Result<Option<View>, Failure> {
    match cluster.view(name).await {
        Ok(view) => Ok(Some(view)),
        Err(failure) if failure.exit == Exit::Missing => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Prints which one of several pods has the log that follows.
fn announce(cluster: &Cluster, pod: &Pod, of: usize) {
    if of > 1 && cluster.out.is_chatty() {
        cluster.out.note(&format!("--- {}", name(pod)));
    }
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

async fn of_pod(
    cluster: &Cluster,
    pod: &Pod,
    args: &LogsArgs,
    printer: &Printer,
) -> Result<(), Failure> {
    let all = containers(pod);
    let names = match &args.container {
        Some(container) if !all.contains(&container.as_str()) => {
            let message = format!("pod {} has no container {container:?}", name(pod));
            return Err(Failure::usage(message).hint(format!("it has {}", all.join(", "))));
        }
        Some(container) => vec![container.as_str()],
        None => all,
    };
    let prefixed = names.len() > 1;
    let readings = names.into_iter().map(|container| Reading {
        cluster,
        printer,
        pod: name(pod),
        container,
        prefix: if prefixed { format!("[{container}] ") } else { String::new() },
    });
    match args.follow {
        // Side by side: each prints when it has something to say.
        true => try_join_all(readings.map(Reading::follow)).await.map(drop),
        false => {
            for reading in readings {
                reading.whole(pod).await?;
            }
            Ok(())
        }
    }
}

/// The failure of a run without pods.
fn none(cluster: &Cluster, name: &str, run: u64, view: Option<&View>) -> Failure {
    let subject = cluster.subject(name);
    match view.and_then(|view| view.run(run)) {
        Some(known) if known.end.is_none() => {
            let follow = cluster.command("logs", name);
            Failure::missing(format!("run {run} of {subject} has no pod yet"))
                .hint(format!("wait for it: {follow} --follow"))
        }
        known => match known.and_then(RunView::ended_without_job) {
            Some(outcome) => {
                let why = why(outcome);
                Failure::missing(format!("run {run} of {subject} had no Job, and no log: {why}"))
            }
            None => {
                let history = cluster.command("history", name);
                Failure::missing(format!(
                    "the pods of run {run} of {subject} are gone, and their logs with them"
                ))
                .hint(format!("how it ended is still known: {history}"))
            }
        },
    }
}
