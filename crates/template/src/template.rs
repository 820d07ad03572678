//! The parsed template; reading reports every fault at once.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::fault::{Fault, Place, Problem};

/// The `apiVersion` of templates.
pub const API_VERSION: &str = "template.openshift.io/v1";
/// The `apiVersion` of old templates, from when OpenShift had no API groups.
const LEGACY: &str = "v1";
/// The kind of templates.
pub const KIND: &str = "Template";

/// A template: objects with parameters in them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Template {
    /// The metadata as it is written, with name and annotations.
    pub metadata: Map<String, Value>,
    /// The message for whoever instantiates the template.
    pub message: String,
    /// The objects, unprocessed: nothing is checked in them before that.
    pub objects: Vec<Value>,
    /// The parameters, in the order in which users are asked for them.
    pub parameters: Vec<Parameter>,
    /// Labels that every object gets. `None` and an empty map differ: the latter gives every object a member `labels`.
    pub labels: Option<BTreeMap<String, String>>,
    /// The paths of unknown members, which have no effect.
    pub unknown: Vec<String>,
}

/// A parameter of a template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parameter {
    /// The name by which the parameter is referred to: `${NAME}`, `${{NAME}}`.
    pub name: String,
    /// A name for people.
    pub display_name: String,
    /// What the parameter is for.
    pub description: String,
    /// The value unless somebody sets another; if there is one, none is generated.
    pub value: String,
    /// How a missing value is generated: `expression`, or empty for not at all.
    pub generate: String,
    /// The expression from which a value is generated.
    pub from: String,
    /// Whether an empty value is refused.
    pub required: bool,
}

impl Template {
    /// Reads a template. Unknown members are ignored, as API servers do.
    ///
    /// # Errors
    ///
    /// All faults, each with its path: another kind, and members of wrong types. A `null` counts as absent.
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

    /// The name of the template; empty if it has none.
    pub fn name(&self) -> &str {
        self.metadata.get("name").and_then(Value::as_str).unwrap_or_default()
    }

    /// An annotation of the template.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.get("annotations")?.get(key)?.as_str()
    }

    /// Sets a parameter: then none is generated, not even for an empty value. Returns whether there is such a
    /// parameter. If several have the name all are set: the original sets the first, and uses the last.
    pub fn set(&mut self, name: &str, value: &str) -> bool {
        let mut any = false;
        for parameter in self.parameters.iter_mut().filter(|it| it.name == name) {
            parameter.value = value.to_owned();
            parameter.generate.clear();
            any = true;
        }
        any
    }

    /// Sets many parameters in one pass, like [`Template::set`].
    pub fn set_all(&mut self, values: &BTreeMap<String, String>) {
        for parameter in &mut self.parameters {
            if let Some(value) = values.get(&parameter.name) {
                parameter.value.clone_from(value);
                parameter.generate.clear();
            }
        }
    }
}

/// A reader that continues after a fault.
#[derive(Default)]
struct Reader {
    faults: Vec<Fault>,
    unknown: Vec<String>,
}

impl Reader {
    /// Notes a value of a wrong type, which is not shown: it may be a password.
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

    /// Notes the members that are left when all known ones were taken.
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

/// The type of a value, for people.
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
