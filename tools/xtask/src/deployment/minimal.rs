//! The overlay `minimal` as it is deployed: one replica carries out what is ordered, and its figures are for those who
//! have a password.

use std::process::Command;

use anyhow::ensure;

use super::place::{Place, manciple};

/// Runs the test.
pub(super) fn test(place: &Place<'_>) -> anyhow::Result<()> {
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
}
