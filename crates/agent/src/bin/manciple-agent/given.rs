//! Reads the confidential files that are given beside the order, and removes them before the broker starts.

use std::path::Path;
use std::{fs, io};

use agent::{GivenFile, Order};
use engine::contract;
use engine::ports::RunFailure;
use engine::redact::Secrets;
use osb::{Object, Work};
use serde_json::{Value, json};

/// How many bytes of a file are read: more than a Secret holds.
const MAX_FILE_BYTES: usize = 2 * 1024 * 1024;

/// The whole request of a run, with its confidential part.
#[derive(Default)]
pub(crate) struct Given {
    /// The work; `None` for the catalog.
    pub(crate) work: Option<Work>,
    pub(crate) state: Option<Value>,
    removes: Option<Value>,
}

impl Given {
    /// Reads the files that the order names, and removes those that were copied to `directory`.
    pub(crate) fn take(order: &Order, directory: &Path) -> Result<Self, RunFailure> {
        let mounted = order.given_dir.as_deref();
        let from = mounted.unwrap_or(directory);
        let mut given = Self::default();
        let mut members = order.work.clone();
        for &file in &order.given {
            let value = read(&from.join(file.name()))?;
            match (file, value) {
                (GivenFile::Work, Value::Object(object)) => members.extend(object),
                (GivenFile::Work, _) => {
                    return Err(RunFailure::not_started("work.json is no JSON object"));
                }
                (GivenFile::State, state) => given.state = Some(state),
                (GivenFile::Removes, binding) => given.removes = Some(binding),
            }
        }
        remove(directory).map_err(|error| {
            let path = directory.display();
            RunFailure::not_started(format!(
                "{path} cannot be removed, where the broker would read it: {error}"
            ))
        })?;
        given.work = work(order, members)?;
        Ok(given)
    }

    /// The secrets that the broker's log must not show.
    pub(crate) fn secrets(&self) -> Secrets {
        contract::secrets::of_given(self.work.as_ref(), self.state.as_ref(), self.removes.as_ref())
    }
}

fn work(order: &Order, mut members: Object) -> Result<Option<Work>, RunFailure> {
    let Some(action) = order.action else { return Ok(None) };
    members.insert("action".to_owned(), json!(action));
    if let Some(external) = &order.external {
        members.insert("external_operation".to_owned(), json!(external));
    }
    // What serde would say may repeat a value.
    serde_json::from_value(Value::Object(members)).map(Some).map_err(|_| {
        RunFailure::not_started("the order and what is given with it are not a request")
    })
}

fn read(path: &Path) -> Result<Value, RunFailure> {
    let shown = path.display();
    let json = child::files::read(path, MAX_FILE_BYTES)
        .map_err(|error| RunFailure::not_started(format!("{shown} cannot be read: {error}")))?
        .ok_or_else(|| {
            RunFailure::not_started(format!("{shown} is named by the order and is not there"))
        })?;
    serde_json::from_slice(&json).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        RunFailure::not_started(format!("{shown} is not JSON (line {line}, column {column})"))
    })
}

/// Removes everything in a directory, and the directory itself if its parent permits that.
fn remove(directory: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        fs::remove_file(entry?.path())?;
    }
    let _ = fs::remove_dir(directory);
    Ok(())
}
