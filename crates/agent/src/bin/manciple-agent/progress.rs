//! Reports the broker's progress, as it says it in a file: each change as a sealed line in the log.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use agent::{Line, Order, Purpose, Sealed};
use engine::contract;
use engine::redact::Redactor;

/// The most that is read of the file, in bytes.
const MAX_FILE_BYTES: usize = 16 * 1024;
const POLL: Duration = Duration::from_millis(200);
/// The part of the run's time so far that has to pass between two lines: this allows ten lines a
/// second at first, and about a thousand in a day.
const PART: u32 = 100;

pub(crate) struct Progress<'o> {
    order: &'o Order,
    file: PathBuf,
    redactor: Redactor,
    began: Instant,
    looked: Instant,
    modified: Option<SystemTime>,
    said: Option<String>,
}

impl<'o> Progress<'o> {
    /// Watches a progress file, which is redacted by what the broker was given.
    pub(crate) fn watch(order: &'o Order, file: PathBuf, redactor: Redactor) -> Self {
        let now = Instant::now();
        Self { order, file, redactor, began: now, looked: now, modified: None, said: None }
    }

    /// The time of the next look.
    pub(crate) fn next(&self) -> Instant {
        self.looked + POLL.max(self.began.elapsed() / PART)
    }

    /// Looks at the file, if it is time.
    pub(crate) fn look(&mut self) {
        if Instant::now() < self.next() {
            return;
        }
        self.looked = Instant::now();
        let modified = self.file.metadata().and_then(|file| file.modified()).ok();
        if modified.is_none() || modified == self.modified {
            return;
        }
        self.modified = modified;
        let Ok(Some(text)) = child::files::read(&self.file, MAX_FILE_BYTES) else { return };
        let text = String::from_utf8_lossy(&text);
        let Some(progress) = contract::progress(&text, &self.redactor) else { return };
        if self.said.as_ref() == Some(&progress) {
            return;
        }
        let Order { run, key, .. } = self.order;
        if let Ok(sealed) = Sealed::seal(key, Purpose::Progress, run, progress.as_bytes()) {
            let line = format!("{}\n", Line::Progress(sealed));
            let _ = std::io::stdout().write_all(line.as_bytes());
        }
        self.said = Some(progress);
    }
}
