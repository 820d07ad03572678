//! Whether what an operation says of its end, and of its way there, is what happened in its pods.

use std::collections::BTreeSet;

use osb::{Action, LastOperation, OperationState};
use testkit::kubelet::{End, Entry, Ledger, progress};

use crate::script::question;

/// What an operation says that made room for another.
const GIVES_WAY: [&str; 4] =
    ["halted by a later", "is being deprovisioned", "is being made or removed", "has bindings"];
/// What one says whose `Broker` was deleted.
const DELETED: &str = "create the Broker again";
/// What one says whose `Broker` is another than who leads knows of, and has not answered for as long as is waited.
const UNANSWERED: &str = "there is no catalog yet of";

/// What an operation of a service may say of its `Broker`.
pub(crate) fn unsold(service: &str) -> &'static [&'static str] {
    match service {
        "goes" => &[DELETED, UNANSWERED],
        "changes" => &[UNANSWERED],
        _ => &[],
    }
}

/// Fails if an operation says that it ended in a way in which it did not; `taken`: the runs whose pods
/// somebody took away; `unsold`: what it may say of its `Broker`, which somebody changed or deleted now and then.
pub(crate) fn check(
    ledger: &Ledger,
    taken: &BTreeSet<String>,
    unsold: &[&str],
    operation: &str,
    action: Action,
    last: &LastOperation,
) {
    let runs: Vec<(&String, &Entry)> =
        ledger.iter().filter(|(run, _)| belongs(run, operation)).collect();
    let ended = |end: &End| runs.iter().any(|(_, entry)| entry.end.as_ref() == Some(end));
    let said = last.description.as_deref().unwrap_or_default();
    let removes = matches!(action, Action::Deprovision | Action::Unbind);
    let is_true = match last.state {
        OperationState::InProgress => false,
        // What was never begun is removed without a run.
        OperationState::Succeeded => ended(&End::Well) || (removes && runs.is_empty()),
        OperationState::Failed => {
            let of_run = |(run, entry): &(&String, &Entry)| match &entry.end {
                // Work elsewhere goes on, whatever became of a question after it that was not answered.
                _ if question(run).is_some() && !matches!(entry.end, Some(End::Fails(_))) => false,
                _ if said.contains("deleted") && taken.contains(*run) => question(run).is_none(),
                Some(End::Fails(words) | End::Transient(words)) => said.contains(words),
                Some(End::Killed) => said.contains("without a report"),
                Some(End::Well | End::Elsewhere(_)) | None => false,
            };
            runs.iter().any(of_run)
                || GIVES_WAY.iter().any(|words| said.contains(words))
                || unsold.iter().any(|words| said.contains(words))
        }
    };
    assert!(is_true, "{operation} says {:?}: {said:?}, but: {runs:?}", last.state);
}

/// Whether a broker says this of its progress; fails if none of this operation's has.
pub(crate) fn is_told(ledger: &Ledger, operation: &str, said: &str) -> bool {
    let speaks = |run: &str| said == progress(run);
    let Some((run, entry)) = ledger.iter().find(|(run, _)| speaks(run)) else {
        let by_nobody = said.ends_with(&progress(""));
        assert!(!by_nobody, "{operation} says {said:?}, and nobody said so");
        return false;
    };
    let its = belongs(run, operation) && !entry.begun.is_empty();
    assert!(its, "{operation} says {said:?}, which another said");
    true
}

/// Whether a run is one of an operation's.
pub(crate) fn belongs(run: &str, operation: &str) -> bool {
    run.strip_prefix(operation).is_some_and(|rest| rest.starts_with('-'))
}
