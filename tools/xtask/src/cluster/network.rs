//! The network of the cluster: pods on a bridge, and one rule by which they find the API server.
//!
//! There is no proxy for services: pods reach the API server by its service address through one rule of
//! address translation, and the machine reaches pods by their own addresses, the API server too.

use std::process::Command;

use super::configuration::{API_PORT, SERVICE_ADDRESS};

pub(super) const BRIDGE: &str = "manciple0";
/// The bridge's own address: it is there before the API server, which advertises it.
pub(super) const GATEWAY: &str = "10.244.77.1";
pub(super) const PODS: &str = "10.244.77.0/24";

/// The comment by which the cluster's rules are recognized.
pub(super) const COMMENT: &str = "manciple-test-cluster";

/// The chains of packets for the API server: those from pods, and those from the machine itself.
const CHAINS: [&str; 2] = ["PREROUTING", "OUTPUT"];

pub(super) fn up() -> anyhow::Result<()> {
    crate::run(Command::new("ip").args(["link", "add", BRIDGE, "type", "bridge"]))?;
    let address = format!("{GATEWAY}/24");
    crate::run(Command::new("ip").args(["address", "add", &address, "dev", BRIDGE]))?;
    crate::run(Command::new("ip").args(["link", "set", BRIDGE, "up"]))?;
    for chain in CHAINS {
        crate::run(&mut translation("-A", chain))?;
    }
    Ok(())
}

/// Removes the network; all errors are ignored, for nothing of it may be there.
pub(super) fn down() {
    for chain in CHAINS {
        while translation("-D", chain).output().is_ok_and(|output| output.status.success()) {}
    }
    let _ = Command::new("ip").args(["link", "delete", BRIDGE]).output();
}

fn translation(change: &str, chain: &str) -> Command {
    let mut iptables = Command::new("iptables");
    iptables
        .args(["-w", "-t", "nat", change, chain, "-d", SERVICE_ADDRESS, "-p", "tcp"])
        .args(["--dport", "443", "-m", "comment", "--comment", COMMENT])
        .args(["-j", "DNAT", "--to-destination", &format!("{GATEWAY}:{API_PORT}")]);
    iptables
}
