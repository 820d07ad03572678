//! `manciple logs`: prints the log of a run, and follows it while the operation goes on.

use std::time::Duration;

use osb::client::ClientError;

use super::args::{LogsArgs, StateFilter};
use super::connection::{Connection, Subject};
use super::failure::Failure;
use super::operator::{Kind, Wanted};
use crate::admin::model::{LogView, RecordView};

/// How often a log that is followed is read.
const INTERVAL: Duration = Duration::from_secs(1);

/// How many bytes of what was printed are looked for in a log that was cut at its beginning.
const OVERLAP: usize = 512;

pub(crate) async fn print(connection: Connection, args: LogsArgs) -> Result<(), Failure> {
    let (mut run, subject) = match (args.run, &args.instance) {
        (Some(run), _) => {
            // Only to follow it does it matter what it belongs to.
            let subject = if args.follow { owner(&connection, &run).await? } else { None };
            (run, subject)
        }
        (None, instance) => {
            let instance = instance.as_deref().unwrap_or_default();
            let subject = Subject::new(instance, args.binding.as_deref())?;
            let current = current(&connection, connection.record(&subject).await, &subject)?;
            (current.run, Some(subject))
        }
    };
    let mut printed = String::new();
    loop {
        // Before the log is read: what is written last must not be missed.
        let now = match &subject {
            Some(subject) if args.follow => {
                let record = connection.patiently(|| connection.record(subject)).await;
                Some(current(&connection, record, subject)?)
            }
            _ => None,
        };
        let busy = now.as_ref().is_some_and(|now| now.busy);
        let log = match args.follow {
            true => connection.patiently(|| connection.log(&run)).await,
            false => connection.log(&run).await,
        };
        match log {
            Ok(log) => show(&connection, &log, &mut printed, args.follow)?,
            // The run has not started, or the operation is between two attempts.
            Err(error) if busy && error.is_absent() => {}
            Err(error) => {
                let failure = connection.refused(&format!("read the log of {run}"), &error);
                return Err(
                    failure.or_hint("manciple operations lists the runs; old logs are not kept")
                );
            }
        }
        match now {
            Some(now) if now.busy && now.run == run => tokio::time::sleep(INTERVAL).await,
            Some(now) if now.run != run && args.instance.is_some() => {
                // A retry, or the operation after: what follows is its log.
                run = now.run;
                printed.clear();
                if connection.out.is_chatty() {
                    connection.out.note(&format!("--- {run}"));
                }
            }
            _ => return Ok(()),
        }
    }
}

/// Prints the new part of a log. For programs each piece is a document, one per line when the log is followed.
fn show(
    connection: &Connection,
    log: &LogView,
    printed: &mut String,
    follow: bool,
) -> Result<(), Failure> {
    let new = unseen(printed, &log.log);
    if connection.out.is_json() {
        if !follow {
            return connection.out.json(log);
        }
        if !new.is_empty() {
            let piece = LogView { run: log.run.clone(), log: new.to_owned() };
            connection.out.line(&serde_json::json!(piece).to_string())?;
        }
    } else if !new.is_empty() {
        connection.out.foreign(new)?;
    }
    *printed = log.log.clone();
    Ok(())
}

/// The part of a log that was not printed yet. A log is capped: its beginning may be gone.
fn unseen<'a>(printed: &str, log: &'a str) -> &'a str {
    if let Some(rest) = log.strip_prefix(printed) {
        return rest;
    }
    let tail = &printed[printed.ceil_char_boundary(printed.len().saturating_sub(OVERLAP))..];
    match log.rfind(tail) {
        Some(at) => &log[at + tail.len()..],
        None => log,
    }
}

/// The last run of an instance or a binding.
struct Current {
    run: String,
    busy: bool,
}

fn current(
    connection: &Connection,
    record: Result<RecordView, ClientError>,
    subject: &Subject,
) -> Result<Current, Failure> {
    let record = record.map_err(|error| {
        connection
            .refused(&format!("find the last run of {subject}"), &error)
            .or_hint("manciple instances --state all lists what is recorded")
    })?;
    let busy = record.operation.is_busy();
    Ok(Current { run: record.operation.run, busy })
}

/// The instance or binding of a run that goes on; `None` if the run has ended.
async fn owner(connection: &Connection, run: &str) -> Result<Option<Subject>, Failure> {
    for kind in [Kind::Instances, Kind::Bindings] {
        let busy =
            Wanted { kind, instance: None, state: StateFilter::Busy, after: None, limit: None };
        let page = connection.records(&busy).await?;
        if let Some(record) = page.items.iter().find(|record| record.operation.run == run) {
            return Subject::new(&record.instance_id, record.binding_id.as_deref()).map(Some);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_new_is_printed() {
        for (printed, log, expected) in [
            ("", "one\n", "one\n"),
            ("one\n", "one\ntwo\n", "two\n"),
            ("one\n", "one\n", ""),
            // The beginning was cut.
            ("one\ntwo\n", "two\nthree\n", "two\nthree\n"),
        ] {
            assert_eq!(unseen(printed, log), expected, "{printed:?} {log:?}");
        }
        let long = "é".repeat(OVERLAP);
        let cut = format!("{}new", &long[10..]);
        assert_eq!(unseen(&long, &cut), "new");
    }
}
