//! How much of what a run leaves is kept in all: plain state.
//!
//! What each agent brings and each file becomes has its own limit, but a template may have a hundred containers. All of a
//! run's output is in memory until it is written, and is written while few others may read theirs.

use super::objects::{Kept, Wanted};

/// What the output of a run takes in all, in bytes: what its agents bring, and once more what becomes of it.
pub(crate) const MAX_RUN_BYTES: usize = 16 << 20;
/// How many Secrets and ConfigMaps a run makes at most.
pub(crate) const MAX_RUN_OBJECTS: usize = 2000;

/// Which limit of a run its output is beyond, in words for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Beyond {
    #[error(
        "the output of the run takes more than {} MiB in all, and none of it is kept: let it leave less, or part the work \
         among several",
        MAX_RUN_BYTES >> 20
    )]
    Bytes,
    #[error(
        "the output of the run becomes more than {} objects in all, and none of it is kept: let fewer files \
         fan out, or fewer keys stand in them",
        MAX_RUN_OBJECTS
    )]
    Objects,
}

/// What a run has taken of its limits.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    bytes: usize,
    objects: usize,
}

impl Taken {
    /// Takes so many bytes more.
    pub(crate) fn bytes(&mut self, bytes: usize) -> Result<(), Beyond> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_RUN_BYTES { Err(Beyond::Bytes) } else { Ok(()) }
    }

    /// Takes so many objects more, before they are made.
    pub(crate) fn objects(&mut self, objects: usize) -> Result<(), Beyond> {
        self.objects = self.objects.saturating_add(objects);
        if self.objects > MAX_RUN_OBJECTS { Err(Beyond::Objects) } else { Ok(()) }
    }

    /// Takes what one holds, and its labels and annotations, which each of those has that one file becomes.
    pub(crate) fn one(&mut self, wanted: &Wanted) -> Result<(), Beyond> {
        let data: usize = wanted.data.iter().map(|(key, value)| key.len() + value.len()).sum();
        let marks = wanted.labels.iter().chain(&wanted.annotations);
        let marks: usize = marks.map(|(name, value)| name.len() + value.len()).sum();
        self.bytes(data + marks)
    }
}

impl From<Beyond> for Kept {
    fn from(beyond: Beyond) -> Self {
        Self { faults: vec![("OutputTooLarge", beyond.to_string())], ..Self::default() }
    }
}
