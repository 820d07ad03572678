//! What a wrapped command prints on stdout, where that is taken.
//!
//! What may be one object of JSON is kept, and comes home sealed; it is not in the log, which more people read.
//! Anything else is kept nowhere, so that it is printed, for those who look for what went wrong: at once what
//! begins otherwise or is too large, and at the end what was none.

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
/// Outside of a container, what has left may hold the pipe open for ever.
const DRAIN: Duration = Duration::from_millis(500);

/// What a command has printed so far.
pub(crate) struct Printed {
    from: Option<ChildStdout>,
    /// The most that is kept.
    limit: usize,
    kept: Vec<u8>,
    bytes: u64,
    /// It is no output: it goes on to our own stdout.
    passes: bool,
}

impl Printed {
    /// If it is to be taken.
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

    /// To wait for more; nothing when all of it was read.
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

    /// What there is when the command has ended, and nobody is left who prints.
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

/// Whether it begins as an object does, or with nothing but space so far.
fn may_be_object(text: &[u8]) -> bool {
    let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
    first.is_none_or(|byte| *byte == b'{')
}

/// To our own stdout. Nobody may read it any more, and the command has ended well all the same.
fn pass(text: &[u8]) {
    settle::printed(text.len());
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(text).and_then(|()| stdout.flush());
}
