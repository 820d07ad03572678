//! Reads a broker's offer: its catalog, and the extensions that it declares in it.

use std::path::Path;

use osb::jobs::contract::{Capability, EXTENSION_KEY};
use osb::{INTEGER_BITS, rounded_integers};
use serde_json::Value;

use super::failure::{fail, fail_with_log};
use super::said::{MAX_DESCRIPTION_BYTES, said};
use super::shape::At;
use super::{Asked, Ended, Exit, completed, document};
use crate::ports::{Offer, RunFailure};
use crate::record::Reason;
use crate::redact::Redactor;

/// Reads the offer from a file that an operator wrote, in the form in which a broker prints its catalog.
///
/// # Errors
/// As [`offer`], and if the file cannot be read or is no regular one. The description begins with its path.
pub fn of_file(path: &Path) -> Result<Offer, RunFailure> {
    let name = format!("the catalog file {}", path.display());
    let unread = |why: String| RunFailure::not_started(format!("{name}: {why}"));
    // To open a pipe waits for whoever writes to it, and a device may have no end.
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return Err(unread("it is no regular file".to_owned()));
    }
    let text =
        std::fs::read(path).map_err(|error| unread(format!("it cannot be read: {error}")))?;
    let redactor = Redactor::default();
    let exit = Exit::Status(0);
    offer(&Ended { exit, stdout: &text, log: "", state: None, redactor: &redactor }).map_err(
        |mut failure| {
            failure.failure.description = format!("{name}: {}", failure.failure.description);
            failure
        },
    )
}

/// Reads the offer that the subcommand `catalog` printed: the catalog without the key `jobs`, and the extensions that
/// this key declares.
///
/// # Errors
/// As [`super::interpret`]; also for an unknown capability, which the author would otherwise rely on in vain.
pub fn offer(ended: &Ended<'_>) -> Result<Offer, RunFailure> {
    let asked = Asked { action: None, external: None, capabilities: &[] };
    completed(&asked, ended)?;
    let Some(mut catalog) = document(&asked, ended)? else {
        let what = "catalog printed nothing on stdout, where JSON is expected";
        return Err(fail_with_log(Reason::NotJson, what, ended));
    };
    let wrong = |what: String| fail(Reason::WrongShape, format!("catalog: {what}"));
    At::root(&catalog).map_err(wrong)?;
    if let Some(path) = rounded_integers(ended.text(), &catalog).next() {
        // A broker chooses the names of members.
        let what = said(&format!("{path} {INTEGER_BITS}"), ended.redactor, MAX_DESCRIPTION_BYTES);
        return Err(wrong(what.unwrap_or_default()));
    }
    let jobs = catalog.as_object_mut().and_then(|members| members.remove(EXTENSION_KEY));
    let capabilities = declared(jobs.as_ref()).map_err(wrong)?;
    Ok(Offer { catalog, capabilities, ..Offer::default() })
}

/// The capabilities that the key `jobs` declares, as `{"version": 2, "capabilities": […]}`.
fn declared(jobs: Option<&Value>) -> Result<Vec<Capability>, String> {
    let Some(jobs) = jobs.filter(|jobs| !jobs.is_null()) else { return Ok(Vec::new()) };
    if !jobs.is_object() {
        return Err("jobs must be an object".to_owned());
    }
    // Later versions only add, and what they add is not for us.
    let later = match jobs.get("version").map(Value::as_u64) {
        None | Some(Some(2)) => false,
        Some(Some(1)) => return Ok(Vec::new()),
        Some(Some(3..)) => true,
        Some(Some(0) | None) => return Err("jobs.version must be a number from 1".to_owned()),
    };
    let declared = match jobs.get("capabilities") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(declared)) => declared,
        Some(_) => return Err("jobs.capabilities must be an array of strings".to_owned()),
    };
    let mut capabilities = Vec::new();
    for (index, name) in declared.iter().enumerate() {
        match serde_json::from_value(name.clone()) {
            Ok(capability) if capabilities.contains(&capability) => {}
            Ok(capability) => capabilities.push(capability),
            Err(_) if later => {}
            Err(_) => {
                return Err(format!(
                    "jobs.capabilities[{index}] is not a capability that is known; known are {}",
                    Capability::ALL.map(name_of).join(", ")
                ));
            }
        }
    }
    Ok(capabilities)
}

fn name_of(capability: Capability) -> String {
    let name = serde_json::to_value(capability).unwrap_or_default();
    name.as_str().unwrap_or_default().to_owned()
}
