//! Files that containers leave: which ones an agent is told to gather, and what it brings home.
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

/// The variable that holds it, of the container whose agent gathers.
pub const GATHERING_VARIABLE: &str = "MANCIPLE_GATHERING";

/// What an agent that gathers files is told. Nothing confidential: it stands in the pod's specification.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gathering {
    /// What the report is bound to.
    pub run: String,
    /// What to gather, by container.
    pub outputs: BTreeMap<String, Outputs>,
    /// `terminationMessagePath`. Default: [`MESSAGE_FILE`](crate::MESSAGE_FILE).
    #[serde(default = "order::message")]
    pub message: PathBuf,
    /// What the kubelet takes of this container's message, in bytes. Default: 4,096; a pod of more than three
    /// containers has less for each, for it has 12 KiB for all.
    #[serde(default = "message_limit")]
    pub message_limit: usize,
    /// The most that is taken of a file, in bytes. Default: 1 MiB, which is as much as a Secret holds.
    #[serde(default = "file_limit")]
    pub file_limit: usize,
    /// What the report is sealed to.
    pub key: PublicKey,
}

/// The files of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outputs {
    /// Where they are, as the agent has it mounted. Links on the way to it are followed; none that is in it
    /// leads out of it.
    pub directory: PathBuf,
    /// Their names, each standing for a path [within](Self::path_within) the directory.
    pub files: Vec<String>,
    /// The name of what the container prints on stdout, if that is taken: around its command alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
}

/// What an agent has gathered: for every file that it was told of, what was there. It travels sealed, and
/// `Debug` shows no content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gathered {
    /// Which run's.
    pub run: String,
    /// By container, by file.
    pub outputs: BTreeMap<String, BTreeMap<String, Content>>,
}

/// What was found of a file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// All of it.
    Text(String),
    /// There is no such file.
    Missing,
    /// It has so many bytes: more than the limit of a file, or than a report has room for.
    TooLarge(u64),
    /// It is not UTF-8.
    NotText,
    /// Why it could not be read, or was not to be.
    Unreadable(String),
}

impl Gathering {
    /// With the limits of a pod of up to three containers.
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

    /// The value of [`GATHERING_VARIABLE`]. No `$` is in it, which Kubernetes would take for a reference to
    /// another variable.
    ///
    /// # Errors
    /// If it is not JSON: a path that is not UTF-8.
    pub fn to_variable(&self) -> serde_json::Result<String> {
        order::to_variable(self)
    }
}

impl Outputs {
    /// The path within the directory that a name stands for: a `/` that it begins with and each `.` on the way are
    /// nothing, as where the two are joined. `None`, and nothing is looked for, if nothing else is in it, or `..` is.
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
    /// What is found, in turn. What a log has no room for ([`MAX_LOGGED_BYTES`]) is not kept: the largest texts become
    /// [`Content::TooLarge`], as each further one comes, so that no more than that and one file is held at a time.
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

    /// Seals it.
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
    /// What is left of it where there is no room.
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

/// How many bytes of JSON it takes.
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
