//! The configuration of `manciple serve`: a YAML file, then the environment, then flags; the later wins.
//!
//! Every member has a default but the broker's own. An unknown member is refused, with its line.

mod check;
mod cluster;
mod environment;
mod fault;
mod level;
mod templates;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context;
use engine::policy::{DeletedAnswer, OnBound, OnLost, PerAction};
use osb::jobs::contract::Capability;
use osb::server::{Limits, MissingVersion};
use serde::Deserialize;

use super::access::{ClusterTokens, NamedSecret};
use crate::role::Role;
pub(crate) use check::refuse;
pub(crate) use cluster::{AgentDelivery, Cluster, Several, Spelling};
pub(crate) use level::filter;
pub(crate) use templates::{
    Drift, Requesters, Templates, Translate, drift_interval_fault, namespace,
};

/// The configuration: the whole content of its file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// `ADDRESS:PORT` to listen on.
    pub(crate) listen: Option<String>,
    /// The directory of everything that has to survive.
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) broker: Broker,
    /// A cluster as the place of records and runs, instead of this machine.
    pub(crate) kubernetes: Option<Cluster>,
    pub(crate) catalog: Catalog,
    pub(crate) operations: Operations,
    pub(crate) auth: Auth,
    pub(crate) tls: Option<Tls>,
    pub(crate) encryption: Encryption,
    pub(crate) http: Http,
    pub(crate) log: Log,
    /// Whether the seed's environment asks for jobs mode: the broker is an image.
    #[serde(skip)]
    jobs_mode: bool,
    /// Whether the seed's environment says how long a pod may take.
    #[serde(skip)]
    jobs_timeout: bool,
    #[serde(skip)]
    is_of_a_file: bool,
}

/// The broker: its executable, and what that is given.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Broker {
    /// The name of the broker in operation ids, which must not be changed later.
    pub(crate) name: Option<String>,
    /// The executable; `/bin/broker` by the seed's contract.
    pub(crate) command: Option<PathBuf>,
    /// The directory with a file per key, as a mounted ConfigMap has them.
    pub(crate) config_dir: Option<PathBuf>,
    /// The directory with a file per secret key, as a mounted Secret has them. It wins over `config_dir`.
    pub(crate) secret_dir: Option<PathBuf>,
    /// The variables of this process's environment that the broker is given too.
    pub(crate) pass_env: Vec<String>,
    /// The extensions of the contract that are in force whatever the catalog declares.
    pub(crate) capabilities: Option<Vec<Capability>>,
    /// The time between SIGTERM and SIGKILL.
    pub(crate) grace: Option<Period>,
    /// How many bytes the broker may print on stdout.
    pub(crate) output_limit: Option<usize>,
    /// How many bytes of stderr are kept.
    pub(crate) log_limit: Option<usize>,
}

/// The source of the catalog.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Catalog {
    /// A JSON file that is read instead of calling the subcommand `catalog`.
    pub(crate) file: Option<PathBuf>,
    /// How often the catalog is read again; `0s`: only at start and on demand.
    pub(crate) refresh: Option<Period>,
    /// How long the broker may take to print its catalog.
    pub(crate) timeout: Option<Period>,
}

/// How operations are carried out.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Operations {
    pub(crate) max_runs: Option<usize>,
    pub(crate) max_in_progress: Option<usize>,
    pub(crate) attempts: Option<u32>,
    pub(crate) lost: Option<OnLost>,
    pub(crate) bound: Option<OnBound>,
    pub(crate) deleted: Option<DeletedAnswer>,
    pub(crate) timeout: Option<Period>,
    pub(crate) timeouts: Periods,
    pub(crate) hold: Periods,
    pub(crate) external_timeout: Option<Period>,
    pub(crate) tombstones: Option<Period>,
    pub(crate) dashboard_url: Option<String>,
}

/// A period for some actions.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Periods {
    provision: Option<Period>,
    update: Option<Period>,
    bind: Option<Period>,
    unbind: Option<Period>,
    deprovision: Option<Period>,
}

impl Periods {
    fn over(&self, base: PerAction<Duration>) -> PerAction<Duration> {
        PerAction {
            provision: Period::or(self.provision, base.provision),
            update: Period::or(self.update, base.update),
            bind: Period::or(self.bind, base.bind),
            unbind: Period::or(self.unbind, base.unbind),
            deprovision: Period::or(self.deprovision, base.deprovision),
        }
    }
}

/// The users and tokens whose requests are answered.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Auth {
    /// Whether everybody's requests are answered: only for a server behind something else that authenticates.
    pub(crate) disabled: bool,
    pub(crate) users: Vec<User>,
    pub(crate) tokens: Vec<Token>,
    /// Secrets of the cluster that hold users and tokens.
    pub(crate) secrets: Vec<NamedSecret>,
    /// The cluster's own tokens.
    pub(crate) kubernetes: Option<ClusterTokens>,
}

impl Auth {
    /// Whether authentication is configured in any way.
    pub(crate) fn is_configured(&self) -> bool {
        let files = !self.users.is_empty() || !self.tokens.is_empty();
        self.disabled || files || self.of_cluster().is_some()
    }

    /// The member that has no effect because authentication is disabled, if there is one.
    pub(crate) fn in_vain(&self) -> Option<&'static str> {
        let given = [
            ("auth.users", !self.users.is_empty()),
            ("auth.tokens", !self.tokens.is_empty()),
            ("auth.secrets", !self.secrets.is_empty()),
            ("auth.kubernetes", self.kubernetes.is_some()),
        ];
        let mut given = given.into_iter().filter(|(_, is_given)| *is_given && self.disabled);
        given.next().map(|(member, _)| member)
    }

    /// The member that only a cluster can serve, if one is given.
    pub(crate) fn of_cluster(&self) -> Option<&'static str> {
        let secrets = (!self.secrets.is_empty()).then_some("auth.secrets");
        secrets.or_else(|| self.kubernetes.is_some().then_some("auth.kubernetes"))
    }
}

/// A user of HTTP Basic.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) password_file: PathBuf,
    #[serde(default)]
    pub(crate) role: Role,
}

/// A bearer token.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Token {
    pub(crate) name: String,
    pub(crate) token_file: PathBuf,
    #[serde(default)]
    pub(crate) role: Role,
}

/// The server's certificate.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tls {
    /// PEM: the chain, leaf first.
    pub(crate) certificate: PathBuf,
    /// The key, PEM.
    pub(crate) key: PathBuf,
}

/// The key of the store.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Encryption {
    /// The file of the key: 32 bytes, raw, or as hex or base64.
    pub(crate) key_file: Option<PathBuf>,
    /// The file of the key before: given once, to change to the new one.
    pub(crate) previous_key_file: Option<PathBuf>,
}

/// The limits of the HTTP server.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Http {
    pub(crate) body_limit: Option<usize>,
    pub(crate) body_timeout: Option<Period>,
    pub(crate) head_limit: Option<usize>,
    pub(crate) head_timeout: Option<Period>,
    pub(crate) handshake_timeout: Option<Period>,
    pub(crate) write_timeout: Option<Period>,
    pub(crate) max_connections: Option<usize>,
    pub(crate) changes_in_flight: Option<usize>,
    pub(crate) drain: Option<Period>,
    pub(crate) missing_version: Missing,
    /// Whether `/metrics` needs no credentials.
    pub(crate) open_metrics: bool,
}

impl Http {
    /// The limits of the accept loop.
    pub(crate) fn limits(&self) -> Limits {
        let base = Limits::default();
        Limits {
            connections: self.max_connections.unwrap_or(base.connections),
            handshake: Period::or(self.handshake_timeout, base.handshake),
            head: Period::or(self.head_timeout, base.head),
            head_bytes: self.head_limit.unwrap_or(base.head_bytes),
            write: Period::or(self.write_timeout, base.write),
            drain: Period::or(self.drain, base.drain),
        }
    }
}

/// The answer to a request without a version of the API.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Missing {
    #[default]
    PreconditionFailed,
    BadRequest,
    Accept,
}

impl From<Missing> for MissingVersion {
    fn from(missing: Missing) -> Self {
        match missing {
            Missing::PreconditionFailed => Self::PreconditionFailed,
            Missing::BadRequest => Self::BadRequest,
            Missing::Accept => Self::Accept,
        }
    }
}

/// The settings of the log.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Log {
    /// The format: `text` for people, `json` for machines.
    pub(crate) format: Option<Format>,
    /// The level: `off`, `error`, `warn`, `info`, `debug`, `trace`, or a list of `target=level`.
    pub(crate) level: Option<String>,
}

/// How a line of the log is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// One object a line.
    Json,
}

/// A period of time: `30s`, `15m`, `1h 30m`, `7d` or `PT15M`; at most ten years, as in a `Broker`, so that the clock,
/// and Kubernetes, can still count a time to which it is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Period(pub(crate) Duration);

impl Period {
    const MOST_DAYS: u64 = 3650;
    const MOST: Duration = Duration::from_secs(Self::MOST_DAYS * 86_400);

    fn new(duration: Duration) -> Result<Self, String> {
        match duration <= Self::MOST {
            true => Ok(Self(duration)),
            false => Err(format!("must be {}d at most; give less", Self::MOST_DAYS)),
        }
    }

    /// The given period, or else `base`.
    pub(crate) fn or(given: Option<Self>, base: Duration) -> Duration {
        given.map_or(base, |period| period.0)
    }
}

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let most = Self::MOST_DAYS;
        let wrong =
            || format!("{text:?} is not a period; write 30s, 15m, 2h or 7d, {most}d at most");
        Self::new(template::period(text).ok_or_else(wrong)?)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Config {
    /// Reads a file. Relative paths in it are relative to its folder.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| {
            format!(
                "the configuration {} cannot be read; --config or MANCIPLE_CONFIG names a file of YAML, as \
                 docs/operating.md shows one; without either there are the flags of manciple serve --help",
                path.display()
            )
        })?;
        let mut config = Self::parse(&text).map_err(|fault| {
            anyhow::anyhow!("the configuration {} is not right: {fault}", path.display())
        })?;
        let path = std::path::absolute(path).context("the current directory")?;
        config.resolve(path.parent().unwrap_or(Path::new("/")));
        config.is_of_a_file = true;
        Ok(config)
    }

    /// Parses a configuration. Numbers are as in Kubernetes' manifests: `0555` is octal.
    fn parse(text: &str) -> Result<Self, String> {
        let options = serde_saphyr::options! { legacy_octal_numbers: true, with_snippet: false };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| fault::of(text, &error))
    }

    fn resolve(&mut self, base: &Path) {
        let fix = |path: &mut PathBuf| {
            // An empty one is none, and is told so.
            if path.is_relative() && !path.as_os_str().is_empty() {
                *path = base.join(&*path);
            }
        };
        let optional = [
            &mut self.data_dir,
            &mut self.broker.command,
            &mut self.broker.config_dir,
            &mut self.broker.secret_dir,
            &mut self.catalog.file,
            &mut self.encryption.key_file,
            &mut self.encryption.previous_key_file,
        ];
        optional.into_iter().flatten().for_each(fix);
        self.auth.users.iter_mut().for_each(|user| fix(&mut user.password_file));
        self.auth.tokens.iter_mut().for_each(|token| fix(&mut token.token_file));
        if let Some(cluster) = &mut self.kubernetes {
            cluster.kubeconfig.iter_mut().for_each(fix);
        }
        if let Some(tls) = &mut self.tls {
            fix(&mut tls.certificate);
            fix(&mut tls.key);
        }
    }

    /// The rules of the engine.
    pub(crate) fn policy(&self) -> engine::Policy {
        let base = engine::Policy::default();
        let given = &self.operations;
        let timeouts = given.timeout.map_or(base.timeouts, |timeout| PerAction::all(timeout.0));
        engine::Policy {
            broker: self.broker.name.clone().unwrap_or(base.broker),
            capabilities: self.broker.capabilities.clone(),
            timeouts: given.timeouts.over(timeouts),
            lost: given.lost.unwrap_or(base.lost),
            attempts: given.attempts.unwrap_or(base.attempts),
            external_timeout: Period::or(given.external_timeout, base.external_timeout),
            bound: given.bound.unwrap_or(base.bound),
            deleted: given.deleted.unwrap_or(base.deleted),
            hold: given.hold.over(base.hold),
            max_in_progress: given.max_in_progress.unwrap_or(base.max_in_progress),
            max_runs: given.max_runs.unwrap_or(base.max_runs),
            tombstones: Period::or(given.tombstones, base.tombstones),
            dashboard_url: given.dashboard_url.clone(),
            ..base
        }
    }
}
