//! The rules for the content of a binding, by which a platform judges a broker's answer.

use std::fmt::Display;

use jiff::Timestamp;

use crate::fields::{Faults, Path};
use crate::model::{BindingBody, BindingMetadata, Endpoint, Permission, VolumeMount};

/// Checks a binding that a broker made, before it is kept or sent (sections "Binding" and
/// "Service Binding Metadata Object"): permissions by the service's `requires`, volume mounts,
/// endpoints, and the times of expiry and renewal.
///
/// # Errors
/// Every fault, each with its path, in one sentence; values are not repeated.
pub fn check_binding(body: &BindingBody, requires: &[Permission]) -> Result<(), String> {
    let faults = Faults::default();
    let permit = |present: bool, member: &str, permission: Permission, word: &str| {
        if present && !requires.contains(&permission) {
            faults.add(member, format!("needs {word} in the service's requires"));
        }
    };
    permit(
        body.syslog_drain_url.is_some(),
        "syslog_drain_url",
        Permission::SyslogDrain,
        "syslog_drain",
    );
    permit(
        body.route_service_url.is_some(),
        "route_service_url",
        Permission::RouteForwarding,
        "route_forwarding",
    );
    permit(body.volume_mounts.is_some(), "volume_mounts", Permission::VolumeMount, "volume_mount");
    each(body.volume_mounts.as_deref(), "volume_mounts", &faults, volume_mount);
    each(body.endpoints.as_deref(), "endpoints", &faults, endpoint);
    if let Some(metadata) = &body.metadata {
        times(metadata, &faults);
    }
    if faults.is_empty() {
        return Ok(());
    }
    let faults: Vec<String> = faults.into_vec().iter().map(ToString::to_string).collect();
    Err(faults.join("; "))
}

fn each<T>(
    elements: Option<&[T]>,
    member: &str,
    faults: &Faults,
    check: impl Fn(&T, &Path<'_>, &Faults),
) {
    let path = Path::Root.member(member);
    for (index, element) in elements.unwrap_or_default().iter().enumerate() {
        check(element, &path.index(index), faults);
    }
}

fn volume_mount(mount: &VolumeMount, path: &Path<'_>, faults: &Faults) {
    let device = path.member("device");
    not_empty(&mount.driver, path.member("driver"), faults);
    not_empty(&mount.container_dir, path.member("container_dir"), faults);
    not_empty(&mount.device.volume_id, device.member("volume_id"), faults);
    if mount.device_type != "shared" {
        faults.add(path.member("device_type"), "must be shared, the only type there is");
    }
}

fn endpoint(endpoint: &Endpoint, path: &Path<'_>, faults: &Faults) {
    not_empty(&endpoint.host, path.member("host"), faults);
    let ports = path.member("ports");
    if endpoint.ports.is_empty() {
        faults.add(ports, "must hold at least one port");
    }
    for (index, port) in endpoint.ports.iter().enumerate() {
        if !is_port_or_range(port) {
            faults
                .add(ports.index(index), "must be a port such as 443 or a range such as 9000-9010");
        }
    }
}

fn is_port_or_range(text: &str) -> bool {
    let port = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|&port| digits && port > 0)
    };
    match text.split_once('-') {
        None => port(text).is_some(),
        Some((first, last)) => {
            matches!((port(first), port(last)), (Some(first), Some(last)) if first <= last)
        }
    }
}

fn times(metadata: &BindingMetadata, faults: &Faults) {
    let path = Path::Root.member("metadata");
    let read = |time: &Option<String>, member: &str| {
        let time = time.as_deref()?;
        let parsed = timestamp(time);
        if parsed.is_none() {
            faults.add(path.member(member), "must be a time like 2026-12-31T23:59:59.0Z");
        }
        parsed
    };
    let expires_at = read(&metadata.expires_at, "expires_at");
    let renew_before = read(&metadata.renew_before, "renew_before");
    if renew_before.zip(expires_at).is_some_and(|(renew, expire)| renew > expire) {
        faults.add(path.member("renew_before"), "must not be after expires_at");
    }
}

/// Parses a time of the form `yyyy-mm-ddThh:mm:ss.sZ`, and no other that ISO 8601 allows; `s` is one digit or more.
fn timestamp(text: &str) -> Option<Timestamp> {
    const PATTERN: &[u8] = b"dddd-dd-ddTdd:dd:dd.";
    let (head, fraction) = text.as_bytes().split_at_checked(PATTERN.len())?;
    let fits = head.iter().zip(PATTERN).all(|(byte, pattern)| match pattern {
        b'd' => byte.is_ascii_digit(),
        _ => byte == pattern,
    });
    let (zone, digits) = fraction.split_last()?;
    let digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    (fits && *zone == b'Z' && digits).then(|| text.parse().ok()).flatten()
}

fn not_empty(text: &str, path: impl Display, faults: &Faults) {
    if text.is_empty() {
        faults.add(path, "must be a non-empty string");
    }
}
