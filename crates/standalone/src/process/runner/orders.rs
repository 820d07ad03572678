//! Makes the orders to supervisors.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use child::seconds_since_1970;
use engine::contract;
use engine::ports::Run;
use osb::Work;
use osb::jobs::contract::{CATALOG, Capability};

use super::Shared;
use crate::process::order::{About, Order};
use crate::process::refusal::Refusal;

/// The `PATH` of brokers where this process has none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The variables of this process's environment that a broker sees, beside `PATH` and those that are configured.
const PASSED: [&str; 4] = ["HOME", "LANG", "TZ", "TMPDIR"];

impl Shared {
    /// The order of a run.
    pub(super) fn order(&self, run: &Run) -> Result<Order, Refusal> {
        let Run { name, work, timeout, capabilities, removes } = run;
        let can = |capability| capabilities.contains(&capability);
        contract::declared(work, capabilities).map_err(Refusal::permanent)?;
        let created_at = seconds_since_1970();
        let deadline = work.deadline.unwrap_or(created_at.saturating_add(timeout.as_secs()));
        let request = can(Capability::RequestFile).then(|| Work {
            deadline: Some(deadline),
            // It has a file of its own.
            state: None,
            ..work.clone()
        });
        let state = work.state.as_ref().filter(|_| can(Capability::State));
        let variables = contract::variables(work, capabilities, deadline);
        let about = About {
            name: name.as_str().to_owned(),
            action: Some(work.action),
            instance_id: Some(work.instance_id.clone()),
            binding_id: work.binding_id.clone(),
            arguments: contract::arguments(work),
            operation_id: Some(work.operation_id.clone()),
            attempt: Some(work.attempt),
            external: work.external_operation.clone(),
            capabilities: capabilities.clone(),
            timeout: *timeout,
            created_at,
        };
        let mut order = self.bare_order(about)?;
        order.environment.extend(
            variables.into_iter().map(|(name, value)| (name.to_owned(), OsString::from(value))),
        );
        Ok(Order {
            request,
            state: state.map(|state| state.expose().clone()),
            removes: removes.as_ref().and_then(|binding| serde_json::to_value(binding).ok()),
            ..order
        })
    }

    /// The order of a question for the catalog.
    pub(super) fn catalog_order(&self, name: &str) -> Result<Order, Refusal> {
        self.bare_order(About {
            name: name.to_owned(),
            action: None,
            instance_id: None,
            binding_id: None,
            arguments: vec![CATALOG.to_owned()],
            operation_id: None,
            attempt: None,
            external: None,
            capabilities: Vec::new(),
            timeout: self.settings.catalog_timeout,
            created_at: seconds_since_1970(),
        })
    }

    fn bare_order(&self, about: About) -> Result<Order, Refusal> {
        let settings = &self.settings;
        let key = self.key(&about.name).ok_or_else(|| Refusal::permanent("no key derived"))?;
        let directory = |path: &Option<PathBuf>| {
            let path = path.as_ref().map(std::path::absolute).transpose();
            path.map(|path| path.map(PathBuf::into_os_string))
                .map_err(|error| Refusal::of("the configuration", &error))
        };
        let arguments = about.arguments.iter().map(OsString::from);
        Ok(Order {
            program: program(&settings.command)?,
            arguments: settings.arguments.iter().cloned().chain(arguments).collect(),
            environment: environment(&settings.pass_environment),
            config_dir: directory(&settings.config_dir)?,
            secret_dir: directory(&settings.secret_dir)?,
            exchange: self.exchange(&about.name).path().into(),
            request: None,
            state: None,
            removes: None,
            grace: settings.grace,
            output_limit: settings.output_limit,
            log_limit: settings.log_limit,
            about,
            key,
        })
    }
}

/// The environment of every broker: what it sees of this process's.
fn environment(passed: &[String]) -> Vec<(String, OsString)> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let names = PASSED.into_iter().chain(passed.iter().map(String::as_str));
    let set = names
        .filter(|name| !name.starts_with(contract::RESERVED_PREFIX))
        .filter_map(|name| Some((name.to_owned(), std::env::var_os(name)?)));
    std::iter::once(("PATH".to_owned(), path)).chain(set).collect()
}

/// The executable of a command: a path is made absolute, so that it stays valid in the working directory of a run; a
/// name is looked for in `PATH`.
fn program(command: &Path) -> Result<OsString, Refusal> {
    if command.components().count() == 1 && !command.is_absolute() {
        return Ok(command.into());
    }
    let path = std::path::absolute(command);
    path.map(PathBuf::into_os_string).map_err(|error| Refusal::of_program(command, &error))
}
