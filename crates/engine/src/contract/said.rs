//! Prepares a broker's words for people: removes secrets, then control characters, which a terminal would obey, then
//! cuts to a length.
//!
//! The order matters. If the text were cut first, half a secret could stay, which no search finds; and a control
//! character in the middle of a secret hides it, so the text is searched again when those are gone.

use crate::redact::Redactor;

/// The longest description that a broker may give, in bytes.
pub(crate) const MAX_DESCRIPTION_BYTES: usize = 4000;
/// How much of the log goes into a description, in bytes.
const TAIL_BYTES: usize = 1000;

/// The first `limit` bytes of what a broker said, or a little less, as people may see it; `None` if nothing is left.
pub(crate) fn said(text: &str, redactor: &Redactor, limit: usize) -> Option<String> {
    let text = shown(text, redactor);
    let text = text.trim();
    let text = text[..text.floor_char_boundary(limit)].trim_end();
    (!text.is_empty()).then(|| text.to_owned())
}

/// A sentence, and the end of a log where there is one.
pub fn with_log(what: &str, log: &str, redactor: &Redactor) -> String {
    match tail(log, redactor).as_str() {
        "" => what.to_owned(),
        tail => format!("{what}: {tail}"),
    }
}

/// The last lines of a log, at most [`TAIL_BYTES`] of them.
fn tail(log: &str, redactor: &Redactor) -> String {
    let log = shown(log, redactor);
    let log = log.trim();
    if log.len() <= TAIL_BYTES {
        return log.to_owned();
    }
    let cut = &log[log.ceil_char_boundary(log.len() - TAIL_BYTES)..];
    let lines = cut.split_once('\n').map_or(cut, |(_, lines)| lines);
    format!("… {lines}")
}

fn shown(text: &str, redactor: &Redactor) -> String {
    redactor.redact(&printable(&redactor.redact(text))).into_owned()
}

/// Removes control characters, but for line ends and tabs. Within a line a mark keeps apart what they
/// stood between: it may be the halves of a secret that is not known here.
fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut hidden = false;
    for character in text.chars() {
        if character.is_control() && !matches!(character, '\n' | '\t') {
            hidden = true;
            continue;
        }
        let begins_line = shown.is_empty() || shown.ends_with('\n');
        if std::mem::take(&mut hidden) && !begins_line && character != '\n' {
            shown.push(char::REPLACEMENT_CHARACTER);
        }
        shown.push(character);
    }
    shown
}
