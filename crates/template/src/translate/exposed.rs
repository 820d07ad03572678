//! Translates the annotations by which a Route exposes values, so that they read from the Ingress.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::members::Notes;
use crate::expose::exposed;
use crate::fault::Place;
use crate::jsonpath::{JsonPath, Piece};

const REFUSED: &str = "exposes something else than spec.host, spec.path, spec.to.name, spec.port.targetPort and \
                       metadata of the Route, which an Ingress has not: expose one of these";

/// Rewrites the exposing annotations so that they give the same values. `at` returns the replacement for a path of the
/// Route: text with paths of the Ingress in it.
///
/// A fault does not name the wrong annotation: its key may come from a parameter.
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
                // An exposing annotation, which is rewritten itself.
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

/// Writes a path as an action.
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
