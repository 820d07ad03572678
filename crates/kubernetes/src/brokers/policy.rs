//! The policy of a `Broker`, or of one of its plans: how its runs are made.

use std::time::Duration;

use engine::policy::PerAction;
use osb::Action;
use serde_json::{Map, Value};

use crate::runner::JobSettings;

/// The settings of runs that a broker has, and that a plan may override.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Policy {
    /// The namespace in which Jobs are made.
    pub(super) namespace: Option<String>,
    /// Members of a [`PodPolicy`](crate::PodPolicy), checked.
    pub(super) pod: Map<String, Value>,
    pub(super) start_timeout: Option<Duration>,
    pub(super) grace: Option<Duration>,
    pub(super) deadlines: PerAction<Option<Duration>>,
    pub(super) keep_succeeded: Option<Duration>,
    pub(super) keep_failed: Option<Duration>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            namespace: None,
            pod: Map::new(),
            start_timeout: None,
            grace: None,
            deadlines: PerAction::all(None),
            keep_succeeded: None,
            keep_failed: None,
        }
    }
}

impl Policy {
    /// This policy laid over another: a member that is given replaces the other's as a whole. The members of `pod` and
    /// of `deadlines` count one by one.
    pub(super) fn over(&self, base: &Self) -> Self {
        let mut pod = base.pod.clone();
        pod.extend(self.pod.clone());
        let deadline = |action| self.deadlines.of(action).or(base.deadlines.of(action));
        Self {
            namespace: self.namespace.as_ref().or(base.namespace.as_ref()).cloned(),
            pod,
            start_timeout: self.start_timeout.or(base.start_timeout),
            grace: self.grace.or(base.grace),
            deadlines: PerAction {
                provision: deadline(Action::Provision),
                update: deadline(Action::Update),
                bind: deadline(Action::Bind),
                unbind: deadline(Action::Unbind),
                deprovision: deadline(Action::Deprovision),
            },
            keep_succeeded: self.keep_succeeded.or(base.keep_succeeded),
            keep_failed: self.keep_failed.or(base.keep_failed),
        }
    }

    /// Applies the policy to settings; those that it leaves open stay.
    pub(super) fn apply(&self, settings: &mut JobSettings) {
        if let Some(namespace) = &self.namespace {
            settings.namespace.clone_from(namespace);
        }
        // The members were checked when they were read.
        settings.pod = serde_json::from_value(Value::Object(self.pod.clone())).unwrap_or_default();
        settings.start_timeout = self.start_timeout.unwrap_or(settings.start_timeout);
        settings.grace = self.grace.unwrap_or(settings.grace);
        settings.deadlines = self.deadlines;
        settings.keep_succeeded = self.keep_succeeded.unwrap_or(settings.keep_succeeded);
        settings.keep_failed = self.keep_failed.unwrap_or(settings.keep_failed);
    }
}

/// Reads a period as in a configuration; `None` if it is none, or longer than ten years.
pub(super) fn period(text: &str) -> Option<Duration> {
    const MOST: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
    template::period(text).filter(|period| *period <= MOST)
}
