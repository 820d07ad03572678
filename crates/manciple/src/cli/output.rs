//! The output of commands. Results go to stdout, everything else to stderr, so that a pipe gets results
//! only.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write};

use comfy_table::{Cell, Row, Table, presets};
use serde::Serialize;

use super::args::Format;
use super::exit::Exit;
use super::failure::Failure;

/// The way in which a command prints.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    /// The format: for people or for programs.
    pub(crate) format: Format,
    /// Whether only results are printed, and of them only the ids.
    pub(crate) quiet: bool,
}

impl Output {
    /// Whether programs read the output.
    pub(crate) fn is_json(self) -> bool {
        self.format == Format::Json
    }

    /// Whether a person may be told more than the result.
    pub(crate) fn is_chatty(self) -> bool {
        !self.quiet && !self.is_json()
    }

    /// Prints a JSON document.
    pub(crate) fn json(self, value: &impl Serialize) -> Result<(), Failure> {
        let text =
            serde_json::to_string_pretty(value).map_err(|error| Failure::not_printed(&error))?;
        self.line(&text)
    }

    /// Prints a line, or several.
    pub(crate) fn line(self, text: &str) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        written(writeln!(stdout, "{text}").and_then(|()| stdout.flush()))
    }

    /// Prints text of somebody else, as it is; on a terminal, which would obey them, control characters are
    /// written out.
    pub(crate) fn foreign(self, text: &str) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        let text = match stdout.is_terminal() {
            true => Cow::Owned(escaped(text)),
            false => Cow::Borrowed(text),
        };
        written(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
    }

    /// An id as a table shows it: on a terminal a long one loses its middle, so that the rest can be read.
    #[allow(clippy::unused_self, reason = "all that is printed goes through this type")]
    pub(crate) fn id(self, id: &str) -> String {
        if io::stdout().is_terminal() { shortened(id) } else { id.to_owned() }
    }

    /// Prints a table with a heading.
    pub(crate) fn table(self, heading: &[&str], rows: Vec<Vec<String>>) -> Result<(), Failure> {
        self.line(&table(Some(heading), rows))
    }

    /// Prints names and values, one pair per line; pairs without a value are left out.
    pub(crate) fn fields(self, fields: Vec<(&str, Option<String>)>) -> Result<(), Failure> {
        let rows = fields.into_iter();
        let rows = rows.filter_map(|(name, value)| Some(vec![format!("{name}:"), value?]));
        self.line(&table(None, rows.collect()))
    }

    /// Prints what a person may want to do next.
    pub(crate) fn hint(self, text: &str) {
        if self.is_chatty() {
            self.note(&format!("hint: {text}"));
        }
    }

    /// Prints a note about the work, which is not its result.
    #[allow(clippy::unused_self, reason = "all that is printed goes through this type")]
    pub(crate) fn note(self, text: &str) {
        // Nobody is left to tell that stderr is gone.
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// Prints why the command failed.
    pub(crate) fn failure(self, failure: &Failure) {
        if failure.silent {
            return;
        }
        if self.is_json() {
            self.note(&failure.json().to_string());
        } else {
            self.note(&failure.to_string());
        }
    }
}

/// Checks the result of printing: if the reader of a pipe is gone, the command ends. A command that must not be
/// repeated says instead what shows its result.
pub(crate) fn written(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::output_closed()),
        Err(error) => Err(Failure::not_printed(&format!("standard output: {error}"))
            .hint("the same command prints it again, once there is room")),
    }
}

/// The result of a command that printed the end of something: a failure of that counts more than a failure to print.
pub(crate) fn shown(
    printed: Result<(), Failure>,
    ended: Result<(), Failure>,
) -> Result<(), Failure> {
    match (printed, ended) {
        (Err(unprinted), Err(failed)) if unprinted.exit == Exit::NotPrinted => Err(failed),
        (printed, ended) => printed.and(ended),
    }
}

/// An argument quoted for a shell, for commands that a person may copy.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Ids as the last arguments of a command that a person may copy: those that begin with a dash are no options.
pub(crate) fn arguments<'a>(ids: impl IntoIterator<Item = Option<&'a str>>) -> String {
    let ids: Vec<_> = ids.into_iter().flatten().collect();
    let dashed = ids.iter().any(|id| id.starts_with('-'));
    let words = dashed.then(|| "--".to_owned()).into_iter();
    words.chain(ids.into_iter().map(quoted)).collect::<Vec<_>>().join(" ")
}

/// Control characters as they are usually written: `^[`, or `\u{9b}` for those that have no such name.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => escaped.push(c),
            '\0'..='\x1f' | '\x7f' => {
                escaped.push('^');
                escaped.push(char::from(c as u8 ^ 0x40));
            }
            c if c.is_control() => escaped.extend(c.escape_unicode()),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The longest id that a table shows whole, in characters: a UUID and something before it.
const LONGEST_ID: usize = 48;

fn shortened(id: &str) -> String {
    let length = id.chars().count();
    if length <= LONGEST_ID {
        return id.to_owned();
    }
    let (before, after) = (LONGEST_ID / 2, LONGEST_ID - LONGEST_ID / 2 - 1);
    id.chars().take(before).chain(['…']).chain(id.chars().skip(length - after)).collect()
}

fn table(heading: Option<&[&str]>, rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if let Some(heading) = heading {
        table.set_header(heading.iter().copied());
    }
    for row in rows {
        table.add_row(Row::from(row.into_iter().map(|cell| Cell::new(one_line(&cell)))));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n")
}

/// Text of somebody else as one line that no terminal obeys: a cell, a part of a message.
pub(crate) fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_no_borders_and_no_trailing_blanks() {
        let rows = vec![
            vec!["one".to_owned(), "a".to_owned()],
            vec!["thirteen".to_owned(), "b\x1b[31m\nc".to_owned()],
        ];
        assert_eq!(
            table(Some(&["ID", "NAME"]), rows),
            "ID        NAME\none       a\nthirteen  b [31m c"
        );
    }

    #[test]
    fn no_terminal_obeys_a_log() {
        let log = "a\u{1b}[31mb\tc\r\n\u{7}\u{7f}é\u{9b}2J\0";
        assert_eq!(escaped(log), "a^[[31mb\tc^M\n^G^?é\\u{9b}2J^@");
    }

    #[test]
    fn a_long_id_loses_its_middle() {
        let fits = "é".repeat(LONGEST_ID);
        assert_eq!(shortened(&fits), fits);
        let long = format!("begin{}end", "é".repeat(300));
        let short = shortened(&long);
        assert_eq!(short.chars().count(), LONGEST_ID);
        assert!(short.starts_with("begin") && short.ends_with("end") && short.contains("é…é"));
    }

    #[test]
    fn commands_can_be_copied() {
        for (word, expected) in [
            ("plain-1", "plain-1"),
            ("", "''"),
            ("a b", "'a b'"),
            ("$(reboot)", "'$(reboot)'"),
            ("it's", "'it'\\''s'"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
