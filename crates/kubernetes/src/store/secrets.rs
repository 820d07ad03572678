//! The confidential parts of records: each under a key of its own in the Secret of its record.
//!
//! A key is written once, under a random name, and the resource says which keys are in force. So two writers at once do
//! not disturb each other, and a write that came too late leaves only a key that nobody reads, which the next write of
//! the same process removes. Parts that were kept for a write that was refused or not answered are reused by the next
//! try: however often that happens, there is one copy.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use engine::ports::StoreError;
use engine::record::Key;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams, PostParams};
use osb::weight::weigh;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::RecordApi;
use crate::calls::{CallError, call, created, find, is_of_a_namespace_that_goes, only};
use crate::resources::{self, Kind};
use crate::split::Places;

/// How many bytes of parts are cached in memory.
const CACHE_BYTES: u64 = 4 * 1024 * 1024;
/// How many bytes a cache entry takes beside its content.
const ENTRY_BYTES: u64 = 200;

/// What this process knows of the Secrets of records.
pub(super) struct Secrets {
    /// The cached parts, by Secret and key: their contents do not change.
    recent: Cache<(String, String), Recent, Weight>,
    /// Keys that nobody reads any more, by Secret.
    spent: Mutex<HashMap<String, Vec<String>>>,
    /// Parts kept for writes of resources that failed, as far as is known, by Secret.
    left: Mutex<HashMap<String, Vec<Left>>>,
    /// Secrets and keys that are being written: readers wait for them.
    coming: watch::Sender<HashSet<(String, String)>>,
}

/// Parts that are being written to a Secret; readers wait for them until this is dropped.
pub(super) struct Coming<'s> {
    secrets: &'s Secrets,
    secret: String,
    parts: Fresh,
}

impl Coming<'_> {
    /// Caches the parts, which have been written and need not be read.
    pub(super) fn kept(self) {
        for (place, part) in &self.parts {
            let text = serde_json::to_vec(&**part).unwrap_or_default();
            let part = Part { content: Arc::clone(part), made: 0 };
            self.secrets.remember(&self.secret, place.clone(), part, &text);
        }
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.secrets.coming.send_modify(|coming| {
            for (place, _) in &self.parts {
                coming.remove(&(self.secret.clone(), place.clone()));
            }
        });
    }
}

/// Parts kept for a write of a resource that failed, as far as is known.
#[derive(PartialEq)]
struct Left {
    /// The version that the resource had to have. As long as it has it, a write that names these parts may still take
    /// effect: it is not known which of those writes were refused, and which were only not answered.
    version: u64,
    places: Places,
}

/// A part of a record, as a Secret has it.
#[derive(Clone, Default)]
pub(super) struct Part {
    pub(super) content: Arc<Map<String, Value>>,
    /// When that Secret was made, in seconds since 1970, by the API server's clock; 0 where this process made it.
    pub(super) made: i64,
}

/// A cached part.
#[derive(Clone)]
struct Recent {
    part: Part,
    /// How many bytes the part takes in memory: a small map takes a hundred times its text.
    weight: usize,
}

/// The weights of cached parts. They are asked for at each insertion and eviction, under a lock: so each part is
/// weighed before.
#[derive(Clone)]
struct Weight;

impl Weighter<(String, String), Recent> for Weight {
    fn weight(&self, key: &(String, String), recent: &Recent) -> u64 {
        ENTRY_BYTES + (key.0.len() + key.1.len() + recent.weight) as u64
    }
}

impl Default for Secrets {
    fn default() -> Self {
        let items = usize::try_from(CACHE_BYTES / 1024).unwrap_or(usize::MAX);
        let recent = Cache::with_weighter(items, CACHE_BYTES, Weight);
        let (spent, left) = (Mutex::default(), Mutex::default());
        Self { recent, spent, left, coming: watch::Sender::default() }
    }
}

impl Secrets {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Vec<String>>> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Caches a part; its text is needed for its weight.
    fn remember(&self, secret: &str, place: String, part: Part, text: &[u8]) {
        let recent = Recent { part, weight: weigh(text) };
        self.recent.insert((secret.to_owned(), place), recent);
    }

    /// Notes keys that nobody reads any more.
    pub(super) fn spend(&self, secret: &str, places: impl IntoIterator<Item = String>) {
        let keys: Vec<String> = places.into_iter().collect();
        if !keys.is_empty() {
            self.lock().entry(secret.to_owned()).or_default().extend(keys);
        }
    }

    fn lock_left(&self) -> std::sync::MutexGuard<'_, HashMap<String, Vec<Left>>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a write of a resource of this version failed, as far as is known; `places` are the parts that it was
    /// to name, and those that it was not to name any more.
    pub(super) fn leave<const N: usize>(&self, secret: &str, version: u64, places: [Places; N]) {
        let mut all = self.lock_left();
        let known = all.entry(secret.to_owned()).or_default();
        for places in places {
            let left = Left { version, places };
            if left.places != Places::default() && !known.contains(&left) {
                known.push(left);
            }
        }
    }

    /// The parts kept for failed writes of a resource of this version, which the next write may reuse.
    pub(super) fn left(&self, secret: &str, version: u64) -> Vec<Places> {
        let left = self.lock_left();
        let left = left.get(secret).into_iter().flatten().filter(|it| it.version == version);
        left.map(|it| it.places.clone()).collect()
    }

    /// Prepares a write of a resource of this version that names the parts `before`, and is to name `next`. Parts left
    /// by writes of older versions are spent, unless they are named: no such write can take effect any more.
    pub(super) fn clear_left(&self, secret: &str, version: u64, before: &Places, next: &Places) {
        let mut all = self.lock_left();
        let Some(left) = all.get_mut(secret) else { return };
        let (over, open): (Vec<_>, Vec<_>) =
            std::mem::take(left).into_iter().partition(|it| it.version < version);
        let is_named = |place: &String| {
            let left = open.iter().map(|it| &it.places);
            [before, next].into_iter().chain(left).any(|it| it.names(place))
        };
        let spent = over.iter().flat_map(|it| it.places.keys()).filter(|place| !is_named(place));
        let spent: Vec<String> = spent.cloned().collect();
        match open.is_empty() {
            true => drop(all.remove(secret)),
            false => *left = open,
        }
        drop(all);
        self.spend(secret, spent);
    }

    /// Announces parts that are about to be written. A watch may bring the resource before that: readers of the parts
    /// then wait instead of asking the API server.
    pub(super) fn expect(&self, secret: &str, fresh: &Fresh) -> Coming<'_> {
        let places = fresh.iter().map(|(place, _)| (secret.to_owned(), place.clone()));
        self.coming.send_modify(|coming| coming.extend(places));
        Coming { secrets: self, secret: secret.to_owned(), parts: fresh.clone() }
    }

    /// Forgets a Secret that is gone, or about to go.
    pub(super) fn forget(&self, secret: &str) {
        self.lock().remove(secret);
        self.lock_left().remove(secret);
    }
}

/// Parts to be written: the key and the content of each.
pub(super) type Fresh = Vec<(String, Arc<Map<String, Value>>)>;

/// A random word: see [`crate::names::random_word`].
pub(super) fn unique() -> Result<String, StoreError> {
    let word = crate::names::random_word();
    word.ok_or_else(|| StoreError::Unavailable("no random numbers to be had".to_owned()))
}

impl RecordApi {
    pub(super) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.settings.namespace)
    }

    /// Reads a part of a record; `None` if it is not in the Secret.
    pub(super) async fn part(
        &self,
        secret: &str,
        place: Option<&String>,
    ) -> Result<Option<Part>, CallError> {
        let Some(place) = place else { return Ok(Some(Part::default())) };
        let key = (secret.to_owned(), place.clone());
        let _ = self.secrets.coming.subscribe().wait_for(|coming| !coming.contains(&key)).await;
        if let Some(recent) = self.secrets.recent.get(&key) {
            return Ok(Some(recent.part));
        }
        let Some(found) = find(self.secrets().get(secret)).await? else { return Ok(None) };
        // A part that is too large for the cache is read each time.
        let (mut wanted, made) = (None, created(&found.metadata));
        for (other, ByteString(bytes)) in found.data.unwrap_or_default() {
            let Ok(content) = serde_json::from_slice(&bytes).map(Arc::new) else { continue };
            let part = Part { content, made };
            if other == *place {
                wanted = Some(part.clone());
            }
            self.secrets.remember(secret, other, part, &bytes);
        }
        Ok(wanted)
    }

    /// Both parts of a record; `None` if one of them is missing.
    pub(super) async fn parts(
        &self,
        secret: &str,
        places: &Places,
    ) -> Result<Option<[Part; 2]>, CallError> {
        let order = self.part(secret, places.order.as_ref()).await?;
        let rest = self.part(secret, places.rest.as_ref()).await?;
        Ok(order.zip(rest).map(|(order, rest)| [order, rest]))
    }

    /// Makes the Secret of a record whose resource was just made. With it the record is complete, and nobody takes it for
    /// half made any more, if the resource is still there: where it is not, so is no Secret that was in the way.
    ///
    /// # Errors
    /// [`CallError::Conflict`] if somebody [forestalled](Self::forestall) it.
    pub(super) async fn complete(
        &self,
        key: &Key,
        uid: &str,
        fresh: &Fresh,
    ) -> Result<(), CallError> {
        match self.make_secret(key, uid, &encoded(fresh)).await? {
            // A proxy in between has sent the call twice.
            Some(found) if !has_all(&found, fresh.iter().map(|(place, _)| place)) => {
                Err(CallError::Conflict)
            }
            _ => Ok(()),
        }
    }

    /// Takes the name of the Secret of a record that is half made, for as long as its resource is there: its writer cannot
    /// complete it then. Whether that is so; otherwise the record is complete by now. As a name is given once, not both
    /// can be, however late the writer is.
    ///
    /// # Errors
    /// If no Secret may be made, unless that is because its namespace is being deleted.
    pub(super) async fn forestall(
        &self,
        key: &Key,
        uid: &str,
        places: &Places,
    ) -> Result<bool, CallError> {
        match self.make_secret(key, uid, &BTreeMap::new()).await {
            Ok(found) => Ok(found.is_none_or(|found| !has_all(&found, places.keys()))),
            Err(CallError::Forbidden(why)) if is_of_a_namespace_that_goes(&why) => Ok(true),
            Err(error) => Err(error.of_a_secret()),
        }
    }

    /// Adds parts to the Secret of a record, and removes those that are spent. `uid` is that of the resource, which owns
    /// the Secret. `in_use` are the parts that the resource names before and after the write; `None` where there is no
    /// Secret yet.
    ///
    /// # Errors
    /// [`CallError::Conflict`] also if the resource is gone, and the Secret is that of a later one.
    pub(super) async fn keep(
        &self,
        key: &Key,
        uid: &str,
        fresh: &Fresh,
        in_use: Option<[&Places; 2]>,
    ) -> Result<(), CallError> {
        let secret = &*self.name(key);
        let mut data = encoded(fresh);
        let Some(in_use) = in_use else {
            return self.add_first(key, uid, &data).await;
        };
        let mut spent = self.secrets.lock().remove(secret).unwrap_or_default();
        spent.retain(|place| in_use.iter().all(|used| !used.names(place)));
        data.extend(spent.iter().map(|place| (place.clone(), Value::Null)));
        match self.add(secret, &data).await {
            // The record had no confidential parts until now.
            Err(CallError::NotFound) => {
                data.retain(|_, content| !content.is_null());
                self.add_first(key, uid, &data).await
            }
            Err(error) => {
                self.secrets.spend(secret, spent);
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    /// The parts in the Secret of a record that are not in force, as a patch that removes them: writers that were
    /// killed have left them, or others are about to put them in force.
    pub(super) async fn strays(
        &self,
        secret: &str,
        in_force: &Places,
    ) -> Result<BTreeMap<String, Value>, CallError> {
        let found = find(self.secrets().get(secret)).await?.and_then(|secret| secret.data);
        let strays = found.unwrap_or_default().into_keys().filter(|place| !in_force.names(place));
        Ok(strays.map(|place| (place, Value::Null)).collect())
    }

    pub(super) async fn add(
        &self,
        secret: &str,
        data: &BTreeMap<String, Value>,
    ) -> Result<(), CallError> {
        let patch = Patch::Merge(json!({"data": data}));
        call(self.secrets().patch(secret, &PatchParams::default(), &patch)).await.map(drop)
    }

    /// Adds the first parts of a record that had none.
    async fn add_first(
        &self,
        key: &Key,
        uid: &str,
        data: &BTreeMap<String, Value>,
    ) -> Result<(), CallError> {
        match self.make_secret(key, uid, data).await? {
            // Another writer of the same record made it first.
            Some(_) => self.add(&self.name(key), data).await,
            None => Ok(()),
        }
    }

    /// Makes the Secret of a record, unless the resource with `uid` has one; returns that then.
    async fn make_secret(
        &self,
        key: &Key,
        uid: &str,
        data: &BTreeMap<String, Value>,
    ) -> Result<Option<Secret>, CallError> {
        let secret = &*self.name(key);
        let owner = owner(Kind::of(key), secret, uid);
        let made: Secret = serde_json::from_value(json!({
            "metadata": {"name": secret, "labels": self.labels(key), "ownerReferences": [owner]},
            "data": data,
        }))
        .map_err(|error| CallError::Unsent(error.to_string()))?;
        match call(self.secrets().create(&PostParams::default(), &made)).await {
            Err(CallError::Exists) => {}
            other => return other.map(|_| None),
        }
        if let Some(found) = find(self.secrets().get(secret)).await? {
            let mut owners = found.metadata.owner_references.iter().flatten();
            if owners.any(|of| of.uid == uid) {
                return Ok(Some(found));
            }
            self.take_former(key, uid, found.metadata.uid).await?;
        }
        call(self.secrets().create(&PostParams::default(), &made)).await.map(|_| None)
    }

    /// Removes the Secret, by its uid, of a former resource of the same name: it is about to be collected. The resource
    /// with `uid` has to be there still: a writer that was held up may find what a later one has, and everybody was told
    /// of that.
    async fn take_former(
        &self,
        key: &Key,
        uid: &str,
        former: Option<String>,
    ) -> Result<(), CallError> {
        let name = self.name(key);
        let resource = find(self.resources(Kind::of(key)).get_metadata(&name)).await?;
        if resource.and_then(|resource| resource.metadata.uid).as_deref() != Some(uid) {
            return Err(CallError::Conflict);
        }
        match call(self.secrets().delete(&name, &only(former, None))).await {
            Ok(_) | Err(CallError::NotFound | CallError::Conflict) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The parts as the data of a Secret.
fn encoded(fresh: &Fresh) -> BTreeMap<String, Value> {
    let encode = |part: &Map<String, Value>| {
        let text = serde_json::to_vec(part).unwrap_or_default();
        Value::String(data_encoding::BASE64.encode(&text))
    };
    fresh.iter().map(|(place, part)| (place.clone(), encode(part))).collect()
}

fn has_all<'p>(secret: &Secret, mut places: impl Iterator<Item = &'p String>) -> bool {
    let data = secret.data.as_ref();
    places.all(|place| data.is_some_and(|data| data.contains_key(place)))
}

fn owner(kind: Kind, name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": resources::api_version(),
        "kind": kind.name(),
        "name": name,
        "uid": uid,
        "controller": true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_counts_as_what_it_takes_in_memory() {
        let of = |value: Value, count: usize| -> Fresh {
            let content = json!({"uri": "postgres://u:p@h/d", "list": vec![value; count]});
            vec![("rest-a".to_owned(), Arc::new(content.as_object().unwrap().clone()))]
        };
        for (name, fresh, is_kept) in [
            ("credentials", of(json!("x"), 10), true),
            ("a long text", of(json!("x".repeat(20_000)), 1), true),
            ("as much text, of small maps", of(json!({"": 0}), 3_000), false),
        ] {
            let secrets = Secrets::default();
            secrets.expect("s", &fresh).kept();
            let recent = secrets.recent.get(&("s".to_owned(), "rest-a".to_owned()));
            assert_eq!(
                recent.map(|it| it.part.content),
                is_kept.then(|| Arc::clone(&fresh[0].1)),
                "{name}"
            );
            assert!(secrets.recent.weight() <= CACHE_BYTES, "{name}");
        }
    }

    /// By version, what a write was to name: what is spent when this one is written after these, which came to nothing.
    #[test]
    fn what_a_write_may_name_yet_is_not_spent_however_others_end() {
        let places = |order: &str, rest: &str| {
            let place = |it: &str| (!it.is_empty()).then(|| it.to_owned());
            Places { order: place(order), rest: place(rest) }
        };
        for (name, left, version, before, next, expected) in [
            ("nothing is left", vec![], 6, places("", "r0"), places("", "r1"), vec![]),
            (
                "the same again",
                vec![(5, "", "r1"); 2],
                5,
                places("", "r0"),
                places("", "r1"),
                vec![],
            ),
            (
                "something else, of the same",
                vec![(5, "", "r1")],
                5,
                places("", "r0"),
                places("", "r2"),
                vec![],
            ),
            ("it took effect", vec![(5, "", "r1")], 6, places("", "r1"), places("", "r2"), vec![]),
            ("it did not", vec![(5, "", "r1")], 6, places("", "r0"), places("", "r2"), vec!["r1"]),
            ("it is named now", vec![(5, "", "r1")], 6, places("", "r0"), places("", "r1"), vec![]),
            (
                "a part of it may be named yet",
                vec![(5, "o1", "r1"), (6, "o1", "r2")],
                6,
                places("", "r0"),
                places("o3", "r3"),
                vec!["r1"],
            ),
            (
                "what is known is older",
                vec![(7, "", "r1")],
                6,
                places("", "r0"),
                places("", "r2"),
                vec![],
            ),
        ] {
            let secrets = Secrets::default();
            for (version, order, rest) in left {
                secrets.leave("s", version, [places(order, rest)]);
            }
            secrets.clear_left("s", version, &before, &next);
            let spent = secrets.lock().get("s").cloned().unwrap_or_default();
            assert_eq!(spent, expected, "{name}");
        }
        let secrets = Secrets::default();
        secrets.leave("s", 5, [places("", "r1")]);
        secrets.leave("s", 5, [places("", "r1")]);
        assert_eq!(secrets.left("s", 5), [places("", "r1")], "once");
        assert_eq!(secrets.left("s", 6), [], "no other version may name it");
        secrets.forget("s");
        assert_eq!(secrets.left("s", 5), [], "it is gone");
    }
}
