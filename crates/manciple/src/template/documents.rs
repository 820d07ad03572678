//! Templates in files: JSON and YAML, several documents, lists.

use serde_json::{Deserializer, Value};
use template::{KIND, Template};

use super::invalid;
use crate::cli::failure::Failure;
use crate::cli::input;
use crate::cli::output::Output;

/// The only template of a file, or its first.
pub(super) async fn one(path: &str, out: Output) -> Result<Template, Failure> {
    let mut documents = all(path).await?;
    if documents.len() > 1 {
        let found = documents.len();
        out.note(&format!("{found} input templates found, but only the first will be processed"));
    }
    let document = documents.swap_remove(0);
    let name = document["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    Template::read(document).map_err(|faults| invalid(&name, &faults))
}

/// The templates of a file, as they are written; one at least.
pub(super) async fn all(path: &str) -> Result<Vec<Value>, Failure> {
    let text = input::document(path).await?;
    let documents = parse(&text).map_err(|why| Failure::usage(format!("{path}: {why}")))?;
    let flat = documents.into_iter().flat_map(|mut document| match document.get_mut("items") {
        Some(Value::Array(items)) => std::mem::take(items),
        _ => vec![document],
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
    Ok(templates)
}

/// Documents in JSON, one after another, or in YAML, as Kubernetes reads it: `yes` is true, `0644` is octal.
fn parse(text: &str) -> Result<Vec<Value>, String> {
    if text.trim_start().starts_with('{') {
        let json: Result<Vec<Value>, _> = Deserializer::from_str(text).into_iter().collect();
        // Flow style of YAML begins like JSON.
        if let Ok(documents) = json {
            return Ok(documents);
        }
    }
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_is_read_as_kubernetes_reads_it() {
        let found =
            parse("a: yes\nb: 0644\nc: 'yes'\nd: 1.50\ne: ~\nf: 9007199254740993\n").unwrap();
        let expected = json!({
            "a": true, "b": 420, "c": "yes", "d": 1.5, "e": null, "f": 9_007_199_254_740_993_u64,
        });
        assert_eq!(found, [expected]);
    }

    #[test]
    fn documents_follow_each_other() {
        assert_eq!(parse("{\"a\": 1}{\"b\": 2}\n{}").unwrap().len(), 3);
        assert_eq!(parse("a: 1\n---\nb: 2\n").unwrap().len(), 2);
        assert_eq!(parse("{a: 1}\n").unwrap(), [json!({"a": 1})]);
    }
}
