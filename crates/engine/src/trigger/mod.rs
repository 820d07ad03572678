//! Triggered jobs: decides the next steps of a job that runs when something happens, from everything that can be seen
//! of it.
//!
//! ```text
//! trigger ──record──▶ open run ──start──▶ work goes on ──▶ ended ──keep outputs──▶ settled ──▶ removed
//!    ▲                    │                                                           │
//!    └── strategy, config └─ one write with the trigger's consumption                 └─ one write
//! ```
//!
//! No decision depends on the difference between two events: a process that was restarted or has missed
//! events of a watch decides as one that has seen everything. A run has a number, and the number names all its
//! effects; so two processes that decide the same do it once.

mod decide;
mod pods;
mod references;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::references::Before;

pub use self::decide::{Decision, LOST, REPLACED, Step, Wait, decide};
pub use self::pods::{FollowedPods, Pod, PodRef, RecordedPods};
pub use self::references::{Held, HeldVersion, References, Versions};

/// When a job is to run: `spec.trigger.strategy`. A schedule comes in addition to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strategy {
    /// When somebody says `now`.
    #[default]
    Manual,
    /// At once; then the strategy is `manual` again.
    Now,
    /// As soon as the job is there, one time in its life; then the strategy is `done`.
    Once,
    /// The job has run, and runs again when its configuration changes, or a time of its schedule comes.
    Done,
    /// For each pod that comes into the state that is waited for.
    PodState,
}

/// The reason why a run was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    /// Somebody set the strategy `now`.
    Now,
    /// The strategy was `once`.
    Once,
    /// Something that the job refers to has changed.
    ConfigChange,
    /// A time of the job's schedule has come.
    Schedule,
    /// A pod has come into the state that is waited for.
    PodState,
}

impl Trigger {
    /// The trigger's name, as it is spelled in the resource.
    pub fn word(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::Once => "once",
            Self::ConfigChange => "config-change",
            Self::Schedule => "schedule",
            Self::PodState => "pod-state",
        }
    }
}

/// The rule for a trigger that comes while a run goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Concurrency {
    /// Another run begins beside it; after it, while runs have ended whose outputs cannot be kept.
    #[default]
    Allow,
    /// The trigger is passed over. A change of configuration, which is a difference that stays, waits for the end of the
    /// run, and so does a `once` that is owed.
    Forbid,
    /// Another run begins after it.
    Queue,
    /// Another run replaces it.
    Replace,
}

/// The record of a job's runs. It is written together with the change to the spec that consumes a trigger, so that no
/// trigger is consumed without a run and none leads to two runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    /// The number of the last run; 0: none yet.
    pub last: u64,
    /// Whether the job has run for `once`. The strategy may be set to `once` again without another run being meant: by
    /// a manifest that is applied each day, or by a program that puts back what it finds changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub once: bool,
    /// The runs that were not settled when the record was written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<Run>,
    /// What the job refers to, as the last run or the first look found it; `None`: nobody has looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub references: Option<References>,
    /// The versions of `references`: a process whose watch is behind takes no older version for a change.
    #[serde(default, skip_serializing_if = "Versions::is_empty")]
    pub versions: Versions,
    /// The times of the schedule that have passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Passed>,
    /// The pods that were seen, and their state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<RecordedPods>,
}

impl JobRecord {
    /// Whether what the job refers to differs from what is recorded and is not older: a change, once it has settled.
    pub fn differs(&self, now: &References, versions: &Versions) -> bool {
        self.before().is_some_and(|before| before.differs(now, versions))
    }

    fn before(&self) -> Option<Before<'_>> {
        let versions = &self.versions;
        self.references.as_ref().map(|references| Before { references, versions })
    }
}

/// The times of a schedule that have passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passed {
    /// The schedule, as its user wrote it.
    pub of: String,
    /// The schedule's times up to this one have passed, RFC 3339.
    pub since: String,
}

/// A schedule, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// The schedule, as its user wrote it.
    pub of: String,
    /// Whether one of its times has come since the last one in the record.
    pub is_due: bool,
}

/// The bound below which all numbers of runs lie: beyond, a number in JSON is not exact.
pub const MAX_RUN: u64 = 1 << 53;

/// The most open runs of one job: each stands in the job's record, which is read whole. Beyond that a trigger waits for
/// the end of a run.
pub const MAX_OPEN: usize = 1000;

/// A run of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The number of the run, from 1, below [`MAX_RUN`].
    pub id: u64,
    /// The trigger that it was started for.
    pub trigger: Trigger,
    /// When it was recorded, RFC 3339.
    pub at: String,
    /// The inputs of this run alone; whoever carries it out reads them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Value>,
    /// The pod that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
}

/// The progress of a run's work, as far as it can be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunProgress {
    /// The work goes on.
    Going,
    /// The work has ended; its outputs are not kept yet.
    Ended,
    /// The work has ended, and for a while its outputs could not be kept because they were refused.
    Unkept,
    /// The work has ended, and its outputs are kept, or will never be.
    Kept(Outcome),
    /// Somebody removed the work while it went on.
    Gone,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Whether the run did its work, and all its outputs are kept.
    pub succeeded: bool,
    /// The reason, in one word.
    pub reason: String,
    /// The reason, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The names of the objects that were made of the run's outputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made: Vec<String>,
}

impl Outcome {
    /// The outcome of a run that did its work and left no outputs.
    pub fn completed() -> Self {
        Self { succeeded: true, ..Self::failed("Completed", "") }
    }

    /// The outcome of a run that failed.
    pub fn failed(reason: &str, message: impl Into<String>) -> Self {
        let (reason, message) = (reason.to_owned(), message.into());
        Self { succeeded: false, reason, message, made: Vec::new() }
    }
}

/// Everything that is seen of a job.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// The strategy in the job's spec.
    pub strategy: Strategy,
    /// Whether the strategy is `done` for a `once` whose run could not begin because of a fault that is mended now.
    pub owes_once: bool,
    /// Whether the job runs again when something that it refers to changes.
    pub follows_config: bool,
    /// What the job's spec says of triggers that come while a run goes on.
    pub concurrency: Concurrency,
    /// The inputs of the next run, if the strategy is a trigger.
    pub inputs: Vec<Value>,
    /// The job's schedule.
    pub schedule: Option<Schedule>,
    /// The pods that the job follows, if it follows any and they are known.
    pub pods: Option<FollowedPods>,
    /// The things that the job refers to and that are not there; without them its pods would not begin.
    pub missing: Vec<String>,
    /// The things that the job refers to, as they are now.
    pub references: References,
    /// The versions of `references`.
    pub versions: Versions,
    /// How long `references` have not changed, as far as this process has seen.
    pub unchanged: Duration,
    /// How long `references` have differed from what is recorded, as far as this process has seen.
    pub differs: Duration,
    /// How long `references` have to stay unchanged before a change counts, so that a burst of changes is one.
    pub settle: Duration,
    /// The record of the job's runs.
    pub record: JobRecord,
    /// The runs whose outcome is published.
    pub settled: BTreeSet<u64>,
    /// Whether the job's status says that it is completed.
    pub completed: bool,
    /// Whether the job's status says that a run goes on.
    pub reopened: bool,
    /// Whether the record is refused, by what was said last when it was to be written.
    pub refused: bool,
    /// The progress of runs, by number; a run that is not here has not begun.
    pub runs: BTreeMap<u64, RunProgress>,
    /// The trigger and the time of runs, as their work says them: by this a run is known that no record names.
    pub begun: BTreeMap<u64, (Trigger, String)>,
    /// Whether work of runs that are over still goes on: it was told to end, and takes its time.
    pub lasts: bool,
    /// The settled runs of which something is left that has to be removed.
    pub left: BTreeSet<u64>,
}
