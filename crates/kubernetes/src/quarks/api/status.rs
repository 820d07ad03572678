//! Patches of a QuarksJob's status: a run has ended, another is about to begin, a trigger waits.

use engine::trigger::{JobRecord, MAX_OPEN, Outcome, Run};
use serde_json::{Value, json};

use super::history::{Ended, had_no_job};
use super::record::{RECORD, Written};
use super::resource::Resource;
use crate::conditions;
use crate::resources::time;

/// How many ended runs the history has; those that the record still names stay beyond that.
const HISTORY: usize = 10;
/// How many runs a history that we have written has at most.
pub(crate) const MOST_ENDED: usize = HISTORY + MAX_OPEN;

/// How many names of the objects that a run has made are shown.
pub(crate) const MADE: usize = 100;

/// The longest message of a run, in characters.
const MESSAGE: usize = 1000;

/// The types of the conditions.
pub(crate) const SUCCEEDED: &str = "Succeeded";
pub(crate) const WAITING: &str = "Waiting";

/// The status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    True,
    False,
    Unknown,
}

/// A condition's status, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    holds: Holds,
    since: Box<str>,
}

impl Holds {
    fn of(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }

    /// The status, as it is spelled.
    fn word(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl Said {
    /// Whether the condition is `Unknown`.
    pub(crate) fn is_unknown(&self) -> bool {
        self.holds == Holds::Unknown
    }

    /// Reads the condition of this type from a status.
    pub(crate) fn of(status: &Value, kind: &str) -> Option<Self> {
        let said = status["conditions"].as_array()?.iter().find(|it| it["type"] == kind)?;
        let all = [Holds::True, Holds::False, Holds::Unknown];
        let holds = all.into_iter().find(|holds| said["status"] == holds.word())?;
        Some(Self { holds, since: said["lastTransitionTime"].as_str()?.into() })
    }
}

/// The patch for a run that has ended with this outcome, at `now` in milliseconds since 1970; `job` is the name of its
/// Job. For a run without a Job, `tried` is the digest of the spec that was tried, which may have changed since.
pub(crate) fn settled(
    resource: &Resource,
    run: &Run,
    (job, tried): (&str, Option<&str>),
    outcome: &Outcome,
    now: u64,
) -> Value {
    let ended = Ended {
        id: run.id,
        trigger: run.trigger.word().to_owned(),
        job: job.to_owned(),
        outcome: shown(outcome),
        started_at: run.at.clone(),
        ended_at: time(now),
        seconds: seconds(&run.at, now),
        template: had_no_job(outcome).then(|| tried.unwrap_or(resource.digest()).to_owned()),
    };
    let record = &resource.record;
    let open = record.open.iter().filter(|it| it.id != run.id && resource.is_open(it.id)).count();
    let mut history = vec![ended];
    history.extend(resource.status.history.iter().filter(|it| it.id != run.id).cloned());
    history.sort_by_key(|it| std::cmp::Reverse(it.id));
    let named = |id: u64| record.open.iter().any(|run| run.id == id);
    let mut place = 0;
    history.retain_mut(|it| {
        place += 1;
        if place > HISTORY {
            // If a thousand runs went on at once the status would have no room for all their words.
            it.outcome.message.clear();
            it.outcome.made.clear();
        }
        place <= HISTORY || named(it.id)
    });
    // Runs that go on beside each other may end in any order: the newest counts.
    let newest = history.first().map(|newest| newest.outcome.clone());
    let newest = newest.unwrap_or_else(|| outcome.clone());
    json!({
        RECORD: recalled(resource, run),
        "completed": newest.succeeded && open == 0,
        "lastReconcile": time(now),
        "lastRun": history.first().map(whole),
        "history": history,
        "conditions": [
            // As for `completed`: a run that was begun before may go on.
            match newest.succeeded && open > 0 {
                true => running(resource, now),
                false => succeeded(resource, &newest, now),
            },
            waiting(resource, None, now),
        ],
    })
}

/// The record without the run that is settled, as a copy for where somebody removes the annotation, as `kubectl
/// replace` does. It lacks the pods that are followed, for which there may be no room twice; and the schedule: a
/// QuarksJob that is put back may have been away for long, and its times count from when it is first seen again.
fn recalled(resource: &Resource, settled: &Run) -> Option<String> {
    let mut record = JobRecord { pods: None, schedule: None, ..resource.record.clone() };
    record.open.retain(|run| run.id != settled.id && resource.is_open(run.id));
    Written::text(resource, record).ok()
}

/// An outcome with as many names and words as people read: the status has room for ten of them.
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

/// A message cut to [`MESSAGE`] characters: a hundred containers may each have something to say.
pub(crate) fn short(message: &str) -> String {
    let end = message.char_indices().nth(MESSAGE).map_or(message.len(), |(end, _)| end);
    match end == message.len() {
        true => message.to_owned(),
        false => format!("{}…", &message[..end]),
    }
}

/// A run with null for what it lacks: a merge patch keeps the members that it does not name, and they may be of an
/// older run.
fn whole(run: &Ended) -> Value {
    let mut whole = json!({
        "message": null, "made": null, "startedAt": null, "endedAt": null, "seconds": null,
        "template": null,
    });
    if let (Some(whole), Ok(Value::Object(run))) =
        (whole.as_object_mut(), serde_json::to_value(run))
    {
        whole.extend(run);
    }
    whole
}

/// The patch for a run that is about to begin: `completed` is false, and whether it will succeed is unknown.
pub(crate) fn reopened(resource: &Resource, now: u64) -> Value {
    let waits = waiting(resource, resource.status.waits.as_deref(), now);
    json!({"completed": false, "conditions": [running(resource, now), waits]})
}

/// The patch for a run that does not begin after all: the status is again as the last run left it. A QuarksJob that was
/// completed before we knew it has no history.
pub(crate) fn closed(resource: &Resource, now: u64) -> Value {
    let newest = resource.status.history.first().map(|run| &run.outcome);
    let waits = waiting(resource, resource.status.waits.as_deref(), now);
    let succeeded = newest.map(|newest| succeeded(resource, newest, now));
    let conditions: Vec<Value> = succeeded.into_iter().chain([waits]).collect();
    json!({
        "completed": newest.is_none_or(|newest| newest.succeeded), "conditions": conditions,
    })
}

/// The patch that says what a trigger waits for; `None`: for nothing any more.
pub(crate) fn waits(resource: &Resource, waits: Option<&str>, now: u64) -> Value {
    let last = resource.status.history.first().map(|run| &run.outcome);
    let last = last.map(|outcome| match resource.status.says_running() {
        true => running(resource, now),
        false => succeeded(resource, outcome, now),
    });
    let conditions: Vec<Value> = last.into_iter().chain([waiting(resource, waits, now)]).collect();
    json!({"conditions": conditions})
}

fn running(resource: &Resource, now: u64) -> Value {
    let before = resource.status.succeeded.as_ref();
    condition(SUCCEEDED, Holds::Unknown, ("Running", "a run goes on"), before, now)
}

fn succeeded(resource: &Resource, outcome: &Outcome, now: u64) -> Value {
    let words = (outcome.reason.as_str(), outcome.message.as_str());
    let before = resource.status.succeeded.as_ref();
    condition(SUCCEEDED, Holds::of(outcome.succeeded), words, before, now)
}

fn waiting(resource: &Resource, waits: Option<&str>, now: u64) -> Value {
    let reason = if waits.is_some() { "Waits" } else { "None" };
    let words = (reason, waits.unwrap_or_default());
    condition(WAITING, Holds::of(waits.is_some()), words, resource.status.waiting.as_ref(), now)
}

fn condition(
    kind: &str,
    holds: Holds,
    words: (&str, &str),
    before: Option<&Said>,
    now: u64,
) -> Value {
    let before = before.map(|before| (before.holds.word(), &*before.since));
    conditions::condition(kind, holds.word(), words, before, &time(now))
}

fn seconds(since: &str, now: u64) -> Option<u64> {
    let since: jiff::Timestamp = since.parse().ok()?;
    let now = i64::try_from(now / 1000).ok()?;
    u64::try_from(now - since.as_second()).ok()
}

#[cfg(test)]
mod tests {
    use kube::api::DynamicObject;

    use super::super::dialect::Dialect;
    use super::*;

    const BEFORE: &str = "2026-01-01T00:00:00Z";
    /// Of `BEFORE` a day later.
    const NOW: u64 = 1_767_312_000_000;
    const THEN: &str = "2026-01-02T00:00:00Z";

    /// One whose first run ended so, and that says this.
    fn resource(succeeded: bool, holds: &str) -> Resource {
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "lastTransitionTime": BEFORE});
        let run = json!({
            "id": 1, "trigger": "now", "job": "j", "succeeded": succeeded, "reason": "R",
        });
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "quarks.cloudfoundry.org/v1alpha1", "kind": "QuarksJob",
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1"},
            "spec": {},
            "status": {
                "completed": holds == "True", "history": [run],
                "conditions": [condition(SUCCEEDED, holds), condition(WAITING, "False")],
            },
        }))
        .unwrap();
        Resource::of(Dialect::QuarksJob, &object).unwrap()
    }

    /// How both conditions stand in a patch, and since when.
    fn stand(patch: &Value) -> [(String, String); 2] {
        let of = |kind: &str| {
            let said = Said::of(patch, kind).unwrap();
            (said.holds.word().to_owned(), said.since.to_string())
        };
        [of(SUCCEEDED), of(WAITING)]
    }

    #[test]
    fn what_a_run_does_not_say_is_not_left_from_the_run_before() {
        let run =
            |id| serde_json::from_value(json!({"id": id, "trigger": "now", "at": ""})).unwrap();
        let refused = Outcome::failed("JobRefused", "quota");
        let before = settled(&resource(true, "True"), &run(2), ("", None), &refused, NOW);
        assert!(before["lastRun"]["template"].is_string(), "{before}");
        let after =
            settled(&resource(true, "True"), &run(3), ("j", None), &Outcome::completed(), NOW);
        assert_eq!(after["lastRun"].get("template"), Some(&Value::Null), "a merge takes it away");
    }

    #[test]
    fn a_condition_is_of_the_newest_run_and_its_time_moves_only_with_it() {
        let run =
            |id| serde_json::from_value(json!({"id": id, "trigger": "now", "at": ""})).unwrap();
        let settled =
            |resource: &Resource, outcome| settled(resource, &run(2), ("j", None), &outcome, NOW);
        let (well, badly) = (Outcome::completed(), Outcome::failed("F", "f"));
        let (done, again) = (resource(true, "True"), resource(true, "Unknown"));
        let mut beside = resource(true, "Unknown");
        beside.record.open = vec![run(1), run(2)];
        beside.status.history.clear();
        for (name, patch, succeeded, waiting) in [
            ("a run begins", reopened(&done, NOW), ("Unknown", THEN), ("False", BEFORE)),
            ("none begins after all", closed(&again, NOW), ("True", THEN), ("False", BEFORE)),
            ("it waits", waits(&again, Some("w"), NOW), ("Unknown", BEFORE), ("True", THEN)),
            ("it succeeds", settled(&again, well.clone()), ("True", THEN), ("False", BEFORE)),
            ("it fails", settled(&again, badly.clone()), ("False", THEN), ("False", BEFORE)),
            (
                "it fails again",
                settled(&resource(false, "False"), badly),
                ("False", BEFORE),
                ("False", BEFORE),
            ),
            ("nothing runs", waits(&done, Some("w"), NOW), ("True", BEFORE), ("True", THEN)),
            ("another goes on", settled(&beside, well), ("Unknown", BEFORE), ("False", BEFORE)),
        ] {
            let both = [succeeded, waiting].map(|(holds, at)| (holds.to_owned(), at.to_owned()));
            assert_eq!(stand(&patch), both, "{name}");
        }
    }

    #[test]
    fn the_last_run_is_the_first_of_the_history_and_takes_no_time_that_is_not_known() {
        let run = |at: &str| -> Run {
            serde_json::from_value(json!({"id": 2, "trigger": "now", "at": at})).unwrap()
        };
        let (made, none) = (json!(["s-1", "s-2"]), Value::Null);
        let names = vec!["s-1".to_owned(), "s-2".to_owned()];
        let well = Outcome { made: names, ..Outcome::completed() };
        let badly = Outcome::failed("F", "f");
        let (before, mut newer) = (resource(false, "False"), resource(true, "True"));
        newer.status.history[0].id = 3;
        let ahead = "2026-01-03T00:00:00Z";
        for (name, of, at, outcome, reason, seconds, names) in [
            ("a day ago", &before, BEFORE, &well, "Completed", Some(86_400), &made),
            ("a day ago, and it failed", &before, BEFORE, &badly, "F", Some(86_400), &none),
            ("at once", &before, THEN, &well, "Completed", Some(0), &made),
            ("nobody knows when", &before, "", &well, "Completed", None, &made),
            ("at what is no time", &before, "soon", &badly, "F", None, &none),
            ("by a clock that was ahead", &before, ahead, &well, "Completed", None, &made),
            ("before one that has ended", &newer, BEFORE, &well, "R", None, &none),
        ] {
            let patch = settled(of, &run(at), ("j", None), outcome, NOW);
            let (last, first) = (&patch["lastRun"], &patch["history"][0]);
            let (reason, took) = (json!(reason), json!(seconds));
            for (member, expected) in [("reason", &reason), ("seconds", &took), ("made", names)] {
                let both = (&last[member], &first[member]);
                assert_eq!(both, (expected, expected), "it began {name}: {member}");
            }
            assert_eq!(first.get("seconds").is_some(), seconds.is_some(), "it began {name}");
            // What the run before took is not left there.
            assert!(last.get("seconds").is_some(), "it began {name}: the patch leaves it");
        }
    }

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
