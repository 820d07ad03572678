//! The agent's own lines in the log of its container, among those that the broker printed.
//!
//! ```text
//! #MANCIPLE1 report <16 hex digits of the digest> <index, from 0> <base64>
//! #MANCIPLE1 progress <key id> <base64>
//! ```
//!
//! A broker's lines that look like one are written with a space before them ([`escape`]).

use std::borrow::Cow;
use std::fmt;

use data_encoding::BASE64;

use crate::Error;
use crate::keys::is_id;
use crate::seal::Sealed;

/// How many bytes of a report go into a line: container runtimes break lines at 16 KiB.
pub(crate) const CHUNK: usize = 6 * 1024;

const MARK: &str = "#MANCIPLE";
const FIRST: &str = "#MANCIPLE1";

/// A line of the agent's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A part of a report that does not fit into the termination message.
    Report {
        /// The beginning of the report's SHA-256 digest, in hexadecimal.
        digest: String,
        /// The number of the part, from 0.
        index: usize,
        /// The part of the sealed report.
        bytes: Vec<u8>,
    },
    /// The progress of the run: [`Sealed::progress`].
    Progress(Sealed),
}

impl Line {
    /// Reads a line of a log; `None` if it is not the agent's.
    ///
    /// # Errors
    /// [`Error::Malformed`]: nothing an agent of this version wrote.
    pub fn parse(line: &str) -> Option<Result<Self, Error>> {
        let rest = line.trim_end().strip_prefix(FIRST)?.strip_prefix(' ')?;
        let words: Vec<&str> = rest.splitn(5, ' ').collect();
        Some(match *words.as_slice() {
            ["report", digest, index, text] => Self::report(digest, index, text),
            ["progress", key, text] => sealed(key, text).map(Self::Progress),
            _ => Err(Error::Malformed("a line of the log is of another version, or cut")),
        })
    }

    fn report(digest: &str, index: &str, text: &str) -> Result<Self, Error> {
        let malformed = |_| Error::Malformed("a line of the report is cut, or was changed");
        let index =
            index.parse().map_err(|_| Error::Malformed("a line of the report has no number"))?;
        let bytes = BASE64.decode(text.as_bytes()).map_err(malformed)?;
        Ok(Self::Report { digest: digest.to_owned(), index, bytes })
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Report { digest, index, bytes } => {
                write!(f, "{FIRST} report {digest} {index} {}", BASE64.encode(bytes))
            }
            Self::Progress(Sealed { key, bytes }) => {
                write!(f, "{FIRST} progress {key} {}", BASE64.encode(bytes))
            }
        }
    }
}

/// Escapes a broker's line, so that it is not taken for the agent's.
pub fn escape(line: &str) -> Cow<'_, str> {
    match line.starts_with(MARK) {
        true => Cow::Owned(format!(" {line}")),
        false => Cow::Borrowed(line),
    }
}

/// Reads a key's id and the text sealed to it, from a message or a line.
pub(crate) fn sealed(key: &str, text: &str) -> Result<Sealed, Error> {
    if !is_id(key) {
        return Err(Error::Malformed("no key has such an id"));
    }
    let bytes = BASE64.decode(text.as_bytes());
    let bytes = bytes.map_err(|_| Error::Malformed("what is sealed is not base64, or cut"))?;
    Ok(Sealed { key: key.to_owned(), bytes })
}
