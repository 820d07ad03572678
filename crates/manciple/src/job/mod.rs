//! `manciple job`: people list, run and read QuarksJobs, with the rights of their own kubeconfig.
//!
//! ```text
//! args ─▶ cluster ─▶ View (what a resource says) ─▶ list, history
//!            │          └─ taken? ─▶ run: says `now`, waits for the run that it makes
//!            └─ pods of a run ─▶ logs ─▶ reading (one container)
//! ```
//!
//! The controller is not asked: it need not be reachable, and has no API. What it knows of runs it has written
//! to the resources.

mod args;
mod cluster;
mod history;
mod lint;
mod list;
mod logs;
mod reading;
mod run;

use std::time::Duration;

use engine::trigger::Outcome;
use jiff::Timestamp;
use kubernetes::quarks::view::{RunEnd, RunView};
use serde_json::{Value, json};

pub(crate) use args::JobArgs;
use args::JobCommand;
use cluster::Cluster;

use crate::cli::failure::Failure;
use crate::cli::output::{Output, one_line};
use crate::cli::{Ongoing, RemoteArgs, format, times};

/// Carries out the command; `remote` says how to print.
pub(crate) async fn perform(
    args: Box<JobArgs>,
    remote: &RemoteArgs,
    ongoing: Ongoing,
) -> Result<(), Failure> {
    let open = |cluster| Cluster::open(cluster, remote, ongoing);
    match args.command {
        JobCommand::List(on) => list::print(&open(&on.cluster).await?, &on.args).await,
        JobCommand::Run(on) => run::run(&open(&on.cluster).await?, &on.args).await,
        JobCommand::Logs(on) => logs::print(&open(&on.cluster).await?, &on.args).await,
        JobCommand::History(on) => history::print(&open(&on.cluster).await?, &on.args).await,
        JobCommand::Lint(args) => {
            let out = Output { format: format(remote)?, quiet: remote.printing.quiet };
            lint::print(out, &args).await
        }
    }
}

/// The document of a run, for programs.
fn document(run: &RunView) -> Value {
    let mut document = json!({
        "run": run.id,
        "trigger": run.trigger,
        "job": run.job,
        "state": "going",
        "started_at": run.started_at,
    });
    if let Some(RunEnd { outcome, ended_at, seconds }) = &run.end {
        document["state"] = json!(if outcome.succeeded { "succeeded" } else { "failed" });
        document["reason"] = json!(outcome.reason);
        document["message"] = json!(outcome.message);
        document["made"] = json!(outcome.made);
        document["ended_at"] = json!(ended_at);
        document["seconds"] = json!(seconds);
    }
    document
}

/// How long a run took, or has taken until now.
fn took(run: &RunView, now: Timestamp) -> String {
    let took = match &run.end {
        Some(end) => end.seconds.map(Duration::from_secs),
        None => times::between(&run.started_at, &now.to_string()),
    };
    match took {
        Some(took) if took.as_secs() == 0 => "0s".to_owned(),
        Some(took) => times::span(took),
        None => String::new(),
    }
}

/// The end of a run, in one line: its reason and its message.
fn why(outcome: &Outcome) -> String {
    let why = one_line(&format!("{}: {}", outcome.reason, outcome.message));
    why.trim_end_matches([':', ' ']).to_owned()
}

/// The sentence that says what the command waits for.
fn waiting(waits: &str) -> String {
    match waits.starts_with("it waits") {
        true => waits.to_owned(),
        false => format!("it waits: {waits}"),
    }
}
