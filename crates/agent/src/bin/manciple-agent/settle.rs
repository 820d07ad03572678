//! Lets the runtime take what was printed.
//!
//! A runtime that hears of a container's end closes its end of the pipes, read or not: containerd 1.6 loses
//! what is in them, 64 KiB of the log, and with it a report that is there.

use std::io;
use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::ioctl_fionread;

/// A runtime that takes nothing for so long takes nothing any more.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);
/// What has left our pipe is in one of the runtime's own for a moment.
const ON_ITS_WAY: Duration = Duration::from_millis(200);

/// Waits until stdout and stderr are empty, if they are pipes that hold anything.
pub(crate) fn settle() {
    let held = || held(io::stdout()) + held(io::stderr());
    if held() == 0 {
        return;
    }
    let until = Instant::now() + PATIENCE;
    while held() > 0 && Instant::now() < until {
        sleep(LOOK);
    }
    sleep(ON_ITS_WAY);
}

fn held(pipe: impl AsFd) -> u64 {
    ioctl_fionread(pipe).unwrap_or(0)
}
