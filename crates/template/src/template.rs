//! A template as it is written, read with every fault at once.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::fault::{Fault, Place, Problem};

/// The version that templates have.
pub const API_VERSION: &str = "template.openshift.io/v1";
/// The version of old ones, from when OpenShift had no groups.
const LEGACY: &str = "v1";
/// Their kind.
pub const KIND: &str = "Template";

/// A template: objects with parameters in them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Template {
    /// As it is written; what it is named, and what its annotations say of it.
    pub metadata: Map<String, Value>,
    /// What whoever instantiates it is told.
    pub message: String,
    /// What becomes an object each. Nothing is known of them before they are processed.
    pub objects: Vec<Value>,
    /// In the order in which people are asked for them.
    pub parameters: Vec<Parameter>,
    /// Labels that every object gets. None, and an empty map, are two things: the latter gives every object `labels`.
    pub labels: Option<BTreeMap<String, String>>,
    /// Members that a template has not, by their paths: they do nothing.
    pub unknown: Vec<String>,
}

/// What may be set of a template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parameter {
    /// By this it is referred to: `${NAME}`, `${{NAME}}`.
    pub name: String,
    /// A name for people.
    pub display_name: String,
    /// What it is for.
    pub description: String,
    /// What it is unless somebody sets it; not generated then.
    pub value: String,
    /// How a value is made when it has none: `expression` or nothing.
    pub generate: String,
    /// What it is made of.
    pub from: String,
    /// Whether an empty value is refused.
    pub required: bool,
}

impl Template {
    /// Reads one. What it has beyond the members of a template is let be, as API servers do.
    ///
    /// # Errors
    ///
    /// All faults, each with its path: another kind, and members of other types than they have. A `null` counts as
    /// absent.
    pub fn read(document: Value) -> Result<Self, Vec<Fault>> {
        let mut reader = Reader::default();
        let root = Place::Root("template");
        let Value::Object(mut document) = document else {
            let detail = "has to be a map with apiVersion, kind, objects and parameters";
            return Err(vec![Fault::invalid(root.to_string(), &document, detail)]);
        };
        reader.kind(&document);
        let metadata = reader.map(Place::Key(&root, "metadata"), document.remove("metadata"));
        let place = Place::Key(&root, "parameters");
        let parameters = reader.list(place, document.remove("parameters")).into_iter();
        let parameters = parameters.enumerate();
        let mut template = Self {
            metadata: metadata.unwrap_or_default(),
            message: reader.text(&root, "message", &mut document),
            objects: reader.list(Place::Key(&root, "objects"), document.remove("objects")),
            parameters: Vec::new(),
            labels: reader.labels(&Place::Key(&root, "labels"), document.remove("labels")),
            unknown: Vec::new(),
        };
        document.retain(|key, _| key != "apiVersion" && key != "kind");
        reader.unknown(&root, &document);
        template.parameters.extend(
            parameters.map(|(index, it)| reader.parameter(&Place::Index(&place, index), it)),
        );
        template.unknown = reader.unknown;
        match reader.faults.is_empty() {
            true => Ok(template),
            false => Err(reader.faults),
        }
    }

    /// Its name; empty if it has none.
    pub fn name(&self) -> &str {
        self.metadata.get("name").and_then(Value::as_str).unwrap_or_default()
    }

    /// One of its annotations.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.get("annotations")?.get(key)?.as_str()
    }

    /// Sets a parameter: nothing is generated for it then, and an empty value is one. Whether there is such a
    /// parameter. Where several have the name all are set: the original sets the first, and uses the last.
    pub fn set(&mut self, name: &str, value: &str) -> bool {
        let mut any = false;
        for parameter in self.parameters.iter_mut().filter(|it| it.name == name) {
            parameter.value = value.to_owned();
            parameter.generate.clear();
            any = true;
        }
        any
    }

    /// The same of many, in one pass.
    pub fn set_all(&mut self, values: &BTreeMap<String, String>) {
        for parameter in &mut self.parameters {
            if let Some(value) = values.get(&parameter.name) {
                parameter.value.clone_from(value);
                parameter.generate.clear();
            }
        }
    }
}

/// Reads on when something is wrong.
#[derive(Default)]
struct Reader {
    faults: Vec<Fault>,
    unknown: Vec<String>,
}

impl Reader {
    /// What stands at a wrong place may be a password: it is not shown.
    fn wrong(&mut self, place: &Place<'_>, found: &Value, detail: &str) {
        let problem = Problem::Invalid(kind_of(found).to_owned());
        self.faults.push(Fault::new(place.to_string(), problem, detail));
    }

    fn kind(&mut self, document: &Map<String, Value>) {
        let root = Place::Root("template");
        let of = |key: &str| document.get(key).cloned().unwrap_or_default();
        let (version, kind) = (of("apiVersion"), of("kind"));
        if kind != KIND {
            let path = Place::Key(&root, "kind").to_string();
            self.faults.push(Fault::invalid(path, &kind, "has to be Template"));
        }
        if version != API_VERSION && version != LEGACY {
            let detail = format!("has to be {API_VERSION}, or {LEGACY} as in old ones");
            let path = Place::Key(&root, "apiVersion").to_string();
            self.faults.push(Fault::invalid(path, &version, detail));
        }
    }

    /// What is left when all that is known was taken.
    fn unknown(&mut self, of: &Place<'_>, left: &Map<String, Value>) {
        self.unknown.extend(left.keys().map(|key| Place::Key(of, key).to_string()));
    }

    fn map(&mut self, place: Place<'_>, value: Option<Value>) -> Option<Map<String, Value>> {
        match value {
            Some(Value::Object(map)) => Some(map),
            None | Some(Value::Null) => None,
            Some(other) => {
                self.wrong(&place, &other, "has to be a map");
                None
            }
        }
    }

    fn list(&mut self, place: Place<'_>, value: Option<Value>) -> Vec<Value> {
        match value {
            Some(Value::Array(list)) => list,
            None | Some(Value::Null) => Vec::new(),
            Some(other) => {
                self.wrong(&place, &other, "has to be a list");
                Vec::new()
            }
        }
    }

    fn text(&mut self, of: &Place<'_>, key: &str, map: &mut Map<String, Value>) -> String {
        self.string(&Place::Key(of, key), map.remove(key).unwrap_or_default())
    }

    fn string(&mut self, place: &Place<'_>, value: Value) -> String {
        match value {
            Value::String(text) => text,
            Value::Null => String::new(),
            other => {
                self.wrong(place, &other, "has to be a string: put quotes around it");
                String::new()
            }
        }
    }

    fn labels(
        &mut self,
        place: &Place<'_>,
        value: Option<Value>,
    ) -> Option<BTreeMap<String, String>> {
        let labels = self.map(*place, value)?.into_iter();
        let text = |(key, value): (String, Value)| {
            let value = self.string(&Place::Key(place, &key), value);
            (key, value)
        };
        Some(labels.map(text).collect())
    }

    fn parameter(&mut self, place: &Place<'_>, value: Value) -> Parameter {
        let Some(mut map) = self.map(*place, Some(value)) else { return Parameter::default() };
        let required = map.remove("required").unwrap_or_default();
        if !required.is_boolean() && !required.is_null() {
            self.wrong(&Place::Key(place, "required"), &required, "has to be true or false");
        }
        let parameter = Parameter {
            name: self.text(place, "name", &mut map),
            display_name: self.text(place, "displayName", &mut map),
            description: self.text(place, "description", &mut map),
            value: self.text(place, "value", &mut map),
            generate: self.text(place, "generate", &mut map),
            from: self.text(place, "from", &mut map),
            required: required == true,
        };
        self.unknown(place, &map);
        parameter
    }
}

/// What something is, for people.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}
