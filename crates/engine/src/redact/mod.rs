//! Removes known secrets from text.
//!
//! A log is kept and shown; a secret in it is shown for as long. A value is known because it was
//! handed to the broker (the secret directory, parameters, context) or because the broker handed it
//! back (credentials). Whoever prints it seldom prints it as it is, so each value is also looked for in
//! the forms in which programs print things: see `forms`.
//!
//! Rules, so that a log stays readable:
//! - a value counts from [`MIN_SECRET_BYTES`] bytes on, surrounding whitespace not counted;
//! - words that say nothing (`true`, `null`, `default`, …) and numbers of fewer than
//!   [`MIN_NUMBER_BYTES`] characters do not count;
//! - each line of a value of several lines counts as a value, so text may be redacted line by line;
//! - encoded forms are looked for up to half a megabyte of them, short values first;
//! - overlapping finds are masked as one: no part of one is left because another began before it.

mod forms;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, AhoCorasickKind, BuildError, MatchKind};
use serde_json::Value;

/// The text that replaces a secret.
pub const MASK: &str = "[redacted]";

/// The length from which a value is looked for: shorter ones would be found everywhere.
pub const MIN_SECRET_BYTES: usize = 4;

/// The length from which a number is looked for: shorter ones are ports, sizes and years.
pub const MIN_NUMBER_BYTES: usize = 6;

/// The length up to which JSON is looked for as a whole, too; longer JSON is looked for by its leaves only.
const MAX_WHOLE_JSON_BYTES: usize = 8 * 1024;

/// How many bytes of encoded forms are looked for, short values first: a state of a
/// megabyte would take a quarter of a gigabyte, and end a run for want of memory that did its work.
const MAX_ENCODED_TOTAL: usize = 512 * 1024;

/// How many bytes of patterns one automaton looks for, unless a single pattern is longer. While it is built an
/// automaton takes some 50 bytes for each of them, and a fourth of that afterwards, so that several, built one after
/// the other, take less at their peak than one for all. Each is a pass over the text.
const MAX_AUTOMATON_BYTES: usize = 16 * 1024;

/// Words that are no secret, whatever member they stand in.
const COMMON: &[&str] = &[
    "true",
    "false",
    "null",
    "none",
    "default",
    "enabled",
    "disabled",
    "kubernetes",
    "cloudfoundry",
];

/// Values to be removed: collected first, from several places, then made into a [`Redactor`].
///
/// Whitespace at both ends is not part of a value: files end with a newline that nobody prints.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(BTreeSet<Vec<u8>>);

impl Secrets {
    /// Adds a value; of a JSON object or array its leaves too, and of a URL with a password the password too.
    pub fn add(&mut self, value: &[u8]) {
        let value = value.trim_ascii();
        if !counts(value) || self.0.contains(value) {
            return;
        }
        if value.starts_with(b"{") || value.starts_with(b"[") {
            if let Ok(json) = serde_json::from_slice::<Value>(value) {
                self.add_json(&json);
                // What is secret in it are its leaves: to look for the whole as well takes as much
                // memory again.
                if value.len() > MAX_WHOLE_JSON_BYTES {
                    return;
                }
            }
        } else if let Some(password) = url_password(value) {
            self.add(password);
        }
        self.0.insert(value.to_vec());
    }

    /// Adds the leaves of a JSON value: strings, and numbers that are long enough.
    pub fn add_json(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.add(text.as_bytes()),
            Value::Number(number) => self.add(number.to_string().as_bytes()),
            Value::Array(items) => items.iter().for_each(|item| self.add_json(item)),
            Value::Object(members) => members.values().for_each(|member| self.add_json(member)),
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Adds the values of another collection.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// The values.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(Vec::as_slice)
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

/// Tells which of some texts are part of one of some names. Its cost grows with the texts and the names one by one, not with
/// their product, whatever they are: all ends of the names are sorted, and each text is looked for among them. So it is for
/// names as objects have them, of which all ends together are short.
pub fn standing_in<'t>(texts: &[&'t str], names: &[&str]) -> HashSet<&'t str> {
    let names: BTreeSet<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    let mut ends: Vec<&[u8]> =
        names.iter().flat_map(|name| (0..name.len()).filter_map(|at| name.get(at..))).collect();
    ends.sort_unstable();
    let stands = |text: &&&str| {
        let text = text.as_bytes();
        let first = ends.partition_point(|end| *end < text);
        !text.is_empty() && ends.get(first).is_some_and(|end| end.starts_with(text))
    };
    texts.iter().filter(stands).copied().collect()
}

/// Which ends of a text were cut off, perhaps in the middle of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The start: something came before.
    Start,
    /// The end: something came after.
    End,
    /// Both ends: the text is a piece out of the middle.
    Both,
}

/// Masks known values in text; see the [module](self) for what is known and in which forms.
///
/// Needs about 14 bytes for each byte of each form, a few hundred kilobytes for the usual handful of passwords and
/// keys; while it is made a megabyte more, or 50 bytes for each byte of the longest form.
#[derive(Default)]
pub struct Redactor {
    matcher: Matcher,
    patterns: Vec<String>,
}

enum Matcher {
    Automata(Vec<AhoCorasick>),
    /// An automaton could not be built, so all text is masked: better no text than a secret.
    Everything,
}

impl Default for Matcher {
    fn default() -> Self {
        Self::Automata(Vec::new())
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({})", self.patterns.len())
    }
}

impl Redactor {
    /// A redactor of these secrets.
    pub fn new(secrets: &Secrets) -> Self {
        let mut patterns = BTreeSet::new();
        let mut encoded = 0;
        for value in with_lines(secrets) {
            patterns.extend(forms::plain(value));
            if encoded < MAX_ENCODED_TOTAL {
                let forms = forms::encoded(value);
                encoded += forms.iter().map(String::len).sum::<usize>();
                patterns.extend(forms);
            }
        }
        let patterns: Vec<String> = patterns.into_iter().collect();
        let automata: Result<_, _> = in_parts(&patterns).map(automaton).collect();
        Self { matcher: automata.map_or(Matcher::Everything, Matcher::Automata), patterns }
    }

    /// Masks the secrets in a text. A text in pieces has to be given line by line, or to
    /// [`Self::redact_cut`]: a secret that is in no piece as a whole is not found.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.redact_cut(text, None)
    }

    /// Does as [`Self::redact`] for a text that was cut off: what may be a part of a secret
    /// at a cut end is masked too.
    pub fn redact_cut<'t>(&self, text: &'t str, cut: Option<Cut>) -> Cow<'t, str> {
        let Matcher::Automata(automata) = &self.matcher else { return Cow::Borrowed(MASK) };
        let mut spans = Spans::default();
        if cut == Some(Cut::Both) && self.patterns.iter().any(|pattern| pattern.contains(text)) {
            spans.add(0, text.len());
        }
        if matches!(cut, Some(Cut::Start | Cut::Both)) {
            let longest = self.patterns.iter().map(|pattern| begins_within(text, pattern)).max();
            spans.add(0, longest.unwrap_or(0));
        }
        for automaton in automata {
            let Ok(found) = automaton.try_find_overlapping_iter(text) else {
                return Cow::Borrowed(MASK);
            };
            spans.add_pass(found.map(|span| (span.start(), span.end())));
        }
        if matches!(cut, Some(Cut::End | Cut::Both)) {
            let longest = self.patterns.iter().map(|pattern| ends_within(text, pattern)).max();
            spans.add(text.len() - longest.unwrap_or(0), text.len());
        }
        spans.mask(text)
    }
}

/// Every value and, of a value of several lines, each line; short ones first.
fn with_lines(secrets: &Secrets) -> Vec<&[u8]> {
    let lines = secrets.iter().flat_map(|value| {
        let lines = value.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
        lines.filter(|line| line.len() < value.len() && counts(line))
    });
    let mut values: Vec<&[u8]> = secrets.iter().chain(lines).collect();
    values.sort_by_key(|value| value.len());
    values
}

/// Patterns by what one automaton looks for.
fn in_parts(patterns: &[String]) -> impl Iterator<Item = &[String]> {
    let mut bytes = 0;
    patterns.chunk_by(move |before, after| {
        bytes += before.len();
        let fits = bytes + after.len() <= MAX_AUTOMATON_BYTES;
        if !fits {
            bytes = 0;
        }
        fits
    })
}

fn automaton(patterns: &[String]) -> Result<AhoCorasick, BuildError> {
    // A DFA, the default for few patterns, takes a kilobyte for each byte of them; an NFA, as much for each of its states
    // that are dense.
    AhoCorasickBuilder::new()
        .match_kind(MatchKind::Standard)
        .kind(Some(AhoCorasickKind::ContiguousNFA))
        .dense_depth(1)
        .build(patterns)
}

/// The spans of a text that have to be masked.
#[derive(Default)]
struct Spans(Vec<(usize, usize)>);

impl Spans {
    fn add(&mut self, start: usize, end: usize) {
        if start < end {
            self.0.push((start, end));
        }
    }

    /// Adds the spans that one pass found, each of which ends at or after the one before it. They are joined as they
    /// come, for there may be more of them than the text has bytes.
    fn add_pass(&mut self, found: impl Iterator<Item = (usize, usize)>) {
        let pass = self.0.len();
        for (mut start, end) in found {
            while let Some((earlier, _)) = self.0[pass..].last().filter(|it| it.1 >= start) {
                start = start.min(*earlier);
                self.0.pop();
            }
            self.0.push((start, end));
        }
    }

    /// The spans in order, those that overlap or touch joined.
    fn joined(mut self) -> Vec<(usize, usize)> {
        self.0.sort_unstable();
        self.0.dedup_by(|after, before| {
            let meet = after.0 <= before.1;
            if meet {
                before.1 = before.1.max(after.1);
            }
            meet
        });
        self.0
    }

    fn mask(self, text: &str) -> Cow<'_, str> {
        if self.0.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut masked = String::with_capacity(text.len());
        let mut rest = 0;
        for (start, end) in self.joined() {
            masked.push_str(&text[rest..start]);
            masked.push_str(MASK);
            rest = end;
        }
        masked.push_str(&text[rest..]);
        Cow::Owned(masked)
    }
}

/// How many bytes at the end of the text are a beginning of the pattern.
fn ends_within(text: &str, pattern: &str) -> usize {
    let longest = text.len().min(pattern.len() - 1);
    let ends = |&length: &usize| text.as_bytes().ends_with(&pattern.as_bytes()[..length]);
    (1..=longest).rev().find(ends).unwrap_or(0)
}

/// How many bytes at the start of the text are an end of the pattern.
fn begins_within(text: &str, pattern: &str) -> usize {
    let longest = text.len().min(pattern.len() - 1);
    let begins = |&length: &usize| {
        text.as_bytes().starts_with(&pattern.as_bytes()[pattern.len() - length..])
    };
    (1..=longest).rev().find(begins).unwrap_or(0)
}

/// Whether a value is worth looking for.
fn counts(value: &[u8]) -> bool {
    if value.len() < MIN_SECRET_BYTES {
        return false;
    }
    let Ok(text) = std::str::from_utf8(value) else { return true };
    let common = COMMON.iter().any(|word| text.eq_ignore_ascii_case(word));
    let short_number = text.len() < MIN_NUMBER_BYTES && text.parse::<f64>().is_ok();
    !common && !short_number
}

/// The password of `scheme://user:password@host`.
fn url_password(value: &[u8]) -> Option<&[u8]> {
    let text = std::str::from_utf8(value).ok()?;
    let (_, rest) = text.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (user, _) = authority.rsplit_once('@')?;
    Some(user.split_once(':')?.1.as_bytes())
}

#[cfg(test)]
mod tests;
