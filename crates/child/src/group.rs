//! The processes of a broker: a process group, of which it is the first.

use std::io;
use std::time::Duration;

use engine::contract::Exit;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_process_group,
    test_kill_process_group, wait, waitid,
};

/// What a process has left that has ended: of its group, and in a container, whose first process we are, whatever there is.
#[derive(Debug, Clone, Copy)]
pub struct Leftovers(Pid);

impl Leftovers {
    /// How long they may take to be gone when they were killed.
    pub const LINGER: Duration = Duration::from_millis(500);

    /// Of a process that was the first of this group, and was reaped.
    pub fn of(group: Pid) -> Self {
        Self::of_container().unwrap_or(Self(group))
    }

    /// Of whatever has run in this container; `None` elsewhere, where not all there is belongs to us.
    pub fn of_container() -> Option<Self> {
        // To the first process, its own group is everything there is.
        (getpid() == Pid::INIT).then_some(Self(Pid::INIT))
    }

    /// Reaps what has ended, and says whether anything is left.
    pub fn are_there(self) -> bool {
        match self.0 {
            Pid::INIT => are_children_left(),
            group => is_left(group),
        }
    }

    /// Asks them to end.
    pub fn ask_to_end(self) {
        ask_to_end(self.0);
    }

    /// Ends them.
    pub fn kill(self) {
        signal(self.0, Signal::KILL);
    }
}

/// Whether the broker has ended; it is left to be reaped.
pub fn has_ended(broker: Pid) -> io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(broker), options)?.is_some())
}

/// Reaps what has ended, whoever's it was. If the broker is among it, what is left of its group is
/// sent the signal, and this is its status.
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

/// Reaps what has ended, and says whether anything is left of the group of a broker that was reaped.
pub fn is_left(broker: Pid) -> bool {
    are_children_left();
    test_kill_process_group(broker).is_ok()
}

/// Reaps what has ended, and says whether there are any children left. To the first process of a
/// container they are everything there is.
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

/// Sends the group a signal; one that is gone needs none.
pub fn signal(broker: Pid, signal: Signal) {
    let _ = kill_process_group(broker, signal);
}

/// How a process ended that was not ended by us.
pub fn exit_of(status: WaitStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(status), _) => Exit::Status(status),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Signal(0),
    }
}
