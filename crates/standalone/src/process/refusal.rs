//! Refusals: why something could not be started, and whether to try again.

use std::fmt::Display;
use std::io;
use std::path::Path;

use engine::ports::StartError;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// A refusal to start a run: a [`StartError`] in a form that a supervisor can send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Refusal {
    permanent: bool,
    message: String,
}

impl Refusal {
    /// A refusal that stays until somebody mends something.
    pub(super) fn permanent(message: impl Into<String>) -> Self {
        Self { permanent: true, message: message.into() }
    }

    /// A refusal after which a later start may succeed.
    pub(super) fn transient(message: impl Into<String>) -> Self {
        Self { permanent: false, message: message.into() }
    }

    /// The refusal for an error of the system, which is short of something now, or wrong for good.
    pub(super) fn of(what: impl Display, error: &io::Error) -> Self {
        Self { permanent: !child::passes(error), message: format!("{what}: {error}") }
    }

    /// The refusal for a program that could not be executed.
    pub(super) fn of_program(program: &Path, error: &io::Error) -> Self {
        let path = program.display();
        let remedy = match Errno::from_io_error(error) {
            Some(Errno::NOENT) if program.exists() => {
                format!("{path}: the interpreter that its first line names does not exist")
            }
            Some(Errno::NOENT) => {
                format!("{path}: no such executable; set the command to one that exists")
            }
            Some(Errno::ACCESS) if program.is_dir() => {
                format!("{path} is a directory; set the command to an executable")
            }
            Some(Errno::ACCESS | Errno::PERM) => format!(
                "{path} cannot be executed: make it executable (chmod +x), on a file system that is \
                 not mounted noexec"
            ),
            Some(Errno::NOEXEC) => format!(
                "{path} is neither a program for this machine nor a script that begins with #!"
            ),
            Some(Errno::TOOBIG) => format!(
                "{path} cannot be executed: the configuration is too large for an environment"
            ),
            _ => format!("{path} cannot be executed"),
        };
        Self::of(remedy, error)
    }
}

impl From<Refusal> for StartError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal { permanent: true, message } => Self::Permanent(message),
            Refusal { permanent: false, message } => Self::Transient(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_permanent(code: Errno) -> bool {
        let refusal = Refusal::of_program(Path::new("/bin/broker"), &io::Error::from(code));
        assert!(refusal.message.contains("/bin/broker"), "{refusal:?}");
        refusal.permanent
    }

    #[test]
    fn what_is_short_now_may_be_there_later() {
        for code in [Errno::AGAIN, Errno::NOMEM, Errno::NOSPC, Errno::MFILE, Errno::TXTBSY] {
            assert!(!is_permanent(code), "{code:?}");
        }
    }

    #[test]
    fn what_is_wrong_stays_wrong() {
        for code in [Errno::NOENT, Errno::ACCESS, Errno::NOEXEC, Errno::TOOBIG, Errno::NOTDIR] {
            assert!(is_permanent(code), "{code:?}");
        }
    }
}
