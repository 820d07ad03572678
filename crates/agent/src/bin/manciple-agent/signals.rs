//! Signals in a form that can be waited for together with pipes: a handler writes a byte.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use signal_hook::low_level::pipe;

/// The signals that may be meant to end a container: the kubelet has its runtime send the `STOPSIGNAL` of the image,
/// and the agent runs in other people's images. It is SIGTERM where an image says nothing; nginx has SIGQUIT, httpd
/// SIGWINCH, haproxy SIGUSR1, systemd the last, SIGRTMIN+3 as glibc counts.
const ENDS: [i32; 9] = [
    Signal::TERM.as_raw(),
    Signal::INT.as_raw(),
    Signal::QUIT.as_raw(),
    Signal::HUP.as_raw(),
    Signal::USR1.as_raw(),
    Signal::USR2.as_raw(),
    Signal::WINCH.as_raw(),
    Signal::POWER.as_raw(),
    37,
];

/// Signals that are caught from the time when this is made. The first process of a container is sent no signal that it
/// does not catch.
pub(crate) struct Caught {
    stream: UnixStream,
}

impl Caught {
    pub(crate) fn catch(signal: Signal) -> io::Result<Self> {
        Self::any(&[signal.as_raw()])
    }

    /// Catches the signals that may be meant to end the agent.
    pub(crate) fn end() -> io::Result<Self> {
        Self::any(&ENDS)
    }

    fn any(signals: &[i32]) -> io::Result<Self> {
        let (stream, write) = UnixStream::pair()?;
        stream.set_nonblocking(true)?;
        for signal in signals {
            pipe::register(*signal, write.try_clone()?)?;
        }
        Ok(Self { stream })
    }

    /// Whether one of the signals has come since the last call.
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

/// Waits until one of the sources can be read, a signal or a pipe, for `at_most` that long;
/// it may return sooner. Returns whether one can be read.
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

/// A duration as a `Timespec`, rounded up to a millisecond, so that the time has come when the wait is over.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    let duration = duration + Duration::from_millis(1);
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// The signals that a run waits for.
pub(crate) struct Signals {
    end: Caught,
    child: Caught,
}

impl Signals {
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self { end: Caught::end()?, child: Caught::catch(Signal::CHILD)? })
    }

    /// Whether somebody has asked for the end since the last call.
    pub(crate) fn end(&mut self) -> bool {
        self.end.came()
    }

    /// Whether a child has ended since the last call.
    pub(crate) fn child(&mut self) -> bool {
        self.child.came()
    }

    /// Forgets the signals that came, which would end every further wait at once.
    pub(crate) fn pass_over(&mut self) {
        self.end();
        self.child();
    }

    pub(crate) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.end.as_fd(), self.child.as_fd()]
    }
}
