//! Reads JSON into the model's types, and says what does not fit by path and expectation, never by
//! value: what arrives may be a secret, and what is said goes to logs and to users.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::model::IdError;

/// Reads a document.
///
/// # Errors
/// Where it stops being JSON, or which member does not fit.
pub(crate) fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    from_value(json(bytes)?)
}

/// Reads a document that may hold anything.
///
/// # Errors
/// Where it stops being JSON.
pub(crate) fn json(bytes: &[u8]) -> Result<Value, String> {
    if bytes.is_empty() {
        return Err("empty where JSON is expected".to_owned());
    }
    serde_json::from_slice(bytes)
        .map_err(|error| format!("not JSON from line {} column {}", error.line(), error.column()))
}

/// Reads a value.
///
/// # Errors
/// Which member does not fit.
pub(crate) fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let what = expectation(&error.inner().to_string());
        if path == "." { what } else { format!("{path}: {what}") }
    })
}

/// The expectation in an error of serde, without the value that it was given.
///
/// serde writes either a name (`missing field`), or `<what was given>, expected <what was asked>`, or
/// a text of the type's own, of which only ours are known to repeat nothing.
fn expectation(message: &str) -> String {
    let ours = [IdError::Empty, IdError::TooLong, IdError::Control];
    if message.starts_with("missing field")
        || message.starts_with("duplicate field")
        || ours.iter().any(|id| id.to_string() == message)
    {
        return message.to_owned();
    }
    match message.rsplit_once(", expected ") {
        // `struct Name` is our name for it, not the reader's.
        Some((_, expected)) if expected.starts_with("struct ") => "expected an object".to_owned(),
        Some((_, expected)) => format!("expected {expected}"),
        None => "not an accepted value".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;
    use crate::model::{LastOperation, ProvisionRequest};

    #[derive(Debug, Deserialize)]
    struct Author {
        #[serde(rename = "size")]
        _size: u32,
    }

    #[test]
    fn names_the_member_and_never_the_value() {
        let cases = [
            (from_value::<Author>(json!({"size": "hunter2"})).unwrap_err(), "size: expected u32"),
            (from_value::<Author>(json!({})).unwrap_err(), "missing field `size`"),
            (from_value::<Author>(json!("hunter2")).unwrap_err(), "expected an object"),
            (
                from_value::<LastOperation>(json!({"state": "hunter2"})).unwrap_err(),
                "state: expected one of `in progress`, `succeeded`, `failed`",
            ),
            (
                from_value::<ProvisionRequest>(json!({"service_id": ""})).unwrap_err(),
                "service_id: must not be empty",
            ),
            (
                from_value::<Author>(json!({"size": ", expected hunter2"})).unwrap_err(),
                "size: expected u32",
            ),
        ];
        for (said, expected) in cases {
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn says_where_json_ends() {
        assert_eq!(json(b"{\"a\": hunter2}").unwrap_err(), "not JSON from line 1 column 7");
        assert_eq!(json(b"").unwrap_err(), "empty where JSON is expected");
    }
}
