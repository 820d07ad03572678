//! Hints on what to do about an order that failed: they depend on what was asked for, and on whether anything
//! of it is recorded.

use engine::record::Lifecycle;
use osb::client::{ClientError, Refusal};
use osb::{Action, LastOperation};

use super::args::StateFilter;
use super::connection::{Connection, Subject};
use super::follow::Following;
use super::operator::{Kind, Wanted};
use crate::admin::model::RecordView;

/// The hint for an operation that was accepted and failed: it has a log.
pub(crate) fn of_operation(action: Action, subject: &Subject, last: &LastOperation) -> String {
    let words = subject.words();
    let read = format!(
        "read its log: manciple logs {}; see all of it: manciple status {words}",
        subject.options()
    );
    match (action, removal(action, subject)) {
        (Action::Update, _) if last.update_repeatable == Some(false) => {
            format!(
                "{read}; the same update would fail again: order another: manciple update {words}"
            )
        }
        (_, Some(removal)) => {
            format!("{read}; try again: manciple retry {words}; or give it up: {removal}")
        }
        (_, None) => format!("{read}; try again: manciple retry {words}"),
    }
}

/// The hint for an order that was not accepted: it has no operation and no log. The records say
/// what is in its way.
pub(crate) async fn of_refusal(
    connection: &Connection,
    following: &Following<'_>,
    error: &ClientError,
) -> Option<String> {
    let Following { action, subject, .. } = following;
    let words = subject.words();
    match error {
        ClientError::Timeout { .. } | ClientError::Transport { sent: true, .. } => {
            Some(format!("the broker may have received it; look first: manciple status {words}"))
        }
        ClientError::Refused(refusal) if refusal.is("ConcurrencyError") => {
            let instance = Subject { binding: None, ..(*subject).clone() };
            let record = connection.record(&instance).await.ok();
            Some(busy(subject, &instance, record.as_ref()))
        }
        ClientError::Refused(refusal)
            if *action == Action::Deprovision && refusal.status == 422 =>
        {
            let bound = Wanted {
                kind: Kind::Bindings,
                instance: Some(subject.instance.to_string()),
                state: StateFilter::Live,
                after: None,
                limit: Some(1),
            };
            let bound = connection.records(&bound).await.is_ok_and(|page| !page.items.is_empty());
            bound.then(|| format!("its bindings, to be removed first: manciple bindings {words}"))
        }
        ClientError::Refused(refusal) if may_exist(refusal) => {
            let record = connection.record(subject).await.ok();
            let removal = removal(*action, subject);
            if let (Some(Lifecycle::Broken), Some(removal)) = (record.map(|it| it.state), removal) {
                Some(format!("what was tried before is still recorded; remove it first: {removal}"))
            } else if refusal.status == 409 {
                Some(format!("it exists already and differs; look at it: manciple status {words}"))
            } else {
                None
            }
        }
        _ => None,
    }
}

/// Whether something of the refused order is there, or may be.
fn may_exist(refusal: &Refusal) -> bool {
    refusal.status == 409 || refusal.status == 500
}

/// The hint which operation to wait for: an instance's is in the way of its bindings, and theirs in its.
fn busy(subject: &Subject, instance: &Subject, record: Option<&RecordView>) -> String {
    let wait = |subject: &Subject| {
        format!(
            "another operation goes on; wait for its end: manciple status {}",
            subject.words_and("--watch")
        )
    };
    match (record.map(|record| record.operation.is_busy()), &subject.binding) {
        (Some(true), _) => wait(instance),
        (Some(false), None) => format!(
            "one of its bindings is being made or removed; find it: manciple bindings {}",
            subject.words_and("--state busy")
        ),
        _ => wait(subject),
    }
}

/// The command that removes what an order of this kind may have left, if it leaves anything.
fn removal(action: Action, subject: &Subject) -> Option<String> {
    match action {
        Action::Provision => Some(format!("manciple deprovision {}", subject.words())),
        Action::Bind => Some(format!("manciple unbind {}", subject.words())),
        Action::Update | Action::Unbind | Action::Deprovision => None,
    }
}
