//! `manciple template lint`

use serde_json::Value;
use template::{Fault, Problem, Template};

use super::args::FilesArgs;
use super::{documents, given};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::output::Output;

pub(super) async fn print(args: &FilesArgs, out: Output) -> Result<(), Failure> {
    given::once(args.all())?;
    let (mut looked, mut wrong, mut questionable) = (0, 0, 0);
    for path in args.all() {
        for document in documents::all(path, out).await? {
            looked += 1;
            let name = document["metadata"]["name"].as_str().unwrap_or("(without a name)");
            let name = name.to_owned();
            for fault in faults(document) {
                match fault.problem {
                    Problem::Questionable => questionable += 1,
                    _ => wrong += 1,
                }
                out.foreign(&format!("{path}: {name}: {fault}\n"))?;
            }
        }
    }
    let seen = format!("{questionable} questionable, {looked} looked at");
    match wrong {
        0 => {
            out.note(&format!("no faults, {seen}"));
            Ok(())
        }
        wrong => Err(Failure::new(Exit::Usage, format!("{wrong} faults, {seen}"))),
    }
}

fn faults(document: Value) -> Vec<Fault> {
    match Template::read(document) {
        Ok(template) => template.lint(),
        Err(faults) => faults,
    }
}
