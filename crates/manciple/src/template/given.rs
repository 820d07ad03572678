//! Reads values of parameters from arguments, and from files.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use template::Template;

use super::args::Values;
use crate::cli::failure::Failure;
use crate::cli::input;
use crate::cli::output::Output;

/// The given values by name; the first one of a name stays.
pub(super) type Given = BTreeMap<String, String>;

/// Reads all given values. An argument wins over a file, and an earlier file over a later; a name that is twice on the
/// command line is reported.
pub(super) async fn read(
    positional: &[String],
    values: &Values,
    out: Output,
) -> Result<Given, Failure> {
    let mut given = Given::new();
    let mut twice = BTreeSet::new();
    for argument in values.params.iter().chain(positional) {
        let (name, value) = assignment(argument)?;
        if looks_like_several(value) {
            out.note(&format!(
                "warning: {name}: what follows the comma is a part of the value; each parameter has its own --param"
            ));
        }
        if given.insert(name.to_owned(), value.to_owned()).is_some() {
            twice.insert(name);
        }
    }
    if !twice.is_empty() {
        let names = twice.into_iter().collect::<Vec<_>>().join(", ");
        let message = format!("The following parameters were provided more than once: {names}");
        return Err(Failure::usage(message));
    }
    for path in &values.files {
        let text = input::document(path).await?;
        for (name, value) in lines(path, text.strip_prefix('\u{feff}').unwrap_or(&text), out)? {
            match given.entry(name) {
                Entry::Vacant(place) => drop(place.insert(value)),
                Entry::Occupied(known) => out.note(&format!(
                    "warning: Template parameter {:?} already defined, ignoring value from file {path:?}",
                    known.key()
                )),
            }
        }
    }
    Ok(given)
}

/// Checks that standard input is named only once.
pub(super) fn once<'a>(paths: impl Iterator<Item = &'a String>) -> Result<(), Failure> {
    match paths.filter(|path| *path == "-").count() {
        0 | 1 => Ok(()),
        _ => {
            Err(Failure::usage("standard input can be read only once")
                .hint("give a file for one -"))
        }
    }
}

/// Sets the given values in a template.
pub(super) fn apply(
    template: &mut Template,
    given: &Given,
    ignores_unknown: bool,
) -> Result<(), Failure> {
    let unknown = given.iter().filter(|(name, value)| !template.set(name, value));
    let unknown: Vec<String> =
        unknown.map(|(name, _)| format!("unknown parameter name {name:?}")).collect();
    if unknown.is_empty() || ignores_unknown {
        return Ok(());
    }
    Err(Failure::usage(unknown.join(", ")).hint(
        "--parameters lists those that there are; --ignore-unknown-parameters passes over others",
    ))
}

/// Parses `NAME=VALUE`. An error never repeats the value.
fn assignment(argument: &str) -> Result<(&str, &str), Failure> {
    let no_name = |what: &str| {
        Failure::usage(format!("invalid parameter assignment{what}"))
            .hint("a parameter is given as NAME=VALUE; -f names the template")
    };
    match argument.split_once('=') {
        Some((name, value)) if is_name(name) => Ok((name, value)),
        Some((name, _)) => Err(no_name(&format!(" in {name:?}"))),
        // It may be a value that lost its name.
        None => Err(no_name(": there is no = in it")),
    }
}

fn is_name(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    !text.is_empty() && !text.starts_with(|it: char| it.is_ascii_digit()) && text.bytes().all(good)
}

/// Whether a value looks like several assignments, as in `a,B=c`, which an old `oc` accepted.
fn looks_like_several(value: &str) -> bool {
    let mut rest = value.split(',').skip(1);
    rest.any(|part| part.split_once('=').is_some_and(|(name, _)| is_name(name.trim())))
}

/// Parses the lines of a file: `NAME=VALUE` or `NAME: VALUE`, after an `export` or without, in quotes or without. Of
/// two lines with one name the last counts.
fn lines(path: &str, text: &str, out: Output) -> Result<Given, Failure> {
    let mut found = Given::new();
    for (index, whole) in text.lines().enumerate() {
        let line = uncommented(whole);
        if whole.len() > line.len() && line.ends_with(|it: char| !it.is_whitespace()) {
            let number = index + 1;
            out.note(&format!(
                "warning: {path}: line {number}: what follows the # is a comment; quote a value that has one"
            ));
        }
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let wrong = |why: &str| {
            Failure::usage(format!("{path}: line {}: {why}", index + 1))
                .hint("each line is NAME=VALUE; quote a value that has a # in it")
        };
        let split = line.find(['=', ':']).ok_or_else(|| wrong("has no ="))?;
        let name = line[..split].strip_prefix("export ").unwrap_or(&line[..split]).trim();
        if !is_name(name) {
            return Err(wrong("what comes before the = is no name of a parameter"));
        }
        found.insert(name.to_owned(), unquoted(line[split + 1..].trim()));
    }
    Ok(found)
}

/// Removes the comment of a line: what follows a `#` that is not in quotes.
fn uncommented(line: &str) -> &str {
    let mut quote = None;
    for (at, character) in line.char_indices() {
        match (quote, character) {
            (None, '#') => return &line[..at],
            (None, '"' | '\'') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            _ => {}
        }
    }
    // A quote that is never closed is none.
    match quote {
        Some(_) => line.split('#').next().unwrap_or(line),
        None => line,
    }
}

/// Unquotes a value: in quotes it may have `\n`, `\r`, and any other character behind a `\`.
fn unquoted(value: &str) -> String {
    let inner = ['"', '\'']
        .into_iter()
        .find_map(|quote| value.strip_prefix(quote).and_then(|it| it.strip_suffix(quote)));
    let Some(inner) = inner else { return value.to_owned() };
    let mut text = String::with_capacity(inner.len());
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        match (character, character == '\\') {
            (_, true) => match characters.next() {
                Some('n') => text.push('\n'),
                Some('r') => text.push('\r'),
                Some(other) => text.push(other),
                None => text.push('\\'),
            },
            (other, false) => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Format;

    const OUT: Output = Output { format: Format::Table, quiet: false };

    #[test]
    fn a_line_is_a_name_and_a_value() {
        for (line, name, value) in [
            ("A=b", "A", "b"),
            ("A = b c ", "A", "b c"),
            ("export A=b", "A", "b"),
            ("A: b", "A", "b"),
            ("A=b:c", "A", "b:c"),
            ("A=", "A", ""),
            ("A=\"b # c\" # comment", "A", "b # c"),
            ("A=b # comment", "A", "b"),
            ("A='it''s'", "A", "it''s"),
            (r#"A="one\ntwo\\three\"four""#, "A", "one\ntwo\\three\"four"),
            ("A=it's", "A", "it's"),
            ("A=it's # fine", "A", "it's"),
            ("A=\"", "A", "\""),
        ] {
            let found = lines("f", line, OUT).unwrap();
            assert_eq!(found.get(name).map(String::as_str), Some(value), "{line}");
        }
        assert!(lines("f", "# all\n\n  \n#A=b", OUT).unwrap().is_empty());
        assert_eq!(lines("f", "A=1\nA=2", OUT).unwrap()["A"], "2");
    }

    #[test]
    fn a_line_that_is_none_is_named_without_its_value() {
        for text in ["A=1\nhunter2", "A=1\n1hunter2=3", "A=1\na b=hunter2"] {
            let failure = lines("f.env", text, OUT).unwrap_err().to_string();
            assert!(failure.contains("f.env: line 2: "), "{failure}");
            assert!(!failure.contains("hunter2"), "{failure}");
        }
    }

    #[test]
    fn an_argument_is_a_name_and_a_value() {
        assert_eq!(assignment("A=b=c").unwrap(), ("A", "b=c"));
        assert_eq!(assignment("A=").unwrap(), ("A", ""));
        for argument in ["A", "=b", "1=b", "a b=c", ""] {
            assert!(assignment(argument).is_err(), "{argument}");
        }
        assert!(
            looks_like_several("1,B=2") && !looks_like_several("1,2") && !looks_like_several("a=b")
        );
    }
}
