//! The termination message: what the agent leaves for the kubelet to put into the pod's status.
//!
//! ```text
//! MANCIPLE1 sealed <key id> <base64>                 the report itself
//! MANCIPLE1 logged <key id> <SHA-256> <bytes>        it is in the log: see Line
//! MANCIPLE1 broken <why>                             there is none: what to do could not be read
//! ```

use std::fmt;

use data_encoding::{BASE64, HEXLOWER};
use sha2::{Digest, Sha256};

use crate::keys::{KeySet, is_id};
use crate::line::{CHUNK, Line, sealed};
use crate::seal::Sealed;
use crate::{Error, Gathered, Report};

/// The longest termination message that a kubelet takes.
pub const MAX_MESSAGE_BYTES: usize = 4096;

/// How many bytes a kubelet takes of the messages of all containers of a pod together: each container has an equal
/// share, whoever has put it there. What is longer is cut.
pub const POD_MESSAGES_BYTES: usize = 12 * 1024;

/// How many bytes of a message a report takes: one of five shares, for service meshes and debuggers add containers to
/// pods.
pub const SHARED_MESSAGE_BYTES: usize = POD_MESSAGES_BYTES / 5;

/// The longest sealed report that is put into a log, in bytes: with all else that an agent prints it
/// stays under the 10 MiB at which a kubelet begins a new file, and the old one can be read no more.
pub const MAX_LOGGED_BYTES: usize = 5 * 1024 * 1024;

/// The most containers of a pod with which each share has room to say where its report is, however large that is.
pub const MAX_CONTAINERS: usize = POD_MESSAGES_BYTES / LOGGED_BYTES;

/// The file of a container's termination message, if its pod does not say otherwise.
pub const MESSAGE_FILE: &str = "/dev/termination-log";

const FIRST: &str = "MANCIPLE1";
/// The length of `MANCIPLE1 sealed 0123456789abcdef `, which is the same with `logged`.
const HEAD: usize = 34;
/// The length of a message that says where the largest report is: a digest in hexadecimal, a space and a length follow.
const LOGGED_BYTES: usize = HEAD + 2 * DIGEST_BYTES + 1 + MAX_LOGGED_BYTES.ilog10() as usize + 1;
/// The longest sealed text that fits into a report's message.
pub(crate) const MAX_SEALED_IN_MESSAGE: usize = sealed_within(SHARED_MESSAGE_BYTES);

const DIGEST_BYTES: usize = 32;

/// The content of a termination message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The message holds the report.
    Sealed(Sealed),
    /// The message says where in the log the report is.
    Logged(Logged),
    /// There is no report: why, in a line for operators. It is not sealed, so anybody may have written
    /// it who can write the message.
    Broken(String),
}

impl Message {
    /// The message for a sealed report: the report itself if it fits, else where it will be.
    pub fn of(sealed: &Sealed) -> Self {
        Self::within(sealed, SHARED_MESSAGE_BYTES)
    }

    /// The message for a sealed report if only `limit` bytes are taken of it, for a kubelet shares 12 KiB
    /// among the containers of a pod. To say where a report is takes 106 bytes at most, whatever the limit.
    pub fn within(sealed: &Sealed, limit: usize) -> Self {
        match sealed.bytes.len() <= sealed_within(limit.min(MAX_MESSAGE_BYTES)) {
            true => Self::Sealed(sealed.clone()),
            false => Self::Logged(Logged::of(sealed)),
        }
    }

    /// Reads a termination message.
    ///
    /// # Errors
    /// [`Error::NotOurs`], [`Error::Malformed`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        let rest = text.strip_prefix(FIRST).and_then(|rest| rest.strip_prefix(' '));
        let (kind, rest) = rest.and_then(|rest| rest.split_once(' ')).ok_or(Error::NotOurs)?;
        if text.len() > MAX_MESSAGE_BYTES {
            return Err(Error::Malformed("the termination message is longer than one can be"));
        }
        if kind == "broken" {
            let why = Some(printable(rest)).filter(|why| !why.is_empty());
            let why = why.ok_or(Error::Malformed("there is no report, and it does not say why"))?;
            return Ok(Self::Broken(why));
        }
        let words: Vec<&str> = rest.split(' ').collect();
        match (kind, words.as_slice()) {
            ("sealed", &[key, text]) => sealed(key, text).map(Self::Sealed),
            ("logged", &[key, digest, length]) => {
                Logged::parse(key, digest, length).map(Self::Logged)
            }
            _ => Err(Error::Malformed("the termination message is of another version, or cut")),
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sealed(Sealed { key, bytes }) => {
                write!(f, "{FIRST} sealed {key} {}", BASE64.encode(bytes))
            }
            Self::Logged(Logged { key, digest, length }) => {
                write!(f, "{FIRST} logged {key} {} {length}", HEXLOWER.encode(digest))
            }
            Self::Broken(why) => {
                let why = printable(why);
                let most = MAX_MESSAGE_BYTES - FIRST.len() - " broken ".len();
                write!(f, "{FIRST} broken {}", &why[..why.floor_char_boundary(most)])
            }
        }
    }
}

/// How many sealed bytes fit into a message of `limit` bytes.
const fn sealed_within(limit: usize) -> usize {
    limit.saturating_sub(HEAD) / 4 * 3
}

/// Makes a text one line, without anything that a terminal would obey.
fn printable(why: &str) -> String {
    why.replace(char::is_control, " ").trim().to_owned()
}

/// The place of a report in a log, by its digest: lines that somebody else put there have another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    key: String,
    digest: [u8; DIGEST_BYTES],
    length: usize,
}

impl Logged {
    fn of(sealed: &Sealed) -> Self {
        let digest = Sha256::digest(&sealed.bytes).into();
        Self { key: sealed.key.clone(), digest, length: sealed.bytes.len() }
    }

    fn parse(key: &str, digest: &str, length: &str) -> Result<Self, Error> {
        let decoded = HEXLOWER.decode(digest.as_bytes()).ok().and_then(|it| it.try_into().ok());
        let digest = decoded.ok_or(Error::Malformed("what it names is no SHA-256 digest"))?;
        let length = length.parse().ok().filter(|length| (1..=MAX_LOGGED_BYTES).contains(length));
        let length = length.ok_or(Error::Malformed("no report is of such a length"))?;
        if !is_id(key) {
            return Err(Error::Malformed("no key has such an id"));
        }
        Ok(Self { key: key.to_owned(), digest, length })
    }

    /// The lines for the log that carry a sealed report.
    pub fn lines(sealed: &Sealed) -> impl Iterator<Item = Line> {
        let digest = Self::of(sealed).short();
        sealed.bytes.chunks(CHUNK).enumerate().map(move |(index, bytes)| Line::Report {
            digest: digest.clone(),
            index,
            bytes: bytes.to_vec(),
        })
    }

    /// How many lines of the log carry the report.
    pub fn lines_in_log(&self) -> usize {
        self.length.div_ceil(CHUNK)
    }

    /// Finds the report in the text of the log, whatever else is there.
    ///
    /// # Errors
    /// [`Error::Incomplete`], [`Error::OtherDigest`].
    pub fn read(&self, log: &str) -> Result<Sealed, Error> {
        let total = self.lines_in_log();
        let short = self.short();
        let mut found: Vec<Option<Vec<u8>>> = vec![None; total];
        for line in log.split('\n') {
            match Line::parse(line) {
                // One that is there twice was read twice.
                Some(Ok(Line::Report { digest, index, bytes })) if digest == short => {
                    if let Some(place) = found.get_mut(index) {
                        place.get_or_insert(bytes);
                    }
                }
                _ => {}
            }
        }
        let missing = found.iter().filter(|chunk| chunk.is_none()).count();
        if missing > 0 {
            return Err(Error::Incomplete { missing, total });
        }
        let bytes: Vec<u8> = found.into_iter().flatten().flatten().collect();
        let sealed = Sealed { key: self.key.clone(), bytes };
        if sealed.bytes.len() != self.length || Self::of(&sealed).digest != self.digest {
            return Err(Error::OtherDigest);
        }
        Ok(sealed)
    }

    /// Finds the report in the text of the log and opens it.
    ///
    /// # Errors
    /// As [`Self::read`] and [`Sealed::report`].
    pub fn report(&self, log: &str, keys: &KeySet, run: &str) -> Result<Report, Error> {
        self.read(log)?.report(keys, run)
    }

    /// Finds the gathered files in the text of the log and opens them.
    ///
    /// # Errors
    /// As [`Self::read`] and [`Sealed::gathered`].
    pub fn gathered(&self, log: &str, keys: &KeySet, run: &str) -> Result<Gathered, Error> {
        self.read(log)?.gathered(keys, run)
    }

    /// The beginning of the digest, which tells the report's lines from all others.
    fn short(&self) -> String {
        HEXLOWER.encode(&self.digest[..8])
    }
}
