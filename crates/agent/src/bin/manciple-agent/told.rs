//! Reads what the agent is told in a variable of its container.

use serde::de::DeserializeOwned;

/// Reads a variable; `what` names its content for people. The error does not repeat the content.
pub(crate) fn told<T: DeserializeOwned>(variable: &str, what: &str) -> Result<T, String> {
    let json = std::env::var(variable);
    let json = json.map_err(|_| format!("{variable} is not set, or not UTF-8"))?;
    serde_json::from_str(&json).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        format!(
            "{variable} is no {what} of this version (line {line}, column {column}): are \
             controller and agent of the same image?"
        )
    })
}
