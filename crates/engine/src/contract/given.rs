//! What a broker is given: its command line and the variables of the contract.

use std::ffi::OsString;
use std::path::PathBuf;

use osb::jobs::contract::{self, Capability, flag, variable};
use osb::{Action, Work};

use super::Asked;

/// Variables that begin with this are the contract's: no key of a configuration shadows them.
pub const RESERVED_PREFIX: &str = "OSB_";

/// The subcommand and its flags, and nothing else: they can be read by everybody on the machine.
pub fn arguments(work: &Work) -> Vec<String> {
    let subcommand = match work.external_operation {
        Some(_) => contract::LAST_OPERATION,
        None => work.action.as_str(),
    };
    let mut arguments = vec![subcommand.to_owned()];
    let mut flag = |name: &str, value: &str| {
        arguments.extend([name.to_owned(), value.to_owned()]);
    };
    flag(flag::SERVICE_ID, work.service_id.as_str());
    flag(flag::PLAN_ID, work.plan_id.as_str());
    flag(flag::INSTANCE_ID, work.instance_id.as_str());
    if let Some(binding) = &work.binding_id {
        flag(flag::BINDING_ID, binding.as_str());
    }
    if let Some(operation) = &work.external_operation {
        flag(flag::OPERATION, operation);
    }
    arguments
}

/// Whether the broker has declared the subcommand that the work needs: one that has not never sees it.
///
/// # Errors
/// What it does not declare.
pub fn declared(work: &Work, capabilities: &[Capability]) -> Result<(), &'static str> {
    let can = |capability| capabilities.contains(&capability);
    if work.action == Action::Update && !can(Capability::Update) {
        return Err("the broker does not declare that it can update");
    }
    if work.external_operation.is_some() && !can(Capability::LastOperation) {
        return Err("the broker no longer declares that it can be asked after external work");
    }
    Ok(())
}

/// The variables of the contract that are not paths; none for a broker that declares nothing.
/// `deadline` is in seconds since 1970.
pub fn variables(
    work: &Work,
    capabilities: &[Capability],
    deadline: u64,
) -> Vec<(&'static str, String)> {
    if capabilities.is_empty() {
        return Vec::new();
    }
    vec![
        (variable::OPERATION_ID, work.operation_id.clone()),
        (variable::ATTEMPT, work.attempt.to_string()),
        (variable::DEADLINE, deadline.to_string()),
    ]
}

/// Where the files of the contract are, and the directories of the configuration.
#[derive(Debug)]
pub struct Paths {
    /// The request, if there is one.
    pub request: Option<PathBuf>,
    /// How far the work is.
    pub progress: PathBuf,
    /// What earlier runs left.
    pub state: PathBuf,
    /// What this one leaves.
    pub state_out: PathBuf,
    /// The configuration, if there is one.
    pub config_dir: Option<PathBuf>,
    /// The secret part of it.
    pub secret_dir: Option<PathBuf>,
}

/// The variables of the contract that are paths, each for a broker that has declared what it is for.
pub fn paths(asked: &Asked<'_>, paths: Paths) -> Vec<(&'static str, OsString)> {
    // The catalog is the same whatever is declared.
    if asked.action.is_none() {
        return Vec::new();
    }
    let Paths { request, progress, state, state_out, config_dir, secret_dir } = paths;
    [
        (Capability::RequestFile, variable::REQUEST_FILE, request),
        (Capability::RequestFile, variable::CONFIG_DIR, config_dir),
        (Capability::RequestFile, variable::SECRET_DIR, secret_dir),
        (Capability::Progress, variable::PROGRESS_FILE, Some(progress)),
        (Capability::State, variable::STATE_FILE, Some(state)),
        (Capability::State, variable::STATE_OUT_FILE, Some(state_out)),
    ]
    .into_iter()
    .filter(|(capability, _, _)| asked.can(*capability))
    .filter_map(|(_, name, path)| Some((name, path?.into_os_string())))
    .collect()
}

/// The variable in which a key of the configuration is offered: in capitals, `.` as `_`.
///
/// # Errors
/// Why there is none: the name is impossible, or the contract's own.
pub fn variable(key: &str) -> Result<String, &'static str> {
    let name = key.to_uppercase().replace('.', "_");
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err("no variable can have that name");
    }
    if name.starts_with(RESERVED_PREFIX) {
        return Err("names that begin with OSB_ are reserved");
    }
    Ok(name)
}
