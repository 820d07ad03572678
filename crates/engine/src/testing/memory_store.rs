//! A store in memory, with which the contract suite is checked and on which simulations run.
//!
//! Records go through their JSON, as they do on their way to a disk: a field that would not survive a
//! restart does not survive a simulated one either.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use osb::{PlanId, ServiceId};
use serde_json::Value;

use crate::ports::{Kind, Query, Scanned, Store, StoreError, Stored, Version};
use crate::record::{Key, Record};

/// A store that keeps records in memory, as long as it lives.
#[derive(Default)]
pub struct MemoryStore {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    records: BTreeMap<Key, (u64, Arc<Record>)>,
    catalog: Option<Value>,
    versions: u64,
    writes: u64,
    fail: u32,
    most: Option<usize>,
    held: Option<Key>,
}

impl MemoryStore {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many writes took effect.
    pub fn writes(&self) -> u64 {
        self.lock().writes
    }

    /// Refuses records and catalogs of more than `bytes`.
    pub fn keep_at_most(&self, bytes: usize) {
        self.lock().most = Some(bytes);
    }

    /// Refuses to remove this record.
    pub fn hold(&self, key: &Key) {
        self.lock().held = Some(key.clone());
    }

    /// Lets the next `count` writes fail as if the disk were full.
    pub fn fail_writes(&self, count: u32) {
        self.lock().fail = count;
    }
}

impl Inner {
    fn fits(&self, text: &str) -> Result<(), StoreError> {
        let bytes = text.len();
        match self.most.filter(|most| bytes > *most) {
            Some(most) => Err(StoreError::TooLarge(format!("{bytes} bytes, and {most} are kept"))),
            None => Ok(()),
        }
    }
}

fn stored(version: u64, record: &Arc<Record>) -> Stored {
    Stored { record: Arc::clone(record), version: Version(version.to_string()) }
}

fn through_json(record: &Record) -> Result<Record, StoreError> {
    serde_json::to_value(record)
        .and_then(serde_json::from_value)
        .map_err(|error| StoreError::Unavailable(format!("{} is not JSON: {error}", record.key)))
}

#[async_trait]
impl Store for MemoryStore {
    async fn read(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        Ok(self.lock().records.get(key).map(|(version, record)| stored(*version, record)))
    }

    async fn write(
        &self,
        record: Arc<Record>,
        expected: Option<&Version>,
    ) -> Result<Version, StoreError> {
        let record = Arc::new(through_json(&record)?);
        let mut inner = self.lock();
        if inner.fail > 0 {
            inner.fail -= 1;
            return Err(StoreError::Unavailable("no space left on device".into()));
        }
        inner.fits(&serde_json::to_string(&*record).unwrap_or_default())?;
        let now = inner.records.get(&record.key).map(|(version, _)| version.to_string());
        if now.as_ref() != expected.map(|version| &version.0) {
            return Err(StoreError::Conflict);
        }
        inner.versions += 1;
        inner.writes += 1;
        let version = inner.versions;
        inner.records.insert(record.key.clone(), (version, record));
        Ok(Version(version.to_string()))
    }

    async fn remove(&self, key: &Key, expected: &Version) -> Result<(), StoreError> {
        let mut inner = self.lock();
        if inner.held.as_ref() == Some(key) {
            return Err(StoreError::Unavailable("it is held".into()));
        }
        match inner.records.get(key) {
            Some((version, _)) if version.to_string() == expected.0 => {
                inner.records.remove(key);
                Ok(())
            }
            _ => Err(StoreError::Conflict),
        }
    }

    async fn scan(&self, query: &Query) -> Result<Vec<Scanned>, StoreError> {
        let inner = self.lock();
        let page = inner
            .records
            .iter()
            .filter(|(key, _)| (query.kind == Kind::Bindings) == key.binding().is_some())
            .filter(|(key, _)| query.instance.as_ref().is_none_or(|id| id == key.instance()))
            .filter(|(key, _)| query.after.as_ref().is_none_or(|after| *key > after))
            .filter(|(_, (_, record))| query.filter.has(record))
            .take(query.limit)
            .map(|(_, (version, record))| Ok(stored(*version, record)))
            .collect();
        Ok(page)
    }

    /// Refuses every discard: all records can be read.
    async fn discard(&self, _: &Key) -> Result<(), StoreError> {
        Err(StoreError::Conflict)
    }

    async fn busy(&self) -> Result<Vec<Key>, StoreError> {
        let inner = self.lock();
        let busy = inner.records.values().filter(|(_, record)| record.is_busy());
        Ok(busy.map(|(_, record)| record.key.clone()).collect())
    }

    async fn plans_in_use(&self) -> Result<Vec<(ServiceId, PlanId)>, StoreError> {
        let inner = self.lock();
        let plans: std::collections::BTreeSet<_> = inner
            .records
            .values()
            .filter(|(_, record)| record.is_live())
            .map(|(_, record)| (record.ordered.service_id.clone(), record.ordered.plan_id.clone()))
            .collect();
        Ok(plans.into_iter().collect())
    }

    async fn catalog(&self) -> Result<Option<Value>, StoreError> {
        Ok(self.lock().catalog.clone())
    }

    async fn save_catalog(&self, catalog: &Value) -> Result<(), StoreError> {
        let mut inner = self.lock();
        inner.fits(&catalog.to_string())?;
        inner.catalog = Some(catalog.clone());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::store_contract::{self, Place};

    /// A restart finds the same memory.
    #[derive(Default)]
    struct Memory(Arc<MemoryStore>);

    #[async_trait]
    impl Place for Memory {
        async fn open(&self) -> Arc<dyn Store> {
            Arc::clone(&self.0) as Arc<dyn Store>
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn keeps_the_contract() {
        store_contract::run(Memory::default).await;
    }
}
