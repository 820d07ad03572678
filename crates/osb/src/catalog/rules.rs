//! Rules that both the server and the backend apply: the server when the request alone decides, the
//! backend when the instance does.

use super::{PlanEntry, SchemaUse};
use crate::error::{Error, ErrorKind};
use crate::model::{MaintenanceInfo, Object};

/// Checks parameters against a plan's schema.
///
/// # Errors
/// 400 that names every violation; values are not repeated.
pub fn check_parameters(
    plan: &PlanEntry,
    schema: SchemaUse,
    parameters: &Object,
) -> Result<(), Error> {
    let Err(violations) = plan.check(schema, parameters) else { return Ok(()) };
    let words: Vec<_> = violations
        .iter()
        .map(|violation| format!("parameters{}: {}", violation.path, violation.message))
        .collect();
    Err(Error::bad_request(words.join("; ")))
}

/// Checks that the platform's version of a plan is the catalog's (item 23).
///
/// # Errors
/// 422 `MaintenanceInfoConflict`.
pub fn check_maintenance_info(plan: &PlanEntry, info: &MaintenanceInfo) -> Result<(), Error> {
    let ours = plan.plan.maintenance_info.as_ref().map(|info| info.version.as_str());
    if ours == Some(info.version.as_str()) {
        return Ok(());
    }
    let remedy = match ours {
        Some(version) => format!("the catalog has version {version}"),
        None => "the catalog has none for this plan".to_owned(),
    };
    Err(Error::new(
        ErrorKind::MaintenanceInfoConflict,
        format!("maintenance_info.version: is not the plan's; {remedy}; read the catalog again"),
    ))
}

/// Whether a text is a version of a plan: a semantic one (item 16).
pub fn is_version(text: &str) -> bool {
    semver::Version::parse(text).is_ok()
}

/// Parses an RFC 3339 timestamp to milliseconds since 1970. Other forms than the one that the specification lets a
/// binding have (item 40) are accepted, for records may hold them.
pub fn parse_timestamp(text: &str) -> Option<u64> {
    let timestamp: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(timestamp.as_millisecond()).ok()
}
