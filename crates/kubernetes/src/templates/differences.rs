//! Differences between an object and what it should be: where they are, never the values, which may be confidential.

use serde_json::Value;

/// How many differing places are named.
const NAMED: usize = 5;

/// The paths where two states of one object differ; empty if they do not. Metadata that the API server maintains, and
/// the status, are not compared.
pub(super) fn differences(one: &Value, other: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare(one, other, &mut String::new(), &mut found);
    if found.len() > NAMED {
        let more = found.len() - NAMED;
        found.truncate(NAMED);
        found.push(format!("and {more} more"));
    }
    found
}

fn compare(one: &Value, other: &Value, path: &mut String, found: &mut Vec<String>) {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let further = other.keys().filter(|key| !one.contains_key(*key));
            for key in one.keys().chain(further) {
                let length = path.len();
                path.push('.');
                path.push_str(key);
                if !is_passed_over(path) {
                    let of = |map: &serde_json::Map<String, Value>| map.get(key).cloned();
                    let (one, other) = (of(one).unwrap_or_default(), of(other).unwrap_or_default());
                    compare(&one, &other, path, found);
                }
                path.truncate(length);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                let length = path.len();
                path.push_str(&format!("[{index}]"));
                compare(one, other, path, found);
                path.truncate(length);
            }
        }
        _ if one != other => found.push(path.clone()),
        _ => {}
    }
}

fn is_passed_over(path: &str) -> bool {
    let metadata =
        ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"];
    path == ".status"
        || path.strip_prefix(".metadata.").is_some_and(|member| metadata.contains(&member))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn places_that_differ_are_named_and_nothing_of_what_is_there() {
        for (name, one, other, expected) in [
            ("nothing", json!({"a": 1}), json!({"a": 1}), vec![]),
            ("a value", json!({"a": {"b": 1}}), json!({"a": {"b": 2}}), vec![".a.b"]),
            ("one more", json!({"a": {}}), json!({"a": {"b": 2}}), vec![".a.b"]),
            ("one less", json!({"a": {"b": 2}}), json!({"a": {}}), vec![".a.b"]),
            (
                "in a list",
                json!({"a": [1, {"b": 1}]}),
                json!({"a": [1, {"b": 2}]}),
                vec![".a[1].b"],
            ),
            ("a longer list", json!({"a": [1]}), json!({"a": [1, 2]}), vec![".a"]),
            (
                "what the API server writes",
                json!({"metadata": {"generation": 1, "managedFields": [], "labels": {}}, "status": 1}),
                json!({"metadata": {"generation": 2, "labels": {}}, "status": 2}),
                vec![],
            ),
            (
                "many",
                json!({"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1}),
                json!({}),
                vec![".a", ".b", ".c", ".d", ".e", "and 2 more"],
            ),
        ] {
            assert_eq!(differences(&one, &other), expected, "{name}");
        }
    }
}
