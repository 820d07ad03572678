//! The record of an instance: its parameter values, generated ones too, and its requester. It is kept before the first
//! object is made, so that no second password is ever generated.
//!
//! The record is a Secret beside the instance, and is removed with it. Whoever may write Secrets there could write
//! other values, or another requester, and have objects made or removed in somebody else's name: so the record is
//! sealed with our key, and objects are removed by what it says, not by what the instance says later.
//!
//! A change of the instance is a further revision: it takes the place of the one before, which stays beside it.
//!
//! ```text
//! record    what is in force          record.1, record.2, …  what was before, the newest [`KEPT`] of them
//! spec      of which spec, packed     spec.1, …
//! seal      that we wrote it          seal.1, …
//! ```

use std::collections::{BTreeMap, BTreeSet};

use data_encoding::{BASE64, HEXLOWER};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use ring::hmac;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use template::Parameter;
use template::translate::Translation;

use super::names::{HOLDS_RECORD, REVISION};
use super::packed::{pack, unpack};
use super::plan::{Planned, owner};
use super::resource::{Instance, Key};
use super::status::Made;
use super::verified;
use crate::names::MANAGED_BY;

/// The key of the Secret's data with the record, as JSON.
const RECORD: &str = "record";
/// The key of the Secret's data with the seal, which proves that we wrote the record.
const SEAL: &str = "seal";
/// The key of the Secret's data with the spec, packed.
const SPEC: &str = "spec";
/// How many earlier revisions are kept.
const KEPT: usize = 10;
/// How many bytes the data of the Secret has at most; Kubernetes takes 1 MiB.
const LARGEST: usize = 900 << 10;

/// Parameter values by parameter name.
pub type Values = BTreeMap<String, String>;

/// The record of one revision of an instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The number of the revision, from 1.
    #[serde(default = "first")]
    pub revision: u64,
    /// When the revision was recorded (RFC 3339).
    #[serde(default)]
    pub recorded_at: String,
    /// Namespace and name of the instance: a copy of the Secret counts for no other. Absent in records written before
    /// this field existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) instance: Option<[String; 2]>,
    /// The values of the parameters.
    pub parameters: Values,
    /// The parameters whose values were generated, in this revision or before, and stay. Absent in records written before
    /// this field existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) generated: Option<BTreeSet<String>>,
    /// The requester, as in `spec.requester`.
    pub requester: Value,
    /// The digest of the spec.
    pub(super) spec: String,
    /// How the objects were translated, if they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub translation: Option<TranslationSettings>,
    /// The message of the template for whoever instantiates it; it may contain parameter values.
    #[serde(default)]
    pub message: String,
    /// Objects of earlier revisions that are not in this one, and are to be removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) before: Vec<Former>,
}

/// How objects were translated, without the namespace, which is the instance's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranslationSettings {
    /// The domain for Routes without a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    domain: Option<String>,
    /// The class of each Ingress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ingress_class: Option<String>,
}

impl From<Translation> for TranslationSettings {
    fn from(Translation { domain, ingress_class, .. }: Translation) -> Self {
        Self { domain, ingress_class }
    }
}

impl From<TranslationSettings> for Translation {
    fn from(TranslationSettings { domain, ingress_class }: TranslationSettings) -> Self {
        Self { domain, ingress_class, namespace: None }
    }
}

fn first() -> u64 {
    1
}

/// An object of an earlier revision.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Former {
    pub(super) api_version: String,
    pub(super) kind: String,
    /// Empty for cluster-scoped objects.
    #[serde(default)]
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Former {
    /// The identity of the object, whatever the version of its group.
    pub(super) fn identity(&self) -> [&str; 4] {
        let group = self.api_version.split_once('/').map_or("", |(group, _)| group);
        [group, &self.kind, &self.namespace, &self.name]
    }
}

impl From<&Planned> for Former {
    fn from(planned: &Planned) -> Self {
        Self {
            api_version: planned.served.resource.api_version.clone(),
            kind: planned.served.resource.kind.clone(),
            namespace: planned.namespace.clone().unwrap_or_default(),
            name: planned.name.clone(),
        }
    }
}

impl From<Made> for Former {
    fn from(made: Made) -> Self {
        let Made { api_version, kind, namespace, name, .. } = made;
        Self { api_version, kind, namespace, name }
    }
}

impl Record {
    pub(super) fn of(
        instance: &Instance,
        parameters: &[Parameter],
        message: String,
        recorded_at: String,
    ) -> Self {
        Self {
            revision: first(),
            recorded_at,
            instance: Some([instance.key.namespace.to_string(), instance.key.name.to_string()]),
            parameters: parameters.iter().map(|it| (it.name.clone(), it.value.clone())).collect(),
            generated: None,
            requester: instance.spec()["requester"].clone(),
            spec: verified::digest(instance.spec()),
            translation: None,
            message,
            before: Vec::new(),
        }
    }

    /// Whether the record says that nothing is to be made any more.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.spec.is_empty()
    }

    /// Whether the record was written for an instance of this name in this namespace.
    pub(super) fn is_made_for(&self, key: &Key) -> bool {
        let instance = self.instance.as_ref();
        instance
            .is_some_and(|it| [&*key.namespace, &*key.name] == it.each_ref().map(String::as_str))
    }

    /// How the objects of the revision are translated, whatever the settings are now: what was made has to be found
    /// again.
    pub(super) fn means(&self) -> Option<Translation> {
        self.translation.clone().map(Translation::from)
    }

    /// Whether the spec of the instance still is the recorded one.
    pub(super) fn is_of(&self, instance: &Instance) -> bool {
        self.is_of_spec(instance.spec())
    }

    /// Whether a spec is the recorded one.
    pub fn is_of_spec(&self, spec: &Value) -> bool {
        self.spec == verified::digest(spec)
    }
}

/// A record, with its spec and the earlier revisions.
#[derive(Debug)]
pub(super) struct StoredRecord {
    pub(super) record: Record,
    /// The spec, packed; empty where it was too large.
    packed: Vec<u8>,
    /// Earlier revisions, each with its number: record, spec and seal as they are kept.
    older: Vec<(u64, [Vec<u8>; 3])>,
    /// The `resourceVersion` of the Secret, for the next write; empty if it is not written yet.
    pub(super) version: String,
    /// Whether the instance does not own the record any more: whoever deleted the instance keeps its objects
    /// (`--cascade=orphan`).
    pub(super) is_orphaned: bool,
}

impl StoredRecord {
    /// The first record of an instance, not written yet.
    pub(super) fn new(record: Record, spec: &Value) -> Self {
        let (packed, version) = (pack(spec), String::new());
        Self { record, packed, older: Vec::new(), version, is_orphaned: false }
    }

    /// The length of the record in bytes: values, message, spec and earlier revisions.
    pub(super) fn length(&self) -> usize {
        let older = self.older.iter().flat_map(|(_, parts)| parts).map(Vec::len).sum::<usize>();
        let record = &self.record;
        let values = record.parameters.iter().map(|(name, value)| name.len() + value.len());
        self.packed.len() + older + record.message.len() + values.sum::<usize>()
    }

    /// The recorded spec; `None` where it was too large to be kept.
    pub(super) fn spec(&self) -> Option<Value> {
        unpack(&self.packed).filter(|spec| self.record.is_of_spec(spec))
    }

    /// The values of the previous revision; empty, if there is none.
    pub(super) fn values_before(&self) -> Values {
        let before = self.older.first().map(|(_, [record, ..])| record.as_slice());
        let read = before.and_then(|record| serde_json::from_slice::<Record>(record).ok());
        read.map(|record| record.parameters).unwrap_or_default()
    }

    /// The record of a revision, and its spec, packed, if that is kept.
    fn kept_of(&self, revision: u64) -> Option<(Record, &[u8])> {
        if revision == self.record.revision {
            return Some((self.record.clone(), &self.packed));
        }
        self.older.iter().find_map(|(_, [record, spec, _])| {
            let record: Record = serde_json::from_slice(record).ok()?;
            (record.revision == revision).then_some((record, spec.as_slice()))
        })
    }

    /// The record of a revision, if that is kept.
    pub(super) fn record_of(&self, revision: u64) -> Option<Record> {
        self.kept_of(revision).map(|(record, _)| record)
    }

    /// The template of a revision, if that is kept.
    pub(super) fn template(&self, revision: u64) -> Option<Value> {
        let (record, spec) = self.kept_of(revision)?;
        let spec = unpack(spec).filter(|spec| record.is_of_spec(spec));
        spec.map(|mut spec| spec["template"].take())
    }

    /// The record of the next revision.
    pub(super) fn next(&self, mut record: Record, spec: &Value, of: &Key, key: &hmac::Key) -> Self {
        record.revision = self.record.revision.saturating_add(1);
        let [kept, seal] = sealed_record(of, &self.record, key);
        let mut older = self.older.clone();
        older.insert(0, (self.record.revision, [kept, self.packed.clone(), seal]));
        Self {
            record,
            packed: pack(spec),
            older,
            version: self.version.clone(),
            is_orphaned: false,
        }
    }

    /// The data of the Secret: the revision in force, and as many earlier ones as there is room for.
    fn data(&self, of: &Key, key: &hmac::Key) -> Map<String, Value> {
        let [record, seal] = sealed_record(of, &self.record, key);
        let mut room = LARGEST.saturating_sub(record.len() + seal.len());
        let mut entries = vec![(RECORD.to_owned(), record), (SEAL.to_owned(), seal)];
        if self.packed.len() <= room {
            room -= self.packed.len();
            entries.push((SPEC.to_owned(), self.packed.clone()));
        }
        for (revision, [record, spec, seal]) in self.older.iter().take(KEPT) {
            let size = record.len() + spec.len() + seal.len();
            if size > room {
                break;
            }
            room -= size;
            for (name, bytes) in [(RECORD, record), (SPEC, spec), (SEAL, seal)] {
                entries.push((format!("{name}.{revision}"), bytes.clone()));
            }
        }
        let encoded = entries.into_iter().map(|(name, bytes)| (name, BASE64.encode(&bytes).into()));
        encoded.collect()
    }
}

/// A record in its stored form, and its seal.
fn sealed_record(of: &Key, record: &Record, key: &hmac::Key) -> [Vec<u8>; 2] {
    let kept = json!(record).to_string().into_bytes();
    let seal = HEXLOWER.encode(hmac::sign(key, &sealed(of, &kept)).as_ref()).into_bytes();
    [kept, seal]
}

/// The name of the Secret with the record of an instance.
pub fn name(uid: &str) -> String {
    format!("template-instance-{uid}")
}

/// The Secret that keeps a record.
pub(super) fn secret(of: &Key, kept: &StoredRecord, key: &hmac::Key) -> Value {
    let mut secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name(&of.uid),
            "labels": {MANAGED_BY.0: MANAGED_BY.1},
            // A namespace that is being deleted removes Secrets first: this one is held until the objects in it are
            // removed.
            "finalizers": [HOLDS_RECORD],
            "ownerReferences": [owner(of)],
        },
        "data": kept.data(of, key),
    });
    if !kept.version.is_empty() {
        secret["metadata"]["resourceVersion"] = json!(kept.version);
    }
    secret
}

/// A withdrawn record, put where there is none so that nobody begins the instance any more. It has no finalizer.
pub(super) fn withdrawn(of: &Key, key: &hmac::Key) -> Value {
    let record = Record {
        revision: 0,
        recorded_at: String::new(),
        instance: None,
        parameters: Values::new(),
        generated: None,
        requester: Value::Null,
        spec: String::new(),
        translation: None,
        message: String::new(),
        before: Vec::new(),
    };
    let kept = StoredRecord {
        record,
        packed: Vec::new(),
        older: Vec::new(),
        version: String::new(),
        is_orphaned: false,
    };
    let mut secret = secret(of, &kept, key);
    if let Some(metadata) = secret["metadata"].as_object_mut() {
        metadata.remove("finalizers");
    }
    secret
}

/// Reads the record from its Secret.
///
/// # Errors
/// If the Secret is not what was recorded; the message never quotes its content.
pub(super) fn read(of: &Key, secret: &Secret, key: &hmac::Key) -> Result<StoredRecord, String> {
    let wrong = |why: &str| {
        format!("Secret {}: {why}: delete the instance, and order it anew", name(&of.uid))
    };
    let data = |key: &str| secret.data.as_ref().and_then(|data| data.get(key));
    let (Some(kept), Some(seal)) = (data(RECORD), data(SEAL)) else {
        return Err(wrong("it does not hold what was recorded in it"));
    };
    let seal = HEXLOWER.decode(&seal.0).unwrap_or_default();
    hmac::verify(key, &sealed(of, &kept.0), &seal).map_err(|_| {
        wrong("somebody else has written it, or the key that it is sealed with was lost")
    })?;
    let record: Record = serde_json::from_slice(&kept.0).map_err(|_| wrong("it cannot be read"))?;
    let packed = data(SPEC).map(|spec| spec.0.clone()).unwrap_or_default();
    let version = secret.metadata.resource_version.clone().unwrap_or_default();
    // An earlier revision that somebody else has written is ignored, and not kept.
    let is_ours = |(_, [kept, _, seal]): &(u64, [Vec<u8>; 3])| {
        let seal = HEXLOWER.decode(seal).unwrap_or_default();
        hmac::verify(key, &sealed(of, kept), &seal).is_ok()
    };
    let older = older(secret).into_iter().filter(is_ours).collect();
    let mut owners = secret.metadata.owner_references.iter().flatten();
    let is_orphaned = !owners.any(|owner| owner.uid == *of.uid);
    Ok(StoredRecord { record, packed, older, version, is_orphaned })
}

/// Earlier revisions as the Secret keeps them, the newest first.
fn older(secret: &Secret) -> Vec<(u64, [Vec<u8>; 3])> {
    let data = secret.data.iter().flatten();
    let numbers =
        data.filter_map(|(key, _)| key.strip_prefix(RECORD)?.strip_prefix('.')?.parse().ok());
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable_by_key(|number| std::cmp::Reverse(*number));
    let part = |of: &str, number: u64| {
        let found = secret.data.as_ref().and_then(|data| data.get(&format!("{of}.{number}")));
        found.map(|ByteString(bytes)| bytes.clone()).unwrap_or_default()
    };
    let parts = |number| [RECORD, SPEC, SEAL].map(|of| part(of, number));
    numbers.into_iter().map(|number| (number, parts(number))).collect()
}

/// The template annotated as a repetition of an earlier revision. Whoever may write the Secret could have put another
/// one there, so the controller checks that it is what it recorded.
pub fn of_revision(mut template: Value, revision: u64) -> Value {
    let member = |of: &mut Map<String, Value>, name: &str| match of.get(name) {
        Some(Value::Object(_)) => {}
        _ => drop(of.insert(name.to_owned(), json!({}))),
    };
    if let Some(template) = template.as_object_mut() {
        member(template, "metadata");
    }
    if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        member(metadata, "annotations");
    }
    if let Some(Value::Object(annotations)) = template.pointer_mut("/metadata/annotations") {
        annotations.insert(REVISION.to_owned(), json!(revision.to_string()));
    }
    template
}

/// Checks that a template annotated as a repetition of a revision is the template of that revision, as far as `before`,
/// the previous record, has it.
///
/// # Errors
/// If it is another template.
pub(super) fn is_what_it_says(template: &Value, before: &StoredRecord) -> Result<(), String> {
    let said = &template["metadata"]["annotations"][REVISION];
    let (Some(said), now) = (said.as_str(), unsaid(template)) else { return Ok(()) };
    let is = |revision| before.template(revision).is_some_and(|it| unsaid(&it) == now);
    // The template is unchanged, and only values differ.
    if said.parse().is_ok_and(is) || is(before.record.revision) {
        return Ok(());
    }
    Err(format!(
        "spec.template.metadata.annotations[{REVISION:?}]: Invalid value: {said:?}: the template is not what was recorded \
         as that revision, or that is not kept any more: somebody else may have written it; look at it, and order what \
         is meant without this annotation"
    ))
}

/// The number of the earlier revision that a template repeats, by its annotation.
pub(super) fn repeated(template: &Value) -> Option<u64> {
    template["metadata"]["annotations"][REVISION].as_str()?.parse().ok()
}

/// A template without the annotation that names a revision.
fn unsaid(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(Value::Object(annotations)) = template.pointer_mut("/metadata/annotations") {
        annotations.remove(REVISION);
    }
    for (of, name) in [("/metadata", "annotations"), ("", "metadata")] {
        let Some(Value::Object(of)) = template.pointer_mut(of) else { continue };
        if of.get(name).is_some_and(|it| it.is_null() || it == &json!({})) {
            of.remove(name);
        }
    }
    template
}

/// A revision, for users who may read the Secret: the seal is not checked, because they could write the Secret, too.
#[derive(Debug, Clone)]
pub struct Revision {
    /// The record of the revision.
    pub record: Record,
    /// The spec; `None` where it was too large to be kept.
    pub spec: Option<Value>,
}

/// All revisions that a Secret keeps, the newest first; unreadable ones are left out.
pub fn revisions(secret: &Secret) -> Vec<Revision> {
    let data = |key: &str| {
        let found = secret.data.as_ref().and_then(|data| data.get(key));
        found.map(|ByteString(bytes)| bytes.clone()).unwrap_or_default()
    };
    let current = [data(RECORD), data(SPEC), Vec::new()];
    let all = [current].into_iter().chain(older(secret).into_iter().map(|(_, parts)| parts));
    let read = all.filter_map(|[record, spec, _]| {
        let record: Record = serde_json::from_slice(&record).ok()?;
        let spec = unpack(&spec).filter(|spec| record.is_of_spec(spec));
        Some(Revision { record, spec })
    });
    read.filter(|revision| !revision.record.is_withdrawn()).collect()
}

/// The mark of an object without an owner reference: an annotation value that cannot be copied to another object.
pub(super) fn mark(of: &Key, resource: &str, place: &str, key: &hmac::Key) -> String {
    let text = format!("template-object\0{}\0{resource}\0{place}", of.uid);
    HEXLOWER.encode(hmac::sign(key, text.as_bytes()).as_ref())
}

/// The bytes that the seal covers: with the uid, so that the record of one instance is not valid for another.
fn sealed(of: &Key, kept: &[u8]) -> Vec<u8> {
    [b"template-record\0", of.uid.as_bytes(), b"\0", kept].concat()
}
