//! Takes what a wrapped command prints on stdout, if the gathering asks for it.
//!
//! Text that may be one JSON object is kept, and delivered sealed; it is not in the log, which more people read.
//! Anything else is printed to the log, for those who look for what went wrong: at once if it
//! begins otherwise or is too large, and at the end if it was no object.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ChildStdout;
use std::time::{Duration, Instant};

use agent::{Content, Gathering};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use serde::de::IgnoredAny;

use crate::settle;
use crate::signals;

const CHUNK: usize = 32 * 1024;
/// How long the pipe is read after the command's end: outside of a container, a process that has left its group may
/// hold it open for ever.
const DRAIN: Duration = Duration::from_millis(500);

/// The stdout of a command so far.
pub(crate) struct Printed {
    from: Option<ChildStdout>,
    /// The most that is kept, in bytes.
    limit: usize,
    kept: Vec<u8>,
    bytes: u64,
    /// Whether it is no JSON object, so that it is passed on to the agent's own stdout.
    passes: bool,
}

impl Printed {
    /// Takes the stdout, if the gathering asks for it.
    pub(crate) fn taken(gathering: &Gathering) -> Option<Self> {
        let is_taken = gathering.outputs.values().any(|outputs| outputs.stdout.is_some());
        is_taken.then(|| Self {
            from: None,
            limit: gathering.file_limit,
            kept: Vec::new(),
            bytes: 0,
            passes: false,
        })
    }

    pub(crate) fn read_from(&mut self, stdout: ChildStdout) -> io::Result<()> {
        let flags = fcntl_getfl(&stdout)?;
        fcntl_setfl(&stdout, flags | OFlags::NONBLOCK)?;
        self.from = Some(stdout);
        Ok(())
    }

    /// The pipe to wait for; `None` when all of it was read.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.from.as_ref().map(AsFd::as_fd)
    }

    /// Reads what there is now.
    pub(crate) fn read(&mut self) {
        if self.from.is_none() {
            return;
        }
        let mut chunk = vec![0; CHUNK];
        while let Some(from) = &mut self.from {
            match from.read(&mut chunk) {
                Ok(read @ 1..) => self.take(&chunk[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Ok(0) | Err(_) => self.from = None,
            }
        }
    }

    fn take(&mut self, chunk: &[u8]) {
        self.bytes += chunk.len() as u64;
        let fits = chunk.len().min(self.limit.saturating_sub(self.kept.len()));
        self.kept.extend_from_slice(&chunk[..fits]);
        if self.passes {
            pass(chunk);
        } else if self.bytes > self.limit as u64 || !may_be_object(&self.kept) {
            self.passes = true;
            pass(&self.kept);
            pass(&chunk[fits..]);
        }
    }

    /// The content, when the command has ended and no process is left that prints.
    pub(crate) fn end(mut self) -> Content {
        let until = Instant::now() + DRAIN;
        self.read();
        while let Some(fd) = self.fd()
            && let left = until.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            let _ = signals::wait([fd], Some(left));
            self.read();
        }
        if !self.passes && serde_json::from_slice::<IgnoredAny>(&self.kept).is_err() {
            pass(&self.kept);
        }
        if self.bytes > self.limit as u64 {
            return Content::TooLarge(self.bytes);
        }
        match String::from_utf8(self.kept) {
            Ok(text) if text.trim().is_empty() => Content::Missing,
            Ok(text) => Content::Text(text),
            Err(_) => Content::NotText,
        }
    }
}

/// Whether a text begins as a JSON object does, or has nothing but space so far.
fn may_be_object(text: &[u8]) -> bool {
    let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
    first.is_none_or(|byte| *byte == b'{')
}

/// Writes to the agent's own stdout. If nobody reads it any more, that is no failure of the command.
fn pass(text: &[u8]) {
    settle::printed(text.len());
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(text).and_then(|()| stdout.flush());
}
