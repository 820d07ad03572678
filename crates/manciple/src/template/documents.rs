//! Reads templates from files: JSON and YAML, several documents, lists.

use serde_json::{Deserializer, Value};
use template::{KIND, Template};

use super::invalid;
use crate::cli::failure::Failure;
use crate::cli::input;
use crate::cli::output::Output;

/// Reads the only template of a file, or its first.
pub(super) async fn one(path: &str, out: Output) -> Result<Template, Failure> {
    read(first(path, out).await?)
}

/// Reads a template from its document.
pub(super) fn read(document: Value) -> Result<Template, Failure> {
    let name = document["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    Template::read(document).map_err(|faults| invalid(&name, &faults))
}

/// The document of the only template of a file, or of its first.
pub(super) async fn first(path: &str, out: Output) -> Result<Value, Failure> {
    let mut documents = all(path, out).await?;
    if documents.len() > 1 {
        let found = documents.len();
        out.note(&format!("{found} input templates found, but only the first will be processed"));
    }
    Ok(documents.swap_remove(0))
}

/// The documents of the templates of a file; one at least.
pub(super) async fn all(path: &str, out: Output) -> Result<Vec<Value>, Failure> {
    let text = input::document(path).await?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let documents = parse(text).map_err(|why| Failure::usage(format!("{path}: {why}")))?;
    let is_list = |it: &Value| it["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    let flat = documents.into_iter().flat_map(|mut document| match is_list(&document) {
        true => match document["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        },
        false => vec![document],
    });
    let (templates, others): (Vec<_>, Vec<_>) =
        flat.filter(|document| !document.is_null()).partition(|it| it["kind"] == KIND);
    if templates.is_empty() {
        let what = match others.first().and_then(|other| other["kind"].as_str()) {
            Some(kind) => format!("not a valid Template but a {kind}"),
            None => "there is no Template in it".to_owned(),
        };
        return Err(Failure::usage(format!("unable to parse {path:?}, {what}"))
            .hint("a template has kind: Template and apiVersion: template.openshift.io/v1"));
    }
    if !others.is_empty() {
        let others = others.len();
        out.note(&format!(
            "warning: {path}: {others} documents that are no templates are passed over"
        ));
    }
    Ok(templates)
}

/// Parses documents in JSON, one after another, or in YAML.
fn parse(text: &str) -> Result<Vec<Value>, String> {
    if !text.trim_start().starts_with('{') {
        return input::yaml(text);
    }
    let json: Result<Vec<Value>, _> = Deserializer::from_str(text).into_iter().collect();
    // Flow style of YAML begins like JSON. What is neither is meant to be JSON.
    json.or_else(|error| input::yaml(text).map_err(|_| error.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_follow_each_other() {
        assert_eq!(parse("{\"a\": 1}{\"b\": 2}\n{}").unwrap().len(), 3);
        assert_eq!(parse("a: 1\n---\nb: 2\n").unwrap().len(), 2);
        assert_eq!(parse("{a: 1}\n").unwrap(), [json!({"a": 1})]);
        let said = parse("{\"value\": \"hunter2\", \"b\": [}").unwrap_err();
        assert_eq!(said, "expected value at line 1 column 28");
    }
}
