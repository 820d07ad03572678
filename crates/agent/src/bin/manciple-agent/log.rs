//! The broker's log: what it prints on stderr goes into the pod's log, redacted, up to a limit.
//!
//! ```text
//! stderr ──▶ head (half the limit) ──whole lines, as they come──▶ the pod's log
//!     └────▶ tail (half the limit, a ring) ──at the end──▶ the pod's log, the report
//! ```
//!
//! Credentials and state that a broker makes are known only when it has ended. A run that can make
//! some is not shown before: see [`Log::new`].
//!
//! A container runtime writes something beside each line, so that many short ones take more than the
//! limit. Half of what the pod's log may grow by is kept for the end, which says what went wrong.

use std::collections::VecDeque;
use std::io::Write;

use agent::escape;
use child::text;
use engine::redact::{Cut, Redactor};

use crate::settle::printed;

/// The length from which a line is written in pieces. In the worst case each byte becomes three, and container
/// runtimes break lines at 16 KiB.
const MAX_LINE: usize = 4 * 1024;

/// The most that is written as one line, in bytes.
const MAX_SHOWN_LINE: usize = 8 * 1024;
/// The most that the pod's log grows by for the beginning, in bytes, and again for the end. With a
/// report it stays under the 10 MiB at which a kubelet begins another file.
const MAX_SHOWN_HALF: usize = 1024 * 1024;
/// How many bytes a container runtime writes beside each line.
const LINE_COST: usize = 64;

/// A log while the broker runs.
pub(crate) struct Log {
    half: usize,
    head: Vec<u8>,
    /// How many bytes of the head were shown.
    shown: usize,
    tail: VecDeque<u8>,
    /// How many bytes were printed.
    printed: u64,
    /// The redactor of what the broker was given. `None`: nothing is shown before the end.
    live: Option<Redactor>,
    /// Whether what was shown last ends in the middle of a line.
    within_line: bool,
    /// How many bytes the pod's log may still grow by before the end; `None` once a line had no room.
    room: Option<usize>,
}

impl Log {
    /// A log of about `limit` bytes, shown as it comes where there is a redactor.
    pub(crate) fn new(limit: usize, live: Option<Redactor>) -> Self {
        Self {
            half: (limit / 2).max(1),
            head: Vec::new(),
            shown: 0,
            tail: VecDeque::new(),
            printed: 0,
            live,
            within_line: false,
            room: Some(MAX_SHOWN_HALF),
        }
    }

    /// Adds bytes that were printed.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.printed += bytes.len() as u64;
        let begun = bytes.len().min(self.half - self.head.len());
        self.head.extend_from_slice(&bytes[..begun]);
        let rest = &bytes[begun..];
        let rest = &rest[rest.len().saturating_sub(self.half)..];
        let over = (self.tail.len() + rest.len()).saturating_sub(self.half);
        self.tail.drain(..over);
        self.tail.extend(rest);
        if let Some(redactor) = self.live.take() {
            self.show_lines(&redactor);
            self.live = Some(redactor);
        }
    }

    /// Shows the rest, now that everything secret is known, and returns the whole log as it is kept.
    pub(crate) fn end(mut self, redactor: &Redactor) -> String {
        let tail: Vec<u8> = self.tail.drain(..).collect();
        let kept = (self.head.len() + tail.len()) as u64;
        if kept == self.printed {
            self.head.extend(tail);
            self.show_lines(redactor);
            let rest = self.piece(self.head.len(), redactor);
            self.show_end(&[&rest]);
            return redactor.redact(&String::from_utf8_lossy(&self.head)).into_owned();
        }
        let left_out = self.printed - kept;
        let end =
            redactor.redact_cut(&text::from_a_character(&tail), Some(Cut::Start)).into_owned();
        let note = format!("[{left_out} bytes left out]");
        self.show_lines(redactor);
        let cut = if self.within_line { Cut::Both } else { Cut::End };
        let rest = text::without_half_a_character(&self.head[self.shown..]);
        let rest = redactor.redact_cut(&rest, Some(cut)).into_owned();
        self.show_end(&[&rest, &note, &end]);
        let head = text::without_half_a_character(&self.head);
        let head = redactor.redact_cut(&head, Some(Cut::End));
        format!("{head}\n{note}\n{end}")
    }

    /// Shows the whole lines of the head, and a line that is too long to wait for its end, as long as
    /// there is room.
    fn show_lines(&mut self, redactor: &Redactor) {
        while self.room.is_some() {
            let rest = &self.head[self.shown..];
            let line = rest.iter().take(MAX_LINE).position(|&byte| byte == b'\n');
            let end = match line {
                Some(newline) => self.shown + newline,
                None if rest.len() > MAX_LINE => self.shown + boundary(&rest[..MAX_LINE]),
                None => return,
            };
            let piece = self.piece(end, redactor);
            // The end of a long line may be all that is left of it.
            let is_shown = self.within_line && piece.is_empty();
            if !is_shown && !self.show_line(&piece) {
                return;
            }
            self.within_line = line.is_none();
            self.shown = if line.is_some() { end + 1 } else { end };
        }
    }

    /// The part of the head up to `end` that is not shown yet, redacted.
    fn piece(&self, end: usize, redactor: &Redactor) -> String {
        let ends_line = self.head.get(end).is_none_or(|&byte| byte == b'\n');
        let cut = match (self.within_line, ends_line) {
            (false, true) => None,
            (false, false) => Some(Cut::End),
            (true, true) => Some(Cut::Start),
            (true, false) => Some(Cut::Both),
        };
        let piece = String::from_utf8_lossy(&self.head[self.shown..end]);
        redactor.redact_cut(&piece, cut).into_owned()
    }

    /// Writes a line of the head, a long one as several; `false` if there is no room for it.
    fn show_line(&mut self, line: &str) -> bool {
        let taken: usize = pieces(line).map(cost).sum();
        self.room = self.room.and_then(|room| room.checked_sub(taken));
        if self.room.is_some() {
            pieces(line).for_each(write_line);
        }
        self.room.is_some()
    }

    /// Writes the texts that were not shown so far: all of them, or as many of their last lines as there is room for.
    fn show_end(&self, texts: &[&str]) {
        let room = self.room.unwrap_or(0) + MAX_SHOWN_HALF;
        let (mut shown, mut taken, mut is_cut) = (VecDeque::new(), 0, false);
        for piece in texts.iter().flat_map(|text| text.lines()).flat_map(pieces) {
            taken += cost(piece);
            shown.push_back(piece);
            while taken > room
                && let Some(left_out) = shown.pop_front()
            {
                taken -= cost(left_out);
                is_cut = true;
            }
        }
        if is_cut {
            write_line("[some of it left out]");
        }
        shown.into_iter().for_each(write_line);
    }
}

/// The pieces of a line as it is written: a long one has several.
fn pieces(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let line = rest?;
        let (piece, after) = line.split_at(line.floor_char_boundary(MAX_SHOWN_LINE));
        rest = (!after.is_empty()).then_some(after);
        Some(piece)
    })
}

/// How many bytes of the room a line takes.
fn cost(line: &str) -> usize {
    escape(line).len() + LINE_COST
}

/// Writes a redacted line. If the log cannot be written, the run ends all the same.
fn write_line(line: &str) {
    let line = escape(line);
    printed(line.len() + 1);
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// The place where a piece can end: between characters.
fn boundary(piece: &[u8]) -> usize {
    let continued = piece.iter().rev().take(3).take_while(|&&byte| byte & 0xc0 == 0x80).count();
    let last = piece.len() - continued - 1;
    if piece[last] & 0xc0 == 0xc0 { last } else { piece.len() }
}
