//! Integers that are read other than they were written, of which the specification says nothing: whoever sends one is
//! told, instead of getting another number.

use serde_json::Value;

/// The rule that a rounded integer breaks, for a message that names its path.
pub const INTEGER_BITS: &str =
    "must be an integer of at most 64 bits; send a larger one as a string";

/// The longest path that is named, in characters: the rest is left out. Whoever wrote the document chose the names.
const MAX_PATH: usize = 256;

/// The paths of the integers in a JSON document that are beyond 64 bits, given the document as it was
/// written and as it was read: one by one, since there may be many, each 256 characters at most.
///
/// They are read as the nearest double: two different orders would count as the same, and a broker
/// would see a number that nobody sent. What is written with a fraction or an exponent is a double
/// already. The text is only looked through where the value holds a double of that size.
pub fn rounded_integers(text: &[u8], value: &Value) -> impl Iterator<Item = String> {
    may_be_rounded(value).then(|| Scan::new(text)).into_iter().flatten()
}

/// Whether a number may be a rounded integer: one that fits is never a double in `serde_json`.
fn may_be_rounded(value: &Value) -> bool {
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            number.as_f64().is_some_and(|number| number.abs() >= BEYOND)
        }
        Value::Array(items) => items.iter().any(may_be_rounded),
        Value::Object(members) => members.values().any(may_be_rounded),
        _ => false,
    }
}

/// Goes through a text that is known to be JSON, and keeps account of where it is. Gives the paths.
struct Scan<'t> {
    rest: &'t [u8],
    levels: Vec<Level>,
}

enum Level {
    /// The member that the text is in; `None` before its name.
    Object(Option<String>),
    /// The element that the text is in.
    Array(usize),
}

impl Iterator for Scan<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        while let Some(&byte) = self.rest.first() {
            match byte {
                b'"' => self.string(),
                b'-' | b'0'..=b'9' => {
                    let number = self.take(|byte| {
                        byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E')
                    });
                    if is_beyond_64_bits(number) {
                        return Some(self.path());
                    }
                }
                _ => {
                    self.step(byte);
                    self.rest = &self.rest[1..];
                }
            }
        }
        None
    }
}

impl<'t> Scan<'t> {
    fn new(text: &'t [u8]) -> Self {
        Self { rest: text, levels: Vec::new() }
    }

    fn step(&mut self, byte: u8) {
        match byte {
            b'{' => self.levels.push(Level::Object(None)),
            b'[' => self.levels.push(Level::Array(0)),
            b'}' | b']' => drop(self.levels.pop()),
            b',' => match self.levels.last_mut() {
                Some(Level::Object(name)) => *name = None,
                Some(Level::Array(index)) => *index += 1,
                None => {}
            },
            _ => {}
        }
    }

    /// A string, which is a member's name where one is due.
    fn string(&mut self) {
        let mut escaped = true;
        let string = self.take(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            !ends
        });
        self.rest = self.rest.get(1..).unwrap_or_default();
        if let Some(Level::Object(name @ None)) = self.levels.last_mut() {
            let closed = [string, b"\""].concat();
            *name = Some(serde_json::from_slice(&closed).unwrap_or_default());
        }
    }

    fn take(&mut self, mut belongs: impl FnMut(u8) -> bool) -> &'t [u8] {
        let length = self.rest.iter().position(|&byte| !belongs(byte)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    fn path(&self) -> String {
        let mut path = String::new();
        for level in &self.levels {
            match level {
                Level::Array(index) => path.push_str(&format!("[{index}]")),
                Level::Object(name) => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.extend(name.iter().flat_map(|name| name.chars()).take(MAX_PATH));
                }
            }
            if path.chars().nth(MAX_PATH - 1).is_some() {
                return path.chars().take(MAX_PATH - 1).chain(['…']).collect();
            }
        }
        path
    }
}

fn is_beyond_64_bits(number: &[u8]) -> bool {
    let Ok(number) = std::str::from_utf8(number) else { return false };
    let is_integer = !number.contains(['.', 'e', 'E']);
    is_integer && number.parse::<i64>().is_err() && number.parse::<u64>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounded(text: &str) -> Vec<String> {
        rounded_integers(text.as_bytes(), &serde_json::from_str(text).unwrap()).collect()
    }

    #[test]
    fn an_integer_that_would_be_rounded_is_named_by_its_path() {
        let none: [&str; 0] = [];
        for (text, paths) in [
            (r#"{"a": 18446744073709551615, "b": -9223372036854775808}"#, &none[..]),
            (r#"{"a": 18446744073709551616}"#, &["a"]),
            (r#"{"a": -9223372036854775809}"#, &["a"]),
            ("[0, [18446744073709551616, 1]]", &["[1][0]"]),
            (r#"{"a": [{}, {"b": 1}, {"c": 99999999999999999999}]}"#, &["a[2].c"]),
            (
                r#"{"a": {"x": [1, 2]}, "b": 99999999999999999999, "c": {"d": -99999999999999999999}}"#,
                &["b", "c.d"],
            ),
            // Doubles, and written as such.
            (r#"{"a": 1e300, "b": 99999999999999999999.0, "c": 99999999999999999999E0}"#, &none),
            (r#"{"a": 1e300, "b": 99999999999999999999}"#, &["b"]),
            // No numbers.
            (r#"{"a": 1e300, "b": "99999999999999999999", "99999999999999999999": 0}"#, &none),
            (
                r#"{"a\"{[\\": 99999999999999999999, "\u0062": 99999999999999999999}"#,
                &["a\"{[\\", "b"],
            ),
            ("99999999999999999999", &[""]),
        ] {
            assert_eq!(rounded(text), paths, "{text}");
        }
    }

    #[test]
    fn a_path_is_no_longer_than_who_reads_it_has_patience() {
        let name = "ü".repeat(500_000);
        let text = format!(r#"{{"{name}": [{{"b": 99999999999999999999}}]}}"#);
        let expected = format!("{}…", "ü".repeat(255));
        assert_eq!(rounded(&text), [expected]);
        // As many as there is room for in a body, one by one.
        let text = format!(r#"{{"{name}": [{}0]}}"#, "99999999999999999999,".repeat(25_000));
        assert_eq!(rounded(&text).len(), 25_000);
        assert!(rounded(&text).iter().all(|path| path.chars().count() == MAX_PATH));
    }

    proptest::proptest! {
        #[test]
        fn what_is_let_through_is_read_as_it_was_written(
            digits in "-?[1-9][0-9]{0,24}", before in "[ -~]{0,6}",
        ) {
            let name = serde_json::to_string(&before).unwrap();
            let text = format!("{{{name}:[{name},{{{name}:{digits}}}]}}");
            let value: Value = serde_json::from_str(&text).unwrap();
            let written = serde_json::to_string(&value).unwrap();
            let same = written == text;
            let paths: Vec<_> = rounded_integers(text.as_bytes(), &value).collect();
            proptest::prop_assert_eq!(paths.is_empty(), same);
            if !same {
                proptest::prop_assert_eq!(paths, [format!("{before}[1].{before}")]);
            }
        }
    }
}
