//! The errors of sealing reports and of reading them.

use crate::seal::HEAVIEST;

/// The reason why a message, a line, a log or a key cannot be used. No variant repeats what it found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The message is empty, cut off by the kubelet, or of another program.
    #[error("the termination message is not the agent's")]
    NotOurs,
    /// The text begins as one of the agent's and does not go on as one.
    #[error("{0}")]
    Malformed(&'static str),
    /// The report is sealed to a key that the set does not have.
    #[error("it is sealed to the key {0}, which is not known here: was it removed too early?")]
    UnknownKey(String),
    /// The log does not have all of the report: it was rotated, or not read to its end.
    #[error("the log lacks {missing} of the {total} lines of the report")]
    Incomplete {
        /// How many lines are not there.
        missing: usize,
        /// How many there should be.
        total: usize,
    },
    /// The log has other lines than those that the message refers to.
    #[error("the report in the log is not the one that the termination message names")]
    OtherDigest,
    /// The sealed text was changed, is of another run, or was sealed for another purpose.
    #[error("it does not open: changed, or of another run")]
    NotOpened,
    /// The report opens, but reading it would take more memory than is allowed.
    #[error(
        "it opens, and would take more than {} MiB of memory: let it have fewer maps and lists",
        HEAVIEST >> 20
    )]
    TooHeavy,
    /// The report opens, but is not what an agent of this version writes.
    #[error("it opens, and is not a report that this version reads")]
    NotAReport,
    /// There is no randomness, or the key is no point of the curve.
    #[error("it cannot be sealed: {0}")]
    NotSealed(&'static str),
    /// The text is not a key.
    #[error("{0}")]
    NotAKey(&'static str),
}
