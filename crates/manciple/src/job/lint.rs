//! `manciple job lint`: prints the faults of manifests, without a cluster.

use kubernetes::quarks::{Dialect, faults};
use serde_json::Value;

use super::args::LintArgs;
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::input;
use crate::cli::output::Output;

pub(crate) async fn print(out: Output, args: &LintArgs) -> Result<(), Failure> {
    let (mut looked, mut wrong) = (0, 0);
    for path in &args.files {
        let text = input::document(path).await?;
        for object in objects(path, &text)? {
            looked += 1;
            let name = object["metadata"]["name"].as_str().unwrap_or("(without a name)");
            for fault in faults(&object) {
                wrong += 1;
                out.foreign(&format!("{path}: {name}: {fault}\n"))?;
            }
        }
    }
    match (looked, wrong) {
        (0, _) => {
            let kinds = Dialect::ALL.map(Dialect::kind).join(" or ");
            Err(Failure::usage(format!("there is no {kinds} in {}", args.files.join(", "))))
        }
        (_, 0) => {
            out.note(&format!("{looked} looked at, no faults"));
            Ok(())
        }
        _ => Err(Failure::new(Exit::Usage, format!("{wrong} faults, {looked} looked at"))),
    }
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
