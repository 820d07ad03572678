//! The burial of records: what happens to a resource whose instance or binding is gone.
//!
//! ```text
//! Deleted ──▶ tombstone ──▶ finalizer off, resource deleted, its Secret after it
//! ```
//!
//! Each step may be done twice, by two replicas, or again after a crash: the resource goes last. It never comes to life
//! again: an id that is used anew gets another resource, so a replica that is slow to delete the old one does no harm.

use engine::ports::StoreError;
use engine::record::{Key, Lifecycle, Record};

use super::entry::Entry;
use super::known::KnownRecords;
use super::{KubernetesStore, RecordApi};
use crate::calls::{find, is_of_a_namespace_that_goes};

impl KubernetesStore {
    /// Buries a deleted record, unless that was done.
    ///
    /// # Errors
    /// If the API server refuses a step; it has to be called again then.
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
    /// Whether this is a resource whose instance or binding is gone: it never comes to life again.
    pub(super) fn is_over(&self) -> bool {
        !self.is_tombstone() && self.lifecycle == Lifecycle::Deleted && !self.busy
    }

    /// Whether [`is_over`](Self::is_over) holds and something is left to do: a resource that only waits for other
    /// controllers' finalizers is not ours any more.
    pub(super) fn is_to_be_buried(&self) -> bool {
        self.is_over() && (self.held || !self.deleting)
    }

    /// Checks that the name of the resource is free once it is buried.
    ///
    /// # Errors
    /// [`StoreError::Held`] if the resource then waits for other controllers' finalizers, for as long as they like.
    pub(super) fn makes_room(&self) -> Result<(), StoreError> {
        if self.others.is_empty() {
            return Ok(());
        }
        let others = self.others.join(", ");
        Err(StoreError::Held(format!("its resource has finalizers of others ({others})")))
    }
}

impl RecordApi {
    /// Replaces a resource by a tombstone.
    pub(super) async fn bury(&self, known: &KnownRecords, entry: &Entry) -> Result<(), StoreError> {
        // The record is read without its Secret, which may have been deleted by hand.
        let record = entry.bare()?;
        match self.entomb(&record, None).await {
            Ok(tombstone) => known.learn(tombstone.into()),
            Err(StoreError::Conflict) => self.rewrite(known, &record).await?,
            // In a namespace that is being deleted no tombstone can be written: the resource is released without one,
            // or it would hold the namespace for ever.
            Err(StoreError::Unavailable(why)) if is_of_a_namespace_that_goes(&why) => {}
            Err(error) => return Err(error),
        }
        self.let_go(entry).await
    }

    /// Replaces a tombstone that exists already: it was written before a crash, or is of a former life of the id,
    /// unknown to whoever ordered anew.
    async fn rewrite(&self, known: &KnownRecords, record: &Record) -> Result<(), StoreError> {
        let Some(tombstone) = self.tombstone(&record.key).await? else {
            let name = self.name(&record.key);
            return Err(match find(self.config_maps().get_metadata(&name)).await? {
                // It was one, and went meanwhile.
                None => StoreError::Conflict,
                Some(_) => StoreError::Held(format!(
                    "the ConfigMap {name} has the name of its tombstone and is none: delete it"
                )),
            });
        };
        // A tombstone of a later life of the id is not replaced.
        if tombstone.bare()?.sequence < record.sequence {
            known.learn(self.entomb(record, Some(&tombstone)).await?.into());
        }
        Ok(())
    }
}
