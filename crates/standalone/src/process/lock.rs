//! The lock of a run: it says whether the run's supervisor is alive, and which process it is.
//!
//! A record lock (`fcntl`) rather than `flock`: the kernel says who holds it (`F_GETLK`) without
//! taking it, so to look is never in the way of a supervisor that is about to take it; it belongs to
//! the process, so no child inherits it; and it ends with the process, however that ends. A pid that
//! is used again by something else holds no lock.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use rustix::process::{
    Flock, FlockType, Pid, PidfdFlags, Signal, fcntl_getlk, kill_process, pidfd_open,
    pidfd_send_signal,
};

/// A lock that is held until it is dropped, or the process ends. The process must not open the file a second
/// time: the lock would end when that is closed.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock; `None` if another process has it.
    pub(super) fn take(path: &Path) -> io::Result<Option<Self>> {
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// The holder of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    /// The process that holds the lock.
    Process(Pid),
    /// A process that cannot be seen from here: of another pid namespace.
    Unseen,
}

/// The holder of the lock; `None` if nobody holds it, or there is no such file.
pub(super) fn holder(path: &Path) -> io::Result<Option<Holder>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let found = fcntl_getlk(&file, &Flock::from(FlockType::WriteLock))?;
    Ok(found.map(|lock| lock.pid.map_or(Holder::Unseen, Holder::Process)))
}

/// Sends a signal to the holder of the lock, and never to another process; `false` if nobody holds it.
pub(super) fn signal_holder(path: &Path, signal: Signal) -> io::Result<bool> {
    loop {
        let Some(held) = holder(path)? else { return Ok(false) };
        let Holder::Process(pid) = held else {
            let what = "the supervisor is not visible from this pid namespace";
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        };
        match pidfd_open(pid, PidfdFlags::empty()) {
            // The holder was alive before the descriptor was opened and is alive after: it is the
            // process behind the descriptor, and remains so whatever becomes of its pid.
            Ok(process) if holder(path)? == Some(held) => {
                return match pidfd_send_signal(&process, signal) {
                    Err(Errno::SRCH) => Ok(false),
                    sent => sent.map(|()| true).map_err(Into::into),
                };
            }
            Ok(_) | Err(Errno::SRCH) => {}
            // Kernels before 5.3 and some sandboxes.
            Err(Errno::NOSYS) => {
                return kill_process(pid, signal).map(|()| true).map_err(Into::into);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_nobody_has_has_no_holder() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        assert_eq!(holder(&path).unwrap(), None);
        let lock = Lock::take(&path).unwrap();
        assert!(lock.is_some());
        assert_eq!(holder(&path).unwrap(), None, "one's own lock is not in one's way");
        drop(lock);
        assert!(!signal_holder(&path, Signal::TERM).unwrap());
    }
}
