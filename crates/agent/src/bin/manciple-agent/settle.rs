//! Waits until the container runtime has taken what was printed.
//!
//! A runtime that learns of a container's end closes its pipes, read or not: containerd 1.6 loses what is in
//! them, 64 KiB of the log, and with it a report that is there.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::ioctl_fionread;

/// How many bytes are surely taken before the runtime learns of the end.
const LITTLE: usize = 16 * 1024;
/// How long a runtime may take nothing before the agent waits no longer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same patience when the pod is being ended: with [`ON_ITS_WAY`] it leaves something of the second that a pod may
/// have from SIGTERM to SIGKILL.
const HURRIED_PATIENCE: Duration = Duration::from_millis(250);
const LOOK: Duration = Duration::from_millis(5);
/// How long to wait for bytes that have left the agent's pipe: they are in one of the runtime's own for a moment, which
/// cannot be seen.
const ON_ITS_WAY: Duration = Duration::from_millis(300);

static PRINTED: AtomicUsize = AtomicUsize::new(0);

/// The circumstances of a container's end.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ending {
    /// Whether another process has printed to the same pipe, nobody knows how much.
    pub(crate) shared: bool,
    /// Whether the pod is being ended, so that SIGKILL may come soon.
    pub(crate) hurried: bool,
}

/// Notes that as many bytes were printed.
pub(crate) fn printed(bytes: usize) {
    PRINTED.fetch_add(bytes, Ordering::Relaxed);
}

/// Waits until what was printed is taken, if it is much: 2.3 seconds at most, hurried 550 ms.
pub(crate) fn settle(ending: Ending) {
    let much = if ending.shared { 1 } else { LITTLE };
    if PRINTED.load(Ordering::Relaxed) < much {
        return;
    }
    let held = || held(io::stdout()) + held(io::stderr());
    let until = Instant::now() + if ending.hurried { HURRIED_PATIENCE } else { PATIENCE };
    while held() > 0 && Instant::now() < until {
        sleep(LOOK);
    }
    sleep(ON_ITS_WAY);
}

fn held(pipe: impl AsFd) -> u64 {
    ioctl_fionread(pipe).unwrap_or(0)
}
