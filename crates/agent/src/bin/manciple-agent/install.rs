//! Installs the agent where the broker's container can start it, and copies the given files beside it.
//!
//! The next container may run as another user, so everybody may read the given files, and remove them. The
//! volume is the pod's own; nobody else has it mounted.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use agent::{AGENT_FILE, GIVEN_DIRECTORY, GIVEN_VARIABLE};

/// The name of the agent's file while it is written, so that a second start of the init container replaces it as a
/// whole.
const UNFINISHED: &str = ".agent.new";

pub(crate) fn install(directory: &Path) -> Result<(), String> {
    let failed =
        |what: &Path, error: &io::Error| format!("{} cannot be written: {error}", what.display());
    let agent = directory.join(AGENT_FILE);
    copy_agent(directory, &agent).map_err(|error| failed(&agent, &error))?;
    let Some(given) = std::env::var_os(GIVEN_VARIABLE) else { return Ok(()) };
    let to = directory.join(GIVEN_DIRECTORY);
    copy_given(&given, &to).map_err(|error| failed(&to, &error))
}

fn copy_agent(directory: &Path, agent: &Path) -> io::Result<()> {
    let unfinished = directory.join(UNFINISHED);
    remove(&unfinished)?;
    fs::copy("/proc/self/exe", &unfinished)?;
    fs::set_permissions(&unfinished, Permissions::from_mode(0o555))?;
    fs::rename(&unfinished, agent)
}

/// Copies the given files. The keys of a mounted Secret are links into a hidden directory.
fn copy_given(given: &OsStr, to: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(given) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    match fs::create_dir(to) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    fs::set_permissions(to, Permissions::from_mode(0o777))?;
    for entry in entries {
        let entry = entry?;
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if hidden || !fs::metadata(entry.path())?.is_file() {
            continue;
        }
        let copy = to.join(entry.file_name());
        remove(&copy)?;
        fs::copy(entry.path(), &copy)?;
        fs::set_permissions(&copy, Permissions::from_mode(0o444))?;
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
