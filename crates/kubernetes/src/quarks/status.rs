//! What the status says, as patches: of a run that has ended, and of what a trigger waits for.

use engine::trigger::{Outcome, Run};
use serde_json::{Value, json};

use super::resource::{Ended, Resource};
use crate::resources::time;

/// How many runs that have ended are shown; those that the record still names stay beyond that.
const HISTORY: usize = 10;

/// How many of the names of what a run has made are shown.
const MADE: usize = 100;

/// The longest message of a run, in characters.
const MESSAGE: usize = 1000;

/// A run has ended, by this outcome; `job` is the name of its Job, `now` in milliseconds since 1970.
pub(super) fn settled(
    resource: &Resource,
    run: &Run,
    job: &str,
    outcome: &Outcome,
    now: u64,
) -> Value {
    let ended = Ended {
        id: run.id,
        trigger: run.trigger,
        job: job.to_owned(),
        outcome: shown(outcome),
        started_at: run.at.clone(),
        ended_at: time(now),
        seconds: seconds(&run.at, now),
    };
    let record = &resource.record;
    let open = record.open.iter().filter(|it| it.id != run.id && resource.is_open(it.id)).count();
    let mut history = vec![ended];
    history.extend(resource.status.history.iter().filter(|it| it.id != run.id).cloned());
    history.sort_by_key(|it| std::cmp::Reverse(it.id));
    let named = |id: u64| record.open.iter().any(|run| run.id == id);
    let mut place = 0;
    history.retain(|it| {
        place += 1;
        place <= HISTORY || named(it.id)
    });
    // Runs that go on beside each other may end in any order: the newest counts.
    let newest = history.first().map(|newest| newest.outcome.clone());
    let newest = newest.unwrap_or_else(|| outcome.clone());
    json!({
        "completed": newest.succeeded && open == 0,
        "lastReconcile": time(now),
        "lastRun": history.first().map(whole),
        "history": history,
        "conditions": [
            succeeded(&newest, now),
            waiting(None, now),
        ],
    })
}

/// As much as is read, and as there is room for ten times.
fn shown(outcome: &Outcome) -> Outcome {
    let mut outcome = outcome.clone();
    if outcome.made.len() > MADE {
        let more = format!("it made {} objects, of which {MADE} are named", outcome.made.len());
        let words = [more, std::mem::take(&mut outcome.message)];
        let words: Vec<String> = words.into_iter().filter(|words| !words.is_empty()).collect();
        outcome.message = words.join("; ");
        outcome.made.truncate(MADE);
    }
    outcome.message = short(&outcome.message);
    outcome
}

/// As much as is read: a hundred containers may each have something to say.
pub(super) fn short(message: &str) -> String {
    let end = message.char_indices().nth(MESSAGE).map_or(message.len(), |(end, _)| end);
    match end == message.len() {
        true => message.to_owned(),
        false => format!("{}…", &message[..end]),
    }
}

/// A patch leaves what it does not name: what this run has not, another may have had.
fn whole(run: &Ended) -> Value {
    let mut whole = json!({
        "message": null, "made": null, "startedAt": null, "endedAt": null, "seconds": null,
    });
    if let (Some(whole), Ok(Value::Object(run))) =
        (whole.as_object_mut(), serde_json::to_value(run))
    {
        whole.extend(run);
    }
    whole
}

/// Another run comes: it is not completed.
pub(super) fn reopened() -> Value {
    json!({"completed": false})
}

/// A trigger waits for something, or for nothing any more.
pub(super) fn waits(resource: &Resource, waits: Option<&str>, now: u64) -> Value {
    let last = resource.status.history.first().map(|run| succeeded(&run.outcome, now));
    let conditions: Vec<Value> = last.into_iter().chain([waiting(waits, now)]).collect();
    json!({"conditions": conditions})
}

fn succeeded(outcome: &Outcome, now: u64) -> Value {
    condition("Succeeded", outcome.succeeded, &outcome.reason, &outcome.message, now)
}

fn waiting(waits: Option<&str>, now: u64) -> Value {
    let reason = if waits.is_some() { "Waits" } else { "None" };
    condition("Waiting", waits.is_some(), reason, waits.unwrap_or_default(), now)
}

fn condition(kind: &str, holds: bool, reason: &str, message: &str, now: u64) -> Value {
    let mut condition = json!({
        "type": kind,
        "status": if holds { "True" } else { "False" },
        "reason": reason,
        "lastTransitionTime": time(now),
    });
    // Kubernetes 1.20 takes an empty string for null, and refuses it.
    if !message.is_empty() {
        condition["message"] = json!(message);
    }
    condition
}

fn seconds(since: &str, now: u64) -> Option<u64> {
    let since: jiff::Timestamp = since.parse().ok()?;
    let now = i64::try_from(now / 1000).ok()?;
    u64::try_from(now - since.as_second()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_a_run_has_made_as_many_are_named_as_there_is_room_for() {
        let made = |count: usize| {
            let mut outcome = Outcome::completed();
            outcome.made = (0..count).map(|n| format!("s-{n}")).collect();
            shown(&outcome)
        };
        let all = made(MADE);
        assert_eq!((all.made.len(), all.message.as_str()), (MADE, ""));
        let cut = made(MADE + 1);
        assert_eq!(cut.made.len(), MADE);
        assert_eq!(cut.message, "it made 101 objects, of which 100 are named");
    }
}
