//! `manciple job list`: prints the state of each QuarksJob.

use jiff::Timestamp;
use kubernetes::quarks::view::{RunEnd, View};
use serde_json::{Value, json};

use super::args::ListArgs;
use super::cluster::Cluster;
use super::document;
use crate::cli::failure::Failure;
use crate::cli::times;

pub(crate) async fn print(cluster: &Cluster, args: &ListArgs) -> Result<(), Failure> {
    let (out, everywhere) = (cluster.out, args.all_namespaces);
    let mut views = cluster.views(everywhere).await?;
    views.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
    if out.is_json() {
        let kind = cluster.dialect.kind();
        let items: Vec<Value> = views.iter().map(|view| item(kind, view)).collect();
        return out.json(&json!({ "items": items }));
    }
    if out.quiet {
        let names: Vec<String> = views.iter().map(|view| name(view, everywhere)).collect();
        return if names.is_empty() { Ok(()) } else { out.line(&names.join("\n")) };
    }
    let now = Timestamp::now();
    let rows = views.iter().map(|view| {
        let namespace = everywhere.then(|| view.namespace.clone());
        namespace.into_iter().chain(row(view, now)).collect()
    });
    let heading = ["NAME", "STRATEGY", "COMPLETED", "RUN", "LAST", "ENDED", "MADE", "WAITS"];
    let place = everywhere.then_some("NAMESPACE");
    let heading: Vec<&str> = place.into_iter().chain(heading).collect();
    out.table(&heading, rows.collect())?;
    if views.is_empty() && !everywhere {
        out.hint(&format!("there is none in namespace {}; -A lists all", cluster.namespace));
    }
    Ok(())
}

fn name(view: &View, everywhere: bool) -> String {
    match everywhere {
        true => format!("{}/{}", view.namespace, view.name),
        false => view.name.clone(),
    }
}

fn row(view: &View, now: Timestamp) -> [String; 8] {
    let last = last(view);
    let ran = |text: String| if view.last == 0 { String::new() } else { text };
    [
        view.name.clone(),
        view.strategy().to_owned(),
        // It may have run under the original operator.
        if view.completed { "true".to_owned() } else { ran("false".to_owned()) },
        ran(view.last.to_string()),
        last.map(|end| end.outcome.reason.clone()).unwrap_or_default(),
        last.map(|end| times::ago(&end.ended_at, now)).unwrap_or_default(),
        last.map(|end| end.outcome.made.join(", ")).unwrap_or_default(),
        view.waits.clone().unwrap_or_default(),
    ]
}

/// The end of the newest run that has ended.
fn last(view: &View) -> Option<&RunEnd> {
    view.runs.iter().find_map(|run| run.end.as_ref())
}

fn item(kind: &str, view: &View) -> Value {
    let of = |ended: bool| view.runs.iter().filter(move |run| run.end.is_some() == ended);
    json!({
        "kind": kind,
        "namespace": view.namespace,
        "name": view.name,
        "strategy": view.strategy(),
        "completed": view.completed,
        "run": view.last,
        "going": of(false).map(document).collect::<Vec<_>>(),
        "last_run": of(true).next().map(document),
        "waits": view.waits,
    })
}
