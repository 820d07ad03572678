//! What the status of one says, as it is read: how far it has come, and which runs have ended.

use std::cmp::Reverse;

use engine::trigger::{MAX_RUN, Outcome};
use serde::Serialize;
use serde_json::Value;

use super::resource::Resource;
use super::status::{MADE, MOST_ENDED, SUCCEEDED, Said, WAITING};

/// What its status says: each word of it by itself, for one that cannot be read takes nothing from the others.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Status {
    pub(crate) completed: bool,
    /// The newest first, each once.
    pub(crate) history: Vec<Ended>,
    /// What it waits for, in words.
    pub(crate) waits: Option<String>,
    /// How its conditions stand.
    pub(crate) succeeded: Option<Said>,
    pub(crate) waiting: Option<Said>,
}

impl Status {
    /// As much of it as may be ours.
    pub(super) fn of(said: &Value) -> Self {
        let ended = said["history"].as_array().into_iter().flatten().filter_map(Ended::of);
        let mut history: Vec<Ended> = ended.collect();
        history.sort_by_key(|run| Reverse(run.id));
        history.dedup_by_key(|run| run.id);
        history.truncate(MOST_ENDED);
        Self {
            completed: said["completed"] == true,
            history,
            waits: waits(said),
            succeeded: Said::of(said, SUCCEEDED),
            waiting: Said::of(said, WAITING),
        }
    }

    /// Whether it says that a run goes on.
    pub(crate) fn says_running(&self) -> bool {
        self.succeeded.as_ref().is_some_and(Said::is_unknown)
    }
}

/// A run that has ended, as the status shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ended {
    pub(crate) id: u64,
    /// As it is spelled: another release may know others.
    pub(crate) trigger: String,
    pub(crate) job: String,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) started_at: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) ended_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seconds: Option<u64>,
    /// Of a run that had no Job: of which template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) template: Option<String>,
}

/// The reasons of runs that had no Job: it was refused, or the template makes none.
pub(crate) const REFUSED: &str = "JobRefused";
pub(crate) const INVALID: &str = "TemplateInvalid";

/// Whether nothing was begun.
pub(crate) fn had_no_job(outcome: &Outcome) -> bool {
    [REFUSED, INVALID].contains(&outcome.reason.as_str())
}

impl Ended {
    /// Whether nothing was begun, and by another template than this.
    pub(crate) fn had_no_job_by_another(&self, than: &Resource) -> bool {
        let is_another = |known: &str| known != than.digest();
        had_no_job(&self.outcome) && self.template.as_deref().is_some_and(is_another)
    }

    /// `None` for what has no number. Any that has one has ended, and is not run again, whatever else it says.
    fn of(said: &Value) -> Option<Self> {
        let text = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
        let made = said["made"].as_array().into_iter().flatten();
        let outcome = Outcome {
            succeeded: said["succeeded"] == true,
            reason: said["reason"].as_str().unwrap_or("Unknown").to_owned(),
            message: text("message"),
            made: made.filter_map(Value::as_str).take(MADE).map(str::to_owned).collect(),
        };
        Some(Self {
            id: said["id"].as_u64().filter(|id| *id < MAX_RUN)?,
            trigger: text("trigger"),
            job: text("job"),
            outcome,
            started_at: text("startedAt"),
            ended_at: text("endedAt"),
            seconds: said["seconds"].as_u64(),
            template: said["template"].as_str().map(str::to_owned),
        })
    }
}

fn waits(status: &Value) -> Option<String> {
    let waiting = status["conditions"].as_array()?.iter().find(|it| it["type"] == WAITING)?;
    (waiting["status"] == "True")
        .then(|| waiting["message"].as_str().unwrap_or_default().to_owned())
}
