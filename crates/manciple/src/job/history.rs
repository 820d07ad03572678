//! `manciple job history`: prints the runs of a QuarksJob.

use engine::trigger::Strategy;
use jiff::Timestamp;
use kubernetes::quarks::view::{RunView, View};
use serde_json::{Value, json};

use super::args::HistoryArgs;
use super::cluster::Cluster;
use super::{document, took, waiting};
use crate::cli::failure::Failure;
use crate::cli::times;

pub(crate) async fn print(cluster: &Cluster, args: &HistoryArgs) -> Result<(), Failure> {
    let (out, view) = (cluster.out, cluster.view(&args.name).await?);
    let mut runs = view.runs.clone();
    // Those that go on first, though newer ones may have ended.
    runs.sort_by_key(|run| run.end.is_some());
    if out.is_json() {
        let items: Vec<Value> = runs.iter().map(document).collect();
        return out.json(&json!({ "items": items }));
    }
    if out.quiet {
        let numbers: Vec<String> = runs.iter().map(|run| run.id.to_string()).collect();
        return if numbers.is_empty() { Ok(()) } else { out.line(&numbers.join("\n")) };
    }
    let now = Timestamp::now();
    let rows = runs.iter().map(|run| row(run, now));
    let heading = ["RUN", "TRIGGER", "STARTED", "TOOK", "OUTCOME", "MADE", "MESSAGE"];
    out.table(&heading, rows.collect())?;
    if let Some(waits) = &view.waits {
        out.note(&waiting(waits));
    } else if is_untaken(&view) {
        out.hint(
            "its trigger stands, and no controller has said anything of it yet; where that stays so: is one running, and has \
             the namespace both labels of what it monitors? kubectl get namespaces --show-labels shows them",
        );
    } else if runs.is_empty() {
        let run = cluster.command("run", &args.name);
        out.hint(&format!("there has been no run; begin one: {run}"));
    }
    Ok(())
}

/// Whether a trigger stands of which no controller says anything: one that has seen it says what it waits for, within ten
/// seconds where that is a pod.
fn is_untaken(view: &View) -> bool {
    match view.strategy {
        Strategy::Now => true,
        Strategy::Once => view.last == 0,
        Strategy::Manual | Strategy::Done | Strategy::PodState => false,
    }
}

fn row(run: &RunView, now: Timestamp) -> Vec<String> {
    let outcome = run.end.as_ref().map(|end| &end.outcome);
    vec![
        run.id.to_string(),
        run.trigger.clone(),
        times::ago(&run.started_at, now),
        took(run, now),
        outcome.map_or("Going", |it| &it.reason).to_owned(),
        outcome.map(|it| it.made.join(", ")).unwrap_or_default(),
        outcome.map(|it| it.message.clone()).unwrap_or_default(),
    ]
}
