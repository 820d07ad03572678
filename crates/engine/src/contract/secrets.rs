//! Collects the secrets that a run's log and descriptions must not show: those that the broker was given, and those
//! that it gave.

use osb::Work;
use serde_json::Value;

use super::shape::each_spelling;
use crate::redact::Secrets;

/// The secrets in all that a run was given: its request, the state where that is no part of it, and the binding that it
/// removes.
pub fn of_given(work: Option<&Work>, state: Option<&Value>, removes: Option<&Value>) -> Secrets {
    let mut secrets = work.map(of_work).unwrap_or_default();
    state.into_iter().for_each(|state| secrets.add_json(state));
    secrets.extend(removes.map(of_binding).unwrap_or_default());
    secrets
}

/// The secrets in a request: parameters, context, state, and the originating identity.
pub fn of_work(work: &Work) -> Secrets {
    let mut secrets = Secrets::default();
    let identity = work.originating_identity.as_ref().map(|identity| &identity.value);
    for object in [Some(&work.parameters), Some(&work.context), identity].into_iter().flatten() {
        object.expose().values().for_each(|value| secrets.add_json(value));
    }
    if let Some(state) = &work.state {
        secrets.add_json(state.expose());
    }
    secrets
}

/// The members of an output whose values are secret.
const SECRET: [&str; 3] = ["credentials", "syslog_drain_url", "route_service_url"];
/// The member of a catalog's service that has a secret.
const CLIENT: &str = "dashboard_client";

/// The secrets in an output: credentials, the addresses of a binding, what mounts a volume, and what the clients of
/// dashboards in a catalog are known by. They are also
/// looked for in an output that is no JSON, because of text around it, an error in it, or a cut: its log is shown then.
pub fn of_output(stdout: &[u8]) -> Secrets {
    match serde_json::from_slice(stdout) {
        Ok(output @ Value::Object(_)) => {
            let mut secrets = of_binding(&output);
            secrets.extend(of_catalog(&output));
            secrets
        }
        _ => of_broken(stdout),
    }
}

/// The secrets in an output that is no JSON, where the members are found by their names alone.
fn of_broken(stdout: &[u8]) -> Secrets {
    let mut secrets = Secrets::default();
    // From there on every string counts, and none has to be looked at twice.
    let mut broken_at = stdout.len();
    for name in SECRET.iter().chain(&["mount_config", CLIENT]) {
        let name = format!("\"{name}\"");
        let mut rest = stdout;
        let is_name = |window: &[u8]| window.eq_ignore_ascii_case(name.as_bytes());
        while let Some(at) = rest.windows(name.len()).position(is_name) {
            rest = &rest[at + name.len()..];
            let Some(value) = rest.trim_ascii_start().strip_prefix(b":") else { continue };
            match serde_json::Deserializer::from_slice(value).into_iter().next() {
                Some(Ok(value)) => secrets.add_json(&value),
                _ => broken_at = broken_at.min(stdout.len() - value.len()),
            }
        }
    }
    strings(&stdout[broken_at..]).for_each(|value| secrets.add_json(&value));
    secrets
}

/// The strings in a text that is no JSON, but for names of members.
fn strings(mut text: &[u8]) -> impl Iterator<Item = Value> {
    std::iter::from_fn(move || {
        loop {
            text = &text[text.iter().position(|&byte| byte == b'"')?..];
            let mut found = serde_json::Deserializer::from_slice(text).into_iter::<Value>();
            let string = found.next()?.ok();
            text = &text[if string.is_some() { found.byte_offset() } else { 1 }..];
            match string {
                Some(string) if !text.trim_ascii_start().starts_with(b":") => return Some(string),
                _ => {}
            }
        }
    })
}

/// The secrets in a binding, as it was printed or as it is kept.
pub fn of_binding(binding: &Value) -> Secrets {
    let mut secrets = Secrets::default();
    // In whatever case, each that is there: which of them is read is not decided here.
    for (_, value) in SECRET.iter().flat_map(|name| each_spelling(binding, name)) {
        secrets.add_json(value);
    }
    let lists = each_spelling(binding, "volume_mounts").filter_map(|(_, list)| list.as_array());
    let devices = lists.flatten().flat_map(|mount| each_spelling(mount, "device"));
    let given = devices.flat_map(|(_, device)| each_spelling(device, "mount_config"));
    given.for_each(|(_, value)| secrets.add_json(value));
    secrets
}

/// The secrets in a catalog as a broker prints it.
fn of_catalog(catalog: &Value) -> Secrets {
    let mut secrets = Secrets::default();
    let lists = each_spelling(catalog, "services").filter_map(|(_, list)| list.as_array());
    let clients = lists.flatten().flat_map(|service| each_spelling(service, CLIENT));
    let given = clients.flat_map(|(_, client)| each_spelling(client, "secret"));
    given.for_each(|(_, value)| secrets.add_json(value));
    secrets
}
