//! Reads what a broker prints, and waits for it.

use std::io::{self, Read};
use std::mem;
use std::os::fd::AsFd;
use std::process::{Child, ChildStderr, ChildStdout};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::log::Log;
use crate::signals::{Signals, timespec};

/// The size of a read, in bytes: half of what a pipe holds.
const CHUNK: usize = 32 * 1024;

/// The pipes of a broker, and what came through them.
pub(crate) struct Output {
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    kept: Vec<u8>,
    limit: usize,
    printed: u64,
    log: Log,
    chunk: Box<[u8]>,
}

impl Output {
    pub(crate) fn of(broker: &mut Child, limit: usize, log: Log) -> Self {
        Self {
            stdout: broker.stdout.take(),
            stderr: broker.stderr.take(),
            kept: Vec::new(),
            limit,
            printed: 0,
            log,
            chunk: vec![0; CHUNK].into(),
        }
    }

    /// Waits for output, a signal, or the time `until`, and reads what there is.
    pub(crate) fn read(&mut self, signals: &Signals, until: Instant) -> io::Result<()> {
        let (stdout, stderr) = self.wait(signals, until)?;
        if stdout && let Some(read) = read_some(&mut self.stdout, &mut self.chunk) {
            self.printed += read as u64;
            let fits = read.min(self.limit.saturating_sub(self.kept.len()));
            self.kept.extend_from_slice(&self.chunk[..fits]);
        }
        if stderr && let Some(read) = read_some(&mut self.stderr, &mut self.chunk) {
            self.log.write(&self.chunk[..read]);
        }
        Ok(())
    }

    /// Whether a pipe is open, so that somebody may still print.
    pub(crate) fn is_open(&self) -> bool {
        self.stdout.is_some() || self.stderr.is_some()
    }

    pub(crate) fn is_too_much(&self) -> bool {
        self.printed > self.limit as u64
    }

    pub(crate) fn into_parts(mut self) -> (Vec<u8>, Log) {
        (mem::take(&mut self.kept), self.log)
    }

    /// Waits, and says which of stdout and stderr can be read.
    fn wait(&self, signals: &Signals, until: Instant) -> io::Result<(bool, bool)> {
        // A pipe that is closed is replaced by what is waited for anyway; nothing is read from it.
        let [end, child] = signals.fds();
        let stdout = self.stdout.as_ref().map_or(end, AsFd::as_fd);
        let stderr = self.stderr.as_ref().map_or(end, AsFd::as_fd);
        let mut polled =
            [stdout, stderr, end, child].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let left = until.saturating_duration_since(Instant::now());
        match poll(&mut polled, Some(&timespec(left))) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok((false, false)),
            Err(error) => return Err(error.into()),
        }
        Ok((!polled[0].revents().is_empty(), !polled[1].revents().is_empty()))
    }
}

/// Reads from a pipe that has something, and drops it at its end.
fn read_some(pipe: &mut Option<impl Read>, chunk: &mut [u8]) -> Option<usize> {
    let read = pipe.as_mut()?.read(chunk).unwrap_or(0);
    if read == 0 {
        *pipe = None;
    }
    Some(read)
}
