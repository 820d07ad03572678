//! The overlay `ha` as it is deployed: two replicas become ready, a budget lets one of them be taken away, what one
//! has accepted the other answers for, and a rolling restart loses nothing of what goes on.

use anyhow::ensure;
use serde_json::Value;

use super::place::{Place, manciple};
use crate::kubectl::Cluster;

/// All of it, in a namespace of its own.
pub(super) fn test(cluster: &Cluster) -> anyhow::Result<()> {
    Place::with(cluster, "ha", lives)
}

fn lives(place: &Place<'_>) -> anyhow::Result<()> {
    place.deploy()?;
    place.run(&["rollout", "status", "deployment/manciple", "--timeout=120s"])?;
    place.until("one of two may be taken away", |place| {
        let budget = place.get("poddisruptionbudget/manciple")?;
        let status = &budget["status"];
        Ok(status["expectedPods"] == 2 && status["disruptionsAllowed"] == 1)
    })?;
    let pods = place.replicas()?;
    let [one, other] = &pods[..] else { anyhow::bail!("two replicas, not {pods:?}") };
    let first = place.forward(one)?;
    manciple(&first.url, &["provision", "manciple-files", "plain", "shop"])?;
    place.run(&["delete", one, "--wait=false"])?;
    let second = place.forward(other)?;
    let said = manciple(&second.url, &["status", "shop", "-o", "json"])?;
    ensure!(said.contains("ready"), "{other} does not answer for what {one} made: {said}");
    manciple(&second.url, &["deprovision", "shop"])?;
    rolls(place)
}

/// A rolling restart while operations go on: each ends well, by its first attempt.
fn rolls(place: &Place<'_>) -> anyhow::Result<()> {
    let old = place.run_out(2)?;
    let before = place.forward(&old[0])?;
    let orders: Vec<String> = (0..6).map(|number| format!("rolling-{number}")).collect();
    for name in &orders {
        manciple(&before.url, &["provision", "manciple-files", "plain", name, "--no-wait"])?;
    }
    drop(before);
    place.run(&["rollout", "restart", "deployment/manciple"])?;
    let new = place.run_out(2)?;
    ensure!(new.iter().all(|pod| !old.contains(pod)), "{old:?} are still there: {new:?}");
    let after = place.forward(&new[0])?;
    for name in &orders {
        place.until(&format!("{name} is ready"), |_| {
            let said = manciple(&after.url, &["status", name, "-o", "json"])?;
            let operation = serde_json::from_str::<Value>(&said)?["operation"].clone();
            ensure!(operation["attempt"] == 1 && operation["state"] != "failed", "{name}: {said}");
            Ok(operation["state"] == "succeeded")
        })?;
    }
    for name in &orders {
        manciple(&after.url, &["deprovision", name])?;
    }
    Ok(())
}
