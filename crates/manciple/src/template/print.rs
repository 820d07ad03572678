//! Prints objects, as `oc process` does.

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{PrettyFormatter, Serializer};
use template::Parameter;
use template::jsonpath::{FindError, JsonPath};

use super::args::Form;
use crate::cli::failure::Failure;
use crate::cli::input;
use crate::cli::output::Output;

/// The List in which objects are printed. The order of its members is that of `oc`.
#[derive(Serialize)]
struct List<'a> {
    kind: &'a str,
    #[serde(rename = "apiVersion")]
    api_version: &'a str,
    metadata: Empty,
    items: &'a [Value],
}

#[derive(Serialize)]
struct Empty {}

/// A printer for one of the forms, with what had to be read for it.
pub(super) enum Printer {
    Json,
    Yaml,
    Name,
    /// A JSONPath template, with its text for errors.
    JsonPath(String, JsonPath),
}

impl Printer {
    /// Prepares a printer; `template` is the value of `--template`.
    pub(super) async fn new(form: &Form, template: Option<&str>) -> Result<Self, Failure> {
        let text = match form {
            Form::Json | Form::Yaml | Form::Name if template.is_some() => {
                return Err(Failure::usage(
                    "--template says what -o jsonpath prints: add -o jsonpath",
                ));
            }
            Form::Json => return Ok(Self::Json),
            Form::Yaml => return Ok(Self::Yaml),
            Form::Name => return Ok(Self::Name),
            Form::JsonPath(said) => said.as_deref().or(template).map(str::to_owned),
            Form::JsonPathFile(said) => match said.as_deref().or(template) {
                Some(path) => Some(input::document(path).await?),
                None => None,
            },
        };
        // A file may be empty: it prints nothing.
        let is_file = matches!(form, Form::JsonPathFile(_));
        let text = text.filter(|text| is_file || !text.is_empty()).ok_or_else(|| {
            Failure::usage("template format specified but no template given")
                .hint("-o jsonpath='{.items[*].kind}', or --template")
        })?;
        let path = JsonPath::parse(&text)
            .map_err(|error| Failure::usage(format!("error parsing jsonpath {text}, {error}")))?;
        Ok(Self::JsonPath(text, path.allow_missing_keys(true)))
    }

    /// Prints a List of objects, or the objects one after another.
    pub(super) fn print(&self, objects: &[Value], raw: bool, out: Output) -> Result<(), Failure> {
        let list = List { kind: "List", api_version: "v1", metadata: Empty {}, items: objects };
        match (self, raw) {
            (Self::Name, _) => objects.iter().try_for_each(|object| out.line(&name(object))),
            (Self::Json, false) => out.line(&json(&list)?),
            (Self::Json, true) => objects.iter().try_for_each(|it| out.line(&json(it)?)),
            (Self::Yaml, false) => out.foreign(&yaml(&value(&list)?)?),
            (Self::Yaml, true) => objects.iter().enumerate().try_for_each(|(index, object)| {
                let before = if index > 0 { "---\n" } else { "" };
                out.foreign(&format!("{before}{}", yaml(object)?))
            }),
            (Self::JsonPath(text, path), false) => found(text, path, &value(&list)?, out),
            (Self::JsonPath(text, path), true) => {
                objects.iter().try_for_each(|object| found(text, path, object, out))
            }
        }
    }
}

fn value(list: &List<'_>) -> Result<Value, Failure> {
    serde_json::to_value(list).map_err(|error| Failure::not_printed(&error))
}

fn json(of: &impl Serialize) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let mut to = Serializer::with_formatter(&mut bytes, PrettyFormatter::with_indent(b"    "));
    of.serialize(&mut to).map_err(|error| Failure::not_printed(&error))?;
    String::from_utf8(bytes).map_err(|error| Failure::not_printed(&error))
}

fn yaml(of: &Value) -> Result<String, Failure> {
    // The indentation of a block is told from its first line: one that begins with a tab has none.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: !has_tabs(of) };
    serde_saphyr::to_string_with_options(of, options).map_err(|error| Failure::not_printed(&error))
}

/// Whether a text of several lines has one that begins with a tab, or a key has.
fn has_tabs(value: &Value) -> bool {
    let begins = |text: &str| {
        text.contains('\n') && text.lines().any(|it| it.trim_start_matches(' ').starts_with('\t'))
    };
    match value {
        Value::String(text) => begins(text),
        Value::Array(list) => list.iter().any(has_tabs),
        Value::Object(map) => map.iter().any(|(key, value)| begins(key) || has_tabs(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Prints what a JSONPath finds, without a line's end: a user who wants one writes `{"\n"}`.
fn found(text: &str, path: &JsonPath, object: &Value, out: Output) -> Result<(), Failure> {
    let printed = path.print(object).map_err(|error| {
        // Its words have the value, which may be a secret.
        let why = match error {
            FindError::NotFilterable(_) => {
                "a value is not array or slice and cannot be filtered".to_owned()
            }
            error => error.to_string(),
        };
        Failure::usage(format!("error executing jsonpath {text:?}: {why}"))
    })?;
    out.foreign(&printed)
}

/// The name of an object, as `deployment.apps/web`.
pub(super) fn name(object: &Value) -> String {
    let of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (of(&object["apiVersion"]), of(&object["kind"]).to_lowercase());
    let name = Some(of(&object["metadata"]["name"])).filter(|name| !name.is_empty());
    let name = name.unwrap_or_else(|| "<unknown>".to_owned());
    match version.split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    }
}

/// The parameters in columns, each as wide as `oc` makes it: 20 at least, and three more than its content.
pub(super) fn parameters(parameters: &[Parameter]) -> String {
    let heading = ["NAME", "DESCRIPTION", "GENERATOR", "VALUE"].map(str::to_owned);
    let rows = parameters.iter().map(|it| {
        let value = if it.generate.is_empty() { &it.value } else { &it.from };
        [it.name.clone(), it.description.clone(), it.generate.clone(), value.clone()]
    });
    // A line's end would be the end of the row.
    let flat = |text: String| text.replace(['\n', '\r', '\t'], " ");
    let rows: Vec<_> = std::iter::once(heading).chain(rows).map(|row| row.map(flat)).collect();
    let width = |column: usize| {
        let widest = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
        (widest + 3).max(20)
    };
    let widths = [width(0), width(1), width(2)];
    let mut text = String::new();
    for [name, description, generator, value] in &rows {
        for (cell, width) in [name, description, generator].into_iter().zip(widths) {
            text.push_str(cell);
            text.extend(std::iter::repeat_n(' ', width - cell.chars().count()));
        }
        text.push_str(value);
        text.push('\n');
    }
    text
}
