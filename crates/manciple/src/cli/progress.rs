//! Shows a person the progress of what a command waits for.

use std::io::{IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use osb::client::PollEvent;

use super::output::{Output, one_line};
use super::times;

/// The display of progress: a spinner on a terminal, lines elsewhere, nothing for programs, which read errors from
/// stderr.
pub(crate) struct Progress {
    shown: Arc<Shown>,
}

struct Shown {
    out: Output,
    bar: ProgressBar,
    lines: bool,
    name: String,
    started: Instant,
    last: Mutex<String>,
}

impl Progress {
    /// Begins to show progress: `name` is what the command waits for, `first` its state.
    pub(crate) fn new(name: &str, out: Output, first: &str) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = ProgressBar::new_spinner();
        if terminal && !out.quiet {
            let style = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}");
            if let Ok(style) = style {
                bar.set_style(style.tick_chars("|/-\\ "));
            }
            bar.enable_steady_tick(Duration::from_millis(120));
        } else {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let (lines, name) = (!terminal && out.is_chatty(), name.to_owned());
        let shown =
            Shown { out, bar, lines, name, started: Instant::now(), last: Mutex::default() };
        shown.tell(first);
        Self { shown: Arc::new(shown) }
    }

    /// Shows the state now, if it is new.
    pub(crate) fn tell(&self, text: &str) {
        self.shown.tell(text);
    }

    /// Shows a hint beside the state: it stays on the terminal.
    pub(crate) fn hint(&self, text: &str) {
        self.shown.bar.suspend(|| self.shown.out.hint(text));
    }

    /// A listener that shows the state as a broker says it.
    pub(crate) fn listener(&self) -> impl Fn(PollEvent<'_>) + Send + Sync + 'static {
        let shown = Arc::clone(&self.shown);
        move |event| match event {
            PollEvent::State(last) => shown.tell(last.description.as_deref().unwrap_or_default()),
            PollEvent::Trouble(error) => shown.tell(&format!("{error}; asking again")),
        }
    }
}

impl Shown {
    fn tell(&self, text: &str) {
        let text = one_line(text);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if text.is_empty() || *last == text {
            return;
        }
        self.bar.set_message(format!("{}: {text}", self.name));
        if self.lines {
            let elapsed = times::span(Duration::from_secs(self.started.elapsed().as_secs()));
            let elapsed = if elapsed == "0ms" { "0s".to_owned() } else { elapsed };
            let _ = writeln!(std::io::stderr().lock(), "{elapsed:>6}  {}: {text}", self.name);
        }
        *last = text;
    }
}

impl Drop for Progress {
    /// Clears the line, also when an interrupt ends the wait: it must not stay on the terminal.
    fn drop(&mut self) {
        if !self.shown.bar.is_hidden() {
            self.shown.bar.finish_and_clear();
        }
    }
}
