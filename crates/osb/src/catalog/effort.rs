//! Estimates the effort of checking a value by a schema, before the validator does it.
//!
//! Whether a value matches a schema is found out quickly: the validator remembers what it has judged. To say how a
//! value violates it, the validator tries all ways through the schema, and where a schema refers to itself in `anyOf`,
//! each level of the value doubles them: twenty levels are a million. So the ways are counted before they are tried.
//!
//! A pattern with a look-around or a back reference is matched in steps that may go back, up to a limit for each text.
//! With such patterns, a thousand patterns and a thousand texts take minutes of a thread, even if all match. So each
//! text counts as many ways as it may take, and they are counted before anything is judged.

use std::collections::HashMap;
use std::ptr;
use std::rc::Rc;

use serde_json::{Map, Value};

use super::expansion::Targets;
use super::schemas::REFERENCES;

/// The most schemas that a check may apply in all, each as often as a way leads to it: some tenths of a second.
const MOST: u64 = 100_000;

/// The most schemas that may be applied one within another. Counting takes of the stack for each.
const DEEPEST: usize = 300;

/// How many ways a text counts for a pattern that may go back: its steps up to the limit take about that much longer
/// than a schema.
const WAYS_BACK: u64 = 50;

/// The number of bytes of a text that count as one way, squared: a look-around may go through the whole text from each
/// place in it.
const BYTES_AROUND: u64 = 256;

/// Whether the validator can try all ways in which a schema applies to a value, which are at most [`MOST`]; if patterns
/// may step back, whether it can match all texts of the value.
pub(super) fn is_little(schema: &Value, value: &Value, steps_back: bool) -> bool {
    let (targets, known, names) = (Targets::of(schema), HashMap::new(), HashMap::new());
    let mut count = Count { targets, known, names, steps_back };
    count.of(schema, value, 0).is_some_and(|ways| ways <= MOST)
}

struct Count<'s> {
    targets: Targets<'s>,
    /// Whether patterns may step back.
    steps_back: bool,
    /// The names of members as values, which must not move: `known` refers to their addresses.
    names: HashMap<*const String, Rc<Value>>,
    /// The number of ways for a pair of schema and value; `None` while they are counted.
    known: HashMap<(*const Value, *const Value), Option<u64>>,
}

impl<'s> Count<'s> {
    /// Counts the ways in which a schema applies to a value; `None` if there are too many.
    fn of(&mut self, schema: &'s Value, value: &Value, within: usize) -> Option<u64> {
        // Where patterns may step back, texts count alone.
        let counts = u64::from(!self.steps_back);
        let holds_texts = value.is_string() || value.is_array() || value.is_object();
        let Value::Object(members) = schema else { return Some(counts) };
        if self.steps_back && !holds_texts {
            return Some(counts);
        }
        let pair = (ptr::from_ref(schema), ptr::from_ref(value));
        match self.known.get(&pair) {
            Some(Some(ways)) => return Some(*ways),
            // The validator goes no further either.
            Some(None) => return Some(counts),
            None => {}
        }
        if within >= DEEPEST || u64::try_from(self.known.len()).is_ok_and(|known| known >= MOST) {
            return None;
        }
        self.known.insert(pair, None);
        let mut ways = counts;
        for (name, within_it) in members {
            ways = ways.checked_add(self.of_keyword(name, within_it, value, within + 1)?)?;
        }
        self.known.insert(pair, Some(ways));
        (ways <= MOST).then_some(ways)
    }

    /// Counts the ways of a keyword of a schema.
    fn of_keyword(
        &mut self,
        name: &str,
        held: &'s Value,
        value: &Value,
        within: usize,
    ) -> Option<u64> {
        match (name, held) {
            (name, Value::String(target)) if REFERENCES.contains(&name) => {
                let found = self.targets.find(target);
                self.sum(found.iter().map(|target| (*target, value)), within)
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(all)) => {
                self.sum(all.iter().map(|one| (one, value)), within)
            }
            ("not" | "if" | "then" | "else", one) => self.of(one, value, within),
            ("dependentSchemas" | "dependencies", Value::Object(all)) => {
                self.sum(all.values().map(|one| (one, value)), within)
            }
            ("properties", Value::Object(all)) => {
                let members = value.as_object();
                let given = all.iter().filter_map(|(name, one)| Some((one, members?.get(name)?)));
                self.sum(given, within)
            }
            ("pattern", Value::String(_)) => Some(value.as_str().map_or(0, |it| self.of_text(it))),
            ("patternProperties", Value::Object(all)) => {
                let names = value.as_object().into_iter().flat_map(Map::keys);
                let tried: u64 = names.map(|name| self.of_text(name)).sum();
                let tried = tried.checked_mul(u64::try_from(all.len()).ok()?)?;
                let pairs = all.values().flat_map(|one| members(value).map(move |it| (one, it)));
                self.sum(pairs, within)?.checked_add(tried)
            }
            ("items" | "prefixItems", Value::Array(all)) => {
                self.sum(all.iter().zip(elements(value)), within)
            }
            ("items" | "additionalItems" | "unevaluatedItems" | "contains", one) => {
                self.sum(elements(value).iter().map(|it| (one, it)), within)
            }
            ("additionalProperties" | "unevaluatedProperties", one) => {
                self.sum(members(value).map(|it| (one, it)), within)
            }
            ("propertyNames", one) => self.of_names(one, value, within),
            _ => Some(0),
        }
    }

    /// Counts the ways of `propertyNames`. Names are texts, which hold nothing, so all count the same if no pattern
    /// steps back.
    fn of_names(&mut self, one: &'s Value, value: &Value, within: usize) -> Option<u64> {
        let mut names = value.as_object().into_iter().flat_map(Map::keys);
        if !self.steps_back {
            let each = self.of(one, &Value::Null, within)?;
            return each.checked_mul(u64::try_from(names.count()).ok()?);
        }
        names.try_fold(0_u64, |sum, name| {
            let named = || Rc::new(Value::String(name.clone()));
            let name = Rc::clone(self.names.entry(ptr::from_ref(name)).or_insert_with(named));
            sum.checked_add(self.of(one, &name, within)?)
        })
    }

    /// The ways that a pattern counts for a text.
    fn of_text(&self, text: &str) -> u64 {
        let around = text.len() as u64 / BYTES_AROUND;
        if self.steps_back { WAYS_BACK.saturating_add(around.saturating_mul(around)) } else { 0 }
    }

    fn sum<'v>(
        &mut self,
        pairs: impl Iterator<Item = (&'s Value, &'v Value)>,
        within: usize,
    ) -> Option<u64> {
        let mut sum = 0_u64;
        for (schema, value) in pairs {
            sum = sum.checked_add(self.of(schema, value, within)?)?;
        }
        Some(sum)
    }
}

fn members(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_object().into_iter().flat_map(Map::values)
}

fn elements(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
