//! A store that keeps records and no catalog: each replica knows the templates itself, and a catalog of thousands is
//! too large for any store.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use engine::ports::{Query, Scanned, Store, StoreError, Stored, Version};
use engine::record::{Key, Record};
use osb::{PlanId, ServiceId};
use serde_json::Value;

/// A wrapper of another store that keeps the catalog only in memory.
pub(super) struct Unsaved {
    store: Arc<dyn Store>,
    catalog: Mutex<Option<Value>>,
}

impl Unsaved {
    /// Wraps another store.
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, catalog: Mutex::default() }
    }
}

#[async_trait]
impl Store for Unsaved {
    async fn read(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        self.store.read(key).await
    }

    async fn glance(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        self.store.glance(key).await
    }

    async fn glance_public(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        self.store.glance_public(key).await
    }

    fn is_busy(&self, key: &Key) -> Option<bool> {
        self.store.is_busy(key)
    }

    fn lags(&self) -> bool {
        self.store.lags()
    }

    async fn write(
        &self,
        record: Arc<Record>,
        expected: Option<&Version>,
    ) -> Result<Version, StoreError> {
        self.store.write(record, expected).await
    }

    async fn remove(&self, key: &Key, expected: &Version) -> Result<(), StoreError> {
        self.store.remove(key, expected).await
    }

    async fn scan(&self, query: &Query) -> Result<Vec<Scanned>, StoreError> {
        self.store.scan(query).await
    }

    async fn discard(&self, key: &Key) -> Result<(), StoreError> {
        self.store.discard(key).await
    }

    async fn busy(&self) -> Result<Vec<Key>, StoreError> {
        self.store.busy().await
    }

    async fn plans_in_use(&self) -> Result<Vec<(ServiceId, PlanId)>, StoreError> {
        self.store.plans_in_use().await
    }

    async fn catalog(&self) -> Result<Option<Value>, StoreError> {
        Ok(self.catalog.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    async fn save_catalog(&self, catalog: &Value) -> Result<(), StoreError> {
        *self.catalog.lock().unwrap_or_else(PoisonError::into_inner) = Some(catalog.clone());
        Ok(())
    }
}
