//! How runs are made, as far as a `Broker` or one of its plans says so.

use std::time::Duration;

use engine::policy::PerAction;
use osb::Action;
use serde_json::{Map, Value};

use crate::runner::JobSettings;

/// What may be said of a broker, and of a plan instead.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Policy {
    /// Where Jobs are made.
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
    /// This one over another: a member that is given replaces that member, whole. The members of `pod` and of
    /// `deadlines` are members of their own.
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

    /// Has the settings follow it; what it leaves open stays.
    pub(super) fn apply(&self, settings: &mut JobSettings) {
        if let Some(namespace) = &self.namespace {
            settings.namespace.clone_from(namespace);
        }
        // Checked when it was read.
        settings.pod = serde_json::from_value(Value::Object(self.pod.clone())).unwrap_or_default();
        settings.start_timeout = self.start_timeout.unwrap_or(settings.start_timeout);
        settings.grace = self.grace.unwrap_or(settings.grace);
        settings.deadlines = self.deadlines;
        settings.keep_succeeded = self.keep_succeeded.unwrap_or(settings.keep_succeeded);
        settings.keep_failed = self.keep_failed.unwrap_or(settings.keep_failed);
    }
}

/// A period as `90s`, `15m`, `1h30m` or `7d`; at most ten years.
pub(super) fn period(text: &str) -> Option<Duration> {
    const MOST: u64 = 10 * 365 * 24 * 60 * 60 * 1000;
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        let (digits, more) = rest.split_at(end);
        let end = more.find(|c: char| c.is_ascii_digit()).unwrap_or(more.len());
        let (unit, more) = more.split_at(end);
        let millis = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        total = total.checked_add(digits.parse::<u64>().ok()?.checked_mul(millis)?)?;
        rest = more;
    }
    (!text.is_empty() && total <= MOST).then(|| Duration::from_millis(total))
}
