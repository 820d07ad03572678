//! Pods on a bridge, and one rule by which they find the API server.
//!
//! There is no proxy for services: pods reach the API server by its service address through one rule of
//! address translation, and the machine reaches pods by their own addresses, the API server too.

use std::process::Command;

use super::configuration::{API_PORT, SERVICE_ADDRESS};

pub(super) const BRIDGE: &str = "manciple0";
/// The bridge's own address: there before the API server, which is told to advertise it.
pub(super) const GATEWAY: &str = "10.244.77.1";
pub(super) const PODS: &str = "10.244.77.0/24";

/// By which our rules are known.
pub(super) const COMMENT: &str = "manciple-test-cluster";

/// Where packets for the API server come from: pods, and the machine itself.
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

/// Nothing of it may be there: no error is one.
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
