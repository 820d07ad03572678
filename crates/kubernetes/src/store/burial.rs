//! What becomes of a resource whose record says that what it stands for is gone.
//!
//! ```text
//! Deleted ──▶ tombstone ──▶ finalizer off, resource deleted, its Secret after it
//! ```
//!
//! Each step may be done twice, by two replicas, or again after a crash: the resource goes last. It never
//! comes to life again: an id that is used anew has a resource of its own, so whoever is slow to delete the
//! old one does no harm.

use engine::ports::StoreError;
use engine::record::{Key, Lifecycle, Record};

use super::entry::Entry;
use super::known::KnownRecords;
use super::{KubernetesStore, RecordApi};
use crate::calls::is_of_a_namespace_that_goes;

impl KubernetesStore {
    /// Buries a record that is deleted, unless that was done.
    ///
    /// # Errors
    /// If the API server refuses a step; to be called again then.
    pub async fn bury(&self, key: &Key) -> Result<(), StoreError> {
        let Some(entry) = self.api.find(key).await? else { return Ok(()) };
        if !entry.is_to_be_buried() {
            return Ok(());
        }
        match self.api.bury(&self.known, &entry).await {
            Ok(()) | Err(StoreError::Conflict) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Entry {
    /// It is a resource, and nothing that it stood for is left: it never comes to life again.
    pub(super) fn is_over(&self) -> bool {
        !self.is_tombstone() && self.lifecycle == Lifecycle::Deleted && !self.busy
    }

    /// As [`is_over`](Self::is_over), and something is left to be done about it: what waits for the finalizers of others
    /// alone is not ours any more.
    pub(super) fn is_to_be_buried(&self) -> bool {
        self.is_over() && (self.held || !self.deleting)
    }

    /// Whether another may have the name of its resource once it is buried.
    ///
    /// # Errors
    /// [`StoreError::Held`] if the resource waits for others then, for as long as they like.
    pub(super) fn makes_room(&self) -> Result<(), StoreError> {
        if self.others.is_empty() {
            return Ok(());
        }
        let others = self.others.join(", ");
        Err(StoreError::Held(format!("its resource has finalizers of others ({others})")))
    }
}

impl RecordApi {
    /// Puts a tombstone into the place of a resource.
    pub(super) async fn bury(&self, known: &KnownRecords, entry: &Entry) -> Result<(), StoreError> {
        // Without its Secret, which may have been deleted by hand.
        let record = entry.bare()?;
        match self.entomb(&record, None).await {
            Ok(tombstone) => known.learn(tombstone.into()),
            Err(StoreError::Conflict) => self.rewrite(known, &record).await?,
            // What goes with its namespace is let go without: it would hold that for ever.
            Err(StoreError::Unavailable(why)) if is_of_a_namespace_that_goes(&why) => {}
            Err(error) => return Err(error),
        }
        self.let_go(entry).await
    }

    /// There is a tombstone: it was made before we were ended, or it is of a former life, which whoever ordered
    /// anew had not heard of.
    async fn rewrite(&self, known: &KnownRecords, record: &Record) -> Result<(), StoreError> {
        let Some(tombstone) = self.tombstone(&record.key).await? else {
            return Err(StoreError::Conflict);
        };
        // One of a later life is none of ours to replace.
        if tombstone.bare()?.sequence < record.sequence {
            known.learn(self.entomb(record, Some(&tombstone)).await?.into());
        }
        Ok(())
    }
}
