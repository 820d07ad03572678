//! Starts the broker with what it is given.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use child::keys::{self, KeyFiles};
use engine::contract;
use engine::redact::Secrets;
use osb::jobs::contract::{Capability, variable};
use rustix::process::Pid;

use crate::process::exchange::{Exchange, Files};
use crate::process::identity::Identity;
use crate::process::order::Order;
use crate::process::refusal::Refusal;

/// What a broker was given that its log must not show, and what is to be said in its log.
pub(super) struct Given {
    pub(super) secrets: Secrets,
    pub(super) notes: Vec<String>,
}

/// A broker that was started: the first process of a process group.
pub(super) struct Broker {
    pub(super) child: Child,
    pub(super) pid: Pid,
}

impl Broker {
    pub(super) fn identity(&self) -> io::Result<Identity> {
        Identity::of(self.pid)
    }
}

/// Starts the broker. Nothing is left of it if this fails, but for the exchange directory.
pub(super) fn start(order: &Order, exchange: &Exchange) -> Result<(Broker, Given), Refusal> {
    let config = key_files("configuration", order.config_dir.as_deref())?;
    let secret = key_files("secret", order.secret_dir.as_deref())?;
    exchange
        .create(&Files {
            request: order.request.as_ref(),
            state: order.state.as_ref(),
            removes: order.removes.as_ref(),
        })
        .map_err(|error| Refusal::of(exchange.path().display(), &error))?;

    // Later ones win.
    let environment = order.environment.iter().chain(&config.variables).chain(&secret.variables);
    let child = Command::new(&order.program)
        .args(&order.arguments)
        .env_clear()
        .envs(environment.map(|(name, value)| (name, value)))
        .envs(files(order, exchange))
        .current_dir(exchange.work())
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Refusal::of_program(Path::new(&order.program), &error))?;

    let mut secrets = order.request.as_ref().map(contract::secrets::of_work).unwrap_or_default();
    secret.values.iter().for_each(|value| secrets.add(value));
    order.state.iter().for_each(|state| secrets.add_json(state));
    secrets.extend(order.removes.as_ref().map(contract::secrets::of_binding).unwrap_or_default());
    let notes = [config.notes, secret.notes].concat();
    Ok((Broker { pid: Pid::from_child(&child), child }, Given { secrets, notes }))
}

fn key_files(what: &str, directory: Option<&OsStr>) -> Result<KeyFiles, Refusal> {
    let Some(directory) = directory.map(Path::new) else { return Ok(KeyFiles::default()) };
    keys::read(directory)
        .map_err(|error| Refusal::of(format!("the {what} in {}", directory.display()), &error))
}

/// The variables of the contract that are paths, for those who have declared them.
fn files(order: &Order, exchange: &Exchange) -> Vec<(&'static str, OsString)> {
    let mut files = Vec::new();
    let mut file = |capability, name, path: std::path::PathBuf| {
        // The catalog is the same whatever is asked for.
        if order.about.action.is_some() && order.about.can(capability) {
            files.push((name, path.into_os_string()));
        }
    };
    file(Capability::RequestFile, variable::REQUEST_FILE, exchange.request());
    file(Capability::Progress, variable::PROGRESS_FILE, exchange.progress());
    file(Capability::State, variable::STATE_FILE, exchange.state());
    file(Capability::State, variable::STATE_OUT_FILE, exchange.state_out());
    for (name, directory) in
        [(variable::CONFIG_DIR, &order.config_dir), (variable::SECRET_DIR, &order.secret_dir)]
    {
        directory.iter().for_each(|it| file(Capability::RequestFile, name, it.into()));
    }
    files
}
