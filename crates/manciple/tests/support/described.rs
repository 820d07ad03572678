//! What somebody sees of an operation who has nothing but `kubectl describe`.

use super::town::Town;
use super::within;

/// How soon it is shown, in seconds: an Event is written after the conditions, and nobody waits for it.
const SHOWN: u64 = 20;

/// Waits until the only instance of a town has all these words in its condition `Progressing` or `Failed`, which holds,
/// and in a Warning of its provision: a condition is gone when its cause is, and an Event after an hour.
pub(crate) fn explained(town: &Town, condition: &str, words: &[&str]) {
    let holds = format!("Status: True\nType: {condition}");
    let reason = if condition == "Failed" { "ProvisionFailed" } else { "ProvisionWaits" };
    let warning = format!("Warning {reason} ");
    let has_all = |text: &str| words.iter().all(|words| text.contains(words));
    let shown = || squeezed(&town.kubectl(&["describe", "serviceinstances"]));
    let explained = || {
        let shown = shown();
        let (status, events) = shown.split_once("\nEvents:")?;
        let (_, conditions) = status.split_once("\nConditions:\n")?;
        let (conditions, _) = conditions.split_once("\nLast Operation:\n")?;
        // What kubectl writes first of each.
        let mut conditions = conditions.split("Last Transition Time:");
        let mut warnings = events.lines().filter(|line| line.starts_with(&warning));
        let is_told = conditions.any(|it| it.contains(&holds) && has_all(it));
        (is_told && warnings.any(has_all)).then_some(())
    };
    assert!(within(SHOWN, explained).is_some(), "{condition}: {words:?}:\n{}", shown());
}

/// Spaces are put together: a table is as wide as it is.
pub(crate) fn squeezed(text: &str) -> String {
    let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}
