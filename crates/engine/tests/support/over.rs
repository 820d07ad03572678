//! Stores over one in memory that do some of its calls otherwise.

use std::sync::Arc;

use async_trait::async_trait;
use engine::ports::{Query, Scanned, Store, StoreError, Stored, Version};
use engine::record::{Key, Record};
use engine::testing::MemoryStore;
use osb::{PlanId, ServiceId};
use serde_json::Value;

/// What such a store may do otherwise; what it does not say it leaves as it is.
#[async_trait]
pub(crate) trait Otherwise: Send + Sync + 'static {
    fn inner(&self) -> &MemoryStore;

    async fn read(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        self.inner().read(key).await
    }

    async fn glance(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        self.read(key).await
    }

    fn is_busy(&self, _: &Key) -> Option<bool> {
        None
    }

    fn lags(&self) -> bool {
        self.inner().lags()
    }

    async fn write(
        &self,
        record: Arc<Record>,
        expected: Option<&Version>,
    ) -> Result<Version, StoreError> {
        self.inner().write(record, expected).await
    }

    async fn scan(&self, query: &Query) -> Result<Vec<Scanned>, StoreError> {
        self.inner().scan(query).await
    }

    async fn busy(&self) -> Result<Vec<Key>, StoreError> {
        self.inner().busy().await
    }

    async fn catalog(&self) -> Result<Option<Value>, StoreError> {
        self.inner().catalog().await
    }

    async fn save_catalog(&self, catalog: &Value) -> Result<(), StoreError> {
        self.inner().save_catalog(catalog).await
    }
}

/// The store.
pub(crate) struct Over<T>(pub(crate) T);

#[async_trait]
impl<T: Otherwise> Store for Over<T> {
    async fn read(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        self.0.read(key).await
    }

    async fn glance(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        self.0.glance(key).await
    }

    fn is_busy(&self, key: &Key) -> Option<bool> {
        self.0.is_busy(key)
    }

    fn lags(&self) -> bool {
        self.0.lags()
    }

    async fn write(
        &self,
        record: Arc<Record>,
        expected: Option<&Version>,
    ) -> Result<Version, StoreError> {
        self.0.write(record, expected).await
    }

    async fn remove(&self, key: &Key, expected: &Version) -> Result<(), StoreError> {
        self.0.inner().remove(key, expected).await
    }

    async fn scan(&self, query: &Query) -> Result<Vec<Scanned>, StoreError> {
        self.0.scan(query).await
    }

    async fn discard(&self, key: &Key) -> Result<(), StoreError> {
        self.0.inner().discard(key).await
    }

    async fn busy(&self) -> Result<Vec<Key>, StoreError> {
        self.0.busy().await
    }

    async fn plans_in_use(&self) -> Result<Vec<(ServiceId, PlanId)>, StoreError> {
        self.0.inner().plans_in_use().await
    }

    async fn catalog(&self) -> Result<Option<Value>, StoreError> {
        self.0.catalog().await
    }

    async fn save_catalog(&self, catalog: &Value) -> Result<(), StoreError> {
        self.0.save_catalog(catalog).await
    }
}
