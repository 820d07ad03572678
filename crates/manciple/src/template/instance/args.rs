//! The command line of `manciple template instance`.

use clap::{Args, Subcommand};

use crate::cli::RemoteArgs;
use crate::cli::cluster::{ClusterArgs, name};
use crate::template::args::Values;

/// `template instance`
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct InstanceArgs {
    #[command(subcommand)]
    pub(super) command: InstanceCommand,
}

/// What to do with a TemplateInstance.
#[derive(Debug, Subcommand)]
pub(super) enum InstanceCommand {
    /// List the revisions of one: what was ordered, when and by whom
    History(OnInstance<HistoryArgs>),
    /// Show what a change or a rollback would do, or what has drifted; nothing is written
    Diff(OnInstance<DiffArgs>),
    /// Change one: another template, other values; and wait for the end
    Change(OnInstance<ChangeArgs>),
    /// Have one become again what it was in an earlier revision, values included; and wait for the end
    Rollback(OnInstance<RollbackArgs>),
}

/// A command about one.
#[derive(Debug, Args)]
pub(super) struct OnInstance<T: Args> {
    /// The TemplateInstance
    #[arg(value_parser = name)]
    pub(super) name: String,
    #[command(flatten)]
    pub(super) args: T,
    #[command(flatten)]
    pub(super) cluster: ClusterArgs,
}

/// `template instance history`
#[derive(Debug, Args)]
pub(super) struct HistoryArgs {}

/// `template instance diff`
#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    #[command(flatten)]
    pub(super) order: OrderArgs,
    /// What a rollback to this revision would do
    #[arg(long, value_name = "N", value_parser = revision())]
    #[arg(conflicts_with_all = ["template", "params", "files"])]
    pub(super) to_revision: Option<u64>,
}

/// `template instance change`
#[derive(Debug, Args)]
pub(super) struct ChangeArgs {
    #[command(flatten)]
    pub(super) order: OrderArgs,
    /// Show what it would do, as diff does; nothing is written
    #[arg(long)]
    pub(super) dry_run: bool,
}

/// `template instance rollback`
#[derive(Debug, Args)]
pub(super) struct RollbackArgs {
    /// The revision, by its number [default: the newest that is not what is ordered now]
    #[arg(long, value_name = "N", value_parser = revision())]
    pub(super) to_revision: Option<u64>,
}

/// What is to be ordered instead.
#[derive(Debug, Args)]
pub(super) struct OrderArgs {
    /// The template, in YAML or JSON; `-`: standard input [default: that of the instance]
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub(super) template: Option<String>,
    #[command(flatten)]
    pub(super) values: Values,
}

impl InstanceArgs {
    /// How to print and how long to wait.
    pub(crate) fn remote(&self) -> RemoteArgs {
        let cluster = match &self.command {
            InstanceCommand::History(of) => &of.cluster,
            InstanceCommand::Diff(of) => &of.cluster,
            InstanceCommand::Change(of) => &of.cluster,
            InstanceCommand::Rollback(of) => &of.cluster,
        };
        cluster.remote()
    }
}

impl OrderArgs {
    /// Whether it orders anything else.
    pub(super) fn is_given(&self) -> bool {
        self.template.is_some() || !self.values.params.is_empty() || !self.values.files.is_empty()
    }
}

fn revision() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..)
}
