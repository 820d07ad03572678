//! What a run's log and descriptions must not show: what the broker was given, and what it gave.

use osb::Work;
use serde_json::Value;

use crate::redact::Secrets;

/// What is secret in a request: parameters, context, state, and who asked.
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

/// What is secret in an output, even in one that has text around it: credentials, the addresses of a
/// binding, and what mounts a volume.
pub fn of_output(stdout: &[u8]) -> Secrets {
    let Some(start) = stdout.iter().position(|&byte| byte == b'{') else {
        return Secrets::default();
    };
    let mut documents = serde_json::Deserializer::from_slice(&stdout[start..]).into_iter();
    documents.next().and_then(Result::ok).as_ref().map(of_binding).unwrap_or_default()
}

/// What is secret in a binding, as it was printed or as it is kept.
pub fn of_binding(binding: &Value) -> Secrets {
    let mut secrets = Secrets::default();
    let Value::Object(output) = binding else { return secrets };
    for member in ["credentials", "syslog_drain_url", "route_service_url"] {
        output.get(member).into_iter().for_each(|value| secrets.add_json(value));
    }
    let mounts = output.get("volume_mounts").and_then(Value::as_array);
    for mount in mounts.into_iter().flatten() {
        mount.pointer("/device/mount_config").into_iter().for_each(|value| secrets.add_json(value));
    }
    secrets
}
