//! The depth to which JSON may be nested. The specification sets no limit, but what is nested deeper cannot be kept.

use serde_json::Value;

/// How deep JSON may be nested that comes from outside: an array or object of scalars is 1 deep.
///
/// What is let in is kept and sent on within other documents. JSON is read to 127 levels here, so what
/// came in just below that could be written into a record and never read again.
pub const MAX_DEPTH: usize = 64;

/// Whether a value is nested deeper than [`MAX_DEPTH`].
pub fn is_too_deep(value: &Value) -> bool {
    exceeds(value, MAX_DEPTH)
}

/// Whether JSON is nested so deep that it is not read at all.
pub fn is_past_reading(error: &serde_json::Error) -> bool {
    error.is_syntax() && error.to_string().starts_with("recursion limit exceeded")
}

fn exceeds(value: &Value, levels: usize) -> bool {
    let within = |inner: &Value| exceeds(inner, levels - 1);
    match value {
        Value::Array(_) | Value::Object(_) if levels == 0 => true,
        Value::Array(items) => items.iter().any(within),
        Value::Object(members) => members.values().any(within),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_too_deep_to_be_read_is_told_from_what_is_no_json() {
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_err();
        assert!(is_past_reading(&read(&"[".repeat(200))));
        assert!(!is_past_reading(&read("[nul]")));
        assert!(!is_past_reading(&read("[[")));
    }

    #[test]
    fn depth_counts_arrays_and_objects() {
        let nested = |levels| (0..levels).fold(json!(1), |inner, _| json!({"a": 0, "b": inner}));
        assert!(!is_too_deep(&nested(MAX_DEPTH)));
        assert!(is_too_deep(&nested(MAX_DEPTH + 1)));
        let nested = |levels| (0..levels).fold(json!(1), |inner, _| json!([0, inner]));
        assert!(!is_too_deep(&nested(MAX_DEPTH)));
        assert!(is_too_deep(&nested(MAX_DEPTH + 1)));
    }
}
