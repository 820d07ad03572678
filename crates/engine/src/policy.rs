//! The policy of an engine: what an operator chooses about operations.

use std::time::Duration;

use osb::Action;
use osb::jobs::contract::Capability;
use serde::{Deserialize, Serialize};

/// The rules for operations that an operator chooses.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The name of this broker, which goes into operation ids.
    pub broker: String,
    /// The capabilities that the broker counts as having, whatever its catalog declares and wherever that comes
    /// from; `None`: those that it declares.
    pub capabilities: Option<Vec<Capability>>,
    /// How long a run may take, by action.
    pub timeouts: PerAction<Duration>,
    /// What to do when a run vanishes without a result.
    pub lost: OnLost,
    /// How many attempts an operation has in all, where it may be tried again.
    pub attempts: u32,
    /// The pause before the second attempt; doubled for each further one, at most [`Self::backoff_max`].
    pub backoff: Duration,
    /// The longest pause between attempts, and between questions after external work, but for one that
    /// the broker asks for: an hour is granted.
    pub backoff_max: Duration,
    /// How long external work may take in all.
    pub external_timeout: Duration,
    /// What to do with a deprovision of an instance that is still bound.
    pub bound: OnBound,
    /// What `last_operation` says after an asynchronous delete.
    pub deleted: DeletedAnswer,
    /// How long a request without `accepts_incomplete` is held, by action; zero refuses it with
    /// `AsyncRequired`. Below the 60 s after which platforms give up.
    pub hold: PerAction<Duration>,
    /// How many operations may be in progress; further ones are refused with 429.
    pub max_in_progress: usize,
    /// How many runs are alive at once, of each service where several brokers are one; further ones wait.
    pub max_runs: usize,
    /// How long a tombstone is kept.
    pub tombstones: Duration,
    /// The dashboard of an instance, with `{instance_id}`: lets the first answer, a 202 included,
    /// carry it, as the specification asks.
    pub dashboard_url: Option<String>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            broker: "broker".into(),
            capabilities: None,
            timeouts: PerAction::all(Duration::from_secs(15 * 60)),
            lost: OnLost::Fail,
            attempts: 3,
            backoff: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
            external_timeout: Duration::from_secs(24 * 60 * 60),
            bound: OnBound::Refuse,
            deleted: DeletedAnswer::Succeeded,
            hold: PerAction {
                bind: Duration::from_secs(50),
                unbind: Duration::from_secs(50),
                ..PerAction::all(Duration::ZERO)
            },
            max_in_progress: 10_000,
            max_runs: 16,
            tombstones: Duration::from_secs(7 * 24 * 60 * 60),
            dashboard_url: None,
        }
    }
}

impl Policy {
    /// The pause before attempt `next` (2 or later), or before the `next`th question.
    pub fn pause(&self, next: u32) -> Duration {
        doubled(self.backoff, next.saturating_sub(1), self.backoff_max)
    }
}

/// The pause after the `count`th time, from 1: twice as long each time, from `first` up to `most`.
pub fn doubled(first: Duration, count: u32, most: Duration) -> Duration {
    let times = 2_u32.saturating_pow(count.saturating_sub(1));
    first.saturating_mul(times).min(most)
}

/// A value for each action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerAction<T> {
    /// The value for provision.
    pub provision: T,
    /// The value for update.
    pub update: T,
    /// The value for bind.
    pub bind: T,
    /// The value for unbind.
    pub unbind: T,
    /// The value for deprovision.
    pub deprovision: T,
}

impl<T: Copy> PerAction<T> {
    /// One value for every action.
    pub fn all(value: T) -> Self {
        Self { provision: value, update: value, bind: value, unbind: value, deprovision: value }
    }

    /// The value for an action.
    pub fn of(&self, action: Action) -> T {
        match action {
            Action::Provision => self.provision,
            Action::Update => self.update,
            Action::Bind => self.bind,
            Action::Unbind => self.unbind,
            Action::Deprovision => self.deprovision,
        }
    }
}

/// What to do when a run vanishes without a result: the machine went down, somebody removed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnLost {
    /// The operation fails; a person, or the platform's orphan mitigation, decides.
    Fail,
    /// A new attempt: for brokers whose work may be repeated.
    Retry,
}

/// What to do with a deprovision of an instance that is still bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnBound {
    /// 422; nothing changes.
    Refuse,
    /// The bindings are removed first.
    Cascade,
}

/// What `last_operation` says after an asynchronous delete, as long as the tombstone is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeletedAnswer {
    /// 200 `succeeded`.
    Succeeded,
    /// 410.
    Gone,
}
