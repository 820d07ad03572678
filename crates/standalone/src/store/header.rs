//! Checks the first hundred bytes of a file before SQLite opens it: whether it can be a
//! backup at all. A directory, a pipe or a device is not even opened.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

use super::error::OpenError;
use super::schema::APPLICATION_ID;

/// The first bytes of every database of SQLite ("Database File Format", section 1.3).
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const LENGTH: usize = 100;

/// Opens a file that may be a backup.
///
/// # Errors
/// [`OpenError::NotABackup`], [`OpenError::Io`].
pub(super) fn open(path: &Path) -> Result<File, OpenError> {
    let kind = std::fs::metadata(path).map_err(OpenError::io("reading", path))?;
    let no = |why: String| Err(OpenError::NotABackup { path: path.to_owned(), why });
    if kind.is_dir() {
        return no("it is a directory".to_owned());
    }
    if !kind.is_file() {
        return no("it is a pipe, a socket or a device, not a file".to_owned());
    }
    let file = File::open(path).map_err(OpenError::io("reading", path))?;
    let mut header = Vec::with_capacity(LENGTH);
    (&file)
        .take(LENGTH as u64)
        .read_to_end(&mut header)
        .and_then(|_| (&file).rewind())
        .map_err(OpenError::io("reading", path))?;
    match fault(&header, kind.len()) {
        None => Ok(file),
        Some(why) => no(why),
    }
}

/// The reason why a file with this header and length is no backup; `None` if it may be one.
fn fault(header: &[u8], length: u64) -> Option<String> {
    if length == 0 {
        return Some("it is empty".to_owned());
    }
    let number = |at: usize| -> u32 {
        header
            .get(at..at + 4)
            .map_or(0, |bytes| bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    };
    if !header.starts_with(MAGIC) || header.len() < LENGTH {
        return Some("it is not a database".to_owned());
    }
    if i64::from(number(68)) != i64::from(APPLICATION_ID) {
        return Some("it is a database of something else".to_owned());
    }
    let page = match number(16) >> 16 {
        1 => 65_536,
        page => u64::from(page),
    };
    // The number of pages counts only if whoever changed the file last has written it.
    let counted = number(24) == number(92) && number(28) > 0;
    let whole = page * u64::from(number(28));
    (counted && length < whole)
        .then(|| format!("it was cut short: it has {length} bytes of {whole}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(application: u32, pages: u32) -> Vec<u8> {
        let mut header = vec![0; LENGTH];
        header[..16].copy_from_slice(MAGIC);
        header[16..18].copy_from_slice(&4096_u16.to_be_bytes());
        header[28..32].copy_from_slice(&pages.to_be_bytes());
        header[68..72].copy_from_slice(&application.to_be_bytes());
        header
    }

    #[test]
    fn a_header_tells_what_a_file_cannot_be() {
        let ours = u32::try_from(APPLICATION_ID).unwrap();
        let cases: [(&str, Vec<u8>, u64, Option<&str>); 7] = [
            ("a backup", header(ours, 3), 3 * 4096, None),
            ("longer than it says", header(ours, 3), 4 * 4096, None),
            ("cut short", header(ours, 3), 2 * 4096, Some("it was cut short")),
            ("cut in its header", header(ours, 3)[..50].to_vec(), 50, Some("not a database")),
            ("of something else", header(7, 3), 3 * 4096, Some("of something else")),
            ("text", b"hello".to_vec(), 5, Some("not a database")),
            ("empty", Vec::new(), 0, Some("it is empty")),
        ];
        for (case, header, length, expected) in cases {
            let why = fault(&header, length);
            match expected {
                None => assert_eq!(why, None, "{case}"),
                Some(expected) => assert!(why.unwrap().contains(expected), "{case}"),
            }
        }
    }
}
