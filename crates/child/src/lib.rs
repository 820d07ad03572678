//! Running a `/bin/broker` as a child process: the code that the supervisor on a machine and the agent in a pod share.
//!
//! [`exchange`] has the files of the contract; [`keys`] makes its configuration into variables; [`group`] waits for it and ends what is left of it.

pub mod exchange;
pub mod files;
pub mod group;
pub mod keys;
pub mod text;

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;

/// A time that does not come: thirty years.
pub const NEVER: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// The time now, in the form in which the contract tells a broker its deadline.
pub fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Whether an error of the system may pass in a moment. `TXTBSY`: the executable is just being
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
