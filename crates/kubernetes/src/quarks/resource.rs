//! What of a QuarksJob or an ExtendedJob matters: read tolerantly, for what the API server let in is to run.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::trigger::{Concurrency, Outcome, Record, Run, Strategy, Trigger};
use kube::api::DynamicObject;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::dialect::Dialect;
use super::output::OutputMap;
use super::reference::{Reference, references};
use super::table::Key;

/// The record of its runs: an annotation. It is written in one with the strategy that it takes a trigger
/// from, which the status cannot be.
pub(super) const RUNS: &str = "manciple.dev/runs";

/// One, as it was last seen.
#[derive(Debug, Clone)]
pub(super) struct Resource {
    pub(super) dialect: Dialect,
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) uid: Arc<str>,
    pub(super) version: u64,
    /// Somebody deleted it.
    pub(super) deleting: bool,
    pub(super) strategy: Strategy,
    pub(super) follows_config: bool,
    pub(super) concurrency: Concurrency,
    pub(super) record: Record,
    pub(super) status: Status,
    /// Whether anything is kept of what it leaves.
    pub(super) has_output: bool,
    pub(super) references: Arc<[Reference]>,
    /// The whole spec, as JSON: thousands of them are kept, and few are run.
    spec: Box<[u8]>,
}

/// What its status says.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Status {
    pub(super) completed: bool,
    /// The newest first.
    pub(super) history: Vec<Ended>,
    /// What it waits for, in words.
    #[serde(skip)]
    pub(super) waits: Option<String>,
}

/// A run that has ended, as the status shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ended {
    pub(super) id: u64,
    pub(super) trigger: Trigger,
    pub(super) job: String,
    #[serde(flatten)]
    pub(super) outcome: Outcome,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) started_at: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) ended_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) seconds: Option<u64>,
}

impl Resource {
    /// `None` for what has no name or identity, which no server sends.
    pub(super) fn of(dialect: Dialect, object: &DynamicObject) -> Option<Self> {
        let metadata = &object.metadata;
        let spec = &object.data["spec"];
        let record = metadata.annotations.as_ref().and_then(|all| all.get(RUNS));
        let mut status: Status =
            serde_json::from_value(object.data["status"].clone()).unwrap_or_default();
        status.waits = waits(&object.data["status"]);
        Some(Self {
            dialect,
            namespace: metadata.namespace.as_deref()?.into(),
            name: metadata.name.as_deref()?.into(),
            uid: metadata.uid.as_deref()?.into(),
            version: metadata.resource_version.as_deref()?.parse().ok()?,
            deleting: metadata.deletion_timestamp.is_some(),
            strategy: strategy(&spec["trigger"]["strategy"]),
            follows_config: spec["updateOnConfigChange"] == true,
            concurrency: Concurrency::deserialize(&spec["concurrencyPolicy"]).unwrap_or_default(),
            record: record.and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default(),
            status,
            has_output: !OutputMap::of(dialect, spec).is_empty(),
            references: references(dialect.pod_spec(spec)).into(),
            spec: serde_json::to_vec(spec).ok()?.into(),
        })
    }

    pub(super) fn key(&self) -> Key {
        let (namespace, name) = (Arc::clone(&self.namespace), Arc::clone(&self.name));
        Key { dialect: self.dialect, namespace, name }
    }

    /// Its spec.
    pub(super) fn spec(&self) -> Value {
        serde_json::from_slice(&self.spec).unwrap_or_default()
    }

    pub(super) fn settled(&self) -> BTreeSet<u64> {
        self.status.history.iter().map(|run| run.id).collect()
    }

    /// A run that has ended.
    pub(super) fn ended(&self, id: u64) -> Option<&Ended> {
        self.status.history.iter().find(|run| run.id == id)
    }

    /// A run that is recorded and not settled.
    pub(super) fn is_open(&self, id: u64) -> bool {
        self.record.open.iter().any(|run: &Run| run.id == id) && self.ended(id).is_none()
    }
}

fn strategy(value: &Value) -> Strategy {
    match value.as_str() {
        Some("now") => Strategy::Now,
        Some("once") => Strategy::Once,
        Some("done") => Strategy::Done,
        _ => Strategy::Manual,
    }
}

/// As it is spelled.
pub(super) fn word(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Manual => "manual",
        Strategy::Now => "now",
        Strategy::Once => "once",
        Strategy::Done => "done",
    }
}

fn waits(status: &Value) -> Option<String> {
    let waiting = status["conditions"].as_array()?.iter().find(|it| it["type"] == "Waiting")?;
    (waiting["status"] == "True")
        .then(|| waiting["message"].as_str().unwrap_or_default().to_owned())
}
