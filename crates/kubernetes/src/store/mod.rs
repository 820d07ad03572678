//! The store of records: service instances and bindings kept as Kubernetes resources.
//!
//! A read asks the API server: it sees every write whose success any replica was told of. Lists of all records come
//! from a watch, to which this process's own writes are added at once.

mod burial;
mod catalog;
mod damage;
mod entry;
mod known;
mod read;
mod relabel;
mod secrets;
#[cfg(test)]
mod tests;
mod watch;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use engine::ports::{Filter, Query, Scanned, Store, StoreError, Stored, Unreadable, Version};
use engine::record::{Key, Record};
use engine::vital;
use futures_util::{StreamExt, TryStreamExt, future, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, PartialObjectMeta};
use osb::{InstanceId, PlanId, ServiceId};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use self::catalog::SavedCatalog;
use self::entry::Entry;
use self::known::{KnownRecords, Source, Watched};
use self::read::Listed;
use self::secrets::Secrets;
use crate::calls::call;
use crate::names;
use crate::resources::Kind;

/// How many records of a page are read at a time.
const AT_ONCE: usize = 8;

/// The settings of a store: where it keeps its records.
#[derive(Debug, Clone)]
pub struct StoreSettings {
    /// The namespace of all resources.
    pub namespace: String,
    /// The name of the broker: several may share a namespace.
    pub broker: String,
}

/// The store of records as `ServiceInstance` and `ServiceBinding` resources of one namespace.
///
/// A write that returned `Ok` is in etcd. Several processes may use the same records at once.
pub struct KubernetesStore {
    api: Arc<RecordApi>,
    known: Arc<KnownRecords>,
    /// Whether the last catalog that was read or saved has a Secret.
    has_secret_catalog: AtomicBool,
    /// The tasks of the watches, which end with the store.
    _watches: tokio::task::JoinSet<()>,
}

/// News of a record: another process wrote it, it is gone, or it was known when somebody began to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordChange {
    /// The key of the record.
    pub key: Key,
    /// Whether an operation on the record is in progress.
    pub busy: bool,
    /// Whether the instance or binding is gone, so that the record is to be [buried](KubernetesStore::bury).
    pub gone: bool,
    /// Whether somebody deleted the resource while its instance or binding still exists.
    pub unwanted: bool,
}

/// Access to records at the API server: what every call needs.
pub(crate) struct RecordApi {
    client: Client,
    settings: StoreSettings,
    /// The value of the broker label.
    broker: String,
    secrets: Secrets,
}

impl RecordApi {
    fn resources(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.settings.namespace, &kind.resource())
    }

    fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.settings.namespace)
    }

    fn name(&self, key: &Key) -> String {
        names::resource(&self.settings.broker, key)
    }

    /// The labels of every resource of a record.
    fn labels(&self, key: &Key) -> Value {
        let instance = Key::Instance(key.instance().clone());
        json!({
            names::MANAGED_BY.0: names::MANAGED_BY.1,
            names::BROKER: self.broker,
            names::INSTANCE: self.name(&instance),
        })
    }

    /// The label selector for the resources of this broker.
    fn selector(&self) -> String {
        format!("{}={}", names::BROKER, self.broker)
    }
}

impl KubernetesStore {
    /// Opens the records of a broker: reads all of them once, and watches them from then on.
    ///
    /// # Errors
    /// If the API server does not answer, or does not serve our kinds.
    pub async fn open(client: Client, settings: StoreSettings) -> Result<Self, StoreError> {
        let broker = names::broker_label(&settings.broker);
        let api = Arc::new(RecordApi { client, settings, broker, secrets: Secrets::default() });
        let known = Arc::new(KnownRecords::default());
        let mut watches = tokio::task::JoinSet::new();
        for watched in [Watched::Instances, Watched::Bindings, Watched::Tombstones] {
            let follow = watch::follow(Arc::clone(&api), Arc::clone(&known), watched);
            watches.spawn(vital::task("a watch of records", follow));
        }
        known.complete().await?;
        Ok(Self { api, known, has_secret_catalog: AtomicBool::new(false), _watches: watches })
    }

    /// A channel with all known records, and then with the news that the watch brings. To be taken once, and emptied
    /// regularly, because it buffers in memory.
    pub fn changes(&self) -> Option<mpsc::UnboundedReceiver<RecordChange>> {
        self.known.listen()
    }

    /// Every record with something to do, as a new watch would bring it: for a process that begins to carry operations
    /// out.
    pub fn outstanding(&self) -> Vec<RecordChange> {
        self.known.changes().into_iter().filter(|it| it.busy || it.gone || it.unwanted).collect()
    }

    /// The namespace of all resources.
    pub fn namespace(&self) -> &str {
        &self.api.settings.namespace
    }

    /// The name, the uid and the namespace of a record's resource, if it is known to exist.
    pub(crate) fn resource(&self, key: &Key) -> Option<(String, String, String)> {
        let entry = self.known.get(key).filter(|entry| !entry.is_tombstone())?;
        let namespace = self.api.settings.namespace.clone();
        Some((self.api.name(key), entry.uid.clone(), namespace))
    }

    pub(crate) fn events(&self) -> Api<Event> {
        Api::namespaced(self.api.client.clone(), &self.api.settings.namespace)
    }

    /// Whether the API server has any resource of this broker, except those that only wait for other controllers'
    /// finalizers. Tombstones do not count.
    ///
    /// # Errors
    /// If the API server does not answer.
    pub async fn has_any(&self) -> Result<bool, StoreError> {
        let all = ListParams::default().labels(&self.api.selector());
        let is_ours = |object: &PartialObjectMeta<DynamicObject>| {
            let held = object.metadata.finalizers.iter().flatten().any(|it| it == names::FINALIZER);
            held || object.metadata.deletion_timestamp.is_none()
        };
        for kind in Kind::ALL {
            let found = call(self.api.resources(kind).list_metadata(&all)).await?;
            if found.items.iter().any(is_ours) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn page(&self, query: &Query) -> Vec<Arc<Entry>> {
        self.known.page(query)
    }

    /// A page of the records of an instance, as the API server has them now. Unless `is_ordered`, it may be any of
    /// them.
    async fn of_instance(
        &self,
        instance: &InstanceId,
        query: &Query,
        is_ordered: bool,
    ) -> Result<Vec<Arc<Entry>>, StoreError> {
        match self.api.of_instance(instance, query, is_ordered).await? {
            Listed::All { entries, version } => {
                self.known.take_list(instance, query.kind, entries, version);
                Ok(self.page(query))
            }
            // Other known records may be outdated.
            Listed::Enough(mut entries) => {
                for entry in &entries {
                    self.known.hear(Arc::clone(entry), Source::Event);
                }
                entries.retain(|entry| entry.passes(query.filter));
                entries.sort_by(|one, other| one.key.cmp(&other.key));
                entries.truncate(query.limit);
                Ok(entries)
            }
        }
    }

    /// The records of a page with their confidential parts, without those that are gone, or do not pass the filter any
    /// more.
    async fn whole(
        &self,
        page: Vec<Arc<Entry>>,
        filter: Filter,
    ) -> Result<Vec<Scanned>, StoreError> {
        let read = |entry: Arc<Entry>| async move {
            match self.api.whole(&entry).await {
                Ok(Some(whole)) => Ok(Some(whole).filter(|it| filter.has(&it.record)).map(Ok)),
                Ok(None) => {
                    // No list tells that a tombstone is gone, and the watch may be late.
                    self.known.forget(&entry);
                    Ok(None)
                }
                Err(StoreError::Unreadable { why, .. }) => {
                    Ok(Some(Err(Unreadable { key: entry.key.clone(), why })))
                }
                Err(error) => Err(error),
            }
        };
        let read = stream::iter(page.into_iter().map(read)).buffered(AT_ONCE);
        read.try_filter_map(future::ok).try_collect().await
    }

    fn note_catalog<T>(&self, saved: &SavedCatalog<T>) {
        self.has_secret_catalog.store(saved.has_secret, Ordering::Relaxed);
        self.known.note_catalog(saved.version);
    }
}

#[async_trait]
impl Store for KubernetesStore {
    async fn read(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        let Some(entry) = self.api.find(key).await? else {
            return Ok(None);
        };
        // What a read brings before the watch does is news, too.
        self.known.hear(Arc::clone(&entry), Source::Event);
        self.api.whole(&entry).await
    }

    async fn glance(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        match self.known.get(key) {
            Some(entry) => self.api.whole(&entry).await,
            None => Ok(None),
        }
    }

    async fn glance_public(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        let Some(entry) = self.known.get(key) else { return Ok(None) };
        let (record, version) = (entry.bare()?, Version(entry.version.to_string()));
        Ok(Some(Stored { record: Arc::new(record), version }))
    }

    fn is_busy(&self, key: &Key) -> Option<bool> {
        self.known.get(key).map(|entry| entry.busy)
    }

    fn lags(&self) -> bool {
        true
    }

    async fn write(
        &self,
        record: Arc<Record>,
        expected: Option<&Version>,
    ) -> Result<Version, StoreError> {
        // In a task of its own: a caller that drops the future must not leave the write half done.
        let (api, known) = (Arc::clone(&self.api), Arc::clone(&self.known));
        let expected = expected.cloned();
        let written = tokio::spawn(async move { api.write(&known, &record, expected).await });
        written.await.map_err(|error| StoreError::Unavailable(error.to_string()))?
    }

    async fn remove(&self, key: &Key, expected: &Version) -> Result<(), StoreError> {
        let (api, known) = (Arc::clone(&self.api), Arc::clone(&self.known));
        let (key, expected) = (key.clone(), expected.clone());
        let removed = tokio::spawn(async move { api.remove(&known, &key, &expected).await });
        removed.await.map_err(|error| StoreError::Unavailable(error.to_string()))?
    }

    async fn scan(&self, query: &Query) -> Result<Vec<Scanned>, StoreError> {
        let mut rest = query.clone();
        let mut records = Vec::new();
        let mut is_ordered = query.after.is_some();
        loop {
            let page = match &query.instance {
                // What happens to an instance depends on its records: they are read anew.
                Some(instance) => self.of_instance(instance, &rest, is_ordered).await?,
                None => self.page(&rest),
            };
            let (are_all, last) = (page.len() < rest.limit, page.last().map(|it| it.key.clone()));
            let found = self.whole(page, query.filter).await?;
            rest.limit -= found.len();
            records.extend(found);
            if are_all || rest.limit == 0 {
                return Ok(records);
            }
            // Some records went meanwhile: others may take their place.
            match query.instance.is_some() && !is_ordered {
                // In an unordered page there may be further records before any of these.
                true => (records, rest.limit, is_ordered) = (Vec::new(), query.limit, true),
                false => rest.after = last,
            }
        }
    }

    async fn discard(&self, key: &Key) -> Result<(), StoreError> {
        let entry = match self.api.find(key).await {
            Ok(Some(entry)) => entry,
            Ok(None) => return Err(StoreError::Conflict),
            Err(StoreError::Unreadable { .. }) => {
                self.api.discard_unread(key).await?;
                // What was known of the record before it was damaged.
                self.known.get(key).iter().for_each(|entry| self.known.forget(entry));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        match self.api.whole(&entry).await {
            Err(StoreError::Unreadable { .. }) => {}
            Ok(_) => return Err(StoreError::Conflict),
            Err(error) => return Err(error),
        }
        self.api.take_away(&entry).await?;
        self.known.forget(&entry);
        Ok(())
    }

    async fn busy(&self) -> Result<Vec<Key>, StoreError> {
        Ok(self.known.busy())
    }

    async fn plans_in_use(&self) -> Result<Vec<(ServiceId, PlanId)>, StoreError> {
        Ok(self.known.plans())
    }

    async fn catalog(&self) -> Result<Option<Value>, StoreError> {
        let Some(saved) = self.api.read_catalog().await? else { return Ok(None) };
        self.note_catalog(&saved);
        Ok(Some(saved.catalog))
    }

    async fn save_catalog(&self, catalog: &Value) -> Result<(), StoreError> {
        let had_secret = self.has_secret_catalog.load(Ordering::Relaxed);
        let saved = self.api.write_catalog(catalog, had_secret).await?;
        self.note_catalog(&saved);
        Ok(())
    }

    async fn catalog_changed(&self) {
        self.known.catalog_changed().await;
    }
}
