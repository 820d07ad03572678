//! Estimates the memory that a JSON document takes, before it is read.
//!
//! A megabyte of `{"":0},` becomes a hundred: each map is a node of its own, with room for eleven members.

/// The memory of a map, in bytes: a node of a B-tree, as `serde_json::Map` has them.
const MAP: usize = 640;
/// The memory of a list, in bytes: room for four values.
const LIST: usize = 128;
/// The memory of each further value, in bytes: room for it, and for as much again, as lists grow.
const FURTHER: usize = 112;
/// The memory of a text beside its bytes.
const TEXT: usize = 32;

/// Estimates the memory that a JSON document takes when it is read into a `serde_json::Value`, in bytes. The estimate
/// is 1.0 to 2 times what was measured, and more where there are many empty maps.
pub fn weigh(json: &[u8]) -> usize {
    let (mut weight, mut in_text, mut is_escaped) = (0_usize, false, false);
    for byte in json {
        if in_text {
            in_text = is_escaped || *byte != b'"';
            is_escaped = *byte == b'\\' && !is_escaped;
            weight += 1;
            continue;
        }
        weight += match byte {
            b'{' => MAP,
            b'[' => LIST,
            b',' => FURTHER,
            b'"' => TEXT,
            _ => 0,
        };
        in_text = *byte == b'"';
    }
    weight
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_a_text_takes_its_length() {
        for (name, json, expected) in [
            ("a number", "12345", 0),
            ("a text", r#""abc""#, TEXT + 4),
            ("what is like structure", r#""{[,:]}""#, TEXT + 7),
            ("quoted", r#""a\"{""#, TEXT + 5),
            ("quoted twice", r#"["a\\",{}]"#, LIST + TEXT + 4 + FURTHER + MAP),
            ("a map", r#"{"a":1,"b":2}"#, MAP + 2 * (TEXT + 2) + FURTHER),
            ("a list", "[1,2,3]", LIST + 2 * FURTHER),
            ("no JSON", "}]\"", TEXT),
        ] {
            assert_eq!(weigh(json.as_bytes()), expected, "{name}");
        }
        assert!(weigh("{\"\":0},".repeat(100_000).as_bytes()) > 70_000_000);
    }
}
