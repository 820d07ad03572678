//! Lets the runtime take what was printed.
//!
//! A runtime that hears of a container's end closes its pipes, read or not: containerd 1.6 loses what is in
//! them, 64 KiB of the log, and with it a report that is there.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::ioctl_fionread;

/// So little is taken before anybody hears of the end, in bytes.
const LITTLE: usize = 16 * 1024;
/// A runtime that takes nothing for so long takes nothing any more.
const PATIENCE: Duration = Duration::from_secs(2);
/// With what is on its way it leaves something of a second, which a pod may have from SIGTERM to SIGKILL.
const HURRIED_PATIENCE: Duration = Duration::from_millis(250);
const LOOK: Duration = Duration::from_millis(5);
/// What has left our pipe is in one of the runtime's own for a moment, which cannot be seen.
const ON_ITS_WAY: Duration = Duration::from_millis(300);

static PRINTED: AtomicUsize = AtomicUsize::new(0);

/// What is known of how a container ends.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ending {
    /// Somebody else has printed where we print, nobody knows how much.
    pub(crate) shared: bool,
    /// The pod is being ended: SIGKILL may come soon.
    pub(crate) hurried: bool,
}

/// So many bytes were printed.
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
