//! Reads records as the API server has them now.

use std::sync::Arc;
use std::time::Duration;

use engine::ports::{self, Query, StoreError, Stored, Version};
use engine::record::Key;
use kube::Resource as _;
use kube::api::{Api, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams};
use osb::InstanceId;
use serde_json::json;

use super::damage::nameless;
use super::entry::{Entry, StandsIn, unreadable};
use super::secrets::Part;
use super::{RecordApi, names};
use crate::calls::{CallError, call, find, next_page, valueless, version_of};
use crate::resources::Kind;
use crate::split::{self, Parts, Written};
use crate::text::Text;

/// How long a reader waits for the Secret of a new record: the resource, which owns it, is made first. After that the
/// writer has died in between, or comes too late: nobody was told that there is such a record.
pub(super) const HALF_MADE: Duration = Duration::from_secs(3);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How many objects are listed at a time: a page is in memory beside the known records. A record without its
/// confidential parts may have 192 KiB, and a page is in memory twice while it is read.
pub(super) const PAGE: u32 = 100;

impl RecordApi {
    /// The entry in the resource of a record, or in its tombstone.
    pub(super) async fn find(&self, key: &Key) -> Result<Option<Arc<Entry>>, StoreError> {
        let Some(found) = find(self.resources(Kind::of(key)).get(&self.name(key))).await? else {
            return self.tombstone(key).await;
        };
        let entry = Self::entry_of(key, &found)?;
        if self.is_labelled(key, &found.metadata) {
            return Ok(Some(Arc::new(entry)));
        }
        // The watch goes on trying. The answer has what was written meanwhile.
        match self.put_labels_back(key, &entry.uid).await {
            Ok(Some(labelled)) => Ok(Some(Arc::new(Self::entry_of(key, &labelled)?))),
            Ok(None) | Err(_) => Ok(Some(Arc::new(entry))),
        }
    }

    /// The entry in a resource with the name of this record.
    pub(super) fn entry_of(key: &Key, found: &DynamicObject) -> Result<Entry, StoreError> {
        match Entry::of_resource(found, || Some(key.clone())) {
            Some(Ok(entry)) if entry.key == *key => Ok(entry),
            Some(Ok(_)) => Err(unreadable(key, "its resource holds the record of another")),
            Some(Err(error)) => Err(unreadable(key, &error.to_string())),
            None => Err(unreadable(key, "its resource holds no record")),
        }
    }

    /// The entry of a resource or tombstone, if that has the name of the record in it. Otherwise it is a copy that
    /// somebody made: what is done to the copy must not be done to the record.
    pub(super) fn own(
        &self,
        read: Option<Result<Entry, serde_json::Error>>,
        metadata: &ObjectMeta,
    ) -> Option<Result<Entry, serde_json::Error>> {
        let is_copy = |entry: &Entry| metadata.name.as_deref() != Some(&*self.name(&entry.key));
        match &read {
            Some(Ok(entry)) if is_copy(entry) => None,
            _ => read,
        }
    }

    /// Whether a resource has the labels by which lists and watches find it.
    pub(super) fn is_labelled(&self, key: &Key, metadata: &ObjectMeta) -> bool {
        let labels = self.labels(key);
        let has = |label: &&str| {
            let found = metadata.labels.as_ref().and_then(|labels| labels.get(*label));
            found.map(String::as_str) == labels[*label].as_str()
        };
        [names::BROKER, names::INSTANCE].iter().all(has)
    }

    /// Labels a resource again whose labels somebody removed: lists and watches do not find it without. Returns the
    /// resource after that; `None` if it is gone.
    pub(super) async fn put_labels_back(
        &self,
        key: &Key,
        uid: &str,
    ) -> Result<Option<DynamicObject>, CallError> {
        let patch = Patch::Merge(json!({"metadata": {
            "uid": uid,
            "labels": self.labels(key),
        }}));
        let resources = self.resources(Kind::of(key));
        let name = self.name(key);
        match call(resources.patch(&name, &PatchParams::default(), &patch)).await {
            // Or another resource has its name.
            Err(CallError::NotFound | CallError::Conflict) => Ok(None),
            Ok(labelled) => {
                tracing::warn!(record = %key, "the labels of its resource were put back");
                Ok(Some(labelled))
            }
            Err(error) => {
                tracing::warn!(record = %key, %error, "its resource has lost its labels");
                Err(error)
            }
        }
    }

    /// The tombstone of a record that is gone.
    pub(super) async fn tombstone(&self, key: &Key) -> Result<Option<Arc<Entry>>, StoreError> {
        let Some(found) = find(self.config_maps().get(&self.name(key))).await? else {
            return Ok(None);
        };
        let entry = Entry::of_tombstone(&found, Some(key)).transpose();
        let entry = entry.map_err(|error| unreadable(key, &error.to_string()))?;
        match entry {
            Some(entry) if entry.key != *key => {
                Err(unreadable(key, "its tombstone holds the record of another"))
            }
            entry => Ok(entry.map(Arc::new)),
        }
    }

    /// A record with its confidential parts; `None` if it went in the meantime, or was never completely made. It waits
    /// only for a record that was just made.
    ///
    /// # Errors
    /// Also if the record cannot be read, for example because its Secret was removed.
    pub(super) async fn whole(&self, entry: &Entry) -> Result<Option<Stored>, StoreError> {
        if let Some(damage) = &entry.damage {
            return Err(unreadable(&entry.key, &damage.why));
        }
        let name = self.name(&entry.key);
        let parts = match self.until_complete(entry).await? {
            Found::Gone => return Ok(None),
            Found::Newer(now) => return Box::pin(self.whole(&now)).await,
            Found::Complete(parts) => parts,
        };
        let damaged = |error: serde_json::Error| unreadable(&entry.key, &error.to_string());
        let written: Written = serde_json::from_str(&entry.text).map_err(damaged)?;
        let [order, rest] = parts.map(|part| (*part.content).clone());
        let record = split::join(Parts { public: written.record, order, rest });
        let record = record.map_err(|error| {
            let why = format!("what Secret {name} holds of it is no record: {}", valueless(&error));
            unreadable(&entry.key, &why)
        })?;
        let version = Version(entry.version.to_string());
        Ok(Some(Stored { record: Arc::new(record), version }))
    }

    /// Waits for the confidential parts of a record that was just made, and removes it if they do not come.
    async fn until_complete(&self, entry: &Entry) -> Result<Found, StoreError> {
        let name = self.name(&entry.key);
        let fault = |why: String| Err(unreadable(&entry.key, &why));
        let (begun, mut is_complete) = (tokio::time::Instant::now(), false);
        loop {
            // Taken before the read, which sees everything that was kept by then.
            let late = begun.elapsed() > HALF_MADE;
            let parts = self.parts(&name, &entry.places).await?;
            if let Some(parts) = parts.as_ref().filter(|parts| !entry.may_be_gone_with(*parts)) {
                return Ok(Found::Complete(parts.clone()));
            }
            // Everything is read again: parts are removed when the resource does not need them any more.
            match (parts, self.find(&entry.key).await?) {
                (_, None) => return Ok(Found::Gone),
                (_, Some(now)) if now.version != entry.version => return Ok(Found::Newer(now)),
                (Some(parts), _) => return Ok(Found::Complete(parts)),
                (None, _) => {}
            }
            if entry.from != StandsIn::First {
                // The parts were in the Secret before the resource named them.
                return fault(format!("Secret {name} lacks what the resource says is in it"));
            }
            if late {
                if is_complete {
                    return fault(format!("what Secret {name} holds of it cannot be read"));
                }
                is_complete = !self.forestall(&entry.key, &entry.uid, &entry.places).await?;
                if is_complete {
                    // Its writer was only slow.
                    continue;
                }
                tracing::warn!(record = %entry.key, "it was only half made, and is removed");
                match self.let_go(entry).await {
                    // Somebody else removes the resource: it is read again.
                    Err(StoreError::Conflict) => {}
                    gone => return gone.map(|()| Found::Gone),
                }
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// The records of an instance, as the API server has them: all of them if `is_ordered`, otherwise up to as many as
    /// the query asks for. They are listed in pages, and each resource is parsed alone: an instance may have thousands
    /// of bindings. Tombstones are left to the watch.
    ///
    /// # Errors
    /// Also if it is not known whose record one of the resources has.
    pub(super) async fn of_instance(
        &self,
        instance: &InstanceId,
        query: &Query,
        is_ordered: bool,
    ) -> Result<Listed, StoreError> {
        let kind = match query.kind {
            ports::Kind::Instances => Kind::ServiceInstance,
            ports::Kind::Bindings => Kind::ServiceBinding,
        };
        let (namespace, client) = (&self.settings.namespace, self.client.clone());
        let resources: Api<Text<DynamicObject>> =
            Api::namespaced_with(client, namespace, &kind.resource());
        let name = self.name(&Key::Instance(instance.clone()));
        let selector = format!("{},{}={name}", self.selector(), names::INSTANCE);
        let mut of = ListParams::default().labels(&selector).limit(PAGE);
        let mut entries = Vec::new();
        loop {
            let page = call(resources.list(&of)).await?;
            for text in &page.items {
                entries.extend(self.listed(kind, text)?.map(Arc::new));
            }
            let version = version_of(page.metadata.resource_version.as_deref());
            let Some(next) = next_page(of, page.metadata) else {
                return Ok(Listed::All { entries, version });
            };
            let fitting = entries.iter().filter(|entry| entry.passes(query.filter)).count();
            if !is_ordered && fitting >= query.limit {
                return Ok(Listed::Enough(entries));
            }
            of = next;
        }
    }

    /// The entry in a listed resource; `None` if it holds no record of ours.
    fn listed(&self, kind: Kind, text: &Text<DynamicObject>) -> Result<Option<Entry>, StoreError> {
        let object = text.gist().ok_or_else(|| nameless(kind, text.meta(), "it cannot be read"))?;
        let entry = self.entry(&object).transpose();
        entry.map_err(|error| nameless(kind, &object.metadata, &error.to_string()))
    }
}

/// The confidential parts of a record, or why there are none.
enum Found {
    Complete([Part; 2]),
    /// The record was written anew meanwhile.
    Newer(Arc<Entry>),
    /// It went, or was never completely made.
    Gone,
}

/// The listed records of an instance.
pub(super) enum Listed {
    /// All records, in this version of the list.
    All { entries: Vec<Arc<Entry>>, version: u64 },
    /// As many records as were asked for; there may be more.
    Enough(Vec<Arc<Entry>>),
}

impl Entry {
    /// Whether the resource may have been removed as half made before the Secret with these parts was made, which its
    /// writer did too late: the resource was read before. Times of objects are in whole seconds.
    fn may_be_gone_with(&self, parts: &[Part]) -> bool {
        let late = |part: &Part| part.made > self.made.saturating_add(1);
        self.from == StandsIn::First && parts.iter().any(late)
    }

    pub(super) fn is_tombstone(&self) -> bool {
        self.from == StandsIn::Tombstone
    }
}
