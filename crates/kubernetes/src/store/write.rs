//! Writes records: each step of an operation is one write to a resource that still has the expected version.

use std::sync::Arc;
use std::time::Duration;

use engine::ports::{StoreError, Version};
use engine::record::{Key, Lifecycle, Record};
use kube::api::{DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::{Map, Value, json};

use super::entry::{Entry, StandsIn, unreadable};
use super::known::KnownRecords;
use super::secrets::{Fresh, unique};
use super::{RecordApi, names};
use crate::calls::{CallError, call, find, in_background, only, version_of};
use crate::resources::{self, Kind, Since};
use crate::split::{self, Parts, Places, Written};
use crate::waking;

/// How many bytes the confidential parts of a record may have: its Secret holds them twice for a moment, and a Secret
/// holds 1 MiB.
const MAX_CONFIDENTIAL: usize = 512 * 1024;
/// How many bytes the public part of a record may have: at first it is an annotation, of which an object holds 256 KiB.
const MAX_PUBLIC: usize = 192 * 1024;

/// A first write that took longer than this looks whether its resource is still there, by writing to it: a reader may
/// have removed it as half made. See [`HALF_MADE`](super::read::HALF_MADE), which is longer.
const SURE: Duration = Duration::from_secs(1);

/// A record that is being written: its parts, and where they will be.
struct Outgoing {
    text: String,
    since: Since,
    places: Places,
    fresh: Fresh,
}

impl RecordApi {
    pub(super) async fn write(
        &self,
        known: &KnownRecords,
        record: &Record,
        expected: Option<Version>,
    ) -> Result<Version, StoreError> {
        let before = match &expected {
            Some(version) => Some(self.expected(known, &record.key, version).await?),
            None => None,
        };
        let entry = match &before {
            Some(before) if before.is_over() && record.lifecycle != Lifecycle::Deleted => {
                if before.is_to_be_buried() {
                    self.bury(known, before).await?;
                }
                before.makes_room()?;
                let made = self.make(record).await?;
                let tombstone = self.tombstone(&record.key).await;
                let tombstone = tombstone.map_err(StoreError::of_what_is_recorded)?;
                if let Some(old) = tombstone.filter(|it| it.updated_at <= record.updated_at) {
                    let opened = self.open_tomb(&old).await;
                    opened.map_err(StoreError::of_what_is_recorded)?;
                }
                made
            }
            Some(before) if !before.is_tombstone() => self.change(before, record).await?,
            _ if record.lifecycle == Lifecycle::Deleted => {
                self.entomb(record, before.as_deref()).await?
            }
            _ => {
                let made = self.make(record).await?;
                if let Some(tombstone) = &before {
                    let opened = self.open_tomb(tombstone).await;
                    opened.map_err(StoreError::of_what_is_recorded)?;
                }
                made
            }
        };
        let version = Version(entry.version.to_string());
        known.wrote(entry);
        Ok(version)
    }

    /// The present entry, if it has the expected version.
    async fn expected(
        &self,
        known: &KnownRecords,
        key: &Key,
        version: &Version,
    ) -> Result<Arc<Entry>, StoreError> {
        let expected = version_of(Some(&version.0));
        let entry = match known.get(key).filter(|entry| entry.version == expected) {
            Some(entry) => Some(entry),
            None => self.find(key).await?,
        };
        entry.filter(|entry| entry.version == expected).ok_or(StoreError::Conflict)
    }

    /// The first write of a record: the resource, then the Secret with the confidential parts, which the resource owns.
    async fn make(&self, record: &Record) -> Result<Entry, StoreError> {
        let begun = waking::uptime();
        let name = self.name(&record.key);
        let kind = Kind::of(&record.key);
        let outgoing = self.outgoing(record, None).await?;
        let coming = self.secrets.expect(&name, &outgoing.fresh);
        let resource = json!({
            "apiVersion": resources::api_version(),
            "kind": kind.name(),
            "metadata": {
                "name": name,
                "labels": self.labels(&record.key),
                "annotations": {names::RECORD: outgoing.text},
                "finalizers": [names::FINALIZER],
            },
            "spec": resources::spec(&self.settings.broker, record),
        });
        let resource: DynamicObject = serde_json::from_value(resource)
            .map_err(|error| unreadable(&record.key, &error.to_string()))?;
        let made = call(self.resources(kind).create(&PostParams::default(), &resource)).await?;
        if outgoing.fresh.is_empty() {
            return Ok(outgoing.entry(record, StandsIn::First, &made.metadata));
        }
        let uid = made.metadata.uid.as_deref().unwrap_or_default();
        if let Err(error) = self.complete(&record.key, uid, &outgoing.fresh).await {
            if error.had_no_effect() {
                self.take_back(&outgoing.entry(record, StandsIn::First, &made.metadata)).await;
            }
            return Err(error.of_a_secret().into());
        }
        let (entry, from) = match waking::since(begun) < SURE {
            true => (made, StandsIn::First),
            // A reader may have removed the resource as half made, and the collector the Secret that was in the way.
            false => {
                let version = made.metadata.resource_version.as_deref();
                let written = self.put_status(record, &outgoing, version).await;
                let written = written.map_err(|error| overtaken(error).of_what_is_recorded())?;
                (written, StandsIn::Resource)
            }
        };
        coming.kept();
        Ok(outgoing.entry(record, from, &entry.metadata))
    }

    /// Writes the status of a record's resource, if that still has this version.
    async fn put_status(
        &self,
        record: &Record,
        outgoing: &Outgoing,
        version: Option<&str>,
    ) -> Result<DynamicObject, CallError> {
        let name = self.name(&record.key);
        let resources = self.resources(Kind::of(&record.key));
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": version},
            "status": resources::status(&outgoing.text, record, outgoing.since),
        }));
        call(resources.patch_status(&name, &PatchParams::default(), &patch)).await
    }

    /// Removes the resource of a record whose Secret was refused: nobody can have read the record completely. Where
    /// that fails, the record is half made, and whoever reads it removes it.
    async fn take_back(&self, made: &Entry) {
        if let Err(error) = self.let_go(made).await {
            tracing::warn!(record = %made.key, %error, "it is half made, and stays for now");
        }
    }

    /// A further write of a record: first the confidential parts, under new keys; then the resource, which puts them in
    /// force.
    async fn change(&self, before: &Entry, record: &Record) -> Result<Entry, StoreError> {
        let name = self.name(&record.key);
        let outgoing = self.outgoing(record, Some(before)).await?;
        self.secrets.clear_left(&name, before.version, &before.places, &outgoing.places);
        self.keep_fresh(before, &record.key, &outgoing).await?;
        let version = before.version.to_string();
        match self.put_status(record, &outgoing, Some(&version)).await {
            Ok(written) => {
                self.secrets.spend(&name, before.places.without(&outgoing.places).keys().cloned());
                Ok(outgoing.entry(record, StandsIn::Resource, &written.metadata))
            }
            // The resource is gone, or another's; or the write is ours, and a proxy in between has sent it twice.
            Err(CallError::NotFound | CallError::Conflict) => {
                let new = outgoing.places.without(&before.places);
                // Only a write that names an older version than the present one has certainly failed.
                let found =
                    if new == Places::default() { Ok(None) } else { self.find(&record.key).await };
                match found {
                    Ok(None) => {}
                    Ok(Some(now)) if now.version > before.version => {
                        self.secrets.spend(&name, new.without(&now.places).keys().cloned());
                    }
                    Ok(Some(_)) | Err(_) => {
                        self.secrets.leave(&name, before.version, [new, before.places.clone()]);
                    }
                }
                Err(StoreError::Conflict)
            }
            Err(error) => {
                let new = outgoing.places.without(&before.places);
                // If the write took effect all the same, nobody reads the parts that it has replaced.
                self.secrets.leave(&name, before.version, [new, before.places.clone()]);
                Err(error.into())
            }
        }
    }

    /// Puts the new confidential parts of a further write into the Secret, for the resource to put them in force.
    async fn keep_fresh(
        &self,
        before: &Entry,
        key: &Key,
        outgoing: &Outgoing,
    ) -> Result<(), StoreError> {
        if outgoing.fresh.is_empty() {
            return Ok(());
        }
        let name = self.name(key);
        let coming = self.secrets.expect(&name, &outgoing.fresh);
        // If there is a Secret then, it belongs to a former resource of this name, and goes with it.
        let is_first = before.places == Places::default();
        let in_use = (!is_first).then_some([&before.places, &outgoing.places]);
        let kept = self.keep(key, &before.uid, &outgoing.fresh, in_use).await;
        let kept = kept.map_err(CallError::of_a_secret);
        if let Err(CallError::Invalid(said)) = kept {
            return Err(self.make_room(before, said).await?);
        }
        if let Err(error) = kept {
            // No write names these parts, which may be in the Secret all the same.
            let fresh = outgoing.fresh.iter().map(|(place, _)| place.clone());
            self.secrets.spend(&name, fresh.filter(|_| !error.had_no_effect()));
            return Err(error.into());
        }
        coming.kept();
        Ok(())
    }

    /// Makes room in the Secret of a record, which has room for two copies, when other writers have left parts there.
    /// All present writers of the record are stopped first, this process too.
    async fn make_room(&self, before: &Entry, said: String) -> Result<StoreError, StoreError> {
        let name = self.name(&before.key);
        // Read before the write: a writer that has left a part by then, and not put it in force, cannot do so any more.
        let strays = self.strays(&name, &before.places).await?;
        if strays.is_empty() {
            return Ok(StoreError::TooLarge(said));
        }
        let patch = Patch::Merge(json!({"metadata": {
            "resourceVersion": before.version.to_string(),
            "annotations": {names::TIDIED: unique()?},
        }}));
        let resources = self.resources(Kind::of(&before.key));
        call(resources.patch(&name, &PatchParams::default(), &patch)).await?;
        self.add(&name, &strays).await?;
        Ok(StoreError::Conflict)
    }

    /// The parts of a record to be written: unchanged ones stay where they are.
    async fn outgoing(
        &self,
        record: &Record,
        before: Option<&Entry>,
    ) -> Result<Outgoing, StoreError> {
        let damaged = |error: serde_json::Error| unreadable(&record.key, &error.to_string());
        let Parts { public, order, rest } = split::split(record).map_err(damaged)?;
        let confidential = bytes(&order).map_err(damaged)? + bytes(&rest).map_err(damaged)?;
        fits(
            "confidential part (parameters, context, state, credentials)",
            confidential,
            MAX_CONFIDENTIAL,
        )?;
        let name = self.name(&record.key);
        let left = before.map(|entry| self.secrets.left(&name, entry.version)).unwrap_or_default();
        let mut fresh = Fresh::new();
        let mut place = async |part: &str, content: Map<String, Value>, known: Vec<&String>| {
            if content.is_empty() {
                return Ok(None);
            }
            for place in known {
                if self.part(&name, Some(place)).await?.is_some_and(|old| *old.content == content) {
                    return Ok(Some(place.clone()));
                }
            }
            let place = format!("{part}-{}", unique()?);
            fresh.push((place.clone(), Arc::new(content)));
            Ok::<_, StoreError>(Some(place))
        };
        let known: Vec<&Places> = before.iter().map(|entry| &entry.places).chain(&left).collect();
        let [orders, rests] = [
            known.iter().filter_map(|known| known.order.as_ref()).collect(),
            known.iter().filter_map(|known| known.rest.as_ref()).collect(),
        ];
        let places = Places {
            order: place("order", order, orders).await?,
            rest: place("rest", rest, rests).await?,
        };
        let since = Since::after(before.and_then(Entry::since), record);
        let written = Written {
            record: public,
            write: unique()?,
            since: Some(since),
            places: places.clone(),
        };
        let text = serde_json::to_string(&written).map_err(damaged)?;
        fits("public part (metadata, URLs, ids)", text.len(), MAX_PUBLIC)?;
        Ok(Outgoing { text, since, places, fresh })
    }

    pub(super) async fn remove(
        &self,
        known: &KnownRecords,
        key: &Key,
        expected: &Version,
    ) -> Result<(), StoreError> {
        let before = self.expected(known, key, expected).await?;
        self.take_away(&before).await?;
        known.removed(&before);
        Ok(())
    }

    /// Removes the resource or the tombstone of a record, if it still has the version that was read.
    pub(super) async fn take_away(&self, before: &Entry) -> Result<(), StoreError> {
        match before.is_tombstone() {
            true => self.open_tomb(before).await,
            false => self.let_go(before).await,
        }
    }

    /// Removes a resource, if it still has the version that was read. It is gone when all finalizers are off, those of
    /// others, too.
    pub(super) async fn let_go(&self, before: &Entry) -> Result<(), StoreError> {
        if before.deleting {
            self.take_orphan(&self.name(&before.key), before).await?;
        }
        let version = before.version.to_string();
        let deletion = (!before.deleting).then(|| in_background(Some(before.uid.clone()), None));
        let dropped = self.drop_resource(&before.key, Some(&version), &before.others, deletion);
        match dropped.await? {
            true => Ok(()),
            false => Err(StoreError::Conflict),
        }
    }

    /// Takes our finalizer off a resource that still has this version, keeps those of `others`, and deletes the
    /// resource, if `deletion` is given. Whether the resource existed.
    async fn drop_resource(
        &self,
        key: &Key,
        version: Option<&str>,
        others: &[String],
        deletion: Option<DeleteParams>,
    ) -> Result<bool, StoreError> {
        let name = self.name(key);
        let resources = self.resources(Kind::of(key));
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": version, "finalizers": others},
        }));
        let patched = find(resources.patch(&name, &PatchParams::default(), &patch)).await?;
        if patched.is_none() {
            return Ok(false);
        }
        self.secrets.forget(&name);
        if let Some(deletion) = deletion {
            gone(call(resources.delete(&name, &deletion)).await.map(drop))?;
        }
        Ok(true)
    }

    /// Removes the Secret of a resource that somebody has deleted by hand with `--cascade=orphan`, which would leave
    /// the Secret, with credentials in it, unknown to anybody. As long as the resource exists nobody else makes a
    /// Secret of its name.
    async fn take_orphan(&self, name: &str, before: &Entry) -> Result<(), StoreError> {
        let found = find(self.secrets().get_metadata(name)).await?.map(|secret| secret.metadata);
        // The resource has this finalizer until Kubernetes has removed the Secret's owner reference. That of a later
        // resource has another owner.
        let is_about_to_be = before.others.iter().any(|it| it == "orphan");
        let is_orphan = |it: &ObjectMeta| {
            let owners = it.owner_references.as_deref().unwrap_or_default();
            owners.is_empty() || is_about_to_be && owners.iter().any(|it| it.uid == before.uid)
        };
        let Some(orphan) = found.filter(is_orphan) else { return Ok(()) };
        gone(call(self.secrets().delete(name, &only(orphan.uid, None))).await.map(drop))
    }

    /// Removes a resource whose record cannot be read, whatever other finalizers it has.
    pub(super) async fn discard_unread(&self, key: &Key) -> Result<(), StoreError> {
        let name = self.name(key);
        let resources = self.resources(Kind::of(key));
        // A damaged tombstone is read as a damaged entry, and removed by that.
        let Some(found) = find(resources.get(&name)).await? else {
            return Err(StoreError::Conflict);
        };
        if Self::entry_of(key, &found).is_ok() {
            return Err(StoreError::Conflict);
        }
        let read = found.metadata;
        let others = read.finalizers.into_iter().flatten();
        let others: Vec<String> = others.filter(|it| it != names::FINALIZER).collect();
        let deletion = in_background(read.uid, None);
        let version = read.resource_version.as_deref();
        self.drop_resource(key, version, &others, Some(deletion)).await.map(drop)
    }

    /// Writes the tombstone of a record that is gone.
    pub(super) async fn entomb(
        &self,
        record: &Record,
        before: Option<&Entry>,
    ) -> Result<Entry, StoreError> {
        let damaged = |error: serde_json::Error| unreadable(&record.key, &error.to_string());
        let name = self.name(&record.key);
        let public = split::split(record).map_err(damaged)?.public;
        let written =
            Written { record: public, write: unique()?, since: None, places: Places::default() };
        let text = serde_json::to_string(&written).map_err(damaged)?;
        let mut labels = self.labels(&record.key);
        labels[names::KEEPS] = json!(super::watch::TOMBSTONE);
        let mut tombstone = json!({
            "metadata": {"name": name, "labels": labels},
            "data": {super::entry::TOMBSTONE_KEY: text},
        });
        if let Some(before) = before {
            tombstone["metadata"]["resourceVersion"] = json!(before.version.to_string());
        }
        let tombstone = serde_json::from_value(tombstone).map_err(damaged)?;
        let made = match before {
            Some(_) => {
                call(self.config_maps().replace(&name, &PostParams::default(), &tombstone)).await
            }
            None => call(self.config_maps().create(&PostParams::default(), &tombstone)).await,
        };
        let made = made.map_err(overtaken)?;
        let entry = Entry::new(record, Places::default(), text.into(), StandsIn::Tombstone);
        Ok(entry.of(&made.metadata))
    }

    /// Removes a tombstone, because its time is over, or its id is used again.
    async fn open_tomb(&self, before: &Entry) -> Result<(), StoreError> {
        let name = self.name(&before.key);
        let version = Some(before.version.to_string());
        let opened = call(self.config_maps().delete(&name, &in_background(None, version))).await;
        opened.map(drop).map_err(overtaken)
    }
}

impl Outgoing {
    fn entry(self, record: &Record, from: StandsIn, metadata: &ObjectMeta) -> Entry {
        Entry::new(record, self.places, self.text.into(), from).of(metadata)
    }
}

fn bytes(part: &Map<String, Value>) -> serde_json::Result<usize> {
    if part.is_empty() { Ok(0) } else { serde_json::to_string(part).map(|text| text.len()) }
}

fn fits(what: &str, bytes: usize, most: usize) -> Result<(), StoreError> {
    if bytes <= most {
        return Ok(());
    }
    Err(StoreError::TooLarge(format!(
        "its {what} takes {bytes} bytes, and at most {most} are kept"
    )))
}

/// The error of a write: one to a resource that is gone counts as a conflict, like one to a resource that somebody else
/// has written.
fn overtaken(error: CallError) -> StoreError {
    match error {
        CallError::NotFound => StoreError::Conflict,
        error => error.into(),
    }
}

/// The result of a removal: it has succeeded also if the object is gone, or is another one by now.
fn gone(result: Result<(), CallError>) -> Result<(), StoreError> {
    match result {
        Err(CallError::NotFound | CallError::Conflict) => Ok(()),
        other => Ok(other?),
    }
}
