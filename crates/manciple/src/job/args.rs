//! The command line of `manciple job`.

use clap::{Args, Subcommand, ValueEnum};
use kubernetes::quarks::Dialect;

use crate::cli::cluster::{ClusterArgs, HEADING, name};
use crate::cli::{Printing, RemoteArgs, Waiting};

/// `job`
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct JobArgs {
    #[command(subcommand)]
    pub(crate) command: JobCommand,
}

/// What to do with QuarksJobs.
#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// List them: how each was triggered, how its last run ended, what it waits for
    List(OnCluster<ListArgs>),
    /// Run one now, and wait for its end
    Run(OnCluster<RunArgs>),
    /// Print what the pods of a run wrote to their logs
    Logs(OnCluster<LogsArgs>),
    /// Name each fault of manifests by its path, without a cluster
    Lint(LintArgs),
    /// List the runs of one: those that go on, and the last that have ended
    History(OnCluster<HistoryArgs>),
}

/// A command that asks a cluster.
#[derive(Debug, Args)]
pub(crate) struct OnCluster<T: Args> {
    #[command(flatten)]
    pub(crate) args: T,
    #[command(flatten)]
    pub(crate) cluster: KindArgs,
}

/// Which kind of which cluster.
#[derive(Debug, Args)]
pub(crate) struct KindArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// QuarksJobs, or the ExtendedJobs that they descend from
    #[arg(long, value_name = "KIND", default_value = "qjob", help_heading = HEADING)]
    pub(crate) kind: Kind,
}

/// Which kind, by the short names that `kubectl` knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// QuarksJobs.
    Qjob,
    /// ExtendedJobs.
    Ejob,
}

/// `job list`
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Those of all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
}

/// `job run`
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The QuarksJob
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// A variable of this run's containers; not for secrets, which process listings and the resource show
    #[arg(long, value_name = "NAME=VALUE", value_parser = input)]
    pub(crate) input: Vec<Input>,
    /// Wait for the end of the run, as is done anyway
    #[arg(long, overrides_with = "no_wait")]
    wait: bool,
    #[command(flatten)]
    waiting: Waiting,
}

/// `job logs`
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// The QuarksJob
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// The run, by its number [default: the newest]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) run: Option<u64>,
    /// Only this container
    #[arg(long, value_name = "NAME")]
    pub(crate) container: Option<String>,
    /// Go on printing while the run goes on
    #[arg(short, long)]
    pub(crate) follow: bool,
}

/// `job history`
#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// The QuarksJob
    #[arg(value_parser = name)]
    pub(crate) name: String,
}

/// `job lint`
#[derive(Debug, Args)]
pub(crate) struct LintArgs {
    /// Manifests in YAML or JSON, with several documents or lists; `-`: standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<String>,
    #[command(flatten)]
    printing: Printing,
}

/// A variable of a run.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Input {
    name: String,
    value: String,
}

impl JobArgs {
    /// How to print and how long to wait, as all commands have it.
    pub(crate) fn output(&self) -> RemoteArgs {
        let cluster = match &self.command {
            JobCommand::List(of) => &of.cluster,
            JobCommand::Run(of) => &of.cluster,
            JobCommand::Logs(of) => &of.cluster,
            JobCommand::History(of) => &of.cluster,
            JobCommand::Lint(of) => return RemoteArgs::printing(of.printing),
        };
        cluster.cluster.remote()
    }
}

impl KindArgs {
    /// As options of a command that a person may copy.
    pub(crate) fn words(&self) -> String {
        let kind = if self.kind == Kind::Ejob { " --kind ejob" } else { "" };
        format!("{}{kind}", self.cluster.words())
    }
}

impl RunArgs {
    /// Whether to wait for the end of the run.
    pub(crate) fn waits(&self) -> bool {
        self.wait || !self.waiting.no_wait
    }
}

impl From<Kind> for Dialect {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Qjob => Self::QuarksJob,
            Kind::Ejob => Self::ExtendedJob,
        }
    }
}

/// As the controller takes names of variables: with another its run would wait to be mended.
fn input(text: &str) -> Result<Input, String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let starts_well = !name.starts_with(|first: char| first.is_ascii_digit());
    match !name.is_empty() && name.chars().all(good) && starts_well {
        true => Ok(Input { name: name.to_owned(), value: value.to_owned() }),
        false => Err("the name of a variable is letters, digits, '-', '_' and '.', no digit first"
            .to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        run: RunArgs,
    }

    #[test]
    fn a_run_is_waited_for_unless_the_last_word_is_no() {
        for (words, expected) in [
            (&[][..], true),
            (&["--wait"], true),
            (&["--no-wait"], false),
            (&["--wait", "--no-wait"], false),
            (&["--no-wait", "--wait"], true),
        ] {
            let words = ["job", "backup"].into_iter().chain(words.iter().copied());
            let line = <Line as clap::Parser>::try_parse_from(words.clone()).unwrap();
            assert_eq!(line.run.waits(), expected, "{:?}", words.collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_input_is_a_name_and_any_value() {
        for (text, expected) in [
            ("A=1", Some(("A", "1"))),
            ("A=", Some(("A", ""))),
            ("a.b-c=x=y\nz", Some(("a.b-c", "x=y\nz"))),
            ("A", None),
            ("=1", None),
            ("\u{1b}=1", None),
            ("a b=1", None),
            ("A$=1", None),
            ("1A=1", None),
        ] {
            let read = input(text).ok();
            let read = read.as_ref().map(|it| (it.name.as_str(), it.value.as_str()));
            assert_eq!(read, expected, "{text}");
        }
    }
}
