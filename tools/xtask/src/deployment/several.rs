//! The overlays of `examples/` that sell databases, and two brokers in one Manciple, as they are deployed: each asks
//! its images what they offer, and takes an order of what needs no database.

use anyhow::ensure;
use serde_json::{Value, json};

use super::place::{PASSWORD, Place, manciple};
use crate::kubectl::Cluster;
use crate::manifests;

/// The Secret of a broker of databases, as the examples name it.
fn password() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "postgres"},
        "stringData": {"pg.admin.password": PASSWORD},
    })
}

/// `examples/kubernetes/brokers`.
pub(super) fn together(cluster: &Cluster, place: &Place<'_>) -> anyhow::Result<()> {
    install(cluster, place, "examples/kubernetes/brokers", "manciple-brokers", &[password()])?;
    let pods = place.run_out(1)?;
    for broker in ["files", "postgres"] {
        place.until(&format!("the Broker {broker} is served"), |place| {
            let broker = place.get(&format!("brokers.manciple.dev/{broker}"))?;
            Ok(broker["status"]["conditions"][0]["reason"] == "Serving")
        })?;
    }
    let only = place.forward(&pods[0])?;
    manciple(&only.url, &["provision", "manciple-files", "plain", "shop"])?;
    manciple(&only.url, &["deprovision", "shop"]).map(drop)
}

/// `examples/postgres/kubernetes`, without a database to sell: it is ready once it knows what its image offers.
pub(super) fn postgres(cluster: &Cluster, place: &Place<'_>) -> anyhow::Result<()> {
    let files = std::fs::read_dir("examples/postgres/config")?;
    let config = files.map(|file| {
        let file = file?;
        let text = std::fs::read_to_string(file.path())?;
        Ok((file.file_name().to_string_lossy().into_owned(), Value::from(text)))
    });
    let config = config.collect::<anyhow::Result<serde_json::Map<_, _>>>()?;
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "postgres"}, "data": config,
    });
    let example = "examples/postgres/kubernetes";
    install(cluster, place, example, "manciple-postgres", &[config, password()])?;
    place.run_out(1).map(drop)
}

/// An example's overlay, in this namespace in the place of its own, with what its README has made beside it.
fn install(
    cluster: &Cluster,
    place: &Place<'_>,
    example: &str,
    of: &str,
    beside: &[Value],
) -> anyhow::Result<()> {
    let [_, credentials] = place.needed();
    let made = cluster.run(&["kustomize", example])?;
    ensure!(made.contains(of), "{example} is not of the namespace {of}");
    let made = manifests::objects(&made.replace(of, place.namespace()))?;
    let all = beside.iter().cloned().chain([credentials]).chain(made);
    cluster.apply(place.namespace(), all, &[])
}
