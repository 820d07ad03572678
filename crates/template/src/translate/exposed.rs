//! What a Route exposes to bindings, read from the Ingress that it has become.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::members::Notes;
use crate::expose::exposed;
use crate::fault::Place;
use crate::jsonpath::{JsonPath, Piece};

const REFUSED: &str = "exposes something else than spec.host, spec.path, spec.to.name, spec.port.targetPort and \
                       metadata of the Route, which an Ingress has not: expose one of these";

/// Rewrites the annotations that expose something, so that they give the same values. `at` says what stands in the
/// place of a path of the Route's: text with paths of the Ingress in it.
///
/// Which annotation it is that is wrong is not said: a key may be what a parameter holds.
pub(super) fn rewrite<'r>(
    place: &Place<'_>,
    annotations: &mut Map<String, Value>,
    at: &dyn Fn(&[&str]) -> Option<Cow<'r, str>>,
    notes: &mut Notes,
) {
    for (key, value) in annotations.iter_mut() {
        if exposed(key).is_none() {
            continue;
        }
        let Some(text) = value.as_str() else { continue };
        match rewritten(text, at) {
            Some(text) => *value = text.into(),
            None => notes.wrong(place, value, REFUSED),
        }
    }
}

fn rewritten<'r>(text: &str, at: &dyn Fn(&[&str]) -> Option<Cow<'r, str>>) -> Option<String> {
    let path = JsonPath::parse(text).ok()?;
    let mut rewritten = String::with_capacity(text.len());
    for piece in path.pieces()? {
        match piece {
            Piece::Text(text) => rewritten.push_str(text),
            Piece::Path(fields) => match fields.as_slice() {
                // This very annotation, or one beside it, is another now.
                ["metadata", "annotations", key] if exposed(key).is_some() => return None,
                ["metadata", rest @ ..] if !rest.is_empty() && !rest.contains(&"") => {
                    write(&mut rewritten, &fields);
                }
                fields => rewritten.push_str(&at(fields)?),
            },
        }
    }
    Some(rewritten)
}

/// A path as an action.
fn write(to: &mut String, fields: &[&str]) {
    to.push('{');
    for field in fields {
        to.push('.');
        for character in field.chars() {
            if " \t\r\n.,[]$@{}*".contains(character) {
                to.push('\\');
            }
            to.push(character);
        }
    }
    to.push('}');
}
