//! The life of a process that goes on until it is told to end, be it a server or a controller: who it is among replicas,
//! where it listens, and why it ends.

use std::io;
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use engine::vital;
use kubernetes::Lead;
use rustix::io::Errno;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::random;

/// How long a pod that is to go still takes what comes: so long may it be sent something by those who have
/// not heard yet.
pub(crate) const LINGER: Duration = Duration::from_secs(5);

const UNDONE: &str = "the API server went back to an earlier time: begin this process anew, as a Deployment does by \
                      itself";

/// Ends with the last of so many signals, SIGTERM or SIGINT, counted from the call on; before it each of them ends the
/// process.
///
/// # Errors
/// If they cannot be caught.
pub(crate) fn told_to_end(times: u32) -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be caught")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be caught")?;
    Ok(async move {
        for _ in 0..times {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        }
    })
}

/// Says why a process ends that nobody told to.
///
/// # Errors
/// If the API server went back to an earlier time, or a task panicked that all else relies on.
pub(crate) fn whole(lead: Option<&Lead>) -> anyhow::Result<()> {
    ensure!(!lead.is_some_and(Lead::is_undone), UNDONE);
    if let Some(task) = vital::panicked() {
        bail!(
            "a task panicked that all else relies on, {task}, by a defect of this program: the log says where; begin this \
             process anew, as a Deployment does by itself"
        );
    }
    Ok(())
}

/// Where pods listen: on all their addresses, of IPv6 and, but where `net.ipv6.bindv6only` is set, of IPv4.
pub(crate) const EVERYWHERE: &str = "[::]:8080";

/// Listens where a member, or a flag, says; where that cannot be, `usual` is an example of what can. Where
/// a kernel knows no IPv6, all of its addresses are those of IPv4.
///
/// # Errors
/// With the member and the remedy; beneath is the system's [`std::io::Error`].
pub(crate) async fn bind(member: &str, listen: &str, usual: &str) -> anyhow::Result<TcpListener> {
    let bound = match TcpListener::bind(listen).await {
        Err(error) if is_without_ipv6(&error) => match listen.strip_prefix("[::]") {
            Some(port) => TcpListener::bind(format!("0.0.0.0{port}")).await,
            None => Err(error),
        },
        bound => bound,
    };
    bound.with_context(|| unbound(member, listen, usual))
}

/// Whether it is an address at all, as [`bind`] would find out: before anything is made that is to last.
///
/// # Errors
/// As of [`bind`].
pub(crate) fn is_an_address(member: &str, listen: &str, usual: &str) -> anyhow::Result<()> {
    listen.to_socket_addrs().map(drop).with_context(|| unbound(member, listen, usual))
}

fn unbound(member: &str, listen: &str, usual: &str) -> String {
    format!(
        "{member}: {listen} cannot be listened on: name an address and a port that are free, as {usual:?}"
    )
}

/// Whether it is a kernel that does not know IPv6: its addresses are IPv4's alone.
fn is_without_ipv6(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error())
}

/// Takes the Lease when it is free and keeps it, until it is given back. To be spawned.
pub(crate) fn keep_lease(lead: Arc<Lead>) -> impl Future<Output = ()> {
    vital::task("the Lease", async move { lead.keep().await })
}

/// Who we are among replicas: the pod's name, and something that a pod of the same name does not have.
///
/// # Errors
/// If the system has no random numbers to give.
pub(crate) fn identity() -> anyhow::Result<String> {
    Ok(format!("{}-{}", pod(), &random::text()?[..8]))
}

/// The pod's name. Host names are cut at 63 bytes; a pod's name may be longer.
pub(crate) fn pod() -> String {
    let named = std::env::var("POD_NAME").ok().filter(|name| !name.is_empty());
    let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    named.unwrap_or_else(|| host().trim().to_owned())
}
