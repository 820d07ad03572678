//! The log of a broker: its beginning and its end are kept, up to a limit.
//!
//! While the log grows it is three files: `stderr`, the beginning, which stays; `stderr.new`, what came
//! last; and `stderr.old`, what came before that. When `stderr.new` is full it becomes
//! `stderr.old`, so a broker may print for as long as it likes: no more than one and a half times the
//! limit is ever kept, and nothing in memory.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use child::text;
use engine::redact::{Cut, Redactor};

use super::durable;

/// A log that is being written.
pub(super) struct Log {
    directory: PathBuf,
    half: usize,
    head: File,
    head_left: usize,
    tail: Option<(File, usize)>,
    /// How many bytes were printed, kept or not.
    pub(super) printed: u64,
}

impl Log {
    /// Begins a log in a directory, of about `limit` bytes; with a limit of 0 it only counts.
    pub(super) fn create(directory: &Path, limit: usize) -> io::Result<Self> {
        let half = limit.div_ceil(2);
        let head = durable::create(&head(directory))?;
        let directory = directory.to_owned();
        Ok(Self { directory, half, head, head_left: half, tail: None, printed: 0 })
    }

    /// Adds to the log.
    pub(super) fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.printed += bytes.len() as u64;
        let begun = bytes.len().min(self.head_left);
        self.head.write_all(&bytes[..begun])?;
        self.head_left -= begun;
        // What more than fills both files of the tail would be gone when this returns: a file for each
        // few bytes of it would keep the broker waiting.
        let skipped = (bytes.len() - begun).saturating_sub(self.half.saturating_mul(2));
        bytes = &bytes[begun + skipped..];
        while !bytes.is_empty() {
            let (file, left) = match &mut self.tail {
                Some(tail) if tail.1 > 0 => tail,
                tail => tail.insert((next_tail(&self.directory)?, self.half)),
            };
            let fits = bytes.len().min(*left);
            file.write_all(&bytes[..fits])?;
            *left -= fits;
            bytes = &bytes[fits..];
        }
        Ok(())
    }
}

/// Reads the log in a directory, redacted: at most `limit` bytes of it and a line about the rest. `printed`
/// is how many bytes there were, if nobody writes any more. Otherwise each file is redacted as a piece of its own, for
/// one may have become another between two reads, and the end may be half a secret.
pub(super) fn read(
    directory: &Path,
    limit: usize,
    printed: Option<u64>,
    redactor: &Redactor,
) -> io::Result<String> {
    let file = |path: PathBuf| Ok::<_, io::Error>(durable::read(&path, limit)?.unwrap_or_default());
    let mut beginning = file(head(directory))?;
    let mut earlier = file(old(directory))?;
    let mut latest = file(new(directory))?;
    let kept = (beginning.len() + earlier.len() + latest.len()) as u64;
    let is_whole = kept <= limit as u64
        && match printed {
            Some(printed) => kept >= printed,
            None => earlier.is_empty(),
        };
    if printed.is_some() {
        earlier.append(&mut latest);
        if is_whole {
            beginning.append(&mut earlier);
        }
    }
    let mut note = String::new();
    if !is_whole {
        keep_end(&mut latest, limit / 2);
        keep_end(&mut earlier, limit / 2 - latest.len());
        let left_out = printed.map_or_else(
            || "some of it".to_owned(),
            |printed| {
                let shown = beginning.len() + earlier.len() + latest.len();
                format!("{} bytes", printed.saturating_sub(shown as u64))
            },
        );
        note = format!("\n[{left_out} left out]\n");
    }
    let goes_on = printed.is_none() || !is_whole;
    let first = redacted(redactor, &beginning, goes_on.then_some(Cut::End));
    let cut = if printed.is_none() { Cut::Both } else { Cut::Start };
    let [earlier, latest] = [earlier, latest].map(|piece| redacted(redactor, &piece, Some(cut)));
    Ok([first, note, earlier, latest].concat())
}

/// Drops all but the last `most` bytes.
fn keep_end(bytes: &mut Vec<u8>, most: usize) {
    bytes.drain(..bytes.len().saturating_sub(most));
}

fn redacted(redactor: &Redactor, piece: &[u8], cut: Option<Cut>) -> String {
    let text = match cut {
        None => String::from_utf8_lossy(piece),
        Some(Cut::Start) => text::from_a_character(piece),
        Some(Cut::End) => text::without_half_a_character(piece),
        Some(Cut::Both) => text::of_whole_characters(piece),
    };
    redactor.redact_cut(&text, cut).into_owned()
}

fn next_tail(directory: &Path) -> io::Result<File> {
    match std::fs::rename(new(directory), old(directory)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    durable::create(&new(directory))
}

fn head(directory: &Path) -> PathBuf {
    directory.join("stderr")
}

fn old(directory: &Path) -> PathBuf {
    directory.join("stderr.old")
}

fn new(directory: &Path) -> PathBuf {
    directory.join("stderr.new")
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use engine::redact::Secrets;
    use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};

    use super::*;

    const LIMIT: usize = 64;

    fn written(pieces: &[&[u8]]) -> (tempfile::TempDir, Log) {
        let directory = tempfile::tempdir().unwrap();
        let mut log = Log::create(directory.path(), LIMIT).unwrap();
        pieces.iter().for_each(|piece| log.write(piece).unwrap());
        (directory, log)
    }

    fn text(pieces: &[&[u8]]) -> String {
        let (directory, log) = written(pieces);
        read(directory.path(), LIMIT, Some(log.printed), &Redactor::default()).unwrap()
    }

    #[test]
    fn a_short_log_is_kept_whole() {
        assert_eq!(text(&[]), "");
        assert_eq!(text(&[b"one\n", b"two\n"]), "one\ntwo\n");
        for length in [31, 32, 33, 63, 64] {
            let whole = "0123456789".repeat(7)[..length].to_owned();
            assert_eq!(text(&[whole.as_bytes()]), whole);
        }
    }

    #[test]
    fn a_long_log_is_kept_at_both_ends() {
        for length in [65_usize, 96, 97, 128, 129, 1000] {
            let whole: String = (0..length).map(|n| char::from(b'a' + (n % 26) as u8)).collect();
            let pieces: Vec<&[u8]> = whole.as_bytes().chunks(7).collect();
            let log = text(&pieces);
            let (start, rest) = log.split_once('\n').unwrap();
            let (note, end) = rest.split_once('\n').unwrap();
            assert_eq!(start, &whole[..32]);
            assert!(whole.ends_with(end) && end.len() >= 24, "{length}: {end}");
            let left_out = length - start.len() - end.len();
            assert_eq!(note, format!("[{left_out} bytes left out]"));
        }
    }

    #[test]
    fn what_is_kept_does_not_grow() {
        let (directory, mut log) = written(&[]);
        for _ in 0..100 {
            log.write(&[b'x'; 100]).unwrap();
            let entries = std::fs::read_dir(directory.path()).unwrap();
            let size: u64 = entries.map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
            assert!(size <= 3 * LIMIT as u64 / 2, "{size}");
        }
        assert_eq!(log.printed, 10_000);
    }

    #[test]
    fn of_a_log_without_room_nothing_is_written_and_all_is_counted() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = Log::create(directory.path(), 0).unwrap();
        log.write(b"one").unwrap();
        log.write(&[b'x'; 100_000]).unwrap();
        let entries = std::fs::read_dir(directory.path()).unwrap();
        let files: Vec<_> = entries.map(|entry| entry.unwrap()).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        assert_eq!(files[0].metadata().unwrap().len(), 0);
        let read = |printed| read(directory.path(), 0, printed, &Redactor::default()).unwrap();
        assert_eq!(read(Some(log.printed)).trim(), "[100003 bytes left out]");
        assert_eq!(read(None), "");
    }

    #[test]
    fn however_small_the_limit_a_write_costs_no_more_than_three_files() {
        for limit in [1, 2, 3, LIMIT] {
            let directory = tempfile::tempdir().unwrap();
            let mut log = Log::create(directory.path(), limit).unwrap();
            log.write(b"begun").unwrap();
            let made = inotify::init(CreateFlags::NONBLOCK).unwrap();
            // Two of the same kind that follow on each other are told as one.
            let events = WatchFlags::CREATE | WatchFlags::MOVED_TO;
            inotify::add_watch(&made, directory.path(), events).unwrap();
            log.write(&[b'x'; 65_535]).unwrap();
            log.write(b"e").unwrap();
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut made = Reader::new(made, &mut buffer);
            let count = std::iter::from_fn(|| made.next().ok().map(drop)).take(1000).count();
            assert!(count <= 2 * 4, "{limit}: {count}");
            let text = read(directory.path(), limit, Some(log.printed), &Redactor::default());
            assert!(text.unwrap().ends_with(if limit == 1 { "\n" } else { "e" }), "{limit}");
        }
    }

    #[test]
    fn a_log_that_grows_can_be_read() {
        let (directory, mut log) = written(&[b"begun\n"]);
        let live = |directory: &Path| read(directory, LIMIT, None, &Redactor::default()).unwrap();
        assert_eq!(live(directory.path()), "begun\n");
        log.write(&[b'x'; 500]).unwrap();
        assert!(live(directory.path()).contains("[some of it left out]"));
    }

    fn redactor() -> Redactor {
        let mut secrets = Secrets::default();
        secrets.add("sécrét-of-the-log".as_bytes());
        Redactor::new(&secrets)
    }

    #[test]
    fn of_a_log_that_grows_half_a_secret_is_masked() {
        let (directory, mut log) = written(&[b"begun: "]);
        let live = || read(directory.path(), LIMIT, None, &redactor()).unwrap();
        for byte in "sécrét-of-the-log".bytes() {
            log.write(&[byte]).unwrap();
            // Half a character is nothing yet.
            assert_eq!(live().trim_end_matches("[redacted]"), "begun: ");
        }
        assert_eq!(live(), "begun: [redacted]");
    }

    /// As it is read when a file becomes another meanwhile, or when they follow on each other.
    #[test]
    fn of_a_log_that_grows_half_a_secret_on_either_side_of_a_seam_is_masked() {
        let directory = tempfile::tempdir().unwrap();
        let put = |path: PathBuf, text: &str| std::fs::write(path, text).unwrap();
        for (case, pieces) in [
            ("a gap", ["one sécr", "the-log two sécr", "of-the-log three"]),
            ("no gap", ["one sécrét-o", "f-the-log two sécré", "t-of-the-log three"]),
            ("a middle", ["one", "rét-of-t", " three"]),
        ] {
            for (path, text) in [head, old, new].into_iter().zip(pieces) {
                put(path(directory.path()), text);
            }
            let text = read(directory.path(), 2 * LIMIT, None, &redactor()).unwrap();
            for part in ["séc", "ét", "of", "the", "log"] {
                assert!(
                    !text.replace("some of it left out", "").contains(part),
                    "{case}: {part} in {text}"
                );
            }
            assert!(text.starts_with("one") && text.ends_with(" three"), "{case}: {text}");
        }
    }

    #[test]
    fn a_secret_at_the_cut_is_masked() {
        let redactor = redactor();
        for shift in 0..40 {
            let filler = "x".repeat(shift);
            let piece = format!("{filler}sécrét-of-the-log");
            let (directory, log) = written(&[piece.repeat(9).as_bytes()]);
            let text = read(directory.path(), LIMIT, Some(log.printed), &redactor).unwrap();
            for part in ["séc", "crét", "of-the", "log\n"] {
                let kept = text.replace("[redacted]", "");
                assert!(!kept.contains(part), "{shift}: {part} in {text}");
            }
        }
    }
}
