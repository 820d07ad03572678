//! The operations that an operator asks for beside the platform: look, retry, remove, purge.

use std::sync::Arc;

use osb::{Call, Error, ErrorKind, InstanceId};

use crate::backend::store_error;
use crate::driver;
use crate::engine::Engine;
use crate::names::RunName;
use crate::ports::{Filter, Kind, Query, Scanned, StoreError, Stored};
use crate::record::{Key, Lifecycle, Phase, Record};
use crate::transition::{self, Intent};

impl Engine {
    /// Returns a page of records, each whole, or why it cannot be read.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn scan(&self, query: &Query) -> Result<Vec<Scanned>, Error> {
        self.shared.store.scan(query).await.map_err(store_error)
    }

    /// Reads a record, which may be a tombstone.
    ///
    /// # Errors
    /// 404 if there is none.
    pub async fn record(&self, key: &Key) -> Result<Arc<Record>, Error> {
        let stored = self.shared.store.read(key).await.map_err(store_error)?;
        stored.map(|stored| stored.record).ok_or_else(|| Error::not_found(format!("no {key}")))
    }

    /// Reads the redacted log of a run, while it goes on or afterwards.
    ///
    /// # Errors
    /// 404 if there is no such run or its log is not kept any more.
    pub async fn log(&self, run: &RunName) -> Result<String, Error> {
        let log = self
            .shared
            .runner
            .log(run)
            .await
            .map_err(|error| Error::new(ErrorKind::Unavailable, error.to_string()))?;
        log.ok_or_else(|| Error::not_found(format!("there is no log of {run}")))
    }

    /// Repeats a failed operation, as a new operation.
    ///
    /// # Errors
    /// 404 for an unknown record, 422 if the last operation did not fail, or is in progress, 429 where as many are in
    /// progress as may be.
    pub async fn retry(&self, key: &Key) -> Result<Arc<Record>, Error> {
        let stored = self.shared.store.read(key).await.map_err(store_error)?;
        let Some(stored) = stored.filter(|stored| stored.record.is_live()) else {
            return Err(Error::not_found(format!("no {key}")));
        };
        let record = &*stored.record;
        if !matches!(record.operation.phase, Phase::Failed(_)) {
            let words = if record.is_busy() { "is in progress" } else { "did not fail" };
            return Err(Error::new(
                ErrorKind::Unprocessable,
                format!("the last operation of {key} {words}; there is nothing to retry"),
            ));
        }
        let operation = &record.operation;
        let intent = Intent {
            request_hash: operation.request_hash.clone(),
            ordered: operation.target.clone(),
            previous_values: operation.previous_values.clone(),
            originating_identity: operation.originating_identity.clone(),
            ..Intent::new(operation.action)
        };
        let next = Arc::new(self.begin(record, intent));
        if !self.commit(&next, Some(&stored)).await? {
            return Err(store_error(StoreError::Conflict));
        }
        driver::kick(&self.shared, key);
        Ok(next)
    }

    /// Has the broker remove an instance or a binding, as a platform's asynchronous delete does. `why` is recorded with
    /// an operation that is halted by it.
    ///
    /// # Errors
    /// As of that request; 404 for an unknown record.
    pub async fn remove(&self, key: &Key, why: &str) -> Result<(), Error> {
        let service = self.record(key).await?.ordered.service_id.clone();
        let call = Call { accepts_incomplete: true, ..Call::default() };
        self.delete(&call, key, &service, Some(why)).await.map(drop)
    }

    /// Forgets a record without asking the broker: for what cannot be removed otherwise. A run that
    /// is alive is ended; what the broker made stays where it is. A tombstone is left, so that the
    /// platform's delete is answered with 410; a record that cannot be read leaves nothing.
    ///
    /// # Errors
    /// 404 for an unknown record; 422 for an instance that has bindings.
    pub async fn purge(&self, key: &Key) -> Result<(), Error> {
        let stored = match self.shared.store.read(key).await {
            Err(StoreError::Unreadable { .. }) => return self.discard(key).await,
            read => read.map_err(store_error)?,
        };
        let Some(stored) = stored.filter(|stored| stored.record.lifecycle != Lifecycle::Deleted)
        else {
            return Err(Error::not_found(format!("no {key}")));
        };
        self.refuse_if_bound(key).await?;
        let record = &*stored.record;
        let runs = record.is_busy().then(|| {
            let halted = record.operation.halts.iter().map(|halt| halt.run.clone());
            halted.chain([transition::current_run(&record.operation)]).collect::<Vec<_>>()
        });
        let now = self.shared.clock.now();
        let intent = Intent::new(key.removal());
        let begun = transition::begin(&self.shared.policy, record, intent, now);
        let mut next = transition::buried(&begun, Phase::Succeeded, now);
        next.operation.progress = Some("purged by an operator; the broker was not asked".into());
        match self.shared.store.write(Arc::new(next), Some(&stored.version)).await {
            Ok(_) => {}
            Err(StoreError::Conflict) => {
                return Err(Error::new(
                    ErrorKind::ConcurrencyError,
                    format!("{key} was changed in the meantime; look again"),
                ));
            }
            Err(error) => return Err(store_error(error)),
        }
        tracing::warn!(record = %key, "purged by an operator");
        self.end_runs(runs.into_iter().flatten()).await;
        driver::kick(&self.shared, key);
        if key.binding().is_none() {
            self.purge_latecomers(key.instance()).await?;
        }
        Ok(())
    }

    async fn refuse_if_bound(&self, key: &Key) -> Result<(), Error> {
        if key.binding().is_none() && self.any_live_binding(key.instance()).await? {
            return Err(Error::new(
                ErrorKind::Unprocessable,
                format!("{key} has bindings; purge them first"),
            ));
        }
        Ok(())
    }

    /// Forgets a record that cannot be read. Nobody knows what it was about, nor its runs: those are released
    /// as leftovers.
    async fn discard(&self, key: &Key) -> Result<(), Error> {
        self.refuse_if_bound(key).await?;
        self.shared.store.discard(key).await.map_err(store_error)?;
        tracing::warn!(record = %key, "purged by an operator; it could not be read");
        Ok(())
    }

    /// Purges the bindings of a purged instance that were recorded after it was found to have none, and before its
    /// tombstone was written. A bind that begins later finds no instance.
    async fn purge_latecomers(&self, instance: &InstanceId) -> Result<(), Error> {
        let query = Query {
            kind: Kind::Bindings,
            instance: Some(instance.clone()),
            filter: Filter::Live,
            after: None,
            limit: 64,
        };
        loop {
            let late = self.shared.store.scan(&query).await.map_err(store_error)?;
            if late.is_empty() {
                return Ok(());
            }
            for found in &late {
                match Box::pin(self.purge(Stored::key_of(found))).await {
                    // It was changed in the meantime, or is gone: the next look tells.
                    Ok(()) => {}
                    Err(error) if error.kind == ErrorKind::ConcurrencyError => {}
                    Err(error) if error.kind == ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }

    async fn end_runs(&self, runs: impl Iterator<Item = RunName>) {
        for run in runs {
            if let Err(error) = self.shared.runner.release(&run).await {
                tracing::warn!(%run, %error, "the run of a purged record could not be ended");
            }
        }
    }
}
