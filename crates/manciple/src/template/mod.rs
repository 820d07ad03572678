//! `manciple template`: works with templates without a cluster, and with their instances on one.
//!
//! ```text
//! documents (files) ─▶ given (values) ─▶ template::Template ─▶ process ─▶ translate, by choice ─▶ print
//!                                              ├─▶ lint, schema, diff
//!                                              └─▶ instance: TemplateInstances of a cluster
//! ```

mod args;
mod diff;
mod documents;
mod given;
mod instance;
mod lint;
mod print;
mod process;

pub(crate) use args::TemplateArgs;
use args::TemplateCommand;
use template::Fault;

use crate::cli::failure::Failure;
use crate::cli::output::Output;
use crate::cli::{Format, Ongoing, RemoteArgs, format};

/// Carries out the command; `remote` says how to print.
pub(crate) async fn perform(
    args: TemplateArgs,
    remote: &RemoteArgs,
    ongoing: Ongoing,
) -> Result<(), Failure> {
    // Most of these have their own forms.
    let out = Output { format: Format::default(), quiet: remote.printing.quiet };
    match args.command {
        TemplateCommand::Instance(args) => instance::perform(*args, remote, ongoing).await,
        TemplateCommand::Process(args) => process::print(&args, out).await,
        TemplateCommand::Lint(args) => {
            lint::print(&args, Output { format: format(remote)?, ..out }).await
        }
        TemplateCommand::Diff(args) => diff::print(&args, out).await,
        TemplateCommand::Schema(args) => out.json(&documents::one(&args.path, out).await?.schema()),
    }
}

/// The failure for a template with faults, in the words of `oc`.
fn invalid(name: &str, faults: &[Fault]) -> Failure {
    Failure::usage(format!("The Template {name:?} is invalid: {}", listed(faults)))
}

/// The faults as a list; a single one is on the same line.
fn listed(faults: &[Fault]) -> String {
    match faults {
        [fault] => fault.to_string(),
        faults => faults.iter().map(|fault| format!("\n* {fault}")).collect(),
    }
}
