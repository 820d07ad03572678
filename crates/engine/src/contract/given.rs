//! The command line and the environment variables that the jobs contract gives to a broker.

use std::ffi::OsString;
use std::path::PathBuf;

use osb::jobs::contract::{self, Capability, flag, variable};
use osb::{Action, Work};

use super::Asked;

/// The prefix of the contract's variables: no key of a configuration shadows them.
pub const RESERVED_PREFIX: &str = "OSB_";

/// The arguments of a broker: the subcommand and its flags, and nothing secret, for everybody on the machine can read
/// them.
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

/// Checks that the broker has declared the subcommand that the work needs: without that it is never called with it.
///
/// # Errors
/// The capability that it does not declare, in words.
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

/// The paths of the contract's files, and of the configuration's directories.
#[derive(Debug)]
pub struct Paths {
    /// The request, if there is one.
    pub request: Option<PathBuf>,
    /// The file for the broker's progress.
    pub progress: PathBuf,
    /// The state that earlier runs left.
    pub state: PathBuf,
    /// The file for the state that this run leaves.
    pub state_out: PathBuf,
    /// The directory of the configuration, if there is one.
    pub config_dir: Option<PathBuf>,
    /// The directory of the configuration's secret part, if there is one.
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

/// The name of the variable for a key of the configuration: in capitals, `.` as `_`.
///
/// # Errors
/// If the name is impossible, or one of the contract's own; the error says which.
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
