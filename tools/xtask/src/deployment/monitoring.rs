//! The overlay `monitoring` as it is deployed: the server keeps all that its ServiceMonitor says, and what a Prometheus
//! operator makes of that leads to figures that nobody needs a password for.

use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::place::Place;

const DEFINITION: &str = "servicemonitors.monitoring.coreos.com";

/// Runs the test.
pub(super) fn test(place: &Place<'_>) -> anyhow::Result<()> {
    // It stays where an operator had installed it.
    let ours = place.run(&["get", "crd", DEFINITION]).is_err();
    let defined = if ours { place.define(definition()) } else { Ok(()) };
    let result = defined.and_then(|()| is_monitored(place)).and_then(|()| all_is_kept(place));
    if ours {
        place.run(&["delete", "crd", DEFINITION, "--ignore-not-found"])?;
    }
    result
}

fn is_monitored(place: &Place<'_>) -> anyhow::Result<()> {
    place.deploy()?;
    place.run_out(2)?;
    let monitor = place.get(&format!("{DEFINITION}/manciple"))?;
    let wanted = &monitor["spec"]["selector"]["matchLabels"];
    let labels = wanted.as_object().context("it selects by labels")?.iter();
    let labels: Vec<String> =
        labels.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or("?"))).collect();
    let labels = labels.join(",");
    let [endpoint] = &monitor["spec"]["endpoints"].as_array().context("endpoints")?[..] else {
        anyhow::bail!("one endpoint is monitored: {monitor}");
    };
    let service = only(place, "services", &labels)?;
    ensure!(
        service["metadata"]["name"] == "manciple" && has_port(&service["spec"], &endpoint["port"]),
        "it leads to no port of our Service: {monitor} {service}"
    );
    let behind = |place: &Place<'_>| behind(place, &labels, &endpoint["port"]);
    // Kubernetes writes them after it has found the pods ready.
    place.until("both replicas are behind the port of the monitor", |place| {
        Ok(behind(place)?.len() == 2)
    })?;
    let path = endpoint["path"].as_str().context("a path")?;
    for pod in behind(place)? {
        let forward = place.forward(&format!("pod/{pod}"))?;
        let figures = Command::new("curl")
            .args(["--silent", "--show-error", "--fail"])
            .arg(format!("{}{path}", forward.url))
            .output()?;
        let text = String::from_utf8_lossy(&figures.stdout);
        ensure!(text.contains("manciple_leading"), "{pod}: {figures:?}");
    }
    Ok(())
}

/// The pods behind a port of the one Service with these labels.
fn behind(place: &Place<'_>, labels: &str, port: &Value) -> anyhow::Result<Vec<String>> {
    let found = only(place, "endpoints", labels)?;
    let subsets = found["subsets"].as_array().into_iter().flatten().filter(|it| has_port(it, port));
    let pods = subsets
        .flat_map(|subset| subset["addresses"].as_array().into_iter().flatten())
        .filter_map(|address| address["targetRef"]["name"].as_str());
    Ok(pods.map(str::to_owned).collect())
}

/// The one thing with these labels.
fn only(place: &Place<'_>, what: &str, labels: &str) -> anyhow::Result<Value> {
    let found = place.run(&["get", what, "-l", labels, "-o", "json"])?;
    let mut found: Value = serde_json::from_str(&found)?;
    let all = found["items"].as_array_mut().context("a list")?;
    ensure!(all.len() == 1, "{labels} lead to one of {what}: {all:?}");
    Ok(all.remove(0))
}

fn has_port(of: &Value, name: &Value) -> bool {
    of["ports"].as_array().is_some_and(|ports| ports.iter().any(|it| it["name"] == *name))
}

/// Checks that the server keeps all that is deployed, and all that the chart may render beyond it. It silently drops
/// members that a kind does not have; this check notices a misspelt one.
fn all_is_kept(place: &Place<'_>) -> anyhow::Result<()> {
    let is_monitor = |object: &Value| object["kind"] == "ServiceMonitor";
    let deployed = place.overlay()?.into_iter().find(is_monitor).context("no ServiceMonitor")?;
    let dropped = |said: &Value| -> anyhow::Result<Vec<String>> {
        let name = said["metadata"]["name"].as_str().unwrap_or_default();
        let kept = place.get(&format!("{DEFINITION}/{name}"))?;
        Ok(lost("spec", &said["spec"], &kept["spec"]))
    };
    let missing = dropped(&deployed)?;
    ensure!(missing.is_empty(), "the server does not keep {missing:?}");

    let certificate = json!({"secretName": "certificate", "authorityKey": "ca.crt"});
    let tls = json!({"serviceMonitor": {"enabled": true}, "tls": certificate});
    let by_tls = super::objects_of(&tls)?.into_iter().find(is_monitor);
    let mut secure = by_tls.context("no ServiceMonitor with TLS")?;
    secure["metadata"]["name"] = json!("secure");
    place.apply(secure.clone(), &[])?;
    let missing = dropped(&secure)?;
    ensure!(missing.is_empty(), "with TLS the server does not keep {missing:?}");

    let mut misspelt = deployed;
    misspelt["metadata"]["name"] = json!("misspelt");
    misspelt["spec"]["endpoints"][0]["prot"] = json!("http");
    // Where kubectl knows the definition it refuses this by itself.
    place.apply(misspelt.clone(), &["--validate=false"])?;
    let missing = dropped(&misspelt)?;
    ensure!(missing.len() == 1, "what is misspelt is not noticed: {missing:?}");
    Ok(())
}

/// The paths of the members of `said` that `kept` lacks or has with another value.
fn lost(path: &str, said: &Value, kept: &Value) -> Vec<String> {
    match (said, kept) {
        (Value::Object(said), Value::Object(kept)) => {
            let below = |(name, value): (&String, &Value)| {
                lost(&format!("{path}.{name}"), value, kept.get(name).unwrap_or(&Value::Null))
            };
            said.iter().flat_map(below).collect()
        }
        (Value::Array(said), Value::Array(kept)) if said.len() == kept.len() => {
            said.iter().zip(kept).flat_map(|(said, kept)| lost(path, said, kept)).collect()
        }
        (said, kept) if said == kept => Vec::new(),
        (said, kept) => vec![format!("{path}: {said}, not {kept}")],
    }
}

/// The definition of the kind as the Prometheus operator documents it in its API reference, as far as Manciple's
/// ServiceMonitor may use it, with what stands beside that; without relabelings and what needs a newer Prometheus.
/// Whatever else is given is dropped.
fn definition() -> Value {
    let text = json!({"type": "string"});
    let texts = json!({"type": "array", "items": text});
    let flag = json!({"type": "boolean"});
    let number = json!({"type": "integer", "format": "int64"});
    let period = json!({"type": "string", "pattern": "^([0-9]+(y|w|d|h|m|s|ms))+$"});
    let object = |members: Value| json!({"type": "object", "properties": members});
    let needing = |needed: &[&str], members: Value| {
        let mut object = object(members);
        object["required"] = json!(needed);
        object
    };
    let map = |of: &Value| json!({"type": "object", "additionalProperties": of});
    let key = needing(&["key"], json!({"name": text, "key": text, "optional": flag}));
    let source = object(json!({"secret": key, "configMap": key}));
    let tls = object(json!({
        "ca": source, "cert": source, "keySecret": key,
        "caFile": text, "certFile": text, "keyFile": text,
        "serverName": text, "insecureSkipVerify": flag,
    }));
    let endpoint = object(json!({
        "port": text, "targetPort": {"x-kubernetes-int-or-string": true},
        "path": text, "scheme": {"type": "string", "enum": ["http", "https"]}, "params": map(&texts),
        "interval": period, "scrapeTimeout": period,
        "tlsConfig": tls, "basicAuth": object(json!({"username": key, "password": key})),
        "bearerTokenFile": text, "bearerTokenSecret": key,
        "honorLabels": flag, "honorTimestamps": flag, "proxyUrl": text,
    }));
    let expression =
        needing(&["key", "operator"], json!({"key": text, "operator": text, "values": texts}));
    let selector = object(json!({
        "matchLabels": map(&text), "matchExpressions": {"type": "array", "items": expression},
    }));
    let spec = needing(
        &["selector", "endpoints"],
        json!({
            "selector": selector, "endpoints": {"type": "array", "items": endpoint},
            "namespaceSelector": object(json!({"any": flag, "matchNames": texts})),
            "jobLabel": text, "targetLabels": texts, "podTargetLabels": texts,
            "sampleLimit": number, "targetLimit": number,
        }),
    );
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": DEFINITION},
        "spec": {
            "group": "monitoring.coreos.com", "scope": "Namespaced",
            "names": {
                "plural": "servicemonitors", "singular": "servicemonitor",
                "kind": "ServiceMonitor", "listKind": "ServiceMonitorList",
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": needing(&["spec"], json!({"spec": spec}))},
            }],
        },
    })
}
