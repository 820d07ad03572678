//! The inputs of a run, `spec.trigger.inputs`: variables, as a container has them.

use k8s_openapi::api::core::v1::EnvVar;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::reference::{Reference, references};
use crate::calls::valueless;

/// How many bytes the inputs of a run may have as JSON: they are in an annotation, and all annotations of an object
/// have 256 KiB. So three runs that go on at once may each have as many.
const MOST: usize = 64 * 1024;

/// What is wrong with `spec.trigger.inputs`, each fault with its path: a run with such inputs cannot begin.
pub(crate) fn faults(inputs: &Value) -> Vec<String> {
    let path = "spec.trigger.inputs";
    let Some(all) = inputs.as_array() else {
        let wrong = (!inputs.is_null()).then(|| format!("{path}: has to be a list of variables"));
        return wrong.into_iter().collect();
    };
    let bytes = inputs.to_string().len();
    if bytes > MOST {
        return vec![format!(
            "{path}: has {bytes} bytes as JSON, of {MOST}: put what is large into a Secret"
        )];
    }
    all.iter()
        .enumerate()
        .filter_map(|(place, input)| fault(&format!("{path}[{place}]"), input))
        .collect()
}

fn fault(path: &str, input: &Value) -> Option<String> {
    let name = input["name"].as_str().unwrap_or_default();
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let starts_well = !name.starts_with(|first: char| first.is_ascii_digit());
    if name.is_empty() || !name.bytes().all(good) || !starts_well {
        return Some(format!(
            "{path}.name: has to be a variable's: letters, digits, '-', '_' and '.', no digit first"
        ));
    }
    if !input["value"].is_null() && !input["value"].is_string() {
        return Some(format!("{path}.value: has to be a string: put quotes around it"));
    }
    if !input["value"].is_null() && !input["valueFrom"].is_null() {
        return Some(format!("{path}: has value and valueFrom: leave one out"));
    }
    let error = EnvVar::deserialize(input).err()?;
    Some(format!("{path}: {}", valueless(&error)))
}

/// The inputs as a list of variables.
pub(crate) fn read(inputs: Value) -> Vec<Value> {
    match inputs {
        Value::Array(inputs) => inputs,
        _ => Vec::new(),
    }
}

/// The ConfigMaps and Secrets that inputs refer to.
pub(crate) fn references_of(inputs: &Value) -> Vec<Reference> {
    references(&json!({"containers": [{"env": inputs}]}))
}
