//! What becomes of a resource whose record says that what it stands for is gone.
//!
//! ```text
//! Deleted ──▶ tombstone ──▶ finalizer off, resource deleted, its Secret after it
//! ```
//!
//! Each step may be done twice, by two replicas, or again after a crash: the resource goes last.

use engine::ports::StoreError;
use engine::record::{Key, Lifecycle};

use super::KubernetesStore;

impl KubernetesStore {
    /// Buries a record that is deleted, unless that was done.
    ///
    /// # Errors
    /// If the API server refuses a step; to be called again then.
    pub async fn bury(&self, key: &Key) -> Result<(), StoreError> {
        let Some(entry) = self.place.find(key).await? else { return Ok(()) };
        if entry.is_tombstone() || entry.lifecycle != Lifecycle::Deleted || entry.busy {
            return Ok(());
        }
        let Some(stored) = self.place.whole(&entry).await? else { return Ok(()) };
        match self.place.entomb(&stored.record, None).await {
            Ok(tombstone) => drop(self.known.learn(tombstone.into())),
            // It was made before we were ended.
            Err(StoreError::Conflict) => {}
            Err(error) => return Err(error),
        }
        match self.place.let_go(&entry).await {
            Ok(()) | Err(StoreError::Conflict) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
