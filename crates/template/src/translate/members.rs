//! Reads objects member by member: those that are left at the end are unknown.

use serde_json::{Map, Value};

use crate::fault::{Fault, Place, Problem};
use crate::template::kind_of;

/// The faults and warnings about objects. They quote no value, which may come from a parameter.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) faults: Vec<Fault>,
    pub(super) warnings: Vec<Fault>,
}

impl Notes {
    pub(super) fn wrong(&mut self, place: &Place<'_>, found: &Value, detail: &str) {
        let problem = Problem::Invalid(kind_of(found).to_owned());
        self.faults.push(Fault::new(place.to_string(), problem, detail));
    }

    pub(super) fn required(&mut self, place: &Place<'_>, detail: &str) {
        self.faults.push(Fault::new(place.to_string(), Problem::Required, detail));
    }

    /// Notes that the name of a translated object is taken by another object of this kind.
    pub(super) fn taken(&mut self, place: &Place<'_>, kind: &str) {
        let detail =
            format!("another object of the template is the {kind} that it becomes: rename one");
        let problem = Problem::Duplicate("the name".to_owned());
        self.faults.push(Fault::new(place.to_string(), problem, detail));
    }

    pub(super) fn warn(&mut self, place: &Place<'_>, detail: impl Into<String>) {
        self.warnings.push(Fault::new(place.to_string(), Problem::Questionable, detail));
    }
}

/// The members of a map. A `null` counts as missing.
pub(super) struct Members<'a> {
    place: &'a Place<'a>,
    map: Map<String, Value>,
}

impl<'a> Members<'a> {
    pub(super) fn new(place: &'a Place<'a>, value: Value, notes: &mut Notes) -> Self {
        let map = match value {
            Value::Object(map) => map,
            Value::Null => Map::new(),
            other => {
                notes.wrong(place, &other, "has to be a map");
                Map::new()
            }
        };
        Self { place, map }
    }

    pub(super) fn at(&self, key: &'a str) -> Place<'a> {
        Place::Key(self.place, key)
    }

    pub(super) fn take(&mut self, key: &str) -> Option<Value> {
        self.map.remove(key).filter(|value| !value.is_null())
    }

    /// Takes a member as it is; null if it is missing.
    pub(super) fn value(&mut self, key: &str) -> Value {
        self.map.remove(key).unwrap_or_default()
    }

    /// Takes a text; empty if it is missing.
    pub(super) fn text(&mut self, key: &str, notes: &mut Notes) -> String {
        match self.value(key) {
            Value::String(text) => text,
            Value::Null => String::new(),
            other => {
                let place = Place::Key(self.place, key);
                notes.wrong(&place, &other, "has to be a string: put quotes around it");
                String::new()
            }
        }
    }

    pub(super) fn list(&mut self, key: &str, notes: &mut Notes) -> Vec<Value> {
        match self.value(key) {
            Value::Array(list) => list,
            Value::Null => Vec::new(),
            other => {
                notes.wrong(&Place::Key(self.place, key), &other, "has to be a list");
                Vec::new()
            }
        }
    }

    /// Refuses a member, if it is set.
    pub(super) fn refuse(&mut self, key: &str, detail: &str, notes: &mut Notes) {
        let value = self.value(key);
        if !is_nothing(&value) {
            notes.wrong(&Place::Key(self.place, key), &value, detail);
        }
    }

    /// Warns about members that are left: they have no effect on OpenShift either, because its API server drops them.
    pub(super) fn end(self, notes: &mut Notes) {
        let left = self.map.values().filter(|value| !is_nothing(value)).count();
        if left > 0 {
            let detail = format!("members that nobody knows are left out: {left}");
            notes.warn(self.place, detail);
        }
    }
}

/// Whether a value is null, false, or empty.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Number(_) => false,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// A map of the members that are not null.
pub(super) fn map<const N: usize>(members: [(&str, Value); N]) -> Value {
    let members = members.into_iter().filter(|(_, value)| !value.is_null());
    Value::Object(members.map(|(key, value)| (key.to_owned(), value)).collect())
}
