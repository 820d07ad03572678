//! How an instance stands, in the words of the original.

use serde_json::{Value, json};

use super::kinds::is_version;
use super::plan::is_path_segment;
use super::resource::Instance;
use crate::conditions::{condition, stands};

/// What is said of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stand {
    /// It is not there yet, and why.
    Waiting(String),
    /// It cannot go on now, and is tried again.
    Retrying(String),
    /// Something else is ordered, and it is to become that.
    Changing,
    /// It is there.
    Ready,
    /// Nothing becomes of it.
    Failed {
        why: String,
        /// Whether its objects were waited for then.
        was_awaited: bool,
    },
}

/// How its objects are, beside what was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Objects {
    AsMade,
    Drifted,
    /// They were drifted, and are as made again.
    Repaired,
}

/// What the original says while objects are waited for.
pub(super) const WAITING: &str = "Waiting for instantiated objects to report ready";
/// What it says when that took too long.
pub(super) const TIMEOUT: &str = "timeout while waiting for template instance to be ready";
/// The longest message: a thousand objects may each have something to say.
const LONGEST: usize = 8 * 1024;

/// Conditions that say so, with those of other types as they are. `at` is RFC 3339.
pub(super) fn conditions(instance: &Instance, stand: &Stand, at: &str) -> Value {
    let ready = |status, reason, message: &str| ("Ready", status, reason, cut(message));
    let failure = |message: &str| ("InstantiateFailure", "True", "Failed", cut(message));
    let said = match stand {
        Stand::Ready => vec![ready("True", "Created", "")],
        Stand::Waiting(message) => vec![ready("False", "Waiting", message)],
        Stand::Retrying(message) => vec![ready("False", "Retrying", message)],
        Stand::Changing => {
            vec![
                ready("False", "Changing", ""),
                ("InstantiateFailure", "False", "Changing", String::new()),
            ]
        }
        Stand::Failed { why, was_awaited: false } => vec![failure(why)],
        Stand::Failed { why, was_awaited: true } => {
            vec![ready("False", "Failed", why), failure(why)]
        }
    };
    let mut conditions = instance.status()["conditions"].as_array().cloned().unwrap_or_default();
    for (kind, status, reason, message) in said {
        let there = conditions.iter_mut().find(|it| it["type"] == kind);
        // One that never failed does not say that it has not.
        if kind == "InstantiateFailure" && status == "False" && there.is_none() {
            continue;
        }
        let before = there.as_deref().and_then(stands);
        let condition = condition(kind, status, (reason, &message), before, at);
        match there {
            Some(there) => *there = condition,
            None => conditions.push(condition),
        }
    }
    Value::Array(conditions)
}

/// Conditions that say whether objects are what was made; `None` where that is no news.
pub(super) fn said_of_drift(
    instance: &Instance,
    objects: Objects,
    message: &str,
    at: &str,
) -> Option<Value> {
    let mut conditions = instance.status()["conditions"].as_array().cloned().unwrap_or_default();
    let there = conditions.iter_mut().find(|it| it["type"] == "Drifted");
    let was = there.as_deref().cloned().unwrap_or_default();
    let (status, reason) = match objects {
        Objects::Drifted => ("True", "Drifted"),
        Objects::Repaired => ("False", "Repaired"),
        // One that never drifted does not say that it has not; what was repaired stays to be seen.
        Objects::AsMade if was["status"] != "True" => return None,
        Objects::AsMade => ("False", "AsMade"),
    };
    let condition = condition("Drifted", status, (reason, &cut(message)), stands(&was), at);
    if was == condition {
        return None;
    }
    match there {
        Some(there) => *there = condition,
        None => conditions.push(condition),
    }
    Some(Value::Array(conditions))
}

fn cut(text: &str) -> String {
    match text.len() <= LONGEST {
        true => text.to_owned(),
        false => format!("{} … (cut)", &text[..text.floor_char_boundary(LONGEST)]),
    }
}

/// An object that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) api_version: String,
    pub(super) kind: String,
    /// Empty for what is of the whole cluster.
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) state: State,
    /// What it waits for, or how it failed; empty otherwise.
    pub(super) message: String,
}

/// How an object stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It is there; nobody waits for more.
    Created,
    /// It is waited for.
    Waiting,
    /// It was waited for, and is ready.
    Ready,
    /// It was waited for, and will not be ready.
    Failed,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Created => "Created",
            Self::Waiting => "Waiting",
            Self::Ready => "Ready",
            Self::Failed => "Failed",
        }
    }

    fn of(word: &Value) -> Self {
        match word.as_str() {
            Some("Waiting") => Self::Waiting,
            Some("Ready") => Self::Ready,
            Some("Failed") => Self::Failed,
            _ => Self::Created,
        }
    }
}

impl Made {
    /// Whether both are in one place: one may be there instead of the other.
    pub(super) fn is_at(&self, other: &Self) -> bool {
        self.place() == other.place()
    }

    /// Where it is: there is no other.
    pub(super) fn place(&self) -> [&str; 4] {
        [&self.api_version, &self.kind, &self.namespace, &self.name]
    }

    /// As `status.objects` has it; `None` for what names no object. Others may have written it: what cannot be a part of a
    /// path would lead a call to something else.
    pub(super) fn of(entry: &Value) -> Option<Self> {
        let reference = &entry["ref"];
        let text = |of: &str| reference[of].as_str().unwrap_or_default().to_owned();
        let made = Self {
            api_version: text("apiVersion"),
            kind: text("kind"),
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            state: State::of(&entry["state"]),
            message: entry["message"].as_str().unwrap_or_default().to_owned(),
        };
        let is_one = is_version(&made.api_version)
            && [&made.kind, &made.name].into_iter().all(|it| is_path_segment(it))
            && (made.namespace.is_empty() || is_path_segment(&made.namespace))
            && !made.uid.is_empty();
        is_one.then_some(made)
    }

    /// For `status.objects`.
    pub(super) fn entry(&self) -> Value {
        let mut entry = json!({
            "ref": {
                "apiVersion": self.api_version,
                "kind": self.kind,
                "name": self.name,
                "uid": self.uid,
            },
            "state": self.state.word(),
        });
        if !self.namespace.is_empty() {
            entry["ref"]["namespace"] = json!(self.namespace);
        }
        if !self.message.is_empty() {
            entry["message"] = json!(cut(&self.message));
        }
        entry
    }
}
