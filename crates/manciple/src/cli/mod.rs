//! The command line: a person orders, watches, reads why something failed, and repairs it.
//!
//! ```text
//! args ─▶ connection ─▶ lookup (names to ids) ─▶ order ─▶ follow (progress) ─▶ output
//!                                                  └───────── failure ─▶ exit (one table)
//! ```
//!
//! [`orders`] and [`binding`] speak the Open Service Broker API and work with any broker; [`status`],
//! [`lists`], [`logs`], [`repair`] and [`backup`] ask the operator's API; [`restore`] asks nobody.
//! Results are on stdout, everything else on stderr. No secret is an argument, and none is printed but
//! the credentials that were asked for.

mod args;
mod backup;
mod binding;
mod catalog;
pub(crate) mod cluster;
mod conformance;
mod connection;
mod documents;
pub(crate) mod exit;
pub(crate) mod failure;
pub(crate) mod findings;
mod follow;
mod hints;
pub(crate) mod input;
mod lists;
mod logs;
mod lookup;
mod operator;
mod orders;
pub(crate) mod output;
pub(crate) mod progress;
mod repair;
mod restore;
mod status;
pub(crate) mod times;

use std::ffi::OsString;
use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::{Arg, CommandFactory as _, FromArgMatches as _};

use args::{Cli, Remote};
pub(crate) use args::{Command, Format, Printing, RemoteArgs, Waiting};
use connection::{Connection, REQUEST_TIMEOUT};
pub(crate) use connection::{Ongoing, format};
use exit::Exit;
use failure::Failure;
use output::{Output, written};

use crate::process::told_to_end;

/// Runs the command that the command line gives.
pub(crate) fn main() -> ExitCode {
    let command = without_empty_variables(Cli::command());
    match command.try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => run(cli),
        Err(error) => unparsed(&error),
    }
}

/// Unlinks the options of a command, and of those below it, from variables that are empty: such a variable counts as
/// absent, as `name: ""` in a manifest and `${NAME:-}` in a script mean it.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |arg: &Arg| {
        let name = arg.get_env();
        name.and_then(std::env::var_os).is_some_and(|value| value.is_empty())
    };
    command
        .mut_args(|arg| if is_empty(&arg) { arg.env(Resettable::Reset) } else { arg })
        .mut_subcommands(without_empty_variables)
}

fn run(cli: Cli) -> ExitCode {
    let before = cli.remote;
    match cli.command {
        Command::Serve(args) => {
            let failure = |error| Failure::usage(format!("cannot serve: {error:#}"));
            end(&before, crate::serve::run(args).map_err(failure))
        }
        Command::Controller(args) => {
            let failure = |error| Failure::usage(format!("cannot run: {error:#}"));
            end(&before, crate::controller::run(&args).map_err(failure))
        }
        Command::Supervise { run_dir } => crate::serve::supervise(&run_dir),
        Command::Restore { args, printing } => {
            let printing = before.printing.overridden_by(printing);
            let remote = RemoteArgs { printing, ..before };
            end(&remote, restore::restore(&args, &remote))
        }
        Command::Crds(args) => end(&before, documents::crds(&args)),
        Command::Completions(args) => end(&before, documents::completions(args.shell)),
        Command::Man(args) => end(&before, documents::man(args.dir.as_deref())),
        Command::Job(with) => {
            let remote = before.overridden_by(with.output());
            perform(&remote, 1, NO_JOB, |ongoing| crate::job::perform(with, &remote, ongoing))
        }
        Command::Template(args) => {
            let unnamed = if args.asks_a_cluster() { NO_CHANGE } else { NOTHING };
            let remote = before.overridden_by(args.remote());
            perform(&remote, 1, unnamed, |ongoing| crate::template::perform(args, &remote, ongoing))
        }
        Command::Catalog(with) => ask(before, with, catalog::show),
        Command::Conformance(with) => {
            let limits = Limits { interrupts: 2, unnamed: NO_TRIAL, ..Limits::default() };
            ask_within(limits, before, with, conformance::check)
        }
        Command::Provision(with) => ask(before, with, orders::provision),
        Command::Update(with) => ask(before, with, orders::update),
        Command::Deprovision(with) => ask(before, with, orders::deprovision),
        Command::Bind(with) => ask(before, with, binding::bind),
        Command::Rotate(with) => ask(before, with, binding::rotate),
        Command::Unbind(with) => ask(before, with, binding::unbind),
        Command::Status(with) => ask(before, with, status::show),
        Command::Instances(with) => ask(before, with, lists::instances),
        Command::Bindings(with) => ask(before, with, lists::bindings),
        Command::Operations(with) => ask(before, with, lists::operations),
        Command::Logs(with) => ask(before, with, logs::print),
        Command::Retry(with) => ask(before, with, repair::retry),
        Command::Purge(with) => ask(before, with, repair::purge),
        // Its only request is what is waited for.
        Command::Backup(with) => {
            let limits = Limits { request: Duration::MAX, ..Limits::default() };
            ask_within(limits, before, with, backup::save)
        }
    }
}

/// The message after an interrupt if no operation is known to go on.
const NO_OPERATION: &str =
    "what was sent is not taken back; manciple operations --busy shows what goes on";
const NO_JOB: &str = "what was sent is not taken back; manciple job list shows how it stands";
const NO_CHANGE: &str =
    "what was sent is not taken back; manciple template instance history shows what is recorded";
const NOTHING: &str = "nothing was sent, and nothing is left";
const NO_TRIAL: &str =
    "instances whose ids begin with conformance- may be left at the broker, and their bindings";

/// The limits of a command that asks a broker.
#[derive(Clone, Copy)]
struct Limits {
    /// The longest that a single request may take.
    request: Duration,
    /// The number of the interrupt that ends the command at once; it handles those before itself.
    interrupts: u32,
    /// The message after the last interrupt, if no operation is known to go on.
    unnamed: &'static str,
}

impl Default for Limits {
    fn default() -> Self {
        Self { request: REQUEST_TIMEOUT, interrupts: 1, unnamed: NO_OPERATION }
    }
}

/// Runs a command that asks a broker.
fn ask<T, F>(
    before: RemoteArgs,
    with: Remote<T>,
    command: impl FnOnce(Connection, T) -> F,
) -> ExitCode
where
    T: clap::Args,
    F: Future<Output = Result<(), Failure>>,
{
    ask_within(Limits::default(), before, with, command)
}

/// Does as [`ask`], with other limits.
fn ask_within<T, F>(
    limits: Limits,
    before: RemoteArgs,
    with: Remote<T>,
    command: impl FnOnce(Connection, T) -> F,
) -> ExitCode
where
    T: clap::Args,
    F: Future<Output = Result<(), Failure>>,
{
    let remote = before.overridden_by(with.remote);
    let connect = |ongoing| Connection::new(&remote, limits.request, ongoing);
    perform(&remote, limits.interrupts, limits.unnamed, |ongoing| async move {
        command(connect(ongoing)?, with.args).await
    })
}

/// Runs a command until it ends or is interrupted the given number of times; `unnamed` is the message then, if
/// no operation is known to go on.
fn perform<F>(
    remote: &RemoteArgs,
    times: u32,
    unnamed: &str,
    command: impl FnOnce(Ongoing) -> F,
) -> ExitCode
where
    F: Future<Output = Result<(), Failure>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => {
            let result = runtime.block_on(async {
                let ongoing = Ongoing::default();
                let ends = interrupts(times)?;
                tokio::select! {
                    result = command(ongoing.clone()) => result,
                    () = ends => Err(unfinished(&ongoing, unnamed)),
                }
            });
            // Somebody may still be asked a question; nobody waits for the answer.
            runtime.shutdown_background();
            result
        }
        Err(error) => Err(Failure::usage(format!("cannot start: {error}"))),
    };
    end(remote, result)
}

/// Returns a future that ends with the `times`th interrupt, counted from the call on.
fn interrupts(times: u32) -> Result<impl Future<Output = ()>, Failure> {
    told_to_end(times).map_err(|error| Failure::usage(format!("cannot start: {error:#}")))
}

fn unfinished(ongoing: &Ongoing, unnamed: &str) -> Failure {
    match ongoing.get() {
        Some((what, follow)) => {
            Failure::new(Exit::Unfinished, format!("interrupted; the {what} goes on"))
                .hint(format!("follow it: {follow}"))
        }
        None => Failure::new(Exit::Unfinished, "interrupted").hint(unnamed),
    }
}

fn end(remote: &RemoteArgs, result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => Exit::Done.into(),
        Err(failure) => {
            let format = connection::format(remote).unwrap_or_default();
            Output { format, quiet: remote.printing.quiet }.failure(&failure);
            failure.exit.into()
        }
    }
}

/// Prints what clap returns for a command line: help and versions are results, everything else is a failure of usage.
fn unparsed(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return end(&RemoteArgs::default(), written(error.print()));
    }
    if !wants_json(std::env::args_os()) {
        // Nobody is left to tell that stderr is gone.
        let _ = error.print();
        return Exit::Usage.into();
    }
    let message = error.render().to_string();
    let message = message.trim_start_matches("error: ");
    let (message, hint) = message.split_once("\n\n").unwrap_or((message, ""));
    let hint = hint.split("\n\n").next().unwrap_or_default().trim().trim_start_matches("tip: ");
    let failure = Failure::usage(message.split_whitespace().collect::<Vec<_>>().join(" "));
    Output { format: Format::Json, quiet: false }.failure(&failure.hint(hint));
    Exit::Usage.into()
}

/// Whether a command line that could not be read asks for JSON.
fn wants_json(arguments: impl Iterator<Item = OsString>) -> bool {
    let arguments: Vec<_> = arguments.collect();
    let pairs = arguments.windows(2);
    let mut apart =
        pairs.map(|pair| (pair[0] == "--output" || pair[0] == "-o") && pair[1] == "json");
    let joined = |argument: &OsString| argument == "--output=json" || argument == "-ojson";
    apart.any(|json| json)
        || arguments.iter().any(joined)
        || std::env::var_os("MANCIPLE_OUTPUT").is_some_and(|format| format == "json")
}
