//! The body of a server-side apply for an object of a template.

use data_encoding::BASE64;
use serde_json::{Map, Value, json};

/// The members of `metadata` that only the API server writes.
pub(super) const ITS_OWN: [&str; 6] =
    ["creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"];

/// The body to apply: without the members that only the API server writes and without write-only fields; with the
/// defaults that the API server needs to tell list entries apart. `uid` is that of the present object.
pub(super) fn applied(object: &Value, uid: &Value) -> Value {
    let mut body = object.clone();
    if let Some(metadata) = body["metadata"].as_object_mut() {
        ITS_OWN.iter().for_each(|member| drop(metadata.remove(*member)));
        metadata.insert("uid".to_owned(), uid.clone());
    }
    let text = |of: &str| body[of].as_str().unwrap_or_default().to_owned();
    match (text("apiVersion").as_str(), text("kind").as_str()) {
        ("v1", "Secret") => encode(&mut body),
        ("v1", "Service") => with_protocol(body.pointer_mut("/spec/ports")),
        ("v1", "Pod") => with_protocols(body.pointer_mut("/spec")),
        ("v1", "PodTemplate") => with_protocols(body.pointer_mut("/template/spec")),
        (_, "CronJob") => with_protocols(body.pointer_mut("/spec/jobTemplate/spec/template/spec")),
        _ => with_protocols(body.pointer_mut("/spec/template/spec")),
    }
    body
}

/// Moves `stringData` of a Secret to `data`, as the API server does when it creates one.
fn encode(secret: &mut Value) {
    let Some(root) = secret.as_object_mut() else { return };
    let written = root.remove("stringData");
    let written = written.as_ref().and_then(Value::as_object).into_iter().flatten();
    let encoded = written.map(|(key, value)| match value {
        Value::String(text) => (key.clone(), json!(BASE64.encode(text.as_bytes()))),
        Value::Null => (key.clone(), json!("")),
        // The API server has to refuse it.
        other => (key.clone(), other.clone()),
    });
    let encoded: Map<String, Value> = encoded.collect();
    match root.get_mut("data").and_then(Value::as_object_mut) {
        Some(data) => data.extend(encoded),
        None if encoded.is_empty() => {}
        None => drop(root.insert("data".to_owned(), encoded.into())),
    }
}

/// Adds the default protocol to the ports of all containers of a pod.
fn with_protocols(pod: Option<&mut Value>) {
    let Some(pod) = pod.and_then(Value::as_object_mut) else { return };
    for kind in ["containers", "initContainers"] {
        let containers = pod.get_mut(kind).and_then(Value::as_array_mut).into_iter().flatten();
        containers.for_each(|container| with_protocol(container.get_mut("ports")));
    }
}

/// Adds the default protocol to ports: it is a part of a port's key, and apply adds no default before Kubernetes 1.21.
fn with_protocol(ports: Option<&mut Value>) {
    let ports = ports.and_then(Value::as_array_mut).into_iter().flatten();
    for port in ports.filter_map(Value::as_object_mut) {
        port.entry("protocol").or_insert_with(|| json!("TCP"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_applied_has_nothing_of_the_api_servers_and_no_text_for_writing_alone() {
        let object = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": "a", "creationTimestamp": null, "resourceVersion": "7", "managedFields": [],
            },
            "data": {"a": "MQ==", "b": "Mg=="}, "stringData": {"b": "3"},
        });
        let expected = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "uid": "u"},
            "data": {"a": "MQ==", "b": "Mw=="},
        });
        assert_eq!(applied(&object, &json!("u")), expected);
        let wrong = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {},
            "stringData": {"number": 1, "list": ["a"], "null": null},
        });
        let data = json!({"number": 1, "list": ["a"], "null": ""});
        assert_eq!(
            applied(&wrong, &json!("u"))["data"],
            data,
            "what is no text does not become empty"
        );
    }

    #[test]
    fn ports_say_their_protocol() {
        let pod = json!({"containers": [{"ports": [{"containerPort": 1}, {"protocol": "UDP"}]}]});
        let said = json!({"containers": [{"ports": [
            {"containerPort": 1, "protocol": "TCP"}, {"protocol": "UDP"},
        ]}]});
        for (version, kind, spec, expected) in [
            ("v1", "Pod", pod.clone(), said.clone()),
            (
                "apps/v1",
                "Deployment",
                json!({"template": {"spec": pod}}),
                json!({"template": {"spec": said}}),
            ),
            (
                "batch/v1",
                "CronJob",
                json!({"jobTemplate": {"spec": {"template": {"spec": pod}}}}),
                json!({"jobTemplate": {"spec": {"template": {"spec": said}}}}),
            ),
            (
                "v1",
                "Service",
                json!({"ports": [{"port": 1}]}),
                json!({"ports": [{"port": 1, "protocol": "TCP"}]}),
            ),
            ("v1", "Pod", json!("senseless"), json!("senseless")),
            ("v1", "Service", json!({"ports": [1]}), json!({"ports": [1]})),
        ] {
            let object = json!({"apiVersion": version, "kind": kind, "metadata": {}, "spec": spec});
            assert_eq!(applied(&object, &json!("u"))["spec"], expected, "{kind}");
        }
    }
}
