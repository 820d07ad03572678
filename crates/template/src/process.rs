//! Processes a template into objects.
//!
//! The order is: values, the message, labels, then each object: its namespace is removed, parameters are substituted,
//! old kinds get their group, labels are added. Faults of values end the processing; faults of objects are collected
//! from all of them.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};

use crate::fault::{Fault, Place, Problem};
use crate::generate::{MOST_GENERATED, Refused, generate};
use crate::groups;
use crate::random::Random;
use crate::substitute::{Held, MOST, Substitution, Text, TooMuch, Values, refers};
use crate::template::{Parameter, Template, kind_of};

/// A processed template.
#[derive(Debug, Clone, PartialEq)]
pub struct Processed {
    /// The objects, in the order of the template.
    pub objects: Vec<Value>,
    /// The message, with parameters substituted.
    pub message: String,
    /// The parameters, each with its value, generated ones, too: they have to be kept, because they cannot be generated
    /// again.
    pub parameters: Vec<Parameter>,
    /// The labels that every object got.
    pub labels: Option<BTreeMap<String, String>>,
    /// What was left out, as in the original: labels of objects that are no strings, which Kubernetes does not have.
    pub warnings: Vec<Fault>,
    /// About how many bytes of memory the substituted parameters take: 4 MiB at most.
    pub spent: usize,
}

impl Template {
    /// Processes the template. Generated values come from `random`.
    ///
    /// 64-bit integers stay unchanged. A parameter whose JSON is `null` removes the member whose value it is.
    ///
    /// # Errors
    ///
    /// All faults of the first of these kinds, each with its path: values that are required or cannot be generated;
    /// then faults of objects, also those at which the original panics (`null` for an element of a list, a key that is
    /// no text) or which it decides by chance (two keys that become one).
    pub fn process(mut self, random: &mut dyn Random) -> Result<Processed, Vec<Fault>> {
        self.values(random)?;
        let values: Values<'_> =
            self.parameters.iter().map(|it| (it.name.as_str(), Held::new(&it.value))).collect();
        let mut walk = Walk {
            substitution: Substitution::new(values),
            faults: Vec::new(),
            warnings: Vec::new(),
        };
        let root = Place::Root("template");
        if let Some(message) = walk.text(&Place::Key(&root, "message"), &self.message) {
            self.message = message;
        }
        let labels = self.labels.take();
        let labels = labels.map(|labels| walk.labels(&Place::Key(&root, "labels"), labels));
        let place = Place::Key(&root, "objects");
        for (index, object) in self.objects.iter_mut().enumerate() {
            walk.object(&Place::Index(&place, index), object, labels.as_ref());
        }
        let Walk { faults, warnings, substitution } = walk;
        let spent = substitution.spent();
        if !faults.is_empty() {
            return Err(faults);
        }
        let Self { message, objects, parameters, .. } = self;
        Ok(Processed { objects, message, parameters, labels, warnings, spent })
    }

    /// Generates a value for each parameter that has none.
    fn values(&mut self, random: &mut dyn Random) -> Result<(), Vec<Fault>> {
        let mut faults = Vec::new();
        let mut room = MOST_GENERATED;
        let unset = self.parameters.iter_mut().enumerate().filter(|(_, it)| it.value.is_empty());
        for (index, parameter) in unset {
            let path = format!("template.parameters[{index}]");
            let Parameter { name, from, .. } = &*parameter;
            let quoted = |text: &str| Value::from(text);
            match parameter.generate.as_str() {
                "" => {}
                "expression" => match generate(from, random, room) {
                    Ok(value) => {
                        room -= value.len();
                        parameter.value = value;
                    }
                    // The next values would be refused, too.
                    Err(Refused::TooLong) => {
                        faults.push(Fault::new(
                            path,
                            Problem::TooLong,
                            Refused::TooLong.to_string(),
                        ));
                        break;
                    }
                    Err(refused) => {
                        faults.push(Fault::invalid(path, &quoted(from), refused.to_string()));
                        continue;
                    }
                },
                other => {
                    let detail = format!("Unknown generator name '{other}' for parameter {name}");
                    faults.push(Fault::invalid(path, &quoted(other), detail));
                    continue;
                }
            }
            if parameter.required && parameter.value.is_empty() {
                let name = &parameter.name;
                let detail = format!("{path}: parameter {name} is required and must be specified");
                faults.push(Fault::new(path, Problem::Required, detail));
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}

/// A walk through everything that may have parameters in it.
struct Walk<'a> {
    substitution: Substitution<'a>,
    faults: Vec<Fault>,
    warnings: Vec<Fault>,
}

impl Walk<'_> {
    fn too_much(&mut self, place: &Place<'_>) {
        let detail = format!(
            "up to here parameters take more than {} MiB of memory: refer to large ones less often",
            MOST / (1024 * 1024)
        );
        // All later places exceed the limit, too: it is reported once.
        if !self.faults.iter().any(|fault| fault.problem == Problem::TooLong) {
            self.faults.push(Fault::new(place.to_string(), Problem::TooLong, detail));
        }
    }

    fn text(&mut self, place: &Place<'_>, text: &str) -> Option<String> {
        match self.substitution.text(text) {
            Ok(text) => text,
            Err(TooMuch) => {
                self.too_much(place);
                None
            }
        }
    }

    fn labels(
        &mut self,
        place: &Place<'_>,
        labels: BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        let mut substituted = BTreeMap::new();
        for (key, value) in labels {
            let value = self.text(&Place::Key(place, &key), &value).unwrap_or(value);
            let new = self.text(&Place::Key(place, &key), &key).unwrap_or_else(|| key.clone());
            if substituted.insert(new.clone(), value).is_some() {
                self.collision(place, &key);
            }
        }
        substituted
    }

    fn collision(&mut self, place: &Place<'_>, key: &str) {
        let detail = "with its parameters it is the same as another: let keys differ";
        let path = Place::Key(place, key).to_string();
        self.faults.push(Fault::new(path, Problem::Duplicate(format!("{key:?}")), detail));
    }

    fn object(
        &mut self,
        place: &Place<'_>,
        object: &mut Value,
        labels: Option<&BTreeMap<String, String>>,
    ) {
        let kind = object.as_object().and_then(|map| map.get("kind")).and_then(Value::as_str);
        if kind.is_none_or(str::is_empty) {
            let detail = "unable to handle object: Object 'Kind' is missing";
            self.faults.push(Fault::invalid(place.to_string(), object, detail));
            return;
        }
        strip_namespace(object);
        self.value(place, object);
        if let Value::Object(map) = object {
            self.group(place, map);
            if let Some(labels) = labels {
                self.add_labels(place, map, labels);
            }
        }
    }

    /// Substitutes parameters in a value, at all its levels, which are no more than parsing allows.
    fn value(&mut self, place: &Place<'_>, value: &mut Value) {
        match value {
            Value::String(text) => match self.substitution.value(text) {
                Ok(Text::Same) => {}
                Ok(Text::Other(other)) => *text = other,
                Ok(Text::Json(mut json)) => {
                    whole_numbers(&mut json);
                    *value = json;
                }
                Err(TooMuch) => self.too_much(place),
            },
            Value::Array(list) => self.list(place, list),
            Value::Object(map) => self.map(place, map),
            Value::Number(number) => whole_number(number),
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn list(&mut self, place: &Place<'_>, list: &mut [Value]) {
        for (index, element) in list.iter_mut().enumerate() {
            let place = Place::Index(place, index);
            // Only such an element can become null.
            let whole = element.as_str().filter(|text| text.starts_with("${{")).map(str::to_owned);
            self.value(&place, element);
            if let (Some(text), Value::Null) = (whole, &*element) {
                let detail = "the parameter is null, which cannot be an element of a list";
                self.faults.push(Fault::invalid(place.to_string(), &Value::from(text), detail));
            }
        }
    }

    fn map(&mut self, place: &Place<'_>, map: &mut Map<String, Value>) {
        let mut nulls = Vec::new();
        let mut refers = false;
        for (key, member) in map.iter_mut() {
            refers |= key.contains("${");
            let was_null = member.is_null();
            self.value(&Place::Key(place, key), member);
            if member.is_null() && !was_null {
                nulls.push(key.clone());
            }
        }
        nulls.iter().for_each(|key| drop(map.remove(key)));
        if refers {
            *map = self.keys(place, std::mem::take(map));
        }
    }

    fn keys(&mut self, place: &Place<'_>, map: Map<String, Value>) -> Map<String, Value> {
        let mut renamed = Map::new();
        for (key, member) in map {
            let new = self.key(place, &key).unwrap_or_else(|| key.clone());
            if renamed.contains_key(&new) {
                self.collision(place, &key);
            }
            renamed.insert(new, member);
        }
        renamed
    }

    /// The key with parameters substituted; `None` if it stays the same.
    fn key(&mut self, place: &Place<'_>, key: &str) -> Option<String> {
        let place = Place::Key(place, key);
        match self.substitution.value(key) {
            Ok(Text::Same) => None,
            Ok(Text::Other(text) | Text::Json(Value::String(text))) => Some(text),
            Ok(Text::Json(json)) => {
                let detail = format!("the parameter is {}, and a key is text", kind_of(&json));
                self.faults.push(Fault::invalid(place.to_string(), &Value::from(key), detail));
                None
            }
            Err(TooMuch) => {
                self.too_much(&place);
                None
            }
        }
    }

    /// Sets the present group of a kind that once had `v1`.
    fn group(&mut self, place: &Place<'_>, object: &mut Map<String, Value>) {
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("apiVersion"), text("kind"));
        if kind.is_empty() {
            self.became(&Place::Key(place, "kind"), object, "has to be a string, and not empty");
        } else if version.is_empty() || version.split('/').count() > 2 {
            let place = Place::Key(place, "apiVersion");
            self.became(&place, object, "has to be VERSION or GROUP/VERSION");
        } else if version == "v1"
            && let Some(current) = groups::current(kind)
        {
            object.insert("apiVersion".to_owned(), current.into());
        }
    }

    /// Notes a fault of a substituted member. Its value may come from a parameter: it is not shown.
    fn became(&mut self, place: &Place<'_>, object: &Map<String, Value>, detail: &str) {
        let found = if let Place::Key(_, key) = place { object.get(*key) } else { None };
        let problem = Problem::Invalid(kind_of(found.unwrap_or(&Value::Null)).to_owned());
        self.faults.push(Fault::new(place.to_string(), problem, detail));
    }

    /// Adds the template's labels to an object, where they replace its own.
    fn add_labels(
        &mut self,
        place: &Place<'_>,
        object: &mut Map<String, Value>,
        labels: &BTreeMap<String, String>,
    ) {
        let place = Place::Key(place, "metadata");
        let size = labels.iter().map(|(key, value)| key.len() + value.len()).sum();
        if self.substitution.spend(size).is_err() {
            return self.too_much(&place);
        }
        let detail = "label could not be applied: has to be a map";
        if object.get("metadata").is_some_and(|it| !it.is_object() && !it.is_null()) {
            return self.became(&place, object, detail);
        }
        let Some(metadata) = map_of(object.entry("metadata").or_insert(Value::Null)) else {
            return;
        };
        let place = Place::Key(&place, "labels");
        if metadata.get("labels").is_some_and(|it| !it.is_object() && !it.is_null()) {
            return self.became(&place, metadata, detail);
        }
        let Some(own) = map_of(metadata.entry("labels").or_insert(Value::Null)) else { return };
        // A key may come from a parameter, like a value.
        let lost =
            own.iter().filter(|(key, value)| !value.is_string() && !labels.contains_key(*key));
        if let Some((_, value)) = lost.clone().next() {
            let detail =
                format!("{} left out, for it is no string: put quotes around it", lost.count());
            let problem = Problem::Invalid(kind_of(value).to_owned());
            self.warnings.push(Fault::new(place.to_string(), problem, detail));
        }
        own.retain(|_, value| value.is_string());
        own.extend(labels.iter().map(|(key, value)| (key.clone(), value.as_str().into())));
    }
}

/// The value as a map; null becomes an empty one.
fn map_of(value: &mut Value) -> Option<&mut Map<String, Value>> {
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}

/// Removes the namespace of an object, which is created where its template is instantiated, unless a parameter gives
/// the namespace. `${{NAME}}` cannot, as in the original.
fn strip_namespace(object: &mut Value) {
    let Some(object) = object.as_object_mut() else { return };
    let holder = match object.get_mut("metadata") {
        Some(Value::Object(metadata)) => metadata,
        Some(_) => return,
        // From the time before objects had metadata.
        None => object,
    };
    let stays = holder.get("namespace").and_then(Value::as_str).is_some_and(refers);
    if !stays {
        holder.remove("namespace");
    }
}

/// Makes whole numbers integers, as Go writes them: `1.0` becomes `1`, for a server that takes no fractions.
fn whole_number(number: &mut Number) {
    // Beyond this number not every integer can be a float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if let Some(float) = number.as_f64().filter(|_| number.is_f64())
        && float.fract() == 0.0
        && float.abs() <= EXACT
    {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it is whole, and no larger than exact"
        )]
        let whole = float as i64;
        *number = whole.into();
    }
}

fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => whole_number(number),
        Value::Array(list) => list.iter_mut().for_each(whole_numbers),
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}
