//! Describes the fault in a file that is no configuration: where, which member, and what is expected there. No
//! piece of the file is repeated but names, for a password may stand where none belongs.

use serde_saphyr::{Error, UserMessageFormatter};

/// The description of an error in this text.
pub(super) fn of(text: &str, error: &Error) -> String {
    let error = error.without_snippet();
    let Some(at) = error.location() else { return expected(error) };
    let (line, column) = (at.line(), at.column());
    match member(text, line, column).filter(|_| !names_its_member(error)) {
        Some(member) => format!("line {line}, column {column}: {member}: {}", expected(error)),
        None => format!("line {line}, column {column}: {}", expected(error)),
    }
}

fn names_its_member(error: &Error) -> bool {
    matches!(error, Error::SerdeUnknownField { .. } | Error::DuplicateMappingKey { .. })
}

/// The expected value, in the words of those who write the file rather than the program.
fn expected(error: &Error) -> String {
    match error {
        Error::MultipleDocuments { .. } => {
            "there is a second document; one is read: remove `---` or what follows it".to_owned()
        }
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("{key} is there more than once; remove one")
        }
        Error::SerdeUnknownField { field, expected, .. } => {
            format!("{field} is not known; known are {}", expected.join(", "))
        }
        Error::SerdeUnknownVariant { expected, .. } => {
            format!("must be one of {}", expected.join(", "))
        }
        Error::SerdeMissingField { field, .. } => format!("{field} is missing"),
        Error::SerdeInvalidType { expected, .. } | Error::SerdeInvalidValue { expected, .. } => {
            format!("must be {expected}")
        }
        Error::NullIntoString { .. } => {
            "is given no value; give one, or leave it out; what has a colon in front is quoted"
                .to_owned()
        }
        Error::InvalidScalar { ty, .. } => match *ty {
            "bool" | "boolean" => "must be true or false".to_owned(),
            ty if ty.starts_with(['u', 'i']) => "must be a whole number, from 0".to_owned(),
            ty => format!("must be of the kind {ty}"),
        },
        Error::Unexpected { expected, .. } => match *expected {
            "mapping start" => "must have members, as `member: value`".to_owned(),
            "sequence start" => "must be a list, as [a, b]".to_owned(),
            "string scalar" => "must be one value, no list and nothing with members".to_owned(),
            other => format!("expected is {other}"),
        },
        other => {
            // It has the place behind it, which is said in front.
            let said = other.render_with_formatter(&UserMessageFormatter);
            let said = said.lines().next().unwrap_or_default().trim_start_matches("error: ");
            let said = said.rsplit_once(" at line ").map_or(said, |(said, _)| said);
            let rest = said.strip_prefix("line ").and_then(|said| said.split_once(": "));
            rest.map_or(said, |(_, said)| said).to_owned()
        }
    }
}

/// The member whose value begins at a place, if it is in the same line.
fn member(text: &str, line: u64, column: u64) -> Option<&str> {
    let line = text.lines().nth(usize::try_from(line).ok()?.checked_sub(1)?)?;
    let column = usize::try_from(column).ok()?.checked_sub(1)?;
    let at = line.char_indices().nth(column).map_or(line.len(), |(at, _)| at);
    let before = line[..at].trim_end_matches([' ', '[', '{']).strip_suffix(':')?;
    let from = before.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    Some(from.map_or(before, |from| &before[from + 1..])).filter(|name| !name.is_empty())
}
