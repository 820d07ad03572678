//! The items that a path goes over.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::Found;
use super::error::FindError;

/// A value, of the document or of the template.
#[derive(Debug, Clone, Copy)]
pub(super) enum Item<'d, 'p> {
    Node(&'d Value),
    Text(&'p str),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    /// A byte of a string.
    Byte(u8),
    /// The item of a range over null, or over nothing: client-go distinguishes it from a null.
    Nothing,
}

impl<'d, 'p> Item<'d, 'p> {
    /// The item with which an action begins.
    pub(super) fn root(data: &'d Value) -> Self {
        if data.is_null() { Self::Nothing } else { Self::Node(data) }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self, Self::Node(Value::Null))
    }

    /// The text of a string.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Node(Value::String(text)) => Some(text),
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The name of the item's type in Go.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Node(Value::Object(_)) => "map[string]interface {}",
            Self::Node(Value::Array(_)) => "[]interface {}",
            Self::Node(Value::String(_)) | Self::Text(_) => "string",
            Self::Node(Value::Bool(_)) | Self::Boolean(_) => "bool",
            Self::Node(Value::Number(number)) if number.is_i64() => "int64",
            Self::Node(Value::Number(number)) if number.is_u64() => "uint64",
            Self::Node(Value::Number(_)) | Self::Float(_) => "float64",
            Self::Integer(_) => "int",
            Self::Byte(_) => "uint8",
            Self::Node(Value::Null) | Self::Nothing => "<nil>",
        }
    }

    /// The result for the caller. `bytes` is how many bytes may still be copied.
    pub(super) fn into_found(self, bytes: &mut usize) -> Result<Found<'d>, FindError> {
        Ok(match self {
            Self::Node(value) => Cow::Borrowed(value),
            Self::Text(text) => {
                *bytes = bytes.checked_sub(text.len()).ok_or(FindError::TooLong)?;
                Cow::Owned(Value::from(text))
            }
            Self::Integer(number) => Cow::Owned(Value::from(number)),
            Self::Float(number) => Cow::Owned(Value::from(number)),
            Self::Boolean(boolean) => Cow::Owned(Value::from(boolean)),
            Self::Byte(byte) => Cow::Owned(Value::from(byte)),
            Self::Nothing => Cow::Owned(Value::Null),
        })
    }
}

/// The entries in the order of their keys, though another crate of the build may have told serde_json to keep them as
/// written.
pub(super) fn sorted(object: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut entries: Vec<_> = object.iter().collect();
    if !entries.is_sorted_by(|(before, _), (after, _)| before <= after) {
        entries.sort_unstable_by_key(|(key, _)| *key);
    }
    entries
}
