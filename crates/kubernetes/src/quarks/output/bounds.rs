//! Limits of the output of a whole run: plain state.
//!
//! What each agent brings and each file becomes has a limit of its own, but a template may have a hundred containers.
//! All output of a run is in memory until it is written, and only few runs may read theirs at once.

/// How many bytes the output of a run may take: what its agents bring, and once more what becomes of it.
pub(crate) const MAX_RUN_BYTES: usize = 16 << 20;
/// How many Secrets and ConfigMaps a run may write.
pub(crate) const MAX_RUN_OBJECTS: usize = 2000;

/// The limit of a run that its output exceeds, in words for people.
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

/// How much of its limits a run has used.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    bytes: usize,
    objects: usize,
}

impl Taken {
    /// Counts further bytes.
    pub(crate) fn bytes(&mut self, bytes: usize) -> Result<(), Beyond> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_RUN_BYTES { Err(Beyond::Bytes) } else { Ok(()) }
    }

    /// Counts further objects, before they are made.
    pub(crate) fn objects(&mut self, objects: usize) -> Result<(), Beyond> {
        self.objects = self.objects.saturating_add(objects);
        if self.objects > MAX_RUN_OBJECTS { Err(Beyond::Objects) } else { Ok(()) }
    }
}
