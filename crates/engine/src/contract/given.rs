//! What a broker is given: its command line and the variables of the contract.

use osb::jobs::contract::{self, Capability, flag, variable};
use osb::{Action, Work};

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
