//! `manciple template lint`

use serde_json::Value;
use template::{Fault, Problem, Template};

use super::args::LintArgs;
use super::{documents, given};
use crate::cli::failure::Failure;
use crate::cli::findings::{Finding, Findings};
use crate::cli::output::Output;

pub(super) async fn print(args: &LintArgs, out: Output) -> Result<(), Failure> {
    given::once(args.all())?;
    let mut found = Findings::new(out);
    for file in args.all() {
        for document in documents::all(file, out).await? {
            found.look();
            let object = document["metadata"]["name"].as_str().map(str::to_owned);
            for fault in faults(document) {
                found.add(Finding {
                    file: file.clone(),
                    object: object.clone(),
                    path: fault.path,
                    message: format!("{}: {}", fault.problem, fault.detail),
                    questionable: matches!(fault.problem, Problem::Questionable),
                })?;
            }
        }
    }
    found.end()
}

fn faults(document: Value) -> Vec<Fault> {
    match Template::read(document) {
        Ok(template) => template.lint(),
        Err(faults) => faults,
    }
}
