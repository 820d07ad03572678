//! Whether what an operation says of its end is what happened in its pods.

use std::collections::BTreeSet;

use osb::{Action, LastOperation, OperationState};
use testkit::kubelet::{End, Entry, Ledger};

/// What an operation says that made room for another.
const GIVES_WAY: [&str; 4] =
    ["halted by a later", "is being deprovisioned", "is being made or removed", "has bindings"];

/// Fails if an operation says that it ended in a way in which it did not; `taken`: the runs whose pods
/// somebody took away.
pub(crate) fn check(
    ledger: &Ledger,
    taken: &BTreeSet<String>,
    operation: &str,
    action: Action,
    last: &LastOperation,
) {
    let of = |run: &str| run.strip_prefix(operation).is_some_and(|rest| rest.starts_with('-'));
    let runs: Vec<(&String, &Entry)> = ledger.iter().filter(|(run, _)| of(run)).collect();
    let ended = |end: &End| runs.iter().any(|(_, entry)| entry.end.as_ref() == Some(end));
    let said = last.description.as_deref().unwrap_or_default();
    let removes = matches!(action, Action::Deprovision | Action::Unbind);
    let is_true = match last.state {
        OperationState::InProgress => false,
        // What was never begun is removed without a run.
        OperationState::Succeeded => ended(&End::Well) || (removes && runs.is_empty()),
        OperationState::Failed => {
            let of_run = |(run, entry): &(&String, &Entry)| match &entry.end {
                _ if said.contains("deleted") && taken.contains(*run) => true,
                Some(End::Fails(words) | End::Transient(words)) => said.contains(words),
                Some(End::Killed) => said.contains("without a report"),
                Some(End::Well) | None => false,
            };
            runs.iter().any(of_run) || GIVES_WAY.iter().any(|words| said.contains(words))
        }
    };
    assert!(is_true, "{operation} says {:?}: {said:?}, but: {runs:?}", last.state);
}
