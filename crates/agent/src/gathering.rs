//! Gathering of files that containers leave: the order that names them, and the report that brings them.
//!
//! ```text
//! Gathering ──MANCIPLE_GATHERING──▶ manciple-agent wrap │ gather ──reads──▶ <directory>/<file> of each container
//! Gathered ◀── Sealed::gathered ◀── termination message, or the log
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::Error;
use crate::keys::PublicKey;
use crate::message::{MAX_LOGGED_BYTES, MAX_MESSAGE_BYTES};
use crate::order;
use crate::seal::{OVERHEAD, Purpose, Sealed};

/// The order to an agent that gathers files. Nothing confidential: it stands in the pod's specification.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gathering {
    /// The run's name, which the report is bound to.
    pub run: String,
    /// The files to gather, by container.
    pub outputs: BTreeMap<String, Outputs>,
    /// The path of the termination message (`terminationMessagePath`). Default: [`MESSAGE_FILE`](crate::MESSAGE_FILE).
    #[serde(default = "order::message")]
    pub message: PathBuf,
    /// How many bytes the kubelet takes of this container's message. Default: 4,096; a pod of more than three
    /// containers has less for each, for it has 12 KiB for all.
    #[serde(default = "message_limit")]
    pub message_limit: usize,
    /// The most that is taken of a file, in bytes. Default: 1 MiB, which is as much as a Secret holds.
    #[serde(default = "file_limit")]
    pub file_limit: usize,
    /// The key that the report is sealed to.
    pub key: PublicKey,
}

/// The files of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outputs {
    /// The directory of the files, where the agent has it mounted. Links on the way to it are followed; no link in it
    /// is followed out of it.
    pub directory: PathBuf,
    /// The names of the files, each standing for a path [within](Self::path_within) the directory.
    pub files: Vec<String>,
    /// The name under which the container's stdout is gathered, if it is: only by an agent around its command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
}

/// The files that an agent has gathered: for every file that it was told of, what was there. They travel sealed, and
/// `Debug` shows no content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gathered {
    /// The run's name.
    pub run: String,
    /// The content of the files, by container and file.
    pub outputs: BTreeMap<String, BTreeMap<String, Content>>,
}

/// The content of a file, as it was found.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// The whole text of the file.
    Text(String),
    /// There is no such file.
    Missing,
    /// The file has as many bytes: more than the limit of a file, or than a report has room for.
    TooLarge(u64),
    /// The content is not UTF-8.
    NotText,
    /// The file could not be read, or must not be, for this reason.
    Unreadable(String),
}

impl Gathering {
    /// A gathering with the limits of a pod of up to three containers.
    pub fn new(run: &str, outputs: BTreeMap<String, Outputs>, key: PublicKey) -> Self {
        Self {
            run: run.to_owned(),
            outputs,
            message: order::message(),
            message_limit: message_limit(),
            file_limit: file_limit(),
            key,
        }
    }

    /// The value of [`GATHERING_VARIABLE`](order::GATHERING_VARIABLE). No `$` is in it, which Kubernetes would take for a reference to
    /// another variable.
    ///
    /// # Errors
    /// If a path is not UTF-8, so that it is no JSON.
    pub fn to_variable(&self) -> serde_json::Result<String> {
        order::to_variable(self)
    }
}

impl Outputs {
    /// The path within the directory that a name stands for. A `/` at its beginning and each `.` in it are dropped, as
    /// when paths are joined. `None`, so that no file is looked for, if nothing is left, or `..` is in it.
    pub fn path_within(name: &str) -> Option<PathBuf> {
        let parts = Path::new(name).components().filter_map(|part| match part {
            Component::RootDir | Component::CurDir => None,
            Component::Normal(part) => Some(Some(part)),
            Component::ParentDir | Component::Prefix(_) => Some(None),
        });
        let path = parts.collect::<Option<PathBuf>>()?;
        (!path.as_os_str().is_empty()).then_some(path)
    }
}

impl Gathered {
    /// Collects the files as they are found. If a log has no room for them ([`MAX_LOGGED_BYTES`]), the largest texts
    /// become [`Content::TooLarge`], as each further file comes, so that no more than that and one file is held at a
    /// time.
    pub fn of<'a>(run: &str, found: impl IntoIterator<Item = (&'a str, &'a str, Content)>) -> Self {
        let mut gathered = Self { run: run.to_owned(), outputs: BTreeMap::new() };
        let mut takes = OVERHEAD + written(&gathered);
        let mut texts = BinaryHeap::new();
        for (container, file, content) in found {
            // With what parts them in JSON.
            const PARTS: usize = 2;
            let takes_of_content = written(&content);
            takes += takes_of_content + written(&file) + PARTS;
            if matches!(content, Content::Text(_)) {
                texts.push((takes_of_content, Reverse((container, file))));
            }
            let files = match gathered.outputs.get_mut(container) {
                Some(files) => files,
                None => {
                    takes += written(&container) + "{}".len() + PARTS;
                    gathered.outputs.entry(container.to_owned()).or_default()
                }
            };
            files.insert(file.to_owned(), content);
            while takes > MAX_LOGGED_BYTES
                && let Some((taken, Reverse((container, file)))) = texts.pop()
            {
                let files = gathered.outputs.get_mut(container);
                let Some(content) = files.and_then(|files| files.get_mut(file)) else { continue };
                *content = content.too_large();
                // Of a tiny file, that it is too large takes more than the file.
                takes = takes + written(content) - taken;
            }
        }
        gathered
    }

    /// Seals the gathered files.
    ///
    /// # Errors
    /// [`Error::NotSealed`], also if the names alone are more than a log holds.
    pub fn seal(&self, key: &PublicKey) -> Result<Sealed, Error> {
        let json = serde_json::to_vec(self).map_err(|_| Error::NotSealed("it is not JSON"))?;
        let json = Zeroizing::new(json);
        if json.len() + OVERHEAD > MAX_LOGGED_BYTES {
            return Err(Error::NotSealed("the names of the files alone are more than a log holds"));
        }
        Sealed::seal(key, Purpose::Outputs, &self.run, &json)
    }
}

impl Content {
    /// The content that replaces a text for which there is no room.
    fn too_large(&self) -> Self {
        match self {
            Self::Text(text) => Self::TooLarge(text.len() as u64),
            other => other.clone(),
        }
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
            Self::Missing => f.write_str("Missing"),
            Self::TooLarge(bytes) => write!(f, "TooLarge({bytes})"),
            Self::NotText => f.write_str("NotText"),
            Self::Unreadable(why) => write!(f, "Unreadable({why:?})"),
        }
    }
}

/// How many bytes of JSON a value takes.
fn written(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Nothing in it fails to be JSON, and counting does not fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

fn message_limit() -> usize {
    MAX_MESSAGE_BYTES
}

fn file_limit() -> usize {
    1024 * 1024
}
