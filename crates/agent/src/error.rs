//! Why what came home cannot be read.

use crate::seal::HEAVIEST;

/// Why a message, a line or a log is not what it should be. No variant repeats what it found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Empty, cut off by the kubelet, or of another program.
    #[error("the termination message is not the agent's")]
    NotOurs,
    /// It begins as one of ours and does not go on as one.
    #[error("{0}")]
    Malformed(&'static str),
    /// It is sealed to a key that the set does not have.
    #[error("it is sealed to the key {0}, which is not known here: was it removed too early?")]
    UnknownKey(String),
    /// The log does not have all of it: rotated away, or not read to its end.
    #[error("the log lacks {missing} of the {total} lines of the report")]
    Incomplete {
        /// How many lines are not there.
        missing: usize,
        /// How many there should be.
        total: usize,
    },
    /// The log has other lines than those that the message speaks of.
    #[error("the report in the log is not the one that the termination message names")]
    OtherDigest,
    /// It was changed, is of another run, or was sealed for another purpose.
    #[error("it does not open: changed, or of another run")]
    NotOpened,
    /// It opens, and reading it would take more memory than there is for it.
    #[error(
        "it opens, and would take more than {} MiB of memory: let it have fewer maps and lists",
        HEAVIEST >> 20
    )]
    TooHeavy,
    /// It opens, and is not what an agent of this version writes.
    #[error("it opens, and is not a report that this version reads")]
    NotAReport,
    /// There is no randomness, or the key is no point of the curve.
    #[error("it cannot be sealed: {0}")]
    NotSealed(&'static str),
    /// A key that is none.
    #[error("{0}")]
    NotAKey(&'static str),
}
