//! The variables and files of version 2.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Mutex;

use serde_json::Value;

use super::arguments::{Arguments, Subcommand};
use super::contract::{MAX_STATE_BYTES, ProgressReport, variable};
use crate::broker::{Action, Progress, Work};
use crate::decode;

/// The variables of the contract that are set and not empty.
#[derive(Debug)]
pub(super) struct Environment {
    request_file: Option<PathBuf>,
    state_file: Option<PathBuf>,
    state_out_file: Option<PathBuf>,
    progress_file: Option<PathBuf>,
    operation_id: Option<String>,
    attempt: Option<u32>,
    deadline: Option<u64>,
}

impl Environment {
    pub(super) fn read(variables: impl Fn(&str) -> Option<OsString>) -> Result<Self, String> {
        let get = |name: &str| variables(name).filter(|value| !value.is_empty());
        let path = |name: &str| get(name).map(PathBuf::from);
        Ok(Self {
            request_file: path(variable::REQUEST_FILE),
            state_file: path(variable::STATE_FILE),
            state_out_file: path(variable::STATE_OUT_FILE),
            progress_file: path(variable::PROGRESS_FILE),
            operation_id: parse(variable::OPERATION_ID, get)?,
            attempt: parse(variable::ATTEMPT, get)?,
            deadline: parse(variable::DEADLINE, get)?,
        })
    }

    /// Whether the platform speaks version 2.
    pub(super) fn is_extended(&self) -> bool {
        self.request_file.is_some()
    }

    /// The work, from the request file or, without one, from the flags.
    ///
    /// The variables go before the file: one file serves every attempt.
    pub(super) fn work(&self, arguments: &Arguments) -> Result<Work, String> {
        let mut work = match &self.request_file {
            Some(file) => requested(file, arguments)?,
            None => flagged(arguments)?,
        };
        if let Some(operation_id) = &self.operation_id {
            work.operation_id.clone_from(operation_id);
        }
        work.attempt = self.attempt.unwrap_or(work.attempt);
        work.deadline = self.deadline.or(work.deadline);
        work.state = self.state()?.map(Into::into);
        if let Some(file) = self.progress_file.clone() {
            let one_at_a_time = Mutex::new(());
            work.progress = Progress::new(move |description| {
                let _guard = one_at_a_time.lock();
                let report = ProgressReport { description: description.to_owned(), percent: None };
                // Progress is for those who watch; work does not fail for the want of it.
                let _ = serde_json::to_vec(&report).map(|bytes| replace(&file, &bytes));
            });
        }
        Ok(work)
    }

    /// Reads the state that earlier operations left.
    fn state(&self) -> Result<Option<Value>, String> {
        let Some(file) = &self.state_file else { return Ok(None) };
        let bytes = match fs::read(file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(variable::STATE_FILE, file, &error)),
        };
        if bytes.is_empty() {
            return Ok(None);
        }
        let state = decode::json(&bytes);
        state.map(Some).map_err(|why| unreadable(variable::STATE_FILE, file, &why))
    }

    /// Hands the state to the platform; `false` if it takes none.
    pub(super) fn keep_state(&self, state: &Value) -> Result<bool, String> {
        let Some(file) = &self.state_out_file else { return Ok(false) };
        let bytes = state.to_string().into_bytes();
        if bytes.len() > MAX_STATE_BYTES {
            return Err(format!(
                "the broker's state is {} bytes long, and at most {MAX_STATE_BYTES} are kept",
                bytes.len()
            ));
        }
        replace(file, &bytes).map(|()| true).map_err(|error| {
            format!("{} {} cannot be written: {error}", variable::STATE_OUT_FILE, file.display())
        })
    }
}

fn parse<T: FromStr>(
    name: &str,
    get: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<T>, String> {
    let value = get(name).map(|value| value.to_str().and_then(|value| value.parse().ok()));
    value.map(|value| value.ok_or(format!("{name} cannot be read"))).transpose()
}

fn unreadable(name: &str, file: &Path, why: &dyn std::fmt::Display) -> String {
    format!("{name} {} cannot be read: {why}", file.display())
}

/// Version 2: the request file. What the flags repeat must agree with it, for a request that is not
/// the one meant would be worse than none.
fn requested(file: &Path, arguments: &Arguments) -> Result<Work, String> {
    let bytes = fs::read(file).map_err(|error| unreadable(variable::REQUEST_FILE, file, &error))?;
    let work: Work =
        decode::from_slice(&bytes).map_err(|why| unreadable(variable::REQUEST_FILE, file, &why))?;
    let agrees = [
        ("the subcommand", subcommand_agrees(arguments.subcommand, work.action)),
        ("--service-id", arguments.service_id.as_ref().is_none_or(|id| *id == work.service_id)),
        ("--plan-id", arguments.plan_id.as_ref().is_none_or(|id| *id == work.plan_id)),
        ("--instance-id", arguments.instance_id.as_ref().is_none_or(|id| *id == work.instance_id)),
        ("--binding-id", arguments.binding_id.is_none() || arguments.binding_id == work.binding_id),
    ];
    match agrees.iter().find(|(_, agrees)| !agrees) {
        Some((what, _)) => Err(format!("{what} contradicts the request file")),
        None => complete(work),
    }
}

fn subcommand_agrees(subcommand: Subcommand, action: Action) -> bool {
    match subcommand {
        Subcommand::Work(asked) => asked == action,
        Subcommand::LastOperation | Subcommand::Catalog | Subcommand::Help => true,
    }
}

fn complete(work: Work) -> Result<Work, String> {
    if work.binding_id.is_none() && of_binding(work.action) {
        return Err(format!("{} needs a binding_id in the request file", work.action));
    }
    Ok(work)
}

/// Version 1: the flags are all there is.
fn flagged(arguments: &Arguments) -> Result<Work, String> {
    let Subcommand::Work(action) = arguments.subcommand else {
        return Err(format!("last-operation needs {}", variable::REQUEST_FILE));
    };
    let needs = |flag: &str| format!("{action} needs {flag}");
    let instance_id = arguments.instance_id.clone().ok_or(needs("--instance-id"))?;
    let binding_id = arguments.binding_id.clone().filter(|_| of_binding(action));
    if binding_id.is_none() && of_binding(action) {
        return Err(needs("--binding-id"));
    }
    // The same in every attempt, which is all that version 1 lets us promise.
    let operation_id = match &binding_id {
        Some(binding_id) => format!("{action}-{instance_id}-{binding_id}"),
        None => format!("{action}-{instance_id}"),
    };
    Ok(Work {
        external_operation: None,
        action,
        service_id: arguments.service_id.clone().ok_or(needs("--service-id"))?,
        plan_id: arguments.plan_id.clone().ok_or(needs("--plan-id"))?,
        instance_id,
        binding_id,
        operation_id,
        attempt: 1,
        deadline: None,
        parameters: Default::default(),
        context: Default::default(),
        previous_values: None,
        maintenance_info: None,
        bind_resource: None,
        predecessor_binding_id: None,
        originating_identity: None,
        state: None,
        progress: Progress::default(),
    })
}

fn of_binding(action: Action) -> bool {
    matches!(action, Action::Bind | Action::Unbind)
}

/// Replaces a file at once, readable by its owner only: a reader sees the old or the new, whole.
fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = file.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(".new");
    let new = file.with_file_name(name);
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut writer = options.open(&new)?;
    writer.write_all(bytes)?;
    writer.sync_all()?;
    drop(writer);
    fs::rename(&new, file)
}
