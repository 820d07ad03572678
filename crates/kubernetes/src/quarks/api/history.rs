//! The status of a QuarksJob as it is read: whether it is completed, and which runs have ended.

use std::cmp::Reverse;

use engine::trigger::{MAX_RUN, Outcome};
use serde::Serialize;
use serde_json::Value;

use super::resource::Resource;
use super::status::{MADE, MOST_ENDED, SUCCEEDED, Said, WAITING};

/// The status of a QuarksJob. Each member is read by itself: one that cannot be read spoils no other.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Status {
    pub(crate) completed: bool,
    /// The runs that have ended, the newest first, each once.
    pub(crate) history: Vec<Ended>,
    /// What the QuarksJob waits for, in words.
    pub(crate) waits: Option<String>,
    /// The conditions `Succeeded` and `Waiting`.
    pub(crate) succeeded: Option<Said>,
    pub(crate) waiting: Option<Said>,
}

impl Status {
    /// Reads a status: at most as many runs as we write.
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

    /// Whether the status says that a run goes on.
    pub(crate) fn says_running(&self) -> bool {
        self.succeeded.as_ref().is_some_and(Said::is_unknown)
    }
}

/// A run that has ended, as the status shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ended {
    pub(crate) id: u64,
    /// The trigger, as it is spelled: another release may know others.
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
    /// For a run that had no Job: the digest of the template that made none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) template: Option<String>,
}

/// The reasons of runs that had no Job: it was refused, or the template makes none.
pub(crate) const REFUSED: &str = "JobRefused";
pub(crate) const INVALID: &str = "TemplateInvalid";

/// Whether the run of this outcome had no Job.
pub(crate) fn had_no_job(outcome: &Outcome) -> bool {
    [REFUSED, INVALID].contains(&outcome.reason.as_str())
}

impl Ended {
    /// Whether the run had no Job, and had another template than `than` has now.
    pub(crate) fn had_no_job_by_another(&self, than: &Resource) -> bool {
        let is_another = |known: &str| known != than.digest();
        had_no_job(&self.outcome) && self.template.as_deref().is_some_and(is_another)
    }

    /// Reads a run of the history; `None` if it has no number. Every run with a number has ended, and is not run again,
    /// whatever else is written of it.
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
