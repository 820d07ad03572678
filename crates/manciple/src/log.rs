//! The log: a line for each event, as text or as JSON.

use std::fmt::{self, Debug, Write};
use std::io::IsTerminal;

use anyhow::Context;
use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{FormatFields, Writer, debug_fn};

use crate::serve::{Format, Log, level_filter};

/// Begins to log to standard error.
pub(crate) fn log(log: &Log) -> anyhow::Result<()> {
    let level = log.level.as_deref().unwrap_or("info");
    let filter = level_filter(level).map_err(anyhow::Error::msg)?;
    let filter = tracing_subscriber::EnvFilter::try_new(filter)
        .with_context(|| format!("log.level: {level:?} is not a level"))?;
    // Told to the same place, an error of the log itself would be a panic: whoever read the log is gone.
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    let installed = match log.format.unwrap_or_default() {
        Format::Json => lines.json().flatten_event(true).try_init(),
        Format::Text => {
            let lines = lines.fmt_fields(fields()).with_ansi(std::io::stderr().is_terminal());
            lines.try_init()
        }
    };
    installed.map_err(|error| anyhow::anyhow!("the log could not be set up: {error}"))
}

/// Formats the fields of an event as text. They hold what clients and brokers have written, which must not
/// make lines of its own or command a terminal.
fn fields() -> impl for<'writer> FormatFields<'writer> + Send + Sync + 'static {
    debug_fn(|writer: &mut Writer<'_>, field: &Field, value: &dyn Debug| {
        if field.name() != "message" {
            write!(writer, "{field}=")?;
        }
        write!(Plain(writer.by_ref()), "{value:?}")
    })
    .delimited(" ")
}

/// A writer that escapes what is no plain text.
struct Plain<'writer>(Writer<'writer>);

impl Write for Plain<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(is_unplain) {
            let (plain, from) = rest.split_at(at);
            self.0.write_str(plain)?;
            let mut characters = from.chars();
            let unplain = characters.next().into_iter().flat_map(char::escape_default);
            unplain.into_iter().try_for_each(|character| self.0.write_char(character))?;
            rest = characters.as_str();
        }
        self.0.write_str(rest)
    }
}

/// Whether a character is no plain text: control characters, other line ends, and those that turn the text's direction.
fn is_unplain(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Every text of the program's sources.
    fn sources(folder: &std::path::Path, to: &mut Vec<String>) {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                sources(&path, to);
            } else if path.extension().is_some_and(|it| it == "rs") {
                to.push(std::fs::read_to_string(&path).unwrap());
            }
        }
    }

    /// The words of an event are the member `message` of its line in JSON, and so would be a field of that name.
    #[test]
    fn no_event_has_a_field_that_takes_the_place_of_its_words() {
        let mut texts = Vec::new();
        sources(concat!(env!("CARGO_MANIFEST_DIR"), "/..").as_ref(), &mut texts);
        let called = texts.iter().flat_map(|text| text.split("tracing::").skip(1));
        let events: Vec<_> = called.filter_map(|call| call.split(");").next()).collect();
        let takes_it = |event: &&&str| {
            let mut fields = event
                .split(['(', ','])
                .map(|field| field.trim_start().trim_start_matches(['%', '?']));
            fields.any(|field| field.split([' ', '\n']).next() == Some("message"))
        };
        let found: Vec<_> = events.iter().filter(takes_it).collect();
        assert!(events.len() > 100, "{} events were looked at", events.len());
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn what_somebody_else_wrote_makes_no_line_of_its_own() {
        let written = Written::default();
        let to = written.clone();
        let lines = tracing_subscriber::fmt()
            .with_writer(move || to.clone())
            .fmt_fields(fields())
            .without_time()
            .with_ansi(false)
            .finish();
        let forged = "x\nINFO forged\r\u{1b}[2J\u{9b}\u{2028}\u{202e}é";
        let error = io::Error::other(forged);
        tracing::subscriber::with_default(lines, || {
            tracing::warn!(error = %forged, text = forged, count = 3, "it {forged}");
            tracing::warn!(error = &error as &dyn std::error::Error, "again");
        });
        let written = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let escaped = r"x\nINFO forged\r\u{1b}[2J\u{9b}\u{2028}\u{202e}é";
        let at = "manciple::log::tests:";
        let lines: Vec<&str> = written.lines().map(str::trim_start).collect();
        let first = format!(r#"WARN {at} it {escaped} error={escaped} text="{escaped}" count=3"#);
        assert_eq!(lines, [first, format!("WARN {at} again error={escaped}")]);
    }
}
