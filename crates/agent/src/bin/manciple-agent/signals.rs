//! Signals as something that can be waited for together with pipes: a handler writes a byte.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGCHLD, SIGTERM};
use signal_hook::low_level::pipe;

pub(crate) struct Signals {
    end: UnixStream,
    child: UnixStream,
}

impl Signals {
    /// Catches them from now on. The first process of a container is sent no signal that it does not
    /// catch.
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self { end: stream(SIGTERM)?, child: stream(SIGCHLD)? })
    }

    /// Whether somebody has asked for the end since this was asked.
    pub(crate) fn end(&mut self) -> bool {
        came(&mut self.end)
    }

    /// Whether a child has ended since this was asked.
    pub(crate) fn child(&mut self) -> bool {
        came(&mut self.child)
    }

    /// Forgets what came: it would be waited for in vain otherwise.
    pub(crate) fn pass_over(&mut self) {
        self.end();
        self.child();
    }

    pub(crate) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.end.as_fd(), self.child.as_fd()]
    }
}

fn stream(signal: i32) -> io::Result<UnixStream> {
    let (read, write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    pipe::register(signal, write)?;
    Ok(read)
}

fn came(stream: &mut UnixStream) -> bool {
    let mut bytes = [0; 64];
    let mut came = false;
    while matches!(stream.read(&mut bytes), Ok(1..)) {
        came = true;
    }
    came
}
