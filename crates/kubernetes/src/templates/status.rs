//! The status of an instance, with OpenShift's words.

use serde_json::{Value, json};

use super::kinds::is_version;
use super::plan::is_path_segment;
use super::resource::Instance;
use crate::conditions::{condition, stands};

/// The state of an instance, as its status says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stand {
    /// The objects are not ready yet; with the reason.
    Waiting(String),
    /// The work cannot go on now, and is tried again; with the reason.
    Retrying(String),
    /// The spec was changed, and the objects are to follow it.
    Changing,
    /// All objects are made and ready.
    Ready,
    /// The instance failed.
    Failed {
        why: String,
        /// Whether it was waiting for its objects then.
        was_awaited: bool,
    },
}

/// The drift state of the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Objects {
    AsMade,
    Drifted,
    /// Objects had drifted, and were changed back.
    Repaired,
}

/// OpenShift's message while objects are awaited.
pub(super) const WAITING: &str = "Waiting for instantiated objects to report ready";
/// OpenShift's message when that took too long.
pub(super) const TIMEOUT: &str = "timeout while waiting for template instance to be ready";
/// How many bytes a message has at most: a thousand objects may each have something to say.
const LONGEST: usize = 8 * 1024;

/// The message while objects are awaited: OpenShift's, and behind it what each waits for, as far as that is known.
pub(super) fn waiting(made: &[Made]) -> String {
    let waits = made.iter().filter(|it| it.state == State::Waiting && !it.message.is_empty());
    let waits = waits.map(|it| format!("{} {}: {}", it.kind, it.name, it.message));
    [WAITING.to_owned()].into_iter().chain(waits).collect::<Vec<_>>().join("\n")
}

/// Whether the status says that making the objects is tried again.
fn says_retrying(instance: &Instance) -> bool {
    let conditions = instance.status()["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|it| it["type"] == "Ready" && it["reason"] == "Retrying")
}

/// The conditions for a state, with those of other types as they are. `at` is RFC 3339.
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
        // As with OpenShift, Ready is left out where nothing was awaited; but not where it says what is not so any more.
        Stand::Failed { why, was_awaited: false } if !says_retrying(instance) => vec![failure(why)],
        Stand::Failed { why, .. } => vec![ready("False", "Failed", why), failure(why)],
    };
    let mut conditions = instance.status()["conditions"].as_array().cloned().unwrap_or_default();
    for (kind, status, reason, message) in said {
        let there = conditions.iter_mut().find(|it| it["type"] == kind);
        // An instance that never failed has no such condition.
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

/// The conditions with the drift state; `None` where that is no news.
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
        // An instance that never drifted has no such condition; that it was repaired stays visible.
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

/// An object that was made, as `status.objects` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) api_version: String,
    pub(super) kind: String,
    /// Empty for cluster-scoped objects.
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) state: State,
    /// What the object waits for, or how it failed; empty otherwise.
    pub(super) message: String,
}

/// The state of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The object exists; nobody waits for its readiness.
    Created,
    /// The object is awaited.
    Waiting,
    /// The object was awaited, and is ready.
    Ready,
    /// The object was awaited, and will not become ready.
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
    /// Whether both are in the same place: one may have taken the place of the other.
    pub(super) fn is_at(&self, other: &Self) -> bool {
        self.place() == other.place()
    }

    /// The place of the object: version, kind, namespace and name.
    pub(super) fn place(&self) -> [&str; 4] {
        [&self.api_version, &self.kind, &self.namespace, &self.name]
    }

    /// Reads an entry of `status.objects`; `None` if it names no object. Others may have written it: a name that cannot
    /// be a part of a path would lead a call to something else.
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

    /// The entry for `status.objects`.
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
