//! Runs a [`Broker`] as `/bin/broker`: the contract of seed "Jobs Mode", and its extension.
//!
//! ```text
//! /bin/broker provision --service-id … ──▶ Work ──▶ Broker ──▶ JSON on stdout, exit 0
//!                  OSB_REQUEST_FILE, … ──┘             └─ failure ──▶ stderr, exit code
//! ```
//!
//! Version 1 gives four ids and takes an exit code of zero or not. Where `OSB_REQUEST_FILE` is set,
//! version 2 is spoken: the whole request comes in a file, state and progress go by files, failures are
//! told apart. A broker has to do nothing for either; [`contract`] has every name.

mod arguments;
pub mod contract;
mod environment;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::broker::{Action, Broker, Failure, Output, Standing, Work, perform};
use arguments::{Arguments, Subcommand};
use contract::{ErrorReport, Extension, exit};
use environment::Environment;

/// Runs the subcommand for which the process was started. The whole `main` of a broker:
///
/// ```no_run
/// # use osb::{Broker, Catalog, Failure, Output, Work};
/// # struct Greeter;
/// # impl Broker for Greeter {
/// #     async fn catalog(&self) -> Result<Catalog, Failure> { Ok(Catalog::default()) }
/// #     async fn provision(&self, _: Work) -> Result<Output, Failure> { Ok(Output::default()) }
/// #     async fn deprovision(&self, _: Work) -> Result<Output, Failure> { Ok(Output::default()) }
/// # }
/// # async fn on_a_runtime() -> std::process::ExitCode {
/// osb::jobs::main(Greeter).await
/// # }
/// ```
pub async fn main<B: Broker>(broker: B) -> ExitCode {
    let arguments = std::env::args_os().skip(1);
    let (mut stdout, mut stderr) = (std::io::stdout(), std::io::stderr());
    let code =
        run(&broker, arguments, |name| std::env::var_os(name), &mut stdout, &mut stderr).await;
    // The broker's connections end before the process does.
    drop(broker);
    ExitCode::from(code)
}

/// Does as [`main`] with given parts of the process: the arguments after the program's name, the environment,
/// and both outputs. Returns the exit code.
pub async fn run<B: Broker>(
    broker: &B,
    arguments: impl IntoIterator<Item = OsString>,
    environment: impl Fn(&str) -> Option<OsString>,
    stdout: &mut impl Write,
    stderr: &mut impl Write,
) -> u8 {
    let (result, structured) = match prepare(arguments, environment) {
        Ok(Job::Help) => (Ok(arguments::USAGE.to_owned()), false),
        Ok(Job::Catalog) => (catalog(broker).await.map(|catalog| catalog.to_string()), false),
        Ok(Job::Work(job)) => {
            let structured = job.environment.is_extended();
            (work(broker, *job, stderr).await.map(|done| done.to_string()), structured)
        }
        Err(why) => (Err(Failure::failed(why)), false),
    };
    let (text, code) = match result {
        Ok(text) => (Some(text), exit::OK),
        Err(failure) => {
            // Whoever reads only logs should find it there too. If stderr is closed, nobody does.
            let _ = writeln!(stderr, "broker: {}", failure.description);
            if structured {
                let report = ErrorReport::from(&failure);
                (serde_json::to_string(&report).ok(), contract::exit_code(failure.kind))
            } else {
                (None, exit::FAILED)
            }
        }
    };
    let printed =
        text.map_or(Ok(()), |text| writeln!(stdout, "{text}").and_then(|()| stdout.flush()));
    match printed {
        Ok(()) => code,
        Err(error) => {
            let _ = writeln!(stderr, "broker: the result cannot be written to stdout: {error}");
            exit::FAILED
        }
    }
}

/// The job for which the process was started.
enum Job {
    Help,
    Catalog,
    Work(Box<WorkJob>),
}

struct WorkJob {
    /// The operation to ask after; `None` to do the work itself.
    operation: Option<String>,
    work: Work,
    environment: Environment,
}

fn prepare(
    arguments: impl IntoIterator<Item = OsString>,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<Job, String> {
    let mut arguments = Arguments::parse(arguments)?;
    let environment = Environment::read(environment)?;
    let operation = match arguments.subcommand {
        Subcommand::Help => return Ok(Job::Help),
        Subcommand::Catalog => return Ok(Job::Catalog),
        Subcommand::Work(_) => None,
        Subcommand::LastOperation => {
            let operation = arguments.operation.take();
            Some(operation.ok_or("last-operation needs --operation")?)
        }
    };
    let work = environment.work(&arguments)?;
    Ok(Job::Work(Box::new(WorkJob { operation, work, environment })))
}

/// The catalog, with the declaration of the extension.
async fn catalog<B: Broker>(broker: &B) -> Result<Value, Failure> {
    let catalog = broker.catalog().await?;
    let unfit = |error| Failure::failed(format!("the catalog is no JSON: {error}"));
    let mut document = serde_json::to_value(catalog).map_err(unfit)?;
    document[contract::EXTENSION_KEY] = json!(Extension::ours());
    Ok(document)
}

async fn work<B: Broker>(
    broker: &B,
    job: WorkJob,
    stderr: &mut impl Write,
) -> Result<Value, Failure> {
    let WorkJob { operation, work, environment } = job;
    let action = work.action;
    let standing = match operation {
        Some(operation) => broker.last_operation(work, &operation).await?,
        None => {
            let output = perform(broker, work).await?;
            keep_state(&output, &environment, stderr)?;
            return document(action, &output, &environment);
        }
    };
    if let Standing::Succeeded(output) = &standing {
        keep_state(output, &environment, stderr)?;
    }
    Ok(contract::standing_document(action, &standing))
}

fn document(action: Action, output: &Output, environment: &Environment) -> Result<Value, Failure> {
    if output.external_operation.is_some() && !environment.is_extended() {
        // Version 1 would take it for done.
        return Err(Failure::failed(format!(
            "this {action} goes on elsewhere, and the platform is too old to ask after it"
        )));
    }
    let mut document = contract::output_document(action, output);
    if let (false, Some(members)) = (environment.is_extended(), document.as_object_mut()) {
        // Version 1 has no such member, and its readers may be strict.
        members.remove("description");
    }
    Ok(document)
}

fn keep_state(
    output: &Output,
    environment: &Environment,
    stderr: &mut impl Write,
) -> Result<(), Failure> {
    let Some(state) = &output.state else { return Ok(()) };
    let kept = environment.keep_state(state.expose()).map_err(Failure::failed)?;
    if !kept {
        let _ = writeln!(stderr, "broker: the platform keeps no state; it is lost");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
