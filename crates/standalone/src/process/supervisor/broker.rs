//! Starts the broker with the files, arguments and variables that it is given.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use child::keys::{self, KeyFiles};
use engine::contract::{self, Paths};
use engine::redact::Secrets;
use rustix::process::Pid;

use crate::process::exchange::{Exchange, Files};
use crate::process::identity::Identity;
use crate::process::order::Order;
use crate::process::refusal::Refusal;

/// The secrets that a broker was given and that its log must not show, and notes for its log.
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
    let (request, state) = (order.request.as_ref(), order.state.as_ref());
    let removes = order.removes.as_ref();
    exchange
        .create(&Files { request, state, removes })
        .map_err(|error| Refusal::of(exchange.path().display(), &error))?;

    // Later ones win.
    let environment = order.environment.iter().chain(&config.variables).chain(&secret.variables);
    let child = Command::new(&order.program)
        .args(&order.arguments)
        .env_clear()
        .envs(environment.map(|(name, value)| (name, value)))
        .envs(contract::paths(&order.about.asked(), paths(order, exchange)))
        .current_dir(exchange.work())
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Refusal::of_program(Path::new(&order.program), &error))?;

    let mut secrets = contract::secrets::of_given(request, state, removes);
    secret.values.iter().for_each(|value| secrets.add(value));
    let notes = [config.notes, secret.notes].concat();
    Ok((Broker { pid: Pid::from_child(&child), child }, Given { secrets, notes }))
}

fn key_files(what: &str, directory: Option<&OsStr>) -> Result<KeyFiles, Refusal> {
    let Some(directory) = directory.map(Path::new) else { return Ok(KeyFiles::default()) };
    keys::read(directory)
        .map_err(|error| Refusal::of(format!("the {what} in {}", directory.display()), &error))
}

fn paths(order: &Order, exchange: &Exchange) -> Paths {
    let of = |directory: &Option<OsString>| directory.as_ref().map(PathBuf::from);
    exchange.paths(order.request.is_some(), of(&order.config_dir), of(&order.secret_dir))
}
