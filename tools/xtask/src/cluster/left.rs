//! Checks that a cluster that was taken down has left nothing behind.

use std::path::Path;
use std::process::Command;

use anyhow::ensure;

use super::{Place, network, processes};

/// Insists that no process, mount, folder, bridge or rule of the cluster is there any more.
pub(super) fn nothing(place: &Place) -> anyhow::Result<()> {
    let folders = [place.state.as_path(), place.run.as_path()];
    let mut left = processes::naming(&folders);
    left.extend(processes::mounted_below(&folders).into_iter().map(|path| format!("mount {path}")));
    let there = folders.iter().filter(|folder| folder.exists());
    left.extend(there.map(|folder| format!("folder {}", folder.display())));
    if Path::new("/sys/class/net").join(network::BRIDGE).exists() {
        left.push(format!("bridge {}", network::BRIDGE));
    }
    let rules = Command::new("iptables").args(["-w", "-t", "nat", "-S"]).output();
    let rules = rules.map(|output| output.stdout).unwrap_or_default();
    let rules = String::from_utf8_lossy(&rules).into_owned();
    left.extend(rules.lines().filter(|rule| rule.contains(network::COMMENT)).map(str::to_owned));
    ensure!(left.is_empty(), "the cluster is down, but this stays:\n{}", left.join("\n"));
    Ok(())
}
