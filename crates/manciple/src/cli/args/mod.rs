//! The command line. What is written here is also the help, the completions and the man page.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::conformance::ConformanceArgs;
use super::{exit, times};
use crate::controller::ControllerArgs;
use crate::job::JobArgs;
use crate::serve::{RestoreArgs, ServeArgs};
use crate::template::TemplateArgs;

/// Which definitions.
#[derive(Debug, Args)]
pub(crate) struct CrdsArgs {
    /// Those of OpenShift's templates, for clusters that lack them, instead
    #[arg(long)]
    pub(crate) templates: bool,
}

/// Where the environment is consulted, and for what.
pub(crate) const ENVIRONMENT: &[(&str, &str)] = &[
    ("MANCIPLE_URL", "Where the broker is, as --url"),
    ("MANCIPLE_USER", "Who asks, as --user"),
    ("MANCIPLE_PASSWORD", "The password of that user; never an argument, which others can read"),
    ("MANCIPLE_TOKEN", "A token, instead of a user and a password"),
    ("MANCIPLE_CA_FILE", "Whom to trust, as --ca-file"),
    ("MANCIPLE_OUTPUT", "How to print, as --output"),
    (
        "KUBECONFIG",
        "Which cluster manciple job and manciple template instance ask, as --kubeconfig",
    ),
];

/// Turns anything that can be run into a service to order, and runs the work behind it.
///
/// `manciple serve` is the broker. The other commands are for people and scripts: order services,
/// watch the work, read why it failed, repair it.
#[derive(Debug, Parser)]
#[command(name = "manciple", version, after_help = after_help(), max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the Open Service Broker API
    Serve(ServeArgs),
    /// Run QuarksJobs (Jobs that run when something happens, and whose output is kept), make TemplateInstances, or both
    Controller(Box<ControllerArgs>),
    /// List, run and read the QuarksJobs of a cluster
    Job(Box<JobArgs>),
    /// Process, lint and compare OpenShift templates without a cluster; change what they were made into on one
    Template(TemplateArgs),
    /// Show what can be ordered
    Catalog(Remote<CatalogArgs>),
    /// Hold a broker, this or any other, to the specification, and say what it does otherwise
    Conformance(Remote<ConformanceArgs>),
    /// Order a service instance
    Provision(Remote<ProvisionArgs>),
    /// Change an instance: its plan, its parameters, its version
    Update(Remote<UpdateArgs>),
    /// Order a binding of an instance, and print its credentials
    Bind(Remote<BindArgs>),
    /// Order the successor of a binding, with new credentials
    Rotate(Remote<RotateArgs>),
    /// Remove a binding
    Unbind(Remote<UnbindArgs>),
    /// Remove an instance
    Deprovision(Remote<DeprovisionArgs>),
    /// Show an instance or a binding: what is going on, why it failed, what to do next
    Status(Remote<StatusArgs>),
    /// List instances
    Instances(Remote<InstancesArgs>),
    /// List bindings
    Bindings(Remote<BindingsArgs>),
    /// List operations, the newest first
    Operations(Remote<OperationsArgs>),
    /// Print what a run wrote to its log
    #[command(
        override_usage = "manciple logs [OPTIONS] <RUN>\n       manciple logs [OPTIONS] --instance <ID> [--binding <ID>]"
    )]
    Logs(Remote<LogsArgs>),
    /// Try a failed operation once more
    Retry(Remote<RetryArgs>),
    /// Forget an instance or a binding without asking the broker
    ///
    /// For what cannot be removed otherwise. What the broker made stays where it is.
    Purge(Remote<PurgeArgs>),
    /// Save everything that is recorded, while the server runs
    Backup(Remote<BackupArgs>),
    /// Put a backup into the data directory of a server that is not running
    Restore {
        #[command(flatten)]
        args: RestoreArgs,
        #[command(flatten)]
        printing: Printing,
    },
    /// Print the definitions of the resources that a cluster keeps, for `kubectl apply -f -`
    Crds(CrdsArgs),
    /// Print the completions of a shell
    Completions(CompletionsArgs),
    /// Print the man page
    Man(ManArgs),
    /// Supervise one run; for the server's own use
    #[command(hide = true)]
    Supervise {
        /// The run's directory
        run_dir: PathBuf,
    },
}

/// A command that asks a broker. The options of [`RemoteArgs`] may stand before the command or
/// after it; those after it win.
#[derive(Debug, Args)]
pub(crate) struct Remote<T: Args> {
    #[command(flatten)]
    pub(crate) args: T,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

/// How to print: before the command or after it.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Printing {
    /// How to print [env: MANCIPLE_OUTPUT] [default: table]
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
    /// No progress and no hints; lists and orders print ids only
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

impl Printing {
    /// These, and for what they leave open, those of `self`.
    pub(crate) fn overridden_by(self, later: Self) -> Self {
        Self { output: later.output.or(self.output), quiet: later.quiet || self.quiet }
    }
}

/// How to reach the broker, and how to print.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Broker and output")]
pub(crate) struct RemoteArgs {
    /// Where the broker is [env: MANCIPLE_URL] [default: http://127.0.0.1:8080]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Who asks; the password is in MANCIPLE_PASSWORD or a file [env: MANCIPLE_USER]
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// The file that holds the password
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// The file that holds a token, instead of a user [env: MANCIPLE_TOKEN holds the token itself]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["user", "password_file"])]
    pub(crate) token_file: Option<PathBuf>,
    /// Trust the authorities in this PEM file instead of the system's [env: MANCIPLE_CA_FILE]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// The longest to wait: 90s, 15m, 2h [default: what the plan says; 60s for one request; 5m for a
    /// server that does not answer at all]
    #[arg(long, value_name = "DURATION", value_parser = times::parse_span)]
    pub(crate) timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

impl RemoteArgs {
    /// How to print, of a command that asks nobody.
    pub(crate) fn printing(printing: Printing) -> Self {
        Self { printing, ..Self::default() }
    }

    /// These, and for what they leave open, those of `self`.
    pub(crate) fn overridden_by(self, later: Self) -> Self {
        // A token and a user exclude each other: whoever names one anew drops the other.
        let (user, password_file, token_file) = if later.token_file.is_some() {
            (None, None, later.token_file)
        } else if later.user.is_some() || later.password_file.is_some() {
            (later.user.or(self.user), later.password_file.or(self.password_file), None)
        } else {
            (self.user, self.password_file, self.token_file)
        };
        Self {
            url: later.url.or(self.url),
            user,
            password_file,
            token_file,
            ca_file: later.ca_file.or(self.ca_file),
            timeout: later.timeout.or(self.timeout),
            printing: self.printing.overridden_by(later.printing),
        }
    }
}

/// How to print.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
}

/// Whether to wait for an order.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Waiting {
    /// Return as soon as the order is accepted
    #[arg(long)]
    pub(crate) no_wait: bool,
}

/// Which service and plan an instance has, when the broker does not tell.
#[derive(Debug, Args)]
pub(crate) struct InstanceOffering {
    /// The instance's service, by name or id; needed only if the broker does not tell
    #[arg(long, value_name = "SERVICE", requires = "of_plan")]
    pub(crate) of_service: Option<String>,
    /// The instance's plan, by name or id; needed only if the broker does not tell
    #[arg(long, value_name = "PLAN", requires = "of_service")]
    pub(crate) of_plan: Option<String>,
}

/// `catalog`
#[derive(Debug, Args)]
pub(crate) struct CatalogArgs {
    /// Show this service with its plans and their parameters
    pub(crate) service: Option<String>,
    /// Have the broker read its catalog anew first; if it cannot, the one from before stays in force
    #[arg(long)]
    pub(crate) refresh: bool,
}

/// `provision`
#[derive(Debug, Args)]
pub(crate) struct ProvisionArgs {
    /// The service, by name or id
    pub(crate) service: String,
    /// The plan, by name or id
    pub(crate) plan: String,
    /// The new instance's id; one is made up when absent
    pub(crate) instance: Option<String>,
    /// @FILE, - for standard input, or a JSON object, which process listings show
    #[arg(long, value_name = "JSON")]
    pub(crate) parameters: Option<String>,
    /// A JSON object, @FILE, or - for standard input
    #[arg(long, value_name = "JSON")]
    pub(crate) context: Option<String>,
    /// The organization that orders
    #[arg(long, value_name = "ID", default_value = "default")]
    pub(crate) organization: String,
    /// The space that orders
    #[arg(long, value_name = "ID", default_value = "default")]
    pub(crate) space: String,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
}

/// `update`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true))]
pub(crate) struct UpdateArgs {
    /// The instance
    pub(crate) instance: String,
    /// The plan to change to, by name or id
    #[arg(long, value_name = "PLAN", group = "change")]
    pub(crate) plan: Option<String>,
    /// @FILE, - for standard input, or a JSON object, which process listings show
    #[arg(long, value_name = "JSON", group = "change")]
    pub(crate) parameters: Option<String>,
    /// A JSON object, @FILE, or - for standard input
    #[arg(long, value_name = "JSON", group = "change")]
    pub(crate) context: Option<String>,
    /// The version to bring the instance to, as the catalog has it
    #[arg(long, value_name = "VERSION", group = "change")]
    pub(crate) maintenance_version: Option<String>,
    #[command(flatten)]
    pub(crate) offering: InstanceOffering,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
}

/// `bind`
#[derive(Debug, Args)]
pub(crate) struct BindArgs {
    /// The instance
    pub(crate) instance: String,
    /// The new binding's id; one is made up when absent
    pub(crate) binding: Option<String>,
    /// @FILE, - for standard input, or a JSON object, which process listings show
    #[arg(long, value_name = "JSON")]
    pub(crate) parameters: Option<String>,
    /// A JSON object, @FILE, or - for standard input
    #[arg(long, value_name = "JSON")]
    pub(crate) context: Option<String>,
    /// The application to bind
    #[arg(long, value_name = "ID")]
    pub(crate) app: Option<String>,
    #[command(flatten)]
    pub(crate) offering: InstanceOffering,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
}

/// `rotate`
#[derive(Debug, Args)]
pub(crate) struct RotateArgs {
    /// The instance
    pub(crate) instance: String,
    /// The binding to succeed; it stays until it is removed
    pub(crate) predecessor: String,
    /// The new binding's id; one is made up when absent
    pub(crate) binding: Option<String>,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
}

/// `unbind`
#[derive(Debug, Args)]
pub(crate) struct UnbindArgs {
    /// The instance
    pub(crate) instance: String,
    /// The binding
    pub(crate) binding: String,
    #[command(flatten)]
    pub(crate) offering: InstanceOffering,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
}

/// `deprovision`
#[derive(Debug, Args)]
pub(crate) struct DeprovisionArgs {
    /// The instance
    pub(crate) instance: String,
    #[command(flatten)]
    pub(crate) offering: InstanceOffering,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
}

/// `status`
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The instance
    pub(crate) instance: String,
    /// One of its bindings
    pub(crate) binding: Option<String>,
    /// Wait for the end of the operation in progress
    #[arg(short, long)]
    pub(crate) watch: bool,
}

/// Which records to list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum StateFilter {
    /// Those that are gone, too.
    All,
    /// Those that exist, or may.
    #[default]
    Live,
    /// Those with an operation in progress.
    Busy,
    /// Those that are gone.
    Deleted,
}

/// What to list, and how many.
#[derive(Debug, Args)]
pub(crate) struct Listing {
    /// Only these
    #[arg(long, value_enum, default_value_t)]
    pub(crate) state: StateFilter,
    /// At most so many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: Option<u32>,
    /// Go on after a list that was cut short: its `next`
    #[arg(long, value_name = "NEXT")]
    pub(crate) after: Option<String>,
}

/// `instances`
#[derive(Debug, Args)]
pub(crate) struct InstancesArgs {
    #[command(flatten)]
    pub(crate) listing: Listing,
}

/// `bindings`
#[derive(Debug, Args)]
pub(crate) struct BindingsArgs {
    /// Only those of this instance
    pub(crate) instance: Option<String>,
    #[command(flatten)]
    pub(crate) listing: Listing,
}

/// `operations`
#[derive(Debug, Args)]
pub(crate) struct OperationsArgs {
    /// Only those of this instance and its bindings
    pub(crate) instance: Option<String>,
    /// Only those that failed
    #[arg(long, conflicts_with = "busy")]
    pub(crate) failed: bool,
    /// Only those in progress
    #[arg(long)]
    pub(crate) busy: bool,
    /// At most so many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: Option<u32>,
}

/// `logs`
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// The run, as `status` and `operations` name it
    #[arg(required_unless_present = "instance", conflicts_with = "instance")]
    pub(crate) run: Option<String>,
    /// The last run of this instance, instead of naming a run
    #[arg(long, value_name = "ID")]
    pub(crate) instance: Option<String>,
    /// The last run of this binding of the instance
    #[arg(long, value_name = "ID", requires = "instance")]
    pub(crate) binding: Option<String>,
    /// Go on printing while the operation goes on
    #[arg(short, long)]
    pub(crate) follow: bool,
}

/// `retry`
#[derive(Debug, Args)]
pub(crate) struct RetryArgs {
    /// The instance
    pub(crate) instance: String,
    /// One of its bindings
    pub(crate) binding: Option<String>,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
}

/// `purge`
#[derive(Debug, Args)]
pub(crate) struct PurgeArgs {
    /// The instance
    pub(crate) instance: String,
    /// One of its bindings
    pub(crate) binding: Option<String>,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// `backup`
#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// The file to write; it must not exist
    #[arg(long, value_name = "FILE")]
    pub(crate) to: PathBuf,
}

/// `completions`
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// `man`
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write a page for each command into this directory, instead of the first to standard output
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

fn after_help() -> String {
    let mut text = String::from("Environment:\n");
    for (name, meaning) in ENVIRONMENT {
        text.push_str(&format!("  {name:<18} {meaning}\n"));
    }
    text.push('\n');
    text.push_str(&exit::help());
    text
}

#[cfg(test)]
mod tests;
