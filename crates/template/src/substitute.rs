//! Substitutes parameters in text: `${NAME}` anywhere in it, `${{NAME}}` for the whole text.

use std::collections::HashMap;

use serde_json::Value;

/// The values of parameters, by name.
pub(crate) type Values<'a> = HashMap<&'a str, Held<'a>>;

/// The value of a parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Held<'a> {
    text: &'a str,
    /// Whether the value has a character of a reference, and so may complete one. Computed once, because the value may
    /// be long.
    completes: bool,
}

impl<'a> Held<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, completes: memchr::memchr3(b'$', b'{', b'}', text.as_bytes()).is_some() }
    }
}

/// How many bytes of memory the substituted parameters of a template may take. An API server takes objects of 3 MiB,
/// and etcd 1.5 MiB; a process that instantiates others' templates has many at once.
pub(crate) const MOST: usize = 4 * 1024 * 1024;
/// How many bytes may be searched for references.
const LOOKED_THROUGH: usize = 64 * 1024 * 1024;

/// The error where the substitution exceeds [`MOST`], or [`LOOKED_THROUGH`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMuch;

/// A text after substitution.
#[derive(Debug, PartialEq)]
pub(crate) enum Text {
    /// The text is unchanged.
    Same,
    Other(String),
    /// The value of a parameter that stands for the whole text, as JSON.
    Json(Value),
}

/// A substitution of parameters that counts what it costs.
pub(crate) struct Substitution<'a> {
    values: Values<'a>,
    /// What is left of [`MOST`].
    left: usize,
    /// What is left of [`LOOKED_THROUGH`].
    looks_left: usize,
}

/// A reference in a text, from its `$` to its `}`.
struct Match<'a> {
    begin: usize,
    end: usize,
    value: Option<Held<'a>>,
}

impl<'a> Substitution<'a> {
    pub(crate) fn new(values: Values<'a>) -> Self {
        Self { values, left: MOST, looks_left: LOOKED_THROUGH }
    }

    /// How many bytes of [`MOST`] have been spent.
    pub(crate) fn spent(&self) -> usize {
        MOST - self.left
    }

    /// Spends bytes of [`MOST`]; once it is exceeded, all further calls fail.
    pub(crate) fn spend(&mut self, bytes: usize) -> Result<(), TooMuch> {
        take(&mut self.left, bytes)
    }

    /// Substitutes in a member's value: the result is text, or the JSON for `${{NAME}}`.
    pub(crate) fn value(&mut self, text: &str) -> Result<Text, TooMuch> {
        let Some(value) = self.whole(text) else { return self.part(text) };
        // Counted before the value is parsed: it may be many times as large then.
        self.spend(memory(value))?;
        match serde_json::from_str::<Value>(value) {
            Ok(json) => Ok(Text::Json(json)),
            Err(_) => Ok(Text::Other(value.to_owned())),
        }
    }

    /// Substitutes in a value that can only be text: labels, the message.
    pub(crate) fn text(&mut self, text: &str) -> Result<Option<String>, TooMuch> {
        if let Some(value) = self.whole(text) {
            self.spend(value.len())?;
            return Ok(Some(value.to_owned()));
        }
        match self.part(text)? {
            Text::Other(text) => Ok(Some(text)),
            Text::Same | Text::Json(_) => Ok(None),
        }
    }

    /// The value of the parameter that stands for the whole text: `${{NAME}}`.
    fn whole(&self, text: &str) -> Option<&'a str> {
        let name = text.strip_prefix("${{")?.strip_suffix("}}")?;
        self.values.get(name).filter(|_| is_name(name)).map(|held| held.text)
    }

    /// Substitutes the references in a text. In order, each one's value replaces the first occurrence of the reference
    /// in the text as it is by then: so the original does it, and so a value may complete a later reference. If no
    /// value can, which is nearly always, one pass suffices.
    fn part(&mut self, text: &str) -> Result<Text, TooMuch> {
        let matches = matches(text, &self.values);
        if matches.iter().all(|it| it.value.is_none()) {
            return Ok(Text::Same);
        }
        let replaced = match is_plain(text, &matches) {
            true => self.in_one_pass(text, &matches)?,
            false => self.one_by_one(text, &matches)?,
        };
        Ok(Text::Other(replaced))
    }

    fn in_one_pass(&mut self, text: &str, matches: &[Match<'_>]) -> Result<String, TooMuch> {
        let values =
            matches.iter().filter_map(|it| it.value).map(|it| it.text.len()).sum::<usize>();
        take(&mut self.looks_left, text.len() + values)?;
        self.spend(values)?;
        let mut replaced = String::with_capacity(text.len() + values);
        let mut from = 0;
        for (of, value) in matches.iter().filter_map(|it| Some((it, it.value?))) {
            replaced.push_str(&text[from..of.begin]);
            replaced.push_str(value.text);
            from = of.end;
        }
        replaced.push_str(&text[from..]);
        Ok(replaced)
    }

    fn one_by_one(&mut self, text: &str, matches: &[Match<'_>]) -> Result<String, TooMuch> {
        let mut replaced = text.to_owned();
        for (of, value) in matches.iter().filter_map(|it| Some((it, it.value?))) {
            let reference = &text[of.begin..of.end];
            take(&mut self.looks_left, replaced.len() + value.text.len())?;
            self.spend(value.text.len())?;
            if let Some(at) = memchr::memmem::find(replaced.as_bytes(), reference.as_bytes()) {
                replaced.replace_range(at..at + reference.len(), value.text);
            }
        }
        Ok(replaced)
    }
}

fn take(left: &mut usize, bytes: usize) -> Result<(), TooMuch> {
    let rest = left.checked_sub(bytes);
    *left = rest.unwrap_or_default();
    rest.map(drop).ok_or(TooMuch)
}

/// How many bytes a text takes at most once it is parsed as JSON: a map has room for eleven members from the first on,
/// and is half empty at the worst. A value that is no list and no map takes its length.
fn memory(text: &str) -> usize {
    const MAP: usize = 640;
    const ENTRY: usize = 112;
    let is_of_parts = text.trim_start().starts_with(['[', '{']);
    let cost = |byte: u8| match byte {
        b'{' => MAP,
        b'[' | b',' => ENTRY,
        _ => 0,
    };
    let parts = text.bytes().filter(|_| is_of_parts).map(cost).sum::<usize>();
    text.len() + parts
}

/// The names that a text refers to, whether there are such parameters or not.
pub(crate) fn names(text: &str) -> impl Iterator<Item = &str> {
    let none = Values::new();
    let whole = text.strip_prefix("${{").and_then(|it| it.strip_suffix("}}"));
    let whole = whole.filter(|name| is_name(name));
    let inner = |it: Match<'_>| &text[it.begin + 2..it.end - 1];
    whole.into_iter().chain(matches(text, &none).into_iter().map(inner))
}

pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(of_name)
}

/// Whether a text has a reference in it, to any name.
pub(crate) fn refers(text: &str) -> bool {
    !matches(text, &Values::new()).is_empty()
}

fn of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Every `${NAME}` in a text, from left to right.
fn matches<'a>(text: &str, values: &Values<'a>) -> Vec<Match<'a>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = memchr::memchr(b'$', &bytes[from..]) {
        let begin = from + at;
        from = begin + 1;
        if bytes.get(from) != Some(&b'{') {
            continue;
        }
        let name = from + 1;
        let end = name + bytes[name..].iter().take_while(|byte| of_name(**byte)).count();
        if end > name && bytes.get(end) == Some(&b'}') {
            let value = values.get(&text[name..end]).copied();
            found.push(Match { begin, end: end + 1, value });
            from = end + 1;
        }
    }
    found
}

/// Whether no value can form a reference together with the text around it.
fn is_plain(text: &str, matches: &[Match<'_>]) -> bool {
    let begins = |between: &str| between.ends_with('$') || between.contains("${");
    let mut from = 0;
    matches.iter().all(|it| {
        let between = &text[from..it.begin];
        from = it.end;
        !begins(between) && !it.value.is_some_and(|value| value.completes)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALUES: [(&str, &str); 11] = [
        ("", "nobody"),
        ("A-B", "no name"),
        ("A", "${B}"),
        ("B", "b"),
        ("D", "$"),
        ("E", ""),
        ("N", "null"),
        ("NUMBER", " 5 "),
        ("QUOTED", "\"q\""),
        ("MAP", r#"{"k": ["${B}"]}"#),
        ("WORD", "yes"),
    ];

    fn values() -> Values<'static> {
        VALUES.map(|(name, text)| (name, Held::new(text))).into()
    }

    fn substituted(text: &str) -> Text {
        Substitution::new(values()).value(text).unwrap()
    }

    fn text(text: &str) -> String {
        match substituted(text) {
            Text::Same => text.to_owned(),
            Text::Other(text) => text,
            Text::Json(json) => panic!("{json}"),
        }
    }

    #[test]
    fn references_are_replaced_wherever_they_are() {
        for (from, to) in [
            ("${B}", "b"),
            ("a-${B}-${B}c", "a-b-bc"),
            ("${E}", ""),
            ("${UNKNOWN}", "${UNKNOWN}"),
            ("${UNKNOWN} ${B}", "${UNKNOWN} b"),
            ("$${B}", "$b"),
            ("${B", "${B"),
            ("${}", "${}"),
            ("${B-B}", "${B-B}"),
            ("$B {B}", "$B {B}"),
            ("é${B}é", "ébé"),
        ] {
            assert_eq!(text(from), to, "{from}");
        }
    }

    #[test]
    fn values_chain_as_in_the_original() {
        for (from, to) in [
            ("${A}${B}", "b${B}"),
            ("${A}", "${B}"),
            ("${${B}}", "${b}"),
            ("${D}{B} ${B}", "b ${B}"),
            ("$${E}{B} ${B}", "b ${B}"),
        ] {
            assert_eq!(text(from), to, "{from}");
        }
    }

    #[test]
    fn what_stands_for_all_of_it_is_json() {
        for (from, to) in [
            ("${{NUMBER}}", Text::Json(5.into())),
            ("${{QUOTED}}", Text::Json("q".into())),
            ("${{N}}", Text::Json(Value::Null)),
            ("${{MAP}}", Text::Json(serde_json::json!({"k": ["${B}"]}))),
            ("${{WORD}}", Text::Other("yes".into())),
            ("${{E}}", Text::Other(String::new())),
            ("${{UNKNOWN}}", Text::Same),
            ("${{}}", Text::Same),
            ("${{A-B}}", Text::Same),
            ("a${{NUMBER}}", Text::Same),
            ("${{NUMBER}} ", Text::Same),
            ("${{${B}}}", Text::Other("${{b}}".into())),
        ] {
            assert_eq!(substituted(from), to, "{from}");
        }
    }

    #[test]
    fn it_costs_what_it_writes_and_ends() {
        let value = "x".repeat(1024);
        let values = || Values::from([("V", Held::new(&value)), ("D", Held::new("$"))]);
        assert_eq!(Substitution::new(values()).value(&"${V}".repeat(5000)), Err(TooMuch));
        assert_eq!(Substitution::new(values()).value(&"${D}".repeat(100_000)), Err(TooMuch));
        assert!(Substitution::new(values()).value(&"${V}".repeat(4000)).is_ok());
        assert_eq!(Substitution::new(values()).value(&"${".repeat(500_000)), Ok(Text::Same));
    }

    #[test]
    fn what_json_takes_is_told_before_it_is_read() {
        let list = |of: &str, count: usize| format!("[{}]", vec![of; count].join(","));
        for (name, text, is_much) in [
            ("a certificate", "x".repeat(1 << 20), false),
            ("a text of commas", ",".repeat(1 << 20), false),
            ("numbers", list("0", 100_000), true),
            ("maps", list(r#"{"a":1}"#, 10_000), true),
            ("a usual list", list(r#"{"name":"A","value":"1"}"#, 1000), false),
        ] {
            let values = Values::from([("V", Held::new(&text))]);
            let substituted = Substitution::new(values).value("${{V}}");
            assert_eq!(substituted.is_err(), is_much, "{name}");
        }
    }

    /// As the original has it, word for word.
    fn plainly(text: &str, values: &Values<'_>) -> String {
        let mut replaced = text.to_owned();
        for it in matches(text, values) {
            if let Some(value) = it.value {
                replaced = replaced.replacen(&text[it.begin..it.end], value.text, 1);
            }
        }
        replaced
    }

    proptest! {
        #[test]
        fn one_pass_is_the_same_as_one_by_one(
            pieces in prop::collection::vec(
                prop::sample::select(vec!["${", "}", "$", "{", "A", "B", "E", "${A}", "${B}", "${E}", "${D}", "x"]),
                0..24,
            ),
        ) {
            let from = pieces.concat();
            let values = values();
            prop_assume!(Substitution::new(values.clone()).whole(&from).is_none());
            prop_assert_eq!(text(&from), plainly(&from, &values));
        }
    }
}
