//! A `/bin/broker` as a child process: what whoever starts one does, be it the supervisor on a machine
//! or the agent in a pod.
//!
//! [`keys`] makes its configuration into variables; [`group`] waits for it and ends what is left of it.

pub mod files;
pub mod group;
pub mod keys;
pub mod text;

use std::io;

use rustix::io::Errno;

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
