//! The overlay `ha` as it is deployed: two replicas become ready, a budget lets one of them be taken away, what one has
//! accepted the other answers for, and neither a replica that is killed nor an upgrade loses anything of what goes on.

use anyhow::ensure;

use super::place::{Place, TIMEOUT, manciple};
use super::{killed, roll};

/// Runs the test.
pub(super) fn test(place: &Place<'_>) -> anyhow::Result<()> {
    roll::deploy(place)?;
    place.run(&["rollout", "status", "deployment/manciple", TIMEOUT])?;
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
    killed::test(place)?;
    roll::test(place)
}
