//! Reports why there is no agent: in the pod's log, and in the termination message, where the controller looks.

use core::fmt::{self, Write};

use rustix::fd::BorrowedFd;
use rustix::fs::{self, Mode, OFlags};
use rustix::io;

use crate::unpack::Failure;

/// A line of the report, cut where it is too long.
struct Line {
    bytes: [u8; 256],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.length..).unwrap_or_default();
        let cut = text.len().min(room.len());
        room[..cut].copy_from_slice(&text.as_bytes()[..cut]);
        self.length += cut;
        Ok(())
    }
}

/// Reports a failure in the form of the agent's own `broken` message. Errors of the report itself are ignored.
pub(crate) fn report(failure: Failure, stderr: BorrowedFd<'_>) {
    let mut line = Line { bytes: [0; 256], length: 0 };
    let Failure { what, errno } = failure;
    let _ = write!(line, "MANCIPLE1 broken {what}");
    if let Some(errno) = errno {
        let _ = write!(line, " (error {} of the system)", errno.raw_os_error());
    }
    let said = line.bytes.get(..line.length).unwrap_or_default();
    let _ = io::write(stderr, said);
    let _ = io::write(stderr, b"\n");
    let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC;
    if let Ok(message) = fs::open(c"/dev/termination-log", flags, Mode::empty()) {
        let _ = io::write(message, said);
    }
}
