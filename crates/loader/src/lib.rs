//! The loader: an executable that carries another, compressed, at its end, unpacks it into a file, and becomes it.
//!
//! ```text
//! packed:  the loader (ELF) │ the program, compressed (zlib) │ "MANCIPLE" │ length of the middle part
//! ```
//!
//! A ConfigMap holds 1 MiB, and the agent has nearly two. The loader is built by `cargo xtask agent`, without the
//! standard library and without libc, so that it takes some tens of kilobytes; any other build of it does the same.
#![no_std]

#[cfg(feature = "pack")]
extern crate alloc;

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{
    TINFL_FLAG_COMPUTE_ADLER32, TINFL_FLAG_HAS_MORE_INPUT, TINFL_FLAG_PARSE_ZLIB_HEADER,
};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

/// The variable that says where the program is unpacked to, as an absolute path.
pub const TARGET_VARIABLE: &str = "MANCIPLE_AGENT";
/// The length of [`trailer`], in bytes.
pub const TRAILER_BYTES: usize = MAGIC.len() + size_of::<u64>();

const MAGIC: [u8; 8] = *b"MANCIPLE";
/// The window of deflate, in bytes: as far as it looks back.
const WINDOW: usize = 32 * 1024;
const INPUT: usize = 16 * 1024;

/// The reason why a program cannot be unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage<E> {
    /// Reading failed.
    Read(E),
    /// Writing failed.
    Write(E),
    /// The compressed content is damaged, or cut off.
    Content,
}

/// The trailer at the end of a packed program of `length` compressed bytes.
pub fn trailer(length: u64) -> [u8; TRAILER_BYTES] {
    let mut trailer = [0; TRAILER_BYTES];
    let (magic, rest) = trailer.split_at_mut(MAGIC.len());
    magic.copy_from_slice(&MAGIC);
    rest.copy_from_slice(&length.to_le_bytes());
    trailer
}

/// The number of compressed bytes before a trailer; `None` if it is no trailer.
pub fn length(trailer: &[u8; TRAILER_BYTES]) -> Option<u64> {
    let (magic, length) = trailer.split_first_chunk()?;
    (*magic == MAGIC).then(|| u64::from_le_bytes(*length.first_chunk().unwrap_or(&[0; 8])))
}

/// Unpacks the bytes that `read` gives, piece by piece, and checks them against their checksum. `read` returns how many
/// bytes it has put into its buffer, 0 at the end. Takes no memory but 60 kB of stack.
///
/// # Errors
/// [`Damage`]: the bytes that were written are of no use.
pub fn inflate<E>(
    mut read: impl FnMut(&mut [u8]) -> Result<usize, E>,
    mut write: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), Damage<E>> {
    const FLAGS: u32 = TINFL_FLAG_PARSE_ZLIB_HEADER | TINFL_FLAG_COMPUTE_ADLER32;
    let mut state = DecompressorOxide::new();
    let (mut input, mut window) = ([0; INPUT], [0; WINDOW]);
    let (mut begin, mut end, mut position) = (0, 0, 0);
    let mut more = TINFL_FLAG_HAS_MORE_INPUT;
    loop {
        if begin == end && more != 0 {
            (begin, end) = (0, read(&mut input).map_err(Damage::Read)?);
            if end == 0 {
                more = 0;
            }
        }
        let rest = input.get(begin..end).unwrap_or_default();
        let (status, taken, made) =
            decompress(&mut state, rest, &mut window, position, FLAGS | more);
        begin += taken;
        let made = window.get(position..position + made).unwrap_or_default();
        write(made).map_err(Damage::Write)?;
        position = (position + made.len()) % WINDOW;
        match status {
            TINFLStatus::Done => return Ok(()),
            TINFLStatus::HasMoreOutput | TINFLStatus::NeedsMoreInput => {}
            _ => return Err(Damage::Content),
        }
    }
}

/// Packs a program behind a loader.
#[cfg(feature = "pack")]
pub fn pack(loader: &[u8], program: &[u8]) -> alloc::vec::Vec<u8> {
    const BEST: u8 = 10;
    let compressed = miniz_oxide::deflate::compress_to_vec_zlib(program, BEST);
    [loader, &compressed, &trailer(compressed.len() as u64)].concat()
}
