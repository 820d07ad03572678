//! The overlays `minimal` and `monitoring` as they are deployed: one replica carries out what is ordered, and what a
//! Prometheus operator makes of the ServiceMonitor leads to figures that nobody needs a password for.

use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::place::{Place, manciple};
use crate::kubectl::Cluster;

const DEFINITION: &str = "servicemonitors.monitoring.coreos.com";

/// All of it, each in a namespace of its own.
pub(super) fn test(cluster: &Cluster) -> anyhow::Result<()> {
    Place::with(cluster, "minimal", |place| {
        place.deploy()?;
        let pods = place.run_out(1)?;
        let only = place.forward(&pods[0])?;
        manciple(&only.url, &["provision", "manciple-files", "plain", "shop"])?;
        manciple(&only.url, &["deprovision", "shop"])?;
        let refused = Command::new("curl")
            .args(["--silent", "--output", "/dev/null", "--write-out", "%{http_code}"])
            .arg(format!("{}/metrics", only.url))
            .output()?;
        ensure!(refused.stdout == b"401", "figures without a password: {refused:?}");
        Ok(())
    })?;
    // It stays where an operator had installed it.
    let ours = cluster.run(&["get", "crd", DEFINITION]).is_err();
    let result = Place::with(cluster, "monitoring", monitored);
    if ours {
        cluster.run(&["delete", "crd", DEFINITION, "--ignore-not-found"])?;
    }
    result
}

fn monitored(place: &Place<'_>) -> anyhow::Result<()> {
    if place.run(&["get", "crd", DEFINITION]).is_err() {
        place.define(definition())?;
    }
    place.deploy()?;
    place.run_out(2)?;
    let monitor = place.get("servicemonitor/manciple")?;
    let wanted = &monitor["spec"]["selector"]["matchLabels"];
    let labels = wanted.as_object().context("it selects by labels")?.iter();
    let labels: Vec<String> =
        labels.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or("?"))).collect();
    let [endpoint] = &monitor["spec"]["endpoints"].as_array().context("endpoints")?[..] else {
        anyhow::bail!("one endpoint is monitored: {monitor}");
    };
    let behind = |place: &Place<'_>| behind(place, &labels.join(","), &endpoint["port"]);
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
    let found = place.run(&["get", "endpoints", "-l", labels, "-o", "json"])?;
    let found: Value = serde_json::from_str(&found)?;
    let [found] = &found["items"].as_array().context("endpoints of services")?[..] else {
        anyhow::bail!("{labels} lead to one Service: {found}");
    };
    let has_port = |subset: &&Value| {
        let ports = subset["ports"].as_array();
        ports.is_some_and(|ports| ports.iter().any(|it| it["name"] == *port))
    };
    let subsets = found["subsets"].as_array().into_iter().flatten().filter(has_port);
    let pods = subsets
        .flat_map(|subset| subset["addresses"].as_array().into_iter().flatten())
        .filter_map(|address| address["targetRef"]["name"].as_str());
    Ok(pods.map(str::to_owned).collect())
}

/// As much of what the Prometheus operator installs as a ServiceMonitor needs to be kept.
fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": DEFINITION},
        "spec": {
            "group": "monitoring.coreos.com", "scope": "Namespaced",
            "names": {"plural": "servicemonitors", "singular": "servicemonitor", "kind": "ServiceMonitor"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    })
}
