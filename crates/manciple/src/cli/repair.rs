//! The repairing commands: `retry` repeats a failed operation, `purge` forgets a record.

use serde_json::json;

use super::args::{PurgeArgs, RetryArgs};
use super::connection::{Connection, Subject};
use super::exit::Exit;
use super::failure::Failure;
use super::output::Output;
use super::{input, status};

pub(crate) async fn retry(connection: Connection, args: RetryArgs) -> Result<(), Failure> {
    let subject = Subject::new(&args.instance, args.binding.as_deref())?;
    let ordered = connection.order_retry(&subject).await;
    let mut record = ordered.map_err(|error| {
        connection
            .refused(&format!("retry the last operation of {subject}"), &error)
            .or_hint(format!("look at it: manciple status {}", subject.words()))
    })?;
    if !args.waiting.no_wait && record.operation.is_busy() {
        status::watch(&connection, &subject, &record).await?;
        match connection.record(&subject).await {
            Ok(now) => record = now,
            // Removed, and forgotten already.
            Err(error) if error.is_absent() => return Ok(()),
            Err(error) => return Err(connection.refused(&format!("show {subject}"), &error)),
        }
    }
    status::print(&connection, &subject, &record).await
}

pub(crate) async fn purge(connection: Connection, args: PurgeArgs) -> Result<(), Failure> {
    let subject = Subject::new(&args.instance, args.binding.as_deref())?;
    if !args.yes {
        let question =
            format!("Forget {subject} without asking the broker? What was made stays where it is.");
        match input::confirm(&question).await {
            Some(true) => {}
            Some(false) => return Err(Failure::usage("nothing was purged")),
            None => {
                return Err(Failure::usage(format!("purging {subject} wants to be confirmed"))
                    .hint("add --yes"));
            }
        }
    }
    connection.order_purge(&subject).await.map_err(|error| {
        let failure = connection.refused(&format!("purge {subject}"), &error);
        match failure.exit {
            Exit::Refused if subject.binding.is_none() => {
                failure.or_hint(format!("its bindings: manciple bindings {}", subject.words()))
            }
            _ => failure,
        }
    })?;
    // There is nothing left that could be purged again.
    let left = "manciple instances --state all lists what is recorded";
    tell(connection.out, &subject).map_err(|failure| failure.hint(left))
}

fn tell(out: Output, subject: &Subject) -> Result<(), Failure> {
    if out.is_json() {
        let binding = subject.binding.as_ref();
        return out.json(&json!({
            "instance_id": subject.instance,
            "binding_id": binding,
            "purged": true,
        }));
    }
    if out.quiet {
        return Ok(());
    }
    out.line(&format!("purged {subject}"))
}
