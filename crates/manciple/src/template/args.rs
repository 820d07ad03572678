//! The command line of `manciple template`: that of `oc process --local`, and what goes beyond it.

use std::str::FromStr;

use clap::{Args, Subcommand};

use super::instance::InstanceArgs;
use crate::cli::{Printing, RemoteArgs};

/// `template`
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct TemplateArgs {
    #[command(subcommand)]
    pub(crate) command: TemplateCommand,
}

/// What to do with templates.
#[derive(Debug, Subcommand)]
pub(crate) enum TemplateCommand {
    /// Print the objects that a template becomes, or its parameters
    Process(Box<ProcessArgs>),
    /// Name each fault of templates by its path, and what does something other than it seems to
    Lint(LintArgs),
    /// Show what another version of a template changes
    Diff(DiffArgs),
    /// Print the JSON Schema of a template's parameters
    Schema(FileArgs),
    /// Change, compare and roll back what a template was made into: the TemplateInstances of a cluster
    Instance(Box<InstanceArgs>),
}

impl TemplateArgs {
    /// Whether the command asks a cluster.
    pub(crate) fn asks_a_cluster(&self) -> bool {
        matches!(self.command, TemplateCommand::Instance(_))
    }

    /// How to print and how long to wait, as far as the command has that in common with others.
    pub(crate) fn remote(&self) -> RemoteArgs {
        match &self.command {
            TemplateCommand::Instance(args) => args.remote(),
            TemplateCommand::Lint(args) => RemoteArgs::printing(args.printing),
            _ => RemoteArgs::default(),
        }
    }
}

/// `template process`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("processing").multiple(true), args_override_self = true)]
pub(crate) struct ProcessArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) given: GivenArgs,
    /// Labels that every object gets, beside those of the template: a=b,c=d
    #[arg(short, long, value_name = "LABELS", group = "processing")]
    pub(crate) labels: Option<String>,
    /// Print the parameters, and process nothing
    #[arg(long, conflicts_with = "processing")]
    pub(crate) parameters: bool,
    /// Print the objects one after another, instead of a List of them
    #[arg(long, group = "processing", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true")]
    pub(crate) raw: Option<bool>,
    /// json, yaml, name, jsonpath=TEMPLATE or jsonpath-file=FILE
    #[arg(short, long, value_name = "FORMAT", default_value = "json", group = "processing")]
    pub(crate) output: Form,
    /// Print what plain Kubernetes takes in the place of Routes, DeploymentConfigs and OpenShift's own roles
    #[arg(long, group = "processing")]
    pub(crate) translate: bool,
    #[command(flatten)]
    pub(crate) translation: TranslationArgs,
    /// What -o jsonpath prints
    #[arg(long, value_name = "TEMPLATE", group = "processing")]
    pub(crate) template: Option<String>,
    /// As it always is: no cluster is asked
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    local: Option<bool>,
}

/// What --translate has to know.
#[derive(Debug, Args)]
pub(crate) struct TranslationArgs {
    /// Where Routes without a host are: at NAME-NAMESPACE.DOMAIN
    #[arg(long, value_name = "DOMAIN", requires = "translate")]
    pub(crate) route_domain: Option<String>,
    /// The class of each Ingress; the cluster's default decides without it
    #[arg(long, value_name = "NAME", requires = "translate")]
    pub(crate) ingress_class: Option<String>,
    /// Where the objects will be: part of such hosts, and of accounts that roles are bound to
    #[arg(short, long, value_name = "NAMESPACE", requires = "translate")]
    pub(crate) namespace: Option<String>,
}

/// One template.
#[derive(Debug, Args)]
pub(crate) struct FileArgs {
    /// A template in YAML or JSON; `-`: standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub(crate) path: String,
}

/// `template lint`
#[derive(Debug, Args)]
pub(crate) struct LintArgs {
    /// Templates in YAML or JSON, with several documents or lists; `-`: standard input
    #[arg(required_unless_present = "named", value_name = "FILE")]
    paths: Vec<String>,
    /// The same, as other commands take one
    #[arg(short = 'f', long = "filename", id = "named", value_name = "FILE")]
    named: Vec<String>,
    #[command(flatten)]
    printing: Printing,
}

impl LintArgs {
    /// All templates.
    pub(crate) fn all(&self) -> impl Iterator<Item = &String> {
        self.paths.iter().chain(&self.named)
    }
}

/// `template diff`
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The template as it was
    #[arg(value_name = "OLD")]
    pub(crate) old: String,
    /// The template as it is to be
    #[arg(value_name = "NEW")]
    pub(crate) new: String,
    #[command(flatten)]
    pub(crate) given: Values,
}

/// Values of parameters, with the form `NAME=VALUE` of the command line too.
#[derive(Debug, Args)]
pub(crate) struct GivenArgs {
    /// Values of parameters: NAME=VALUE
    #[arg(value_name = "NAME=VALUE", group = "processing")]
    pub(crate) positional: Vec<String>,
    #[command(flatten)]
    pub(crate) values: Values,
}

/// Values of parameters.
#[derive(Debug, Args)]
pub(crate) struct Values {
    /// The value of a parameter; secrets belong into a file
    #[arg(short, long = "param", value_name = "NAME=VALUE", group = "processing")]
    pub(crate) params: Vec<String>,
    /// A file with a NAME=VALUE in each line; `-`: standard input
    #[arg(long = "param-file", value_name = "FILE")]
    pub(crate) files: Vec<String>,
    /// Pass over values of parameters that the template has not
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) ignore_unknown_parameters: Option<bool>,
}

/// How objects are printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Form {
    /// Indented by four, as `oc` does it.
    Json,
    Yaml,
    /// `kind.group/name`, a line each.
    Name,
    /// By a JSONPath template; `None`: that of `--template`.
    JsonPath(Option<String>),
    /// The same, from a file.
    JsonPathFile(Option<String>),
}

impl FromStr for Form {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (form, argument) = match text.split_once('=') {
            Some((form, argument)) => (form, Some(argument)),
            None => (text, None),
        };
        match (form, argument) {
            ("json", None) => Ok(Self::Json),
            ("yaml", None) => Ok(Self::Yaml),
            ("name", None) => Ok(Self::Name),
            ("jsonpath", template) => Ok(Self::JsonPath(template.map(str::to_owned))),
            ("jsonpath-file", file) => Ok(Self::JsonPathFile(file.map(str::to_owned))),
            _ => {
                Err("json, yaml, name, jsonpath=TEMPLATE and jsonpath-file=FILE are known"
                    .to_owned())
            }
        }
    }
}
