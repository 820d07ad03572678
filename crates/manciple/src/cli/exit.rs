//! The exit codes of commands. Scripts depend on these numbers: a number never changes its meaning.

use std::fmt::Write as _;
use std::process::ExitCode;

/// The end of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command has done what was asked for.
    Done,
    /// The operation was accepted, and failed.
    OperationFailed,
    /// The command line is wrong.
    Usage,
    /// There was no answer.
    Unreachable,
    /// The broker refused the request: 4xx.
    Refused,
    /// The broker failed: 5xx.
    BrokerFailed,
    /// The named thing does not exist: 404 and 410.
    Missing,
    /// The credentials are missing or not sufficient: 401 and 403.
    Unauthorized,
    /// The operation had not ended when the command stopped waiting.
    Unfinished,
    /// The work is done, but its result cannot be printed.
    NotPrinted,
}

/// Every way to end, with its word in JSON and its meaning in the help and the man page.
const TABLE: [(Exit, u8, &str, &str); 10] = [
    (Exit::Done, 0, "ok", "Done"),
    (Exit::OperationFailed, 1, "operation-failed", "The operation was accepted and then failed"),
    (
        Exit::Usage,
        2,
        "usage",
        "Wrong arguments, or a local file that cannot be read or written; nothing was ordered",
    ),
    (
        Exit::Unreachable,
        3,
        "unreachable",
        "No answer: cannot connect, TLS does not verify, or the request timed out",
    ),
    (Exit::Refused, 4, "refused", "The broker, or the cluster, refused the request (4xx)"),
    (
        Exit::BrokerFailed,
        5,
        "broker-failed",
        "The broker, or the cluster, failed (5xx), or its answer cannot be understood, or is not as the specification has it",
    ),
    (Exit::Missing, 6, "not-found", "It does not exist, or does no longer (404, 410)"),
    (
        Exit::Unauthorized,
        7,
        "unauthorized",
        "The credentials are missing or wrong, or a right is missing (401, 403)",
    ),
    (
        Exit::Unfinished,
        8,
        "unfinished",
        "Waiting was interrupted or took too long; the operation goes on",
    ),
    (
        Exit::NotPrinted,
        9,
        "not-printed",
        "What was asked for is done, and its result cannot be written to standard output",
    ),
];

impl Exit {
    /// The end of a command by the status of a refusal.
    pub(crate) fn of_status(status: u16) -> Self {
        match status {
            401 | 403 => Self::Unauthorized,
            404 | 410 => Self::Missing,
            400..=499 => Self::Refused,
            _ => Self::BrokerFailed,
        }
    }

    /// The number of the exit code.
    pub(crate) fn code(self) -> u8 {
        self.row().1
    }

    /// The word for it in JSON.
    pub(crate) fn word(self) -> &'static str {
        self.row().2
    }

    fn row(self) -> &'static (Self, u8, &'static str, &'static str) {
        // The table is complete: see the test.
        TABLE.iter().find(|row| row.0 == self).unwrap_or(&TABLE[5])
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// The numbers and their meanings, for the man page.
pub(crate) fn meanings() -> impl Iterator<Item = (u8, &'static str)> {
    TABLE.iter().map(|(_, code, _, meaning)| (*code, *meaning))
}

/// The table, for `--help`.
pub(crate) fn help() -> String {
    let mut text = String::from("Exit status:\n");
    for (code, meaning) in meanings() {
        let _ = writeln!(text, "  {code}  {meaning}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_what_scripts_know() {
        let expected = [
            (Exit::Done, 0),
            (Exit::OperationFailed, 1),
            (Exit::Usage, 2),
            (Exit::Unreachable, 3),
            (Exit::Refused, 4),
            (Exit::BrokerFailed, 5),
            (Exit::Missing, 6),
            (Exit::Unauthorized, 7),
            (Exit::Unfinished, 8),
            (Exit::NotPrinted, 9),
        ];
        for (exit, code) in expected {
            assert_eq!(exit.code(), code, "{exit:?}");
            assert_eq!(exit.row().0, exit);
        }
        assert_eq!(expected.len(), TABLE.len());
    }

    #[test]
    fn statuses_end_as_they_should() {
        let cases = [
            (400, Exit::Refused),
            (401, Exit::Unauthorized),
            (403, Exit::Unauthorized),
            (404, Exit::Missing),
            (409, Exit::Refused),
            (410, Exit::Missing),
            (422, Exit::Refused),
            (429, Exit::Refused),
            (500, Exit::BrokerFailed),
            (503, Exit::BrokerFailed),
            (302, Exit::BrokerFailed),
        ];
        for (status, exit) in cases {
            assert_eq!(Exit::of_status(status), exit, "{status}");
        }
    }
}
