//! What is printed. Results go to stdout, everything else to stderr, so that a pipe gets results
//! only.

use std::io::{self, IsTerminal as _, Write};

use comfy_table::{Cell, Row, Table, presets};
use serde::Serialize;

use super::args::Format;
use super::failure::Failure;

/// Where and how to print.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    /// For people or for programs.
    pub(crate) format: Format,
    /// Only results, and of them only the ids.
    pub(crate) quiet: bool,
}

impl Output {
    /// Whether programs read it.
    pub(crate) fn is_json(self) -> bool {
        self.format == Format::Json
    }

    /// Whether a person may be told more than the result.
    pub(crate) fn is_chatty(self) -> bool {
        !self.quiet && !self.is_json()
    }

    /// A JSON document.
    pub(crate) fn json(self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(value)
            .map_err(|error| Failure::usage(format!("cannot print the result: {error}")))?;
        self.line(&text)
    }

    /// A line, or several.
    pub(crate) fn line(self, text: &str) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        written(writeln!(stdout, "{text}").and_then(|()| stdout.flush()))
    }

    /// Text of somebody else, as it is; control characters only if no terminal would obey them.
    pub(crate) fn foreign(self, text: &str) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        let harmless;
        let text = if stdout.is_terminal() {
            harmless = text.replace(|c: char| c.is_control() && c != '\n' && c != '\t', "?");
            &harmless
        } else {
            text
        };
        written(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
    }

    /// A table with a heading.
    pub(crate) fn table(self, heading: &[&str], rows: Vec<Vec<String>>) -> Result<(), Failure> {
        self.line(&table(Some(heading), rows))
    }

    /// Names and values, one pair per line; pairs without a value are left out.
    pub(crate) fn fields(self, fields: Vec<(&str, Option<String>)>) -> Result<(), Failure> {
        let rows = fields.into_iter();
        let rows = rows.filter_map(|(name, value)| Some(vec![format!("{name}:"), value?]));
        self.line(&table(None, rows.collect()))
    }

    /// What a person may want to do next.
    pub(crate) fn hint(self, text: &str) {
        if self.is_chatty() {
            self.note(&format!("hint: {text}"));
        }
    }

    /// Something about the work, not its result.
    #[allow(clippy::unused_self, reason = "all that is printed goes through this type")]
    pub(crate) fn note(self, text: &str) {
        // Nobody is left to tell that stderr is gone.
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// Why the command failed.
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

/// Whether a command that prints to a pipe may go on.
pub(crate) fn written(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::output_closed()),
        Err(error) => Err(Failure::usage(format!("cannot write the output: {error}"))),
    }
}

/// An argument as a shell would want it, for commands that a person may copy.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
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

/// A cell is one line, and no terminal obeys it.
fn one_line(text: &str) -> String {
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
