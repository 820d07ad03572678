//! Prints lists of records and operations: instances, bindings, operations.

use jiff::Timestamp;
use osb::Catalog;
use serde_json::json;

use super::args::{BindingsArgs, InstancesArgs, Listing, OperationsArgs};
use super::connection::Connection;
use super::failure::Failure;
use super::operator::{Kind, Wanted};
use super::status::lifecycle;
use super::{lookup, times};
use crate::admin::model::{Page, RecordView};

pub(crate) async fn instances(connection: Connection, args: InstancesArgs) -> Result<(), Failure> {
    let page = connection.records(&wanted(Kind::Instances, None, args.listing)).await?;
    if connection.out.is_json() {
        return connection.out.json(&page);
    }
    unreadable(&connection, &page);
    if connection.out.quiet {
        return ids(&connection, &page, |record| record.instance_id.clone());
    }
    let catalog = connection.catalog().await.ok();
    let rows = page.items.iter().map(|record| {
        let mut row = vec![connection.out.id(&record.instance_id)];
        row.extend(columns(catalog.as_ref(), record));
        row
    });
    let heading = ["INSTANCE", "SERVICE", "PLAN", "STATE", "LAST OPERATION", "CHANGED"];
    connection.out.table(&heading, rows.collect())?;
    more(&connection, &page);
    Ok(())
}

pub(crate) async fn bindings(connection: Connection, args: BindingsArgs) -> Result<(), Failure> {
    let page = connection.records(&wanted(Kind::Bindings, args.instance, args.listing)).await?;
    if connection.out.is_json() {
        return connection.out.json(&page);
    }
    let binding = |record: &RecordView| record.binding_id.clone().unwrap_or_default();
    unreadable(&connection, &page);
    if connection.out.quiet {
        return ids(&connection, &page, binding);
    }
    let catalog = connection.catalog().await.ok();
    let rows = page.items.iter().map(|record| {
        let out = connection.out;
        let mut row = vec![out.id(&record.instance_id), out.id(&binding(record))];
        row.extend(columns(catalog.as_ref(), record));
        row
    });
    let heading = ["INSTANCE", "BINDING", "SERVICE", "PLAN", "STATE", "LAST OPERATION", "CHANGED"];
    connection.out.table(&heading, rows.collect())?;
    more(&connection, &page);
    Ok(())
}

pub(crate) async fn operations(
    connection: Connection,
    args: OperationsArgs,
) -> Result<(), Failure> {
    let which = match (args.failed, args.busy) {
        (true, _) => "failed",
        (_, true) => "busy",
        (false, false) => "all",
    };
    let all = connection.operations(args.instance.as_deref(), which, args.limit).await?;
    let out = connection.out;
    if out.is_json() {
        return out.json(&json!({ "items": all }));
    }
    if out.quiet {
        let runs = all.iter().map(|done| done.operation.run.as_str()).collect::<Vec<_>>();
        return if runs.is_empty() { Ok(()) } else { out.line(&runs.join("\n")) };
    }
    let now = Timestamp::now();
    let rows = all.into_iter().map(|done| {
        let operation = &done.operation;
        vec![
            times::ago(&operation.created_at, now),
            operation.action.clone(),
            operation.state.clone(),
            out.id(&done.instance_id),
            out.id(&done.binding_id.clone().unwrap_or_default()),
            operation.took(),
            operation.run.clone(),
            operation.why(),
        ]
    });
    let heading = ["STARTED", "OPERATION", "STATE", "INSTANCE", "BINDING", "TOOK", "RUN", "WHY"];
    out.table(&heading, rows.collect())
}

fn wanted(kind: Kind, instance: Option<String>, listing: Listing) -> Wanted {
    let Listing { state, limit, after } = listing;
    Wanted { kind, instance, state, after, limit }
}

fn columns(catalog: Option<&Catalog>, record: &RecordView) -> [String; 5] {
    let (service, plan) = lookup::names(catalog, &record.service_id, &record.plan_id);
    let operation = &record.operation;
    let last = match &operation.reason {
        Some(reason) => format!("{} {}: {reason}", operation.action, operation.state),
        None => format!("{} {}", operation.action, operation.state),
    };
    [
        service.to_owned(),
        plan.to_owned(),
        lifecycle(record.state).to_owned(),
        last,
        times::ago(&record.updated_at, Timestamp::now()),
    ]
}

fn ids(
    connection: &Connection,
    page: &Page,
    id: impl Fn(&RecordView) -> String,
) -> Result<(), Failure> {
    if page.items.is_empty() {
        return Ok(());
    }
    connection.out.line(&page.items.iter().map(id).collect::<Vec<_>>().join("\n"))
}

/// Prints what can be done about records that cannot be read.
fn unreadable(connection: &Connection, page: &Page) {
    for one in &page.unreadable {
        let ids = [Some(one.instance_id.as_str()), one.binding_id.as_deref()];
        let id = super::output::arguments(ids);
        let why = &one.why;
        connection.out.note(&format!("{id} cannot be read: {why}; forget it: manciple purge {id}"));
    }
}

fn more(connection: &Connection, page: &Page) {
    if let Some(next) = &page.next {
        connection.out.hint(&format!("there are more: --after {}", super::output::quoted(next)));
    }
}
