//! Unpacks the program into its file.

use core::ffi::CStr;

use loader::{Damage, TRAILER_BYTES};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{self, Mode, OFlags, SeekFrom};
use rustix::io::{self, Errno};

/// The failure of the loader: what failed, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failure {
    pub(crate) what: &'static str,
    pub(crate) errno: Option<Errno>,
}

impl Failure {
    pub(crate) fn of(what: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self { what, errno: Some(errno) }
    }
}

/// Unpacks the program that the loader carries into `target`, which everybody may execute and nobody may write. A file
/// that is there is replaced: a container may be started again.
pub(crate) fn unpack(target: &CStr) -> Result<(), Failure> {
    const ITSELF: &str = "the packed agent cannot be read";
    const TARGET: &str = "the file for the agent cannot be made";
    let packed = fs::open(c"/proc/self/exe", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(Failure::of(ITSELF))?;
    let mut rest = find(packed.as_fd()).map_err(Failure::of(ITSELF))?;
    match fs::unlink(target) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(Failure::of(TARGET)(errno)),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = fs::open(target, flags, Mode::from_raw_mode(0o555)).map_err(Failure::of(TARGET))?;
    let read = |buffer: &mut [u8]| {
        let most = usize::try_from(rest).unwrap_or(usize::MAX).min(buffer.len());
        let read = io::retry_on_intr(|| io::read(&packed, &mut buffer[..most]))?;
        rest -= read as u64;
        Ok(read)
    };
    // Closed when this returns: what is open for writing cannot be executed.
    loader::inflate(read, |bytes| write(file.as_fd(), bytes)).map_err(|damage| match damage {
        Damage::Read(errno) => Failure::of(ITSELF)(errno),
        Damage::Write(errno) => Failure::of("the agent cannot be written")(errno),
        Damage::Content => Failure { what: "the packed agent is damaged", errno: None },
    })
}

/// Seeks to the beginning of the packed program; returns its length, in bytes.
fn find(packed: BorrowedFd<'_>) -> Result<u64, Errno> {
    let end = fs::seek(packed, SeekFrom::End(-(TRAILER_BYTES as i64)))?;
    let mut trailer = [0; TRAILER_BYTES];
    let read = io::retry_on_intr(|| io::read(packed, &mut trailer))?;
    // Nothing was packed into it.
    let length = loader::length(&trailer).filter(|&length| read == TRAILER_BYTES && length <= end);
    let length = length.ok_or(Errno::NOEXEC)?;
    fs::seek(packed, SeekFrom::Start(end - length))?;
    Ok(length)
}

fn write(file: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = io::retry_on_intr(|| io::write(file, bytes))?;
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(())
}
