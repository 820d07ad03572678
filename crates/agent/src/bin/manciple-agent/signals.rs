//! Signals as something that can be waited for together with pipes: a handler writes a byte.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use signal_hook::low_level::pipe;

/// A signal that is caught from when this is made. The first process of a container is sent no signal that it
/// does not catch.
pub(crate) struct Caught {
    signal: Signal,
    stream: UnixStream,
}

impl Caught {
    pub(crate) fn catch(signal: Signal) -> io::Result<Self> {
        let (stream, write) = UnixStream::pair()?;
        stream.set_nonblocking(true)?;
        pipe::register(signal.as_raw(), write)?;
        Ok(Self { signal, stream })
    }

    pub(crate) fn signal(&self) -> Signal {
        self.signal
    }

    /// Whether it has come since this was asked.
    pub(crate) fn came(&mut self) -> bool {
        let mut bytes = [0; 64];
        let mut came = false;
        while matches!(self.stream.read(&mut bytes), Ok(1..)) {
            came = true;
        }
        came
    }
}

impl AsFd for Caught {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Waits until there is something to read of one of them, a signal or what is printed, and for `at_most` so long;
/// it may be over sooner. Says whether there is.
pub(crate) fn wait<'s>(
    read: impl IntoIterator<Item = BorrowedFd<'s>>,
    at_most: Option<Duration>,
) -> io::Result<bool> {
    let polled = read.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    match poll(&mut polled.collect::<Vec<_>>(), at_most.map(timespec).as_ref()) {
        Ok(came) => Ok(came > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Rounded up to a millisecond, so that the time has come when this is over.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    let duration = duration + Duration::from_millis(1);
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// What a run waits for.
pub(crate) struct Signals {
    end: Caught,
    child: Caught,
}

impl Signals {
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self { end: Caught::catch(Signal::TERM)?, child: Caught::catch(Signal::CHILD)? })
    }

    /// Whether somebody has asked for the end since this was asked.
    pub(crate) fn end(&mut self) -> bool {
        self.end.came()
    }

    /// Whether a child has ended since this was asked.
    pub(crate) fn child(&mut self) -> bool {
        self.child.came()
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
