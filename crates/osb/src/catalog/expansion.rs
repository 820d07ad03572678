//! Bounds the size of a schema once its references are followed.
//!
//! Seven definitions that each refer a hundred times to the next are 20 kB, and a check of a value by the first one
//! goes through 10¹⁴ schemas. So the references are followed here, to a limit, before the schema is accepted. A schema
//! may refer to itself: a reference to a schema that is being followed is counted, and followed no further, as the
//! validator does it for one value.

use std::collections::HashMap;
use std::ptr;
use std::rc::Rc;

use serde_json::Value;

use super::schemas::{DATA, NAMED_SCHEMAS, REFERENCES};

/// How many schemas references may lead to in all.
const MAX_FOLLOWED: usize = 10_000;

/// How many references may be followed one within another. The validator uses stack for each.
const MAX_WITHIN: usize = 50;

/// A step that is left to do.
enum Step<'s> {
    Walk(&'s Value),
    Follow(&'s str),
    Enter(&'s Value),
    Leave,
}

/// The reason why a schema's references lead to too many schemas; `None` if they do not. The check takes no longer than
/// to go through the schema and [`MAX_FOLLOWED`] others.
pub(super) fn excess(schema: &Value) -> Option<String> {
    let mut targets = Targets::of(schema);
    let (mut within, mut followed) = (vec![schema], 0);
    let mut steps = vec![Step::Walk(schema)];
    while let Some(step) = steps.pop() {
        match step {
            Step::Walk(value) => {
                // What no reference leads to is limited by its size.
                followed += usize::from(within.len() > 1 && value.is_object());
                walk(value, &mut steps);
            }
            Step::Follow(reference) => {
                let found = targets.find(reference);
                followed += found.len();
                steps.extend(found.iter().copied().map(Step::Enter));
            }
            Step::Enter(target) if within.iter().any(|it| ptr::eq(*it, target)) => {}
            Step::Enter(target) => {
                within.push(target);
                steps.push(Step::Leave);
                walk(target, &mut steps);
            }
            Step::Leave => {
                within.pop();
            }
        }
        if followed > MAX_FOLLOWED {
            return Some(format!(
                "must lead to at most {MAX_FOLLOWED} schemas by its references, and leads to more: refer to others less often"
            ));
        }
        if within.len() - 1 > MAX_WITHIN {
            return Some(format!(
                "must have at most {MAX_WITHIN} references one within another, and has more: make it flatter"
            ));
        }
    }
    None
}

/// Adds the schemas within a schema, and its references, to the steps.
fn walk<'s>(schema: &'s Value, steps: &mut Vec<Step<'s>>) {
    match schema {
        Value::Array(elements) => {
            let schemas = elements.iter().filter(|it| it.is_object() || it.is_array());
            steps.extend(schemas.map(Step::Walk));
        }
        Value::Object(members) => {
            for (name, value) in members {
                let name = name.as_str();
                match value {
                    Value::String(target) if REFERENCES.contains(&name) => {
                        steps.push(Step::Follow(target));
                    }
                    Value::Object(named) if NAMED_SCHEMAS.contains(&name) => {
                        steps.extend(named.values().map(Step::Walk));
                    }
                    _ if DATA.contains(&name) => {}
                    value => steps.push(Step::Walk(value)),
                }
            }
        }
        _ => {}
    }
}

/// The targets of a schema's references.
pub(super) struct Targets<'s> {
    /// All objects, each of which may have a name.
    objects: Vec<&'s Value>,
    /// The schemas at which JSON pointers begin: the whole document, and each schema with an id of its own.
    resources: Vec<&'s Value>,
    /// The targets that were found, by reference.
    known: HashMap<&'s str, Rc<[&'s Value]>>,
}

impl<'s> Targets<'s> {
    pub(super) fn of(schema: &'s Value) -> Self {
        let objects = objects(schema);
        let has_id = |it: &Value| ["$id", "id"].iter().any(|name| it[*name].is_string());
        let apart = objects.iter().filter(|it| has_id(it) && !ptr::eq(**it, schema));
        let resources = [schema].into_iter().chain(apart.copied()).collect();
        Self { objects, resources, known: HashMap::new() }
    }

    /// All schemas that a reference may mean: with several resources, this does not tell apart which one it stands in.
    pub(super) fn find(&mut self, reference: &'s str) -> Rc<[&'s Value]> {
        if let Some(known) = self.known.get(reference) {
            return Rc::clone(known);
        }
        let found: Rc<[&'s Value]> = match reference.strip_prefix('#').map(decoded) {
            None => Rc::default(),
            Some(pointer) if pointer.is_empty() || pointer.starts_with('/') => {
                self.resources.iter().filter_map(|it| it.pointer(&pointer)).collect()
            }
            Some(name) => self.objects.iter().copied().filter(|it| is_named(it, &name)).collect(),
        };
        self.known.insert(reference, Rc::clone(&found));
        found
    }
}

/// Every object in a value, itself included.
fn objects(value: &Value) -> Vec<&Value> {
    let (mut found, mut left) = (Vec::new(), vec![value]);
    while let Some(value) = left.pop() {
        match value {
            Value::Array(elements) => left.extend(elements),
            Value::Object(members) => {
                found.push(value);
                left.extend(members.values());
            }
            _ => {}
        }
    }
    found
}

/// Whether an object has this name: by an anchor, or by the fragment of its id as in drafts before 2019-09.
fn is_named(object: &Value, name: &str) -> bool {
    let is_anchor = |member: &str| object[member] == *name;
    let ends_so = |member: &str| {
        let id = object[member].as_str().and_then(|id| id.split_once('#'));
        id.is_some_and(|(_, fragment)| fragment == name)
    };
    ["$anchor", "$dynamicAnchor"].into_iter().any(is_anchor)
        || ["$id", "id"].into_iter().any(ends_so)
}

/// Decodes a fragment, which is percent-encoded (RFC 6901, section 6).
fn decoded(fragment: &str) -> String {
    let mut parts = fragment.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(&part.as_bytes()[2..]);
            }
            None => {
                bytes.push(b'%');
                bytes.extend_from_slice(part.as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fragment_is_decoded_and_what_is_no_encoding_stays() {
        for (fragment, expected) in [
            ("", ""),
            ("/a", "/a"),
            ("/a%20b", "/a b"),
            ("%2Fa", "/a"),
            ("/%C3%BC", "/ü"),
            ("/100%", "/100%"),
            ("/%zz%4", "/%zz%4"),
            ("/%ü", "/%ü"),
        ] {
            assert_eq!(decoded(fragment), expected, "{fragment}");
        }
    }
}
