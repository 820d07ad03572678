//! The directory in which a broker and whoever runs it exchange the files of the contract.

use std::path::{Path, PathBuf};

use engine::contract::Paths;

/// The exchange directory of one run. It holds secrets: whoever makes it lets nobody else in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExchangeDirectory(PathBuf);

impl ExchangeDirectory {
    /// The directory at this path, whether it is there or not.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The request, which the broker reads.
    pub fn request(&self) -> PathBuf {
        self.0.join("request.json")
    }

    /// The state that earlier runs left, which the broker reads.
    pub fn state(&self) -> PathBuf {
        self.0.join("state.json")
    }

    /// The state that this run leaves, which the broker writes.
    pub fn state_out(&self) -> PathBuf {
        self.0.join("state.out")
    }

    /// The progress of the run, which the broker writes.
    pub fn progress(&self) -> PathBuf {
        self.0.join("progress")
    }

    /// What the broker is told of these files, of the request only if it `has_request`, and of its configuration.
    pub fn paths(
        &self,
        has_request: bool,
        config_dir: Option<PathBuf>,
        secret_dir: Option<PathBuf>,
    ) -> Paths {
        Paths {
            request: has_request.then(|| self.request()),
            progress: self.progress(),
            state: self.state(),
            state_out: self.state_out(),
            config_dir,
            secret_dir,
        }
    }
}
