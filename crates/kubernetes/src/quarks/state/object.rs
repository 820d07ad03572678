//! A ConfigMap or Secret as it is held in memory: by digests, never by what it holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use ring::digest::{Context, SHA256};

use crate::quarks::api::dialect::Dialect;
use crate::quarks::api::reference::{Kind, base};

/// The annotation of a version with the run that it was written for, by the name of its Job.
pub(crate) const WRITTEN_BY: &str = "manciple.dev/written-by";
/// The annotation of an object without an owner with the QuarksJob whose runs write it, as `quarksjob/NAME`.
pub(crate) const MADE_BY: &str = "manciple.dev/made-by";
/// The longest maker, a kind and a name, in bytes: a longer one was written by somebody else, and would be held in
/// memory for each object.
const LONGEST_MAKER: usize = 300;
/// The longest uid of an owner, in bytes.
const LONGEST_UID: usize = 64;

fn uid(owner: &OwnerReference) -> &str {
    if owner.uid.len() > LONGEST_UID { "" } else { &owner.uid }
}

/// All numbers of versions are below: they are exact in any JSON.
pub(super) const MAX_VERSION: u64 = 1 << 53;

/// A ConfigMap or Secret, as far as it is held in memory.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    pub(crate) kind: Kind,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(super) version: u64,
    /// When it was made, in seconds since 1970.
    pub(super) made: i64,
    pub(super) digest: Digest,
    /// The digest of its labels and annotations.
    marks: Digest,
    pub(crate) owned: Option<Owned>,
    pub(crate) immutable: bool,
    /// It has several owners: it does not go with its controller.
    shared: bool,
    /// It is being deleted, and something holds it.
    pub(crate) deleting: bool,
    /// It has the label of the output of runs.
    pub(crate) is_output: bool,
    /// The QuarksJob whose runs write it, by kind and name: its controller, if that is a QuarksJob, or the one that
    /// [`MADE_BY`] names if it has no controller.
    maker: Option<Box<str>>,
}

/// A digest of what an object holds.
pub(crate) type Digest = [u8; 16];

/// What is known of an object that has an owner or is a version.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Owned {
    /// The uid of the controller that owns it.
    pub(crate) controller: Option<Arc<str>>,
    /// The uids of its other owners: at most two that differ.
    others: Box<[Box<str>]>,
    /// Its labels and annotations, if it is a version.
    pub(crate) versioned: Option<Arc<Marks>>,
}

/// Labels and annotations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Object {
    pub(crate) fn of_secret(secret: &Secret) -> Option<Self> {
        let data = secret.data.iter().flatten().map(|(key, value)| (key.as_str(), &*value.0));
        let labels = secret.metadata.labels.as_ref();
        let kind = |dialect: Dialect| labels?.get(&dialect.label("secret-kind"));
        let is_version = |dialect| kind(dialect).is_some_and(|kind| kind == "versionedSecret");
        let versioned = Dialect::ALL.into_iter().any(is_version).then(|| {
            Arc::new(Marks {
                labels: labels.cloned().unwrap_or_default(),
                annotations: secret.metadata.annotations.clone().unwrap_or_default(),
            })
        });
        let digest = digest(data.map(|(key, value)| (0, key, value)));
        Self::of(Kind::Secret, &secret.metadata, digest, versioned, secret.immutable == Some(true))
    }

    pub(crate) fn of_config_map(map: &ConfigMap) -> Option<Self> {
        let immutable = map.immutable == Some(true);
        Self::of(Kind::ConfigMap, &map.metadata, content(map), None, immutable)
    }

    fn of(
        kind: Kind,
        metadata: &ObjectMeta,
        digest: Digest,
        versioned: Option<Arc<Marks>>,
        immutable: bool,
    ) -> Option<Self> {
        let owners = metadata.owner_references.as_deref().unwrap_or_default();
        let owner = owners.iter().find(|owner| owner.controller == Some(true));
        // A uid that is too long becomes an empty one: the object has an owner, but no known one.
        let controller: Option<Arc<str>> = owner.map(|owner| uid(owner).into());
        let says = || {
            let said = metadata.annotations.as_ref()?.get(MADE_BY)?;
            (said.len() <= LONGEST_MAKER).then(|| said.clone())
        };
        let maker = match owner {
            Some(owner) => Dialect::of_owner(&owner.api_version, &owner.kind)
                .map(|dialect| dialect.named(&owner.name)),
            None => says(),
        };
        let labels = metadata.labels.as_ref();
        let marks_output = |dialect: Dialect| {
            labels.is_some_and(|labels| labels.contains_key(&dialect.label("container-name")))
        };
        let others = owners.iter().filter(|owner| owner.controller != Some(true));
        // Two that differ tell as much as all: whoever is asked about is another than one of them.
        let mut others: Vec<&str> = others.map(uid).collect();
        others.sort_unstable();
        others.dedup();
        let others: Box<[_]> = others.into_iter().take(2).map(Box::from).collect();
        let is_owned = controller.is_some() || versioned.is_some() || !others.is_empty();
        Some(Self {
            kind,
            namespace: metadata.namespace.as_deref()?.into(),
            name: metadata.name.as_deref()?.into(),
            version: metadata.resource_version.as_deref()?.parse().ok()?,
            made: metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            digest,
            marks: marks(metadata.labels.as_ref(), metadata.annotations.as_ref()),
            owned: is_owned.then_some(Owned { controller, others, versioned }),
            immutable,
            shared: owners.len() > 1,
            deleting: metadata.deletion_timestamp.is_some(),
            is_output: Dialect::ALL.into_iter().any(marks_output),
            maker: maker.map(String::into_boxed_str),
        })
    }

    /// The object's resource version.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn is_owned_by(&self, uid: &str) -> bool {
        let controller = self.owned.as_ref().and_then(|owned| owned.controller.as_deref());
        controller == Some(uid)
    }

    /// Whether it has an owner that is not this one.
    pub(crate) fn is_of_another_than(&self, uid: &str) -> bool {
        let owned = self.owned.iter();
        let mut owners = owned.flat_map(|it| {
            it.controller.as_deref().into_iter().chain(it.others.iter().map(|it| &**it))
        });
        owners.any(|owner| owner != uid)
    }

    /// The QuarksJob, by kind and name, that is the only owner of the object.
    pub(super) fn maker_of_owned(&self) -> Option<&str> {
        self.owned.as_ref()?.controller.as_ref()?;
        self.maker.as_deref().filter(|_| !self.shared)
    }

    /// Whether the object belongs only to a QuarksJob of this kind and name, but of another uid.
    pub(crate) fn is_owned_by_another_called(&self, maker: &str, uid: &str) -> bool {
        self.maker_of_owned() == Some(maker) && !self.is_owned_by(uid)
    }

    /// Whether a run of the QuarksJob `maker` may have made the object. Of output of older releases and of the
    /// originals that has no owner nothing says whose it is, and it may be anybody's.
    pub(crate) fn may_be_made_by(&self, maker: &str) -> bool {
        self.is_output && self.maker.as_deref().is_none_or(|known| known == maker)
    }

    /// The labels and annotations, if the object is a version.
    pub(crate) fn marks(&self) -> Option<&Marks> {
        self.owned.as_ref()?.versioned.as_deref()
    }

    /// Whether a run has written the object as a version.
    pub(crate) fn is_kept_version(&self) -> bool {
        self.marks().is_some_and(|marks| marks.annotations.contains_key(WRITTEN_BY))
    }

    /// Whether the object has just these labels and annotations.
    pub(crate) fn is_marked(&self, by: &Marks) -> bool {
        self.marks == marks(Some(&by.labels), Some(&by.annotations))
    }

    /// Whether the object holds just this data.
    pub(crate) fn holds(&self, data: &BTreeMap<String, Vec<u8>>) -> bool {
        digest(data.iter().map(|(key, value)| (0, key.as_str(), value.as_slice()))) == self.digest
    }

    /// Whether the object holds just what has this digest.
    pub(crate) fn has(&self, content: &Digest) -> bool {
        self.digest == *content
    }

    /// For a version: the part of the name that all versions have in common, and the number.
    pub(super) fn version_of(&self) -> Option<(&str, u64)> {
        self.marks()?;
        let base = base(&self.name)?;
        let digits = &self.name[base.len() + 2..];
        // A number with a leading zero would not give the name again.
        let version: u64 = digits.parse().ok().filter(|_| !digits.starts_with('0'))?;
        // A larger number was written to do harm: there would be none after it.
        (version < MAX_VERSION).then_some((base, version))
    }
}

/// The digest of what a ConfigMap holds.
pub(crate) fn content(map: &ConfigMap) -> Digest {
    let text = map.data.iter().flatten().map(|(key, value)| (0, key.as_str(), value.as_bytes()));
    let binary = map.binary_data.iter().flatten().map(|(key, it)| (1, key.as_str(), &*it.0));
    digest(text.chain(binary))
}

fn marks(
    labels: Option<&BTreeMap<String, String>>,
    annotations: Option<&BTreeMap<String, String>>,
) -> Digest {
    let part = |part, marks: Option<&'_ BTreeMap<String, String>>| {
        let marks = marks.cloned().unwrap_or_default();
        marks.into_iter().map(move |(key, value)| (part, key, value)).collect::<Vec<_>>()
    };
    let all = [part(0, labels), part(1, annotations)].concat();
    digest(all.iter().map(|(part, key, value)| (*part, key.as_str(), value.as_bytes())))
}

/// The digest of named values, including names and lengths. It is held in memory only: whoever has it can try values.
fn digest<'a>(data: impl Iterator<Item = (u8, &'a str, &'a [u8])>) -> Digest {
    let mut hash = Context::new(&SHA256);
    for (part, key, value) in data {
        hash.update(&[part]);
        for piece in [key.as_bytes(), value] {
            hash.update(&(piece.len() as u64).to_be_bytes());
            hash.update(piece);
        }
    }
    let mut digest = Digest::default();
    digest.copy_from_slice(&hash.finish().as_ref()[..16]);
    digest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_many_owners_as_many_are_kept_as_tell_whether_one_is_another() {
        let config_map = |owners: &[&str]| {
            let owner =
                |uid: &&str| json!({"apiVersion": "v1", "kind": "K", "name": "n", "uid": uid});
            let owners: Vec<_> = owners.iter().map(owner).collect();
            let object = json!({"metadata": {
                "name": "a", "namespace": "n", "resourceVersion": "1", "ownerReferences": owners,
            }});
            Object::of_config_map(&serde_json::from_value(object).unwrap()).unwrap()
        };
        for (name, owners, of_another) in [
            ("none", &[][..], false),
            ("it alone", &["u"], false),
            ("it, twice", &["u", "u"], false),
            ("another", &["v"], true),
            ("it and another", &["u", "v"], true),
            ("many, it among them", &["a", "b", "c", "u", "v"], true),
        ] {
            let object = config_map(owners);
            assert_eq!(object.is_of_another_than("u"), of_another, "{name}");
            assert!(object.owned.is_none_or(|owned| owned.others.len() <= 2), "{name}");
        }
    }
}
