//! Reads files that other processes write.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Reads at most `limit` bytes of a regular file; `None` if there is none. A pipe or a device in its place
/// could be read for ever.
pub fn read(path: &Path, limit: usize) -> io::Result<Option<Vec<u8>>> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut content = Vec::new();
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?.take(limit as u64).read_to_end(&mut content)?,
    };
    Ok(Some(content))
}
