//! The processes of a broker: a process group, of which it is the first.

use std::io;
use std::time::Duration;

use engine::contract::Exit;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_process_group,
    test_kill_process_group, wait, waitid,
};

/// The processes that an ended process has left: those of its group, or, if this is the first process of a container,
/// all that there are.
#[derive(Debug, Clone, Copy)]
pub struct Leftovers(Pid);

impl Leftovers {
    /// How long killed processes may take to be gone.
    pub const LINGER: Duration = Duration::from_millis(500);

    /// The leftovers of a process that was the first of this group, and was reaped.
    pub fn of(group: Pid) -> Self {
        Self::of_container().unwrap_or(Self(group))
    }

    /// The leftovers of whatever has run in this container; `None` if this is not its first process.
    pub fn of_container() -> Option<Self> {
        // To the first process, its own group is everything there is.
        (getpid() == Pid::INIT).then_some(Self(Pid::INIT))
    }

    /// Reaps the processes that have ended, and returns whether any is left.
    pub fn are_there(self) -> bool {
        match self.0 {
            Pid::INIT => are_children_left(),
            group => is_left(group),
        }
    }

    /// Asks the processes to end.
    pub fn ask_to_end(self) {
        ask_to_end(self.0);
    }

    /// Kills the processes.
    pub fn kill(self) {
        signal(self.0, Signal::KILL);
    }
}

/// Whether the broker has ended; it is not reaped yet.
pub fn has_ended(broker: Pid) -> io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(broker), options)?.is_some())
}

/// Reaps all children that have ended. If the broker is among them, the signal `leftovers` is sent to what is left of
/// its group, and its status is returned.
pub fn reap(broker: Pid, leftovers: Signal) -> io::Result<Option<WaitStatus>> {
    // Before it is reaped, for until then the number of the group is certainly its own.
    if has_ended(broker)? {
        signal(broker, leftovers);
    }
    let mut status = None;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, ended))) if pid == broker => {
                // Should it have ended just now.
                signal(broker, leftovers);
                status = Some(ended);
            }
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) | Err(Errno::CHILD) => return Ok(status),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reaps the children that have ended, and returns whether anything is left of the group of a broker that was reaped.
pub fn is_left(broker: Pid) -> bool {
    are_children_left();
    test_kill_process_group(broker).is_ok()
}

/// Reaps the children that have ended, and returns whether any are left. To the first process of a
/// container they are all processes that there are.
fn are_children_left() -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Asks the group to end.
pub fn ask_to_end(broker: Pid) {
    signal(broker, Signal::TERM);
    // One that is stopped does not hear of it otherwise.
    signal(broker, Signal::CONT);
}

/// Sends a signal to the group; if it is gone, nothing happens.
pub fn signal(broker: Pid, signal: Signal) {
    let _ = kill_process_group(broker, signal);
}

/// The end of a process that was not ended by this program.
pub fn exit_of(status: WaitStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(status), _) => Exit::Status(status),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Signal(0),
    }
}
