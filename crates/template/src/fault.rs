//! Faults of templates: what is wrong, and where.

use std::fmt;

/// A fault at one place of a template.
///
/// A fault is shown as Kubernetes shows the error of a field: `template.parameters[0]: Required value: …`. It never has
/// the value of a parameter, which may be a password; it may quote the template itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}: {detail}")]
pub struct Fault {
    /// The path of the fault, such as `template.objects[2].metadata.labels.app`.
    pub path: String,
    /// The kind of the fault.
    pub problem: Problem,
    /// What is wrong, and the remedy.
    pub detail: String,
}

/// The kinds of faults, in Kubernetes' words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// A value is missing, or empty.
    Required,
    /// A value is not allowed: this, which the template has, as JSON.
    Invalid(String),
    /// Something is too long, or takes too much.
    TooLong,
    /// Something is the second of its name.
    Duplicate(String),
    /// Something is valid and does something other than it seems to; only linting finds these.
    Questionable,
}

impl fmt::Display for Problem {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Required => to.write_str("Required value"),
            Self::Invalid(value) => write!(to, "Invalid value: {value}"),
            Self::TooLong => to.write_str("Too long"),
            Self::Duplicate(value) => write!(to, "Duplicate value: {value}"),
            Self::Questionable => to.write_str("Questionable"),
        }
    }
}

impl Fault {
    pub(crate) fn new(path: String, problem: Problem, detail: impl Into<String>) -> Self {
        Self { path, problem, detail: detail.into() }
    }

    /// A fault about the value that the template has at this path.
    pub(crate) fn invalid(
        path: String,
        value: &serde_json::Value,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(path, Problem::Invalid(shown(value)), detail)
    }
}

/// How many characters of a value are shown.
const SHOWN: usize = 120;

/// A value as messages show it: cut if it is long.
fn shown(value: &serde_json::Value) -> String {
    let mut text = match value {
        serde_json::Value::Array(_) => "a list".to_owned(),
        serde_json::Value::Object(_) => "a map".to_owned(),
        _ => value.to_string(),
    };
    if let Some((end, _)) = text.char_indices().nth(SHOWN) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// A place in a document, made into a path only when something is wrong there.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    Root(&'a str),
    Key(&'a Place<'a>, &'a str),
    Index(&'a Place<'a>, usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(name) => to.write_str(name),
            Self::Key(of, key) if is_plain(key) => write!(to, "{of}.{key}"),
            Self::Key(of, key) => write!(to, "{of}[{key:?}]"),
            Self::Index(of, index) => write!(to, "{of}[{index}]"),
        }
    }
}

fn is_plain(key: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'$');
    !key.is_empty() && key.bytes().all(good)
}
