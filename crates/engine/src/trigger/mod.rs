//! Jobs that run when something happens: what is to be done next, of everything that can be seen of one.
//!
//! ```text
//! trigger ──record──▶ open run ──start──▶ work goes on ──▶ ended ──keep outputs──▶ settled ──▶ removed
//!    ▲                    │                                                           │
//!    └── strategy, config └─ one write with the trigger's consumption                 └─ one write
//! ```
//!
//! Nothing here comes from the difference between two events: whoever was away, was restarted or has missed
//! a watch decides as one that has seen everything. A run has a number, and the number names all its
//! effects; so two who decide the same do it once.

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
    /// At once; then `manual` again.
    Now,
    /// At once, as soon as it is there, one time in its life; then `done`.
    Once,
    /// It has run, and runs again only for its configuration.
    Done,
    /// For each pod that comes to be as it is waited for.
    PodState,
}

/// What a run was started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    /// Somebody said `now`.
    Now,
    /// It was to run once.
    Once,
    /// What it refers to has changed.
    ConfigChange,
    /// Its time has come.
    Schedule,
    /// A pod has come to be as it is waited for.
    PodState,
}

impl Trigger {
    /// As it is spelled.
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

/// What happens to a trigger while a run goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Concurrency {
    /// Another run, beside it; after it, where some are over that cannot be kept.
    #[default]
    Allow,
    /// Nothing: the trigger is passed over. A change of configuration is no word that was said, but a difference that
    /// stays: it waits for the end of the run.
    Forbid,
    /// Another run, after it.
    Queue,
    /// Another run, instead of it.
    Replace,
}

/// What is recorded of a job's runs: written together with what it takes from the spec, so that a trigger is
/// never taken without a run and no run is made twice for one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    /// The number of the last run; 0: none yet.
    pub last: u64,
    /// Whether it has run for `once`. Somebody may say `once` again who means the same: a manifest that is applied
    /// each day, or by a program that puts back what it finds changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub once: bool,
    /// Runs that were not settled when this was written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<Run>,
    /// What the last run, or the first look, found; `None`: nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub references: Option<References>,
    /// How new that was: another who is behind takes no older one for a change.
    #[serde(default, skip_serializing_if = "Versions::is_empty")]
    pub versions: Versions,
    /// Which times are behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Passed>,
    /// Which pods were seen, and how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<RecordedPods>,
}

impl JobRecord {
    /// Whether what is referred to is other than it was, and not older: a change, once it has settled.
    pub fn differs(&self, now: &References, versions: &Versions) -> bool {
        self.before().is_some_and(|before| before.differs(now, versions))
    }

    fn before(&self) -> Option<Before<'_>> {
        let versions = &self.versions;
        self.references.as_ref().map(|references| Before { references, versions })
    }
}

/// How far a schedule has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passed {
    /// The schedule, as its user wrote it.
    pub of: String,
    /// The times of it that are not after this are behind it, RFC 3339.
    pub since: String,
}

/// A schedule, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// As its user wrote it.
    pub of: String,
    /// Whether one of its times has come since what the record says.
    pub is_due: bool,
}

/// All numbers of runs are below: beyond, a number in JSON is not exact.
pub const MAX_RUN: u64 = 1 << 53;

/// So many runs of one go on at once at most: each stands in its record, which is read whole. Beyond that a trigger waits
/// for the end of one.
pub const MAX_OPEN: usize = 1000;

/// A run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its number, from 1, below [`MAX_RUN`].
    pub id: u64,
    /// What it was started for.
    pub trigger: Trigger,
    /// When it was recorded, RFC 3339.
    pub at: String,
    /// What this run is told, and no other: whoever carries it out reads it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Value>,
    /// The pod that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
}

/// What is seen of a run's work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunProgress {
    /// It goes on.
    Going,
    /// It is over; what it left is not kept yet.
    Ended,
    /// The same, and for a while it has not been let in.
    Unkept,
    /// What it left is kept, or will never be.
    Kept(Outcome),
    /// Somebody took it away while it went on.
    Gone,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Whether it did its work, and everything that it should leave is kept.
    pub succeeded: bool,
    /// In one word.
    pub reason: String,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What was made of its outputs, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made: Vec<String>,
}

impl Outcome {
    /// It did its work, and left nothing.
    pub fn completed() -> Self {
        Self { succeeded: true, ..Self::failed("Completed", "") }
    }

    /// It came to nothing.
    pub fn failed(reason: &str, message: impl Into<String>) -> Self {
        let (reason, message) = (reason.to_owned(), message.into());
        Self { succeeded: false, reason, message, made: Vec::new() }
    }
}

/// Everything that is seen of a job.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// What its spec says.
    pub strategy: Strategy,
    /// Whether it is done for a `once` whose run could not begin, for what was wrong with it then and is mended now.
    pub owes_once: bool,
    /// Whether it runs again when what it refers to changes.
    pub follows_config: bool,
    /// What its spec says of triggers that meet a run.
    pub concurrency: Concurrency,
    /// What the next run is told, if the strategy is a trigger.
    pub inputs: Vec<Value>,
    /// When it runs by itself.
    pub schedule: Option<Schedule>,
    /// The pods that it follows, if it follows any and they are known.
    pub pods: Option<FollowedPods>,
    /// What it refers to that is not there, and without which its pods would not begin.
    pub missing: Vec<String>,
    /// What it refers to, as it is now.
    pub references: References,
    /// How new that is.
    pub versions: Versions,
    /// For how long that has not changed, as far as this process has seen.
    pub unchanged: Duration,
    /// For how long it has been other than what is recorded, as far as this process has seen.
    pub differs: Duration,
    /// How long that has to be before a change counts: so a burst of changes is one.
    pub settle: Duration,
    /// What is recorded of it.
    pub record: JobRecord,
    /// The runs whose outcome is published.
    pub settled: BTreeSet<u64>,
    /// Whether it says that it is completed.
    pub completed: bool,
    /// Whether it says that a run goes on.
    pub reopened: bool,
    /// What is seen of runs, by number; a run of which nothing is seen has not begun.
    pub runs: BTreeMap<u64, RunProgress>,
    /// What the work of a run says of its begin: what it was for, and when. A run that no record names is known by it.
    pub begun: BTreeMap<u64, (Trigger, String)>,
    /// Whether work of runs that are over goes on: it was told to end, and takes its time.
    pub lasts: bool,
    /// What is left of settled runs and is to go.
    pub left: BTreeSet<u64>,
}
