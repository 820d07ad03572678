//! The JSON Schemas of a plan: their rules, and parameters checked by them.
//!
//! Compiled once per catalog. A reference is never fetched: external ones are refused by the lint,
//! and the compiler is told to stay offline besides.

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::Value;

use super::{SchemaUse, effort, expansion};
use crate::fields::{Faults, Path};
use crate::model::{ParametersSchema, Plan, SchemaGroup};

/// The largest schema, serialised: 64 kB by the specification.
const MAX_SCHEMA_BYTES: usize = 64 * 1024;

/// How many times a pattern may step back before a value counts as not matching it: far beyond what any
/// sane pattern needs, and an end for those that grow exponentially.
const BACKTRACK_LIMIT: usize = 100_000;

/// How many violations of one request are reported. A body can hold very many.
const MAX_VIOLATIONS: usize = 20;

/// The longest message about one violation, in bytes: names of properties come from the request.
const MAX_MESSAGE_BYTES: usize = 300;

/// The message where the violations take too many steps to find.
const UNTOLD: &str = "violates the schema, and it takes too many steps to tell where: give less, or what is nested less deep";

/// The message where it takes too many steps to find out whether there is any violation.
const UNJUDGED: &str = "takes too many steps to check, for the schema has patterns with look-arounds or back references: give fewer texts, shorter ones, or what is nested less deep";

/// One way in which parameters violate their schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// JSON pointer into the parameters; empty for the whole.
    pub path: String,
    /// The message: what the schema asks for there.
    pub message: String,
}

/// The compiled schemas of one plan.
#[derive(Debug, Default)]
pub(super) struct PlanSchemas {
    provision: Option<Compiled>,
    update: Option<Compiled>,
    bind: Option<Compiled>,
}

/// One schema.
#[derive(Debug)]
pub(super) struct Compiled {
    validator: Validator,
    /// Whether one of its patterns is not matched in linear time: it has a look-around, or a back reference.
    steps_back: bool,
}

impl PlanSchemas {
    /// Compiles what a plan declares, noting every fault.
    pub(super) fn compile(plan: &Plan, path: &Path<'_>, faults: &Faults) -> Self {
        let Some(schemas) = &plan.schemas else { return Self::default() };
        let path = path.member("schemas");
        let (provision, update) =
            group(schemas.service_instance.as_ref(), &path.member("service_instance"), faults);
        // A binding is never updated; a schema for it is judged all the same, for platforms read it.
        let (bind, _) =
            group(schemas.service_binding.as_ref(), &path.member("service_binding"), faults);
        Self { provision, update, bind }
    }

    /// The compiled schema for a use; `None`: there is nothing to check.
    pub(super) fn get(&self, schema: SchemaUse) -> Option<&Compiled> {
        match schema {
            SchemaUse::Provision => self.provision.as_ref(),
            SchemaUse::Update => self.update.as_ref(),
            SchemaUse::Bind => self.bind.as_ref(),
        }
    }
}

/// The violations of a schema by parameters; only names of properties are repeated.
pub(super) fn violations(
    compiled: &Compiled,
    schema: &Value,
    parameters: &Value,
) -> Vec<Violation> {
    let Compiled { validator, steps_back } = compiled;
    let is_little = || effort::is_little(schema, parameters, *steps_back);
    let of_all =
        |message: &str| vec![Violation { path: String::new(), message: message.to_owned() }];
    if *steps_back && !is_little() {
        return of_all(UNJUDGED);
    }
    if validator.is_valid(parameters) {
        return Vec::new();
    }
    if !*steps_back && !is_little() {
        return of_all(UNTOLD);
    }
    validator
        .iter_errors(parameters)
        .take(MAX_VIOLATIONS)
        .map(|error| Violation {
            path: shortened(error.instance_path().to_string()),
            message: shortened(match error.kind() {
                ValidationErrorKind::FalseSchema => unwanted(&error, parameters),
                _ => error.masked().to_string(),
            }),
        })
        .collect()
}

/// The message where a schema allows nothing at all.
fn unwanted(error: &ValidationError<'_>, parameters: &Value) -> String {
    if !error.schema_path().as_str().ends_with("/additionalProperties") {
        return "must not be given: leave it out".to_owned();
    }
    let found = parameters.pointer(error.instance_path().as_str()).and_then(Value::as_object);
    let names: Vec<String> =
        found.into_iter().flatten().map(|(name, _)| format!("{name:?}")).collect();
    format!("must have no members: leave out {}", names.join(", "))
}

fn group(
    group: Option<&SchemaGroup>,
    path: &Path<'_>,
    faults: &Faults,
) -> (Option<Compiled>, Option<Compiled>) {
    let Some(group) = group else { return (None, None) };
    (
        schema(group.create.as_ref(), &path.member("create"), faults),
        schema(group.update.as_ref(), &path.member("update"), faults),
    )
}

fn schema(schema: Option<&ParametersSchema>, path: &Path<'_>, faults: &Faults) -> Option<Compiled> {
    let schema = schema?.parameters.as_ref()?;
    let path = path.member("parameters");
    let draft = draft(schema, &path, faults)?;
    let size = serde_json::to_vec(schema).map_or(usize::MAX, |bytes| bytes.len());
    if size > MAX_SCHEMA_BYTES {
        faults.add(path, format!("must not be larger than 64 kB, and has {size} bytes"));
        return None;
    }
    let local = references_are_local(schema, &path, faults);
    if let Some(excess) = expansion::excess(schema) {
        faults.add(path, excess);
        return None;
    }
    match compiled(schema, draft) {
        Ok(compiled) if local => Some(compiled),
        Ok(_) => None,
        Err(error) => {
            // An external reference cannot be resolved either; it is told once.
            if local {
                faults.add(path, not_a_schema(&error));
            }
            None
        }
    }
}

/// Compiles a schema, with patterns that are matched in linear time if possible.
fn compiled(schema: &Value, draft: Draft) -> Result<Compiled, ValidationError<'static>> {
    let options = || jsonschema::options().with_draft(draft).offline();
    let linear = options().with_pattern_options(PatternOptions::regex());
    if let Ok(validator) = linear.build(schema) {
        return Ok(Compiled { validator, steps_back: false });
    }
    let back = PatternOptions::fancy_regex().backtrack_limit(BACKTRACK_LIMIT);
    let validator = options().with_pattern_options(back).build(schema)?;
    Ok(Compiled { validator, steps_back: true })
}

fn draft(schema: &Value, path: &Path<'_>, faults: &Faults) -> Option<Draft> {
    if schema.is_boolean() {
        return Some(Draft::default());
    }
    let Some(object) = schema.as_object() else {
        faults.add(path, "must be a JSON Schema: an object, or true or false");
        return None;
    };
    let path = path.member("$schema");
    let Some(named) = object.get("$schema") else {
        faults.add(
            path,
            "must name the draft, such as http://json-schema.org/draft-04/schema#, and is missing",
        );
        return None;
    };
    let named = named.as_str().unwrap_or_default().trim_end_matches('#');
    match Draft::from_schema_uri(named) {
        draft @ (Draft::Draft4
        | Draft::Draft6
        | Draft::Draft7
        | Draft::Draft201909
        | Draft::Draft202012) => Some(draft),
        _ => {
            faults.add(path, "must name a draft of JSON Schema from draft-04 to 2020-12");
            None
        }
    }
}

fn not_a_schema(error: &ValidationError<'_>) -> String {
    let place = error.instance_path().to_string();
    let place = if place.is_empty() { String::new() } else { format!(" at {place}") };
    shortened(format!("is not a valid JSON Schema{place}: {error}"))
}

/// Keywords whose members are schemas under names that the author chose.
pub(super) const NAMED_SCHEMAS: [&str; 6] =
    ["properties", "patternProperties", "definitions", "$defs", "dependentSchemas", "dependencies"];

/// Keywords whose value is data, in which `$ref` means nothing.
pub(super) const DATA: [&str; 4] = ["enum", "const", "default", "examples"];

/// Keywords that refer to another schema.
pub(super) const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

fn references_are_local(schema: &Value, path: &Path<'_>, faults: &Faults) -> bool {
    match schema {
        Value::Object(members) => {
            let mut local = true;
            for (name, value) in members {
                let path = path.member(name);
                if let (true, Value::String(target)) = (REFERENCES.contains(&name.as_str()), value)
                {
                    if !target.starts_with('#') {
                        faults.add(
                            path,
                            "must not be external: only references that begin with # are allowed",
                        );
                        local = false;
                    }
                } else if let (true, Value::Object(named)) =
                    (NAMED_SCHEMAS.contains(&name.as_str()), value)
                {
                    for (name, value) in named {
                        local &= references_are_local(value, &path.member(name), faults);
                    }
                } else if !DATA.contains(&name.as_str()) {
                    local &= references_are_local(value, &path, faults);
                }
            }
            local
        }
        Value::Array(elements) => {
            elements.iter().enumerate().fold(true, |local, (index, value)| {
                references_are_local(value, &path.index(index), faults) && local
            })
        }
        _ => true,
    }
}

fn shortened(mut text: String) -> String {
    if text.len() > MAX_MESSAGE_BYTES {
        text.truncate(text.floor_char_boundary(MAX_MESSAGE_BYTES));
        text.push('…');
    }
    text
}
