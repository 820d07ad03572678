//! `manciple job lint`: prints the faults of manifests, without a cluster.

use kubernetes::quarks::{Dialect, faults};
use serde_json::Value;

use super::args::LintArgs;
use crate::cli::failure::Failure;
use crate::cli::findings::{Finding, Findings};
use crate::cli::input;
use crate::cli::output::Output;

pub(crate) async fn print(out: Output, args: &LintArgs) -> Result<(), Failure> {
    let mut found = Findings::new(out);
    for file in &args.files {
        let text = input::document(file).await?;
        for object in objects(file, &text)? {
            found.look();
            for fault in faults(&object) {
                let (path, message) = fault.split_once(": ").unwrap_or(("", &fault));
                found.add(Finding {
                    file: file.clone(),
                    object: object["metadata"]["name"].as_str().map(str::to_owned),
                    path: path.to_owned(),
                    message: message.to_owned(),
                    questionable: false,
                })?;
            }
        }
    }
    if found.looked_at() == 0 {
        let kinds = Dialect::ALL.map(Dialect::kind).join(" or ");
        return Err(Failure::usage(format!("there is no {kinds} in {}", args.files.join(", "))));
    }
    found.end()
}

/// The objects of a file, also those in its lists, that are for the controller.
fn objects(path: &str, text: &str) -> Result<Vec<Value>, Failure> {
    let documents =
        input::yaml(text).map_err(|error| Failure::usage(format!("{path}: {error}")))?;
    let flat = documents.into_iter().flat_map(|mut document| match document.get_mut("items") {
        Some(Value::Array(items)) => std::mem::take(items),
        _ => vec![document],
    });
    let ours = |object: &Value| Dialect::ALL.iter().any(|it| object["kind"] == it.kind());
    Ok(flat.filter(ours).collect())
}
