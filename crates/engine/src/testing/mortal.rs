//! Mortal ports, which simulate a crash: between any two calls the process may end, and nothing after that takes
//! effect.
//!
//! The engine reaches the world only through its ports, so standing still for ever before or after
//! one of their calls is all that a `kill -9` looks like from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use async_trait::async_trait;
use osb::{PlanId, ServiceId};
use serde_json::Value;

use crate::names::RunName;
use crate::ports::{
    Offer, Query, Run, RunFailure, RunState, Runner, RunnerError, Scanned, StartError, Store,
    StoreError, Stored, Version,
};
use crate::record::{Key, Record};

/// The life of a simulated process: the number of boundaries between calls that it still passes.
pub struct Life {
    left: AtomicI64,
}

impl Life {
    /// A life that ends at the `boundaries`th boundary; each call has one before and one after it.
    pub fn of(boundaries: i64) -> Arc<Self> {
        Arc::new(Self { left: AtomicI64::new(boundaries) })
    }

    /// Whether the process has died.
    pub fn is_over(&self) -> bool {
        self.left.load(Ordering::SeqCst) <= 0
    }

    /// Ends the process now.
    pub fn end(&self) {
        self.left.store(0, Ordering::SeqCst);
    }

    async fn boundary(&self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) <= 1 {
            self.end();
            std::future::pending::<()>().await;
        }
    }
}

/// A port that works as long as the process lives.
pub struct Mortal<P: ?Sized> {
    /// The port, which outlives the process.
    pub inner: Arc<P>,
    /// The process.
    pub life: Arc<Life>,
}

macro_rules! call {
    ($self:ident, $($call:tt)*) => {{
        $self.life.boundary().await;
        let result = $self.inner.$($call)*.await;
        $self.life.boundary().await;
        result
    }};
}

#[async_trait]
impl Store for Mortal<dyn Store> {
    async fn read(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        call!(self, read(key))
    }

    async fn write(
        &self,
        record: Arc<Record>,
        expected: Option<&Version>,
    ) -> Result<Version, StoreError> {
        call!(self, write(record, expected))
    }

    async fn remove(&self, key: &Key, expected: &Version) -> Result<(), StoreError> {
        call!(self, remove(key, expected))
    }

    async fn scan(&self, query: &Query) -> Result<Vec<Scanned>, StoreError> {
        call!(self, scan(query))
    }

    async fn discard(&self, key: &Key) -> Result<(), StoreError> {
        call!(self, discard(key))
    }

    async fn busy(&self) -> Result<Vec<Key>, StoreError> {
        call!(self, busy())
    }

    async fn plans_in_use(&self) -> Result<Vec<(ServiceId, PlanId)>, StoreError> {
        call!(self, plans_in_use())
    }

    async fn catalog(&self) -> Result<Option<Value>, StoreError> {
        call!(self, catalog())
    }

    async fn save_catalog(&self, catalog: &Value) -> Result<(), StoreError> {
        call!(self, save_catalog(catalog))
    }

    async fn catalog_changed(&self) {
        self.inner.catalog_changed().await;
    }

    fn is_busy(&self, key: &Key) -> Option<bool> {
        self.inner.is_busy(key)
    }
}

#[async_trait]
impl Runner for Mortal<dyn Runner> {
    async fn start(&self, run: &Run) -> Result<(), StartError> {
        call!(self, start(run))
    }

    async fn observe(&self, name: &RunName) -> Result<RunState, RunnerError> {
        call!(self, observe(name))
    }

    async fn changed(&self, name: &RunName) {
        call!(self, changed(name));
    }

    async fn cancel(&self, name: &RunName) -> Result<(), RunnerError> {
        call!(self, cancel(name))
    }

    async fn release(&self, name: &RunName) -> Result<(), RunnerError> {
        call!(self, release(name))
    }

    async fn unreleased(&self) -> Result<Vec<(RunName, Key)>, RunnerError> {
        call!(self, unreleased())
    }

    fn hides_leftovers(&self) -> bool {
        self.inner.hides_leftovers()
    }

    fn forgets(&self) -> bool {
        self.inner.forgets()
    }

    async fn log(&self, name: &RunName) -> Result<Option<String>, RunnerError> {
        call!(self, log(name))
    }

    async fn offer(&self) -> Result<Offer, RunFailure> {
        call!(self, offer())
    }
}
