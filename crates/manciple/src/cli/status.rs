//! `manciple status`: shows an instance or a binding: what goes on, why it failed, what to do next.

use engine::record::Lifecycle;
use jiff::Timestamp;
use osb::{Action, Catalog};
use serde::Serialize;

use super::args::StatusArgs;
use super::connection::{Connection, Subject};
use super::exit::Exit;
use super::failure::Failure;
use super::follow::Following;
use super::output::{Output, shown};
use super::{lookup, times};
use crate::admin::model::{OperationView, RecordView};

/// A record, and the commands that make sense now.
#[derive(Debug, Serialize)]
struct Status<'a> {
    #[serde(flatten)]
    record: &'a RecordView,
    next: Vec<Next>,
}

/// A command that makes sense now.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Next {
    /// The purpose of the command.
    pub(crate) purpose: &'static str,
    /// The command.
    pub(crate) command: String,
}

pub(crate) async fn show(connection: Connection, args: StatusArgs) -> Result<(), Failure> {
    let subject = Subject::new(&args.instance, args.binding.as_deref())?;
    let read = async || {
        let record = connection.record(&subject).await;
        record.map_err(|error| {
            connection
                .refused(&format!("show {subject}"), &error)
                .or_hint("manciple instances --state all lists what is recorded")
        })
    };
    let mut record = read().await?;
    let mut outcome = Ok(());
    if args.watch && record.operation.is_busy() {
        outcome = watch(&connection, &subject, &record).await;
        if let Err(failure) = &outcome
            && failure.exit != Exit::OperationFailed
        {
            return outcome;
        }
        // An instance that was removed while it was watched may be forgotten already; and why something
        // failed is more than why it cannot be shown.
        match read().await {
            Ok(now) => record = now,
            Err(failure) if failure.exit == Exit::Missing => return outcome,
            Err(failure) => return outcome.and(Err(failure)),
        }
    }
    shown(print(&connection, &subject, &record).await, outcome)
}

/// Waits for the operation that a record has in progress.
pub(crate) async fn watch(
    connection: &Connection,
    subject: &Subject,
    record: &RecordView,
) -> Result<(), Failure> {
    let action = Action::ALL.into_iter().find(|action| action.as_str() == record.operation.action);
    let action = action.ok_or_else(|| {
        // No fault of usage, after which nothing would be ordered: a retry may have ordered it.
        let message = format!("{:?} is an operation of a newer server", record.operation.action);
        Failure::new(Exit::BrokerFailed, message)
            .hint("to wait for it, take a manciple as new as the server: manciple --version")
    })?;
    let following = Following { action, subject, ids: None, catalog: None };
    connection.follow(&following, Some(record.operation.id.clone())).await.map(|_| ())
}

/// Prints a record.
pub(crate) async fn print(
    connection: &Connection,
    subject: &Subject,
    record: &RecordView,
) -> Result<(), Failure> {
    // Given again, a retry would be another.
    let look = format!("look at it: manciple status {}", subject.words());
    tell(connection, subject, record).await.map_err(|failure| failure.hint(look))
}

async fn tell(
    connection: &Connection,
    subject: &Subject,
    record: &RecordView,
) -> Result<(), Failure> {
    let out = connection.out;
    let next = next(subject, record);
    if out.is_json() {
        return out.json(&Status { record, next });
    }
    if out.quiet {
        return out.line(lifecycle(record.state));
    }
    // Names are nicer than ids, and not worth a failure.
    let catalog = connection.catalog().await.ok();
    fields(out, catalog.as_ref(), record)?;
    out.line("")?;
    operations(out, record)?;
    for Next { purpose, command } in next {
        out.hint(&format!("{purpose}: {command}"));
    }
    Ok(())
}

fn fields(out: Output, catalog: Option<&Catalog>, record: &RecordView) -> Result<(), Failure> {
    let now = Timestamp::now();
    let (service, plan) = lookup::names(catalog, &record.service_id, &record.plan_id);
    let operation = &record.operation;
    out.fields(vec![
        ("Instance", Some(record.instance_id.clone())),
        ("Binding", record.binding_id.clone()),
        ("Service", Some(service.to_owned())),
        ("Plan", Some(plan.to_owned())),
        ("State", Some(lifecycle(record.state).to_owned())),
        ("Ordered", Some(times::ago(&record.created_at, now))),
        ("Changed", Some(times::ago(&record.updated_at, now))),
        ("Operation", Some(format!("{} {}", operation.action, operation.state))),
        ("Progress", operation.progress.clone()),
        ("Reason", operation.reason.clone()),
        ("Why", operation.description.clone()),
        ("Run", Some(operation.run.clone())),
    ])
}

fn operations(out: Output, record: &RecordView) -> Result<(), Failure> {
    let now = Timestamp::now();
    let all = [&record.operation].into_iter().chain(record.past.iter().rev());
    let rows = all.map(|operation| {
        vec![
            operation.action.clone(),
            operation.state.clone(),
            times::ago(&operation.created_at, now),
            operation.took(),
            operation.attempt.to_string(),
            operation.run.clone(),
            operation.why(),
        ]
    });
    let heading = ["OPERATION", "STATE", "STARTED", "TOOK", "ATTEMPT", "RUN", "WHY"];
    out.table(&heading, rows.collect())
}

/// The commands that make sense now, the likeliest first.
pub(crate) fn next(subject: &Subject, record: &RecordView) -> Vec<Next> {
    let next = |purpose, command| Next { purpose, command };
    let words = subject.words();
    let (remove, remove_why) = match &subject.binding {
        None => ("deprovision", "give it up, and remove what was made"),
        Some(_) => ("unbind", "give it up, and remove what was made"),
    };
    let operation = &record.operation;
    let logs = format!("manciple logs {}", subject.options());
    if operation.is_busy() {
        return vec![
            next("wait for its end", format!("manciple status {}", subject.words_and("--watch"))),
            next("read its log", format!("{logs} --follow")),
        ];
    }
    if operation.state == "failed" {
        let mut all = vec![next("read its log", logs)];
        all.push(match operation.update_repeatable {
            Some(false) if operation.action == "update" => next(
                "the same update would fail again; order another",
                format!("manciple update {words}"),
            ),
            _ => next("try again", format!("manciple retry {words}")),
        });
        if operation.action == "deprovision" || operation.action == "unbind" {
            let purge = format!("manciple purge {words}");
            all.push(next("forget it; what was made stays where it is", purge));
        } else if record.state == Lifecycle::Broken {
            all.push(next(remove_why, format!("manciple {remove} {words}")));
        }
        return all;
    }
    match (record.state, &subject.binding) {
        (Lifecycle::Ready, None) => vec![next("bind it", format!("manciple bind {words}"))],
        _ => Vec::new(),
    }
}

/// The word for a lifecycle, as in JSON.
pub(crate) fn lifecycle(state: Lifecycle) -> &'static str {
    match state {
        Lifecycle::Creating => "creating",
        Lifecycle::Ready => "ready",
        Lifecycle::Broken => "broken",
        Lifecycle::Deleted => "deleted",
    }
}

impl OperationView {
    /// Whether the operation goes on.
    pub(crate) fn is_busy(&self) -> bool {
        self.ended_at.is_none() && self.state != "succeeded" && self.state != "failed"
    }

    /// How long the operation took, or has taken so far.
    pub(crate) fn took(&self) -> String {
        let now;
        let end = match &self.ended_at {
            Some(end) => end,
            None => {
                now = Timestamp::now().to_string();
                &now
            }
        };
        times::between(&self.created_at, end).map(times::span).unwrap_or_default()
    }

    /// The reason why the operation failed, or its progress.
    pub(crate) fn why(&self) -> String {
        match (&self.reason, &self.description) {
            (Some(reason), Some(why)) => format!("{reason}: {why}"),
            (Some(text), None) | (None, Some(text)) => text.clone(),
            (None, None) => self.progress.clone().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(state: &str, action: &str, phase: &str) -> RecordView {
        serde_json::from_value(json!({
            "instance_id": "i", "state": state, "service_id": "s", "plan_id": "p",
            "created_at": "2026-05-04T12:00:00Z", "updated_at": "2026-05-04T12:00:00Z",
            "operation": {
                "id": "o", "action": action, "state": phase, "attempt": 1, "run": "o-1",
                "created_at": "2026-05-04T12:00:00Z",
            },
        }))
        .unwrap()
    }

    #[test]
    fn every_state_says_what_to_do_next() {
        let cases: [(&str, &str, &str, &[&str]); 7] = [
            (
                "creating",
                "provision",
                "running",
                &["status i --watch", "logs --instance i --follow"],
            ),
            ("ready", "provision", "succeeded", &["bind i"]),
            ("broken", "provision", "failed", &["logs --instance i", "retry i", "deprovision i"]),
            ("ready", "update", "failed", &["logs --instance i", "retry i"]),
            ("ready", "deprovision", "failed", &["logs --instance i", "retry i", "purge i"]),
            (
                "ready",
                "deprovision",
                "external",
                &["status i --watch", "logs --instance i --follow"],
            ),
            ("deleted", "deprovision", "succeeded", &[]),
        ];
        let subject = Subject::new("i", None).unwrap();
        for (state, action, phase, expected) in cases {
            let next = next(&subject, &record(state, action, phase));
            let commands: Vec<_> = next.iter().map(|next| next.command.as_str()).collect();
            let expected: Vec<_> = expected.iter().map(|rest| format!("manciple {rest}")).collect();
            assert_eq!(commands, expected, "{state} {action} {phase}");
        }
    }

    #[test]
    fn what_would_fail_again_is_not_to_be_tried_again() {
        let subject = Subject::new("i", None).unwrap();
        for (repeatable, expected) in [
            (None, "manciple retry i"),
            (Some(true), "manciple retry i"),
            (Some(false), "manciple update i"),
        ] {
            let mut record = record("ready", "update", "failed");
            record.operation.update_repeatable = repeatable;
            assert_eq!(next(&subject, &record)[1].command, expected, "{repeatable:?}");
        }
    }

    #[test]
    fn a_binding_is_given_up_by_unbind() {
        let subject = Subject::new("i", Some("b")).unwrap();
        let next = next(&subject, &record("broken", "bind", "failed"));
        assert_eq!(next[2].command, "manciple unbind i b");
    }
}
