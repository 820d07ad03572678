//! The life of a server's or a controller's process: its identity among replicas, the address it listens on, and the
//! reasons for which it ends.

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

/// How long a pod that is being removed still takes requests: senders that have not heard of it may send some for as
/// long.
pub(crate) const LINGER: Duration = Duration::from_secs(5);

const UNDONE: &str = "the API server went back to an earlier time: begin this process anew, as a Deployment does by \
                      itself";

/// Returns a future that ends with the `times`th SIGTERM or SIGINT, counted from the call on; before the call each of
/// them ends the process.
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

/// Returns an error if the process ends although nobody told it to.
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

/// The address on which pods listen: all their addresses, of IPv6 and, unless `net.ipv6.bindv6only` is set, of IPv4.
pub(crate) const EVERYWHERE: &str = "[::]:8080";

/// Listens on the address of a configuration's member, or of a flag; the error names `usual` as an example. If
/// the kernel knows no IPv6, `[::]` means all addresses of IPv4.
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

/// Checks that a text is an address at all, as [`bind`] would, before anything lasting is made.
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

/// Whether the error says that the kernel does not know IPv6.
fn is_without_ipv6(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error())
}

/// Takes the Lease when it is free and keeps it, until it is given back. To be spawned.
pub(crate) fn keep_lease(lead: Arc<Lead>) -> impl Future<Output = ()> {
    vital::task("the Lease", async move { lead.keep().await })
}

/// The identity of this process among replicas: the pod's name, and something that a pod of the same name does not
/// have.
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
