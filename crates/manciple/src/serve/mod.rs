//! `manciple serve`: puts the parts together, and takes them apart in order.
//!
//! ```text
//! files, environment, flags ─▶ Config ─▶ EmbeddedStore ┐
//!                                        ProcessRunner ├─▶ Engine ─▶ HTTP: /v2, /admin/v1, probes
//!                                        SystemClock   ┘
//! ```

mod access;
mod adapters;
mod cluster;
mod config;
#[cfg(feature = "failpoints")]
mod failpoint;
mod groups;
mod keys;
mod metrics;
mod probes;
mod secrets;
mod start;
mod templates;
mod tls;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use standalone::seal::KeySource;
use standalone::store::{OpenError, Replace, Restored, restore as restore_store};

pub(crate) use config::filter as level_filter;
pub(crate) use config::{
    AgentDelivery, Cluster, Drift, Format, Log, Period, Requesters, Spelling, Tls, Translate,
    drift_interval_fault, namespace, refuse,
};
pub(crate) use tls::Certificate;

use config::{Config, Encryption};

/// Serves brokers through the Open Service Broker API.
///
/// A flag wins over its variable, and both over the file.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// The configuration, YAML
    #[arg(long, env = "MANCIPLE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to listen [default: 127.0.0.1:8080; in a pod port 8080 of all addresses]
    #[arg(long, env = "MANCIPLE_LISTEN", value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// Where to keep what has to survive [default: ./data]
    #[arg(long, env = "MANCIPLE_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The broker's executable [default: /bin/broker]
    #[arg(long, env = "MANCIPLE_BROKER_COMMAND", value_name = "FILE")]
    broker_command: Option<PathBuf>,
    /// A file per configuration key
    #[arg(long, env = "MANCIPLE_CONFIG_DIR", value_name = "DIR")]
    config_dir: Option<PathBuf>,
    /// A file per secret key
    #[arg(long, env = "MANCIPLE_SECRET_DIR", value_name = "DIR")]
    secret_dir: Option<PathBuf>,
    /// The store's encryption key: 32 bytes, raw, hex or base64
    #[arg(long, env = "MANCIPLE_ENCRYPTION_KEY_FILE", value_name = "FILE")]
    encryption_key_file: Option<PathBuf>,
    /// The key before, to change to the new one
    #[arg(long, env = "MANCIPLE_PREVIOUS_ENCRYPTION_KEY_FILE", value_name = "FILE")]
    previous_encryption_key_file: Option<PathBuf>,
    /// Let everybody read /metrics
    #[arg(
        long,
        env = "MANCIPLE_OPEN_METRICS",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    open_metrics: Option<bool>,
    /// How lines of the log are written
    #[arg(long, env = "MANCIPLE_LOG_FORMAT", value_name = "FORMAT")]
    log_format: Option<Format>,
    /// What is logged: off, error, warn, info, debug, trace, or a list of target=level
    #[arg(long, env = "MANCIPLE_LOG_LEVEL", value_name = "LEVEL")]
    log_level: Option<String>,
}

impl ServeArgs {
    fn config(self) -> anyhow::Result<Config> {
        let mut config = match &self.config {
            Some(path) => Config::read(path)?,
            None => Config::default(),
        };
        config.take_environment(|name| std::env::var(name).ok())?;
        let key = |given, variable, configured: &mut Option<PathBuf>| {
            *configured = keys::file(given, keys::is_held(variable), configured.take());
        };
        let Encryption { key_file, previous_key_file } = &mut config.encryption;
        key(self.encryption_key_file, keys::KEY, key_file);
        key(self.previous_encryption_key_file, keys::PREVIOUS, previous_key_file);
        config.listen = self.listen.or(config.listen);
        config.data_dir = self.data_dir.or(config.data_dir);
        config.broker.command = self.broker_command.or(config.broker.command);
        config.broker.config_dir = self.config_dir.or(config.broker.config_dir);
        config.broker.secret_dir = self.secret_dir.or(config.broker.secret_dir);
        config.http.open_metrics = self.open_metrics.unwrap_or(config.http.open_metrics);
        config.log.format = self.log_format.or(config.log.format);
        config.log.level = self.log_level.or(config.log.level);
        config.check()?;
        Ok(config)
    }
}

/// What to restore, and where.
#[derive(Debug, clap::Args)]
pub(crate) struct RestoreArgs {
    /// The backup: a file that `manciple backup` wrote
    #[arg(long, value_name = "FILE")]
    pub(crate) from: PathBuf,
    /// The data directory of a server that is not running
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// Replace what the directory holds; that is moved aside
    #[arg(long)]
    pub(crate) replace: bool,
    /// The file of the key that the backup is encrypted with [default: encryption.key in the data
    /// directory, unless MANCIPLE_ENCRYPTION_KEY is set]
    #[arg(long, value_name = "FILE", conflicts_with = "encryption_key_env")]
    pub(crate) encryption_key_file: Option<PathBuf>,
    /// The environment variable that holds that key
    #[arg(long, value_name = "NAME")]
    pub(crate) encryption_key_env: Option<String>,
}

/// Serves until it is told to end.
pub(crate) fn run(args: ServeArgs) -> anyhow::Result<()> {
    #[cfg(feature = "failpoints")]
    failpoint::install();
    start::run(&args.config()?)
}

/// Supervises one run, in its directory.
pub(crate) fn supervise(run_dir: &Path) -> ExitCode {
    standalone::process::supervisor::main(run_dir)
}

/// Puts a backup into a data directory. What is there is refused, or moved aside.
pub(crate) fn restore(args: &RestoreArgs) -> Result<Restored, OpenError> {
    let key = match (&args.encryption_key_file, &args.encryption_key_env) {
        (Some(path), _) => KeySource::File(path.clone()),
        (None, Some(name)) => KeySource::Environment(name.clone()),
        (None, None) if std::env::var_os(keys::KEY).is_some() => {
            KeySource::Environment(keys::KEY.to_owned())
        }
        (None, None) => KeySource::File(args.data_dir.join(keys::FILE)),
    };
    let replace = if args.replace { Replace::KeepAside } else { Replace::Refuse };
    restore_store(&args.from, &args.data_dir, &key, replace)
}
