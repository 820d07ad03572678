//! A `/bin/broker` as a child process: what whoever starts one does, be it the supervisor on a machine
//! or the agent in a pod.
//!
//! [`keys`] makes its configuration into variables; [`group`] waits for it and ends what is left of it.

pub mod files;
pub mod group;
pub mod keys;
pub mod text;

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;

/// Thirty years: a time that does not come.
pub const NEVER: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// Now, as the contract tells a broker its deadline.
pub fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Whether what the system refused may be had in a moment. `TXTBSY`: the executable is just being
/// written.
pub fn passes(error: &io::Error) -> bool {
    let Some(code) = Errno::from_io_error(error) else { return true };
    [
        Errno::AGAIN,
        Errno::NOMEM,
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::MFILE,
        Errno::NFILE,
        Errno::TXTBSY,
        Errno::IO,
        Errno::INTR,
        Errno::BUSY,
    ]
    .contains(&code)
}
