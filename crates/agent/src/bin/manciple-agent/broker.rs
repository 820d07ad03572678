//! Starts the broker with the files, arguments and variables that it is given.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use agent::{Order, is_variable_taken};
use child::exchange::ExchangeDirectory;
use child::keys::{self, KeyFiles};
use engine::contract;
use engine::ports::RunFailure;
use engine::record::Reason;
use osb::jobs::contract::{CATALOG, Capability};
use osb::{Failure, FailureKind, Work};
use rustix::io::Errno;
use serde::Serialize;

use crate::given::Given;

/// Makes the exchange directory, and fails if it is there already: a container that is started again must not start a
/// second broker.
pub(crate) fn make_exchange(path: PathBuf) -> Result<ExchangeDirectory, RunFailure> {
    match fs::DirBuilder::new().mode(0o700).create(&path) {
        Ok(()) => Ok(ExchangeDirectory::at(path)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(RunFailure::new(
            Reason::Lost,
            Failure::failed(
                "the container was started a second time, and how the first ended is not known; \
                 the broker was not started again",
            ),
        )),
        Err(error) => {
            Err(RunFailure::not_started(format!("{} cannot be made: {error}", path.display())))
        }
    }
}

/// The configuration, as it is mounted.
#[derive(Default)]
pub(crate) struct Configuration {
    config: KeyFiles,
    pub(crate) secret: KeyFiles,
}

impl Configuration {
    pub(crate) fn read(order: &Order) -> Result<Self, RunFailure> {
        let read = |what, directory: &Option<PathBuf>| {
            let Some(directory) = directory else { return Ok(KeyFiles::default()) };
            keys::read(directory).map_err(|error| {
                let path = directory.display();
                RunFailure::not_started(format!("the {what} in {path} cannot be read: {error}"))
            })
        };
        Ok(Self {
            config: read("configuration", &order.config_dir)?,
            secret: read("secret", &order.secret_dir)?,
        })
    }

    pub(crate) fn notes(&self) -> impl Iterator<Item = &String> {
        self.config.notes.iter().chain(&self.secret.notes)
    }
}

/// Starts the broker. `deadline` is in seconds since 1970.
pub(crate) fn start(
    order: &Order,
    given: Given,
    configuration: &Configuration,
    exchange: &ExchangeDirectory,
    deadline: u64,
) -> Result<Child, RunFailure> {
    let arguments = match &given.work {
        Some(work) => contract::arguments(work),
        None => vec![CATALOG.to_owned()],
    };
    let variables =
        given.work.as_ref().map(|work| contract::variables(work, &order.capabilities, deadline));
    let files = files(order, given, exchange, deadline)
        .map_err(|error| RunFailure::not_started(format!("the files of the contract: {error}")))?;
    // The image's own, but for those names alone: others may begin like them.
    let inherited = std::env::vars_os();
    let inherited = inherited.filter(|(name, _)| !name.to_str().is_some_and(is_variable_taken));
    // Later ones win.
    let keys = configuration.config.variables.iter().chain(&configuration.secret.variables);
    let variables = variables.into_iter().flatten();
    Command::new(&order.program)
        .args(arguments)
        .env_clear()
        .envs(inherited)
        .envs(keys.map(|(name, value)| (name, value)))
        .envs(variables)
        .envs(files)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| refused(&order.program, &error))
}

/// Writes the files of the contract for those who have declared them, and says where they are.
fn files(
    order: &Order,
    given: Given,
    exchange: &ExchangeDirectory,
    deadline: u64,
) -> io::Result<Vec<(&'static str, OsString)>> {
    let (config_dir, secret_dir) = (order.config_dir.clone(), order.secret_dir.clone());
    let paths = exchange.paths(given.work.is_some(), config_dir, secret_dir);
    if let Some(work) = given.work.filter(|_| order.can(Capability::RequestFile)) {
        write(&exchange.request(), &Work { deadline: Some(deadline), ..work })?;
    }
    if let Some(state) = given.state.filter(|_| order.can(Capability::State)) {
        write(&exchange.state(), &state)?;
    }
    Ok(contract::paths(&order.asked(), paths))
}

fn write(path: &Path, content: &impl Serialize) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(&serde_json::to_vec(content)?)
}

/// The failure of a run whose program could not be executed: mostly the image is not the one that was meant.
fn refused(program: &Path, error: &io::Error) -> RunFailure {
    let path = program.display();
    let what = match Errno::from_io_error(error) {
        Some(Errno::NOENT | Errno::NOTDIR) if !program.exists() => {
            format!("the image has no {path}")
        }
        Some(Errno::NOENT) => format!(
            "{path} is in the image, and what interprets it is not: the shell that its first line \
             names, or the dynamic linker that it was built for"
        ),
        Some(Errno::ACCESS | Errno::PERM) => {
            format!("{path} in the image cannot be executed by this user: make it executable")
        }
        Some(Errno::NOEXEC) => format!(
            "{path} in the image is neither a program for this machine ({}) nor a script that \
             begins with #!",
            std::env::consts::ARCH
        ),
        Some(Errno::TOOBIG) => {
            format!("{path} cannot be executed: the configuration is too large for an environment")
        }
        _ => format!("{path} cannot be executed"),
    };
    let kind = if child::passes(error) { FailureKind::Transient } else { FailureKind::Failed };
    RunFailure::new(Reason::NotStarted, Failure::new(kind, format!("{what} ({error})")))
}
