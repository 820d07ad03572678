//! What is known of the ConfigMaps and Secrets of the namespaces: digests, never what they hold.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use engine::trigger::{Held, References, Version};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::ObjectMeta;
use ring::digest::{Context, SHA256};
use ring::hmac;

use super::dialect::Dialect;
use super::reference::{Kind, To, base};

/// The run that a Secret was written for, by the name of its Job: an annotation.
pub(super) const WRITTEN_BY: &str = "manciple.dev/written-by";
/// Whose runs write it, as `quarksjob/NAME`: an annotation of what belongs to nobody.
pub(super) const MADE_BY: &str = "manciple.dev/made-by";

/// A ConfigMap or Secret.
#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) kind: Kind,
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
    version: u64,
    /// When it was made, in seconds since 1970.
    made: i64,
    digest: Digest,
    /// Of labels and annotations.
    marks: Digest,
    pub(super) owned: Option<Owned>,
    pub(super) immutable: bool,
    /// It belongs to something else than its controller, too: it does not go with that.
    shared: bool,
    /// It was deleted, and something holds it.
    pub(super) going: bool,
    /// It has the label that what runs have put out has.
    pub(super) is_output: bool,
    /// Whose runs write it, by kind and name: its controller, if that is one of ours, or who says so where it has none.
    maker: Option<Box<str>>,
}

/// Of what one holds.
pub(super) type Digest = [u8; 16];

/// What is known of one that a controller has, or that has versions.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Owned {
    /// The uid of the controller that owns it.
    pub(super) controller: Option<Arc<str>>,
    /// Its labels and annotations, if it is a version.
    pub(super) versioned: Option<Arc<Marks>>,
}

/// Labels and annotations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
}

/// Those of all namespaces.
pub(super) struct Objects {
    /// What digests are told with, in records that others may read.
    key: hmac::Key,
    namespaces: HashMap<Arc<str>, Namespace>,
}

/// What tells an object from others of a namespace.
type Id = (Kind, Arc<str>);

#[derive(Default)]
struct Namespace {
    objects: HashMap<Id, Object>,
    /// Those with a controller, by whose runs have made them.
    made: HashMap<Box<str>, BTreeSet<Id>>,
    /// By the name that versions have in common.
    versions: HashMap<Box<str>, BTreeMap<u64, Arc<str>>>,
}

impl Object {
    pub(super) fn of_secret(secret: &Secret) -> Option<Self> {
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

    pub(super) fn of_config_map(map: &ConfigMap) -> Option<Self> {
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
        let controller: Option<Arc<str>> = owner.map(|owner| owner.uid.as_str().into());
        let says = || metadata.annotations.as_ref()?.get(MADE_BY).cloned();
        let maker = match owner {
            Some(owner) => Dialect::of_owner(&owner.api_version, &owner.kind)
                .map(|dialect| dialect.named(&owner.name)),
            None => says(),
        };
        let labels = metadata.labels.as_ref();
        let marks_output = |dialect: Dialect| {
            labels.is_some_and(|labels| labels.contains_key(&dialect.label("container-name")))
        };
        let is_owned = controller.is_some() || versioned.is_some();
        Some(Self {
            kind,
            namespace: metadata.namespace.as_deref()?.into(),
            name: metadata.name.as_deref()?.into(),
            version: metadata.resource_version.as_deref()?.parse().ok()?,
            made: metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            digest,
            marks: marks(metadata.labels.as_ref(), metadata.annotations.as_ref()),
            owned: is_owned.then_some(Owned { controller, versioned }),
            immutable,
            shared: owners.len() > 1,
            going: metadata.deletion_timestamp.is_some(),
            is_output: Dialect::ALL.into_iter().any(marks_output),
            maker: maker.map(String::into_boxed_str),
        })
    }

    /// Its resource version.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn is_owned_by(&self, uid: &str) -> bool {
        let controller = self.owned.as_ref().and_then(|owned| owned.controller.as_deref());
        controller == Some(uid)
    }

    /// By kind and name, whose it is alone.
    fn maker_of_owned(&self) -> Option<&str> {
        self.owned.as_ref()?.controller.as_ref()?;
        self.maker.as_deref().filter(|_| !self.shared)
    }

    /// Whether it belongs to one of this kind and name that is not this one, and to nothing else.
    pub(super) fn is_owned_by_another_called(&self, maker: &str, uid: &str) -> bool {
        self.maker_of_owned() == Some(maker) && !self.is_owned_by(uid)
    }

    /// Whether a run of this one has made it, as far as it says: of what older releases and the originals have made, and
    /// nobody owns, nothing says whose it is, and it may be anybody's.
    pub(super) fn may_be_made_by(&self, maker: &str) -> bool {
        self.is_output && self.maker.as_deref().is_none_or(|known| known == maker)
    }

    /// Labels and annotations of a version.
    pub(super) fn marks(&self) -> Option<&Marks> {
        self.owned.as_ref()?.versioned.as_deref()
    }

    /// Whether these are its labels and annotations, and no others.
    pub(super) fn is_marked(&self, by: &Marks) -> bool {
        self.marks == marks(Some(&by.labels), Some(&by.annotations))
    }

    /// Whether it holds just this.
    pub(super) fn holds(&self, data: &BTreeMap<String, Vec<u8>>) -> bool {
        digest(data.iter().map(|(key, value)| (0, key.as_str(), value.as_slice()))) == self.digest
    }

    /// The same, by its digest.
    pub(super) fn has(&self, content: &Digest) -> bool {
        self.digest == *content
    }

    /// Of a version: what all have in common, and which it is.
    fn version_of(&self) -> Option<(&str, u64)> {
        self.marks()?;
        let base = base(&self.name)?;
        let digits = &self.name[base.len() + 2..];
        // Of one that begins with a nought no pod would find the name again.
        let version: u64 = digits.parse().ok().filter(|_| !digits.starts_with('0'))?;
        // What is larger somebody has written to do harm: there would be none after it.
        (version < MAX_VERSION).then_some((base, version))
    }
}

/// What a ConfigMap holds.
pub(super) fn content(map: &ConfigMap) -> Digest {
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

/// Names and lengths are in it. Kept in memory only: who has it can try values.
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

/// Versions are less: exact in any JSON.
const MAX_VERSION: u64 = 1 << 53;

impl Objects {
    /// None yet. A digest of something short is as good as itself, without a `key` that nobody knows.
    pub(super) fn new(key: &[u8]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key), namespaces: HashMap::new() }
    }

    /// Takes what was seen, unless something newer was. Whether those who refer to it find something else than before:
    /// other data, or a version where there was none.
    pub(super) fn learn(&mut self, object: Object) -> bool {
        let namespace = self.namespaces.entry(Arc::clone(&object.namespace)).or_default();
        let key = (object.kind, Arc::clone(&object.name));
        let known = namespace.objects.get(&key);
        if known.is_some_and(|known| known.version > object.version) {
            return false;
        }
        let found = |it: &Object| (it.digest, it.version_of().is_some());
        let same = known.is_some_and(|known| found(known) == found(&object));
        namespace.unlist(&key);
        if let Some((base, version)) = object.version_of() {
            let versions = namespace.versions.entry(base.into()).or_default();
            versions.insert(version, Arc::clone(&object.name));
        }
        if let Some(maker) = object.maker_of_owned() {
            namespace.made.entry(maker.into()).or_default().insert(key.clone());
        }
        namespace.objects.insert(key, object);
        !same
    }

    /// It is not there any more.
    pub(super) fn forget(&mut self, object: &Object) -> bool {
        let Some(namespace) = self.namespaces.get_mut(&object.namespace) else { return false };
        let key = (object.kind, Arc::clone(&object.name));
        if namespace.objects.get(&key).is_some_and(|known| known.version > object.version) {
            return false;
        }
        namespace.unlist(&key);
        let was_there = namespace.objects.remove(&key).is_some();
        // Namespaces come and go.
        if namespace.objects.is_empty() {
            self.namespaces.remove(&object.namespace);
        }
        was_there
    }

    /// A list of a namespace, or of all, has no others of a kind than these. Those that are gone.
    pub(super) fn keep(
        &mut self,
        of: Option<&str>,
        kind: Kind,
        listed: &HashSet<(Arc<str>, Arc<str>)>,
    ) -> Vec<Object> {
        let mut gone = Vec::new();
        let ours = |name: &Arc<str>| of.is_none_or(|of| of == &**name);
        self.namespaces.retain(|name, namespace| {
            if !ours(name) {
                return true;
            }
            let missing = namespace.objects.values().filter(|object| {
                object.kind == kind
                    && !listed.contains(&(Arc::clone(&object.namespace), Arc::clone(&object.name)))
            });
            let missing: Vec<Object> = missing.cloned().collect();
            for object in missing {
                let key = (kind, Arc::clone(&object.name));
                namespace.unlist(&key);
                namespace.objects.remove(&key);
                gone.push(object);
            }
            !namespace.objects.is_empty()
        });
        gone
    }

    /// Forgets a namespace.
    pub(super) fn leave(&mut self, namespace: &str) {
        self.namespaces.remove(namespace);
    }

    pub(super) fn get(&self, namespace: &str, kind: Kind, name: &str) -> Option<&Object> {
        self.namespaces.get(namespace)?.objects.get(&(kind, name.into()))
    }

    /// What belongs to one of this kind and name and to nothing else, whether it is this one or one before it.
    pub(super) fn made_by(&self, namespace: &str, maker: &str) -> impl Iterator<Item = &Object> {
        let namespace = self.namespaces.get(namespace);
        let made = namespace.and_then(|it| it.made.get(maker)).into_iter().flatten();
        made.filter_map(move |id| namespace?.objects.get(id))
    }

    /// The versions under a name that all have in common, the newest first.
    pub(super) fn versions(&self, namespace: &str, base: &str) -> impl Iterator<Item = &Object> {
        let namespace = self.namespaces.get(namespace);
        let names = namespace.and_then(|it| it.versions.get(base)).into_iter();
        let names = names.flat_map(|versions| versions.values().rev());
        names.filter_map(move |name| namespace?.objects.get(&(Kind::Secret, Arc::clone(name))))
    }

    /// The newest version under a name that all have in common.
    pub(super) fn newest(&self, namespace: &str, base: &str) -> Option<(u64, &Object)> {
        let namespace = self.namespaces.get(namespace)?;
        let (version, name) = namespace.versions.get(base)?.last_key_value()?;
        Some((*version, namespace.objects.get(&(Kind::Secret, Arc::clone(name)))?))
    }

    /// What a reference is one to now: the newest of versions, where it is to one and there are any.
    pub(super) fn referred(&self, namespace: &str, to: To, name: &str) -> Option<&Object> {
        let kind = to.object()?;
        let base = base(name).filter(|_| kind == Kind::Secret);
        let newest = base.and_then(|base| self.newest(namespace, base)).map(|(_, object)| object);
        newest.or_else(|| self.get(namespace, kind, name))
    }

    /// The version that was written for a run, by the name of its Job.
    pub(super) fn written_by(&self, namespace: &str, base: &str, job: &str) -> Option<Arc<str>> {
        let namespace = self.namespaces.get(namespace)?;
        let mut names = namespace.versions.get(base)?.values().rev();
        let is_its = |name: &&Arc<str>| {
            let object = namespace.objects.get(&(Kind::Secret, Arc::clone(name)));
            let marks = object.and_then(Object::marks);
            marks.is_some_and(|it| it.annotations.get(WRITTEN_BY).is_some_and(|by| by == job))
        };
        names.find(is_its).cloned()
    }

    /// What a reference is known to hold, by how it is remembered, and in which resource version; nothing if it is not
    /// there. What could be a version and is not there is one, unless it was `known` by its own name.
    pub(super) fn held(
        &self,
        namespace: &str,
        to: To,
        name: &str,
        known: Option<&References>,
    ) -> (String, Held, Option<u64>) {
        let place = format!("{}/{name}", to.word());
        let base = base(name).filter(|_| to == To::Object(Kind::Secret));
        // No name has a star in it.
        let of_versions = base.map(|base| (base, format!("{}/{base}-v*", to.word())));
        if let Some((base, place)) = &of_versions
            && let Some((number, object)) = self.newest(namespace, base)
        {
            let version = Version { number, data: self.told(object), made: object.made };
            return (place.clone(), Held::Version(version), Some(object.version));
        }
        if let Some(object) = to.object().and_then(|kind| self.get(namespace, kind, name)) {
            return (place, Held::Data(self.told(object)), Some(object.version));
        }
        let is_known = known.is_some_and(|known| known.contains_key(&place));
        let of_versions = of_versions.filter(|_| !is_known).map(|(_, place)| place);
        (of_versions.unwrap_or(place), Held::Nothing(()), None)
    }

    /// A digest that only we can tell.
    fn told(&self, object: &Object) -> String {
        let told = hmac::sign(&self.key, &object.digest);
        HEXLOWER.encode(&told.as_ref()[..16])
    }
}

impl Namespace {
    fn unlist(&mut self, id: &Id) {
        let Some(object) = self.objects.get(id) else { return };
        if let Some(maker) = object.maker_of_owned()
            && let Some(made) = self.made.get_mut(maker)
        {
            made.remove(id);
            if made.is_empty() {
                self.made.remove(maker);
            }
        }
        if let Some((base, version)) = object.version_of()
            && let Some(versions) = self.versions.get_mut(base)
        {
            versions.remove(&version);
            if versions.is_empty() {
                self.versions.remove(base);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TO_SECRET: To = To::Object(Kind::Secret);

    /// How a Secret stands in a record, digested with this key.
    fn told(key: &[u8]) -> Held {
        let secret = json!({
            "metadata": {"name": "s", "namespace": "n", "resourceVersion": "1"},
            "data": {"PIN": "NDcxMQ=="},
        });
        let secret: Secret = serde_json::from_value(secret).unwrap();
        let mut objects = Objects::new(key);
        objects.learn(Object::of_secret(&secret).unwrap());
        objects.held("n", TO_SECRET, "s", None).1
    }

    #[test]
    fn a_version_that_leaves_none_after_it_is_none() {
        let mut objects = Objects::new(b"key");
        for name in ["x-v2", "x-v18446744073709551615", "x-v9007199254740992"] {
            let label = json!({"quarks.cloudfoundry.org/secret-kind": "versionedSecret"});
            let secret = json!({"metadata": {
                "name": name, "namespace": "n", "resourceVersion": "1", "labels": label,
            }});
            let secret: Secret = serde_json::from_value(secret).unwrap();
            objects.learn(Object::of_secret(&secret).unwrap());
        }
        assert_eq!(objects.newest("n", "x").map(|(version, _)| version), Some(2));
    }

    /// A Secret of this namespace; a version, if its name says so and it is marked as one.
    fn secret(name: &str, version: u64, value: &str, is_version: bool) -> Object {
        let label = json!({"quarks.cloudfoundry.org/secret-kind": "versionedSecret"});
        let secret = json!({
            "metadata": {
                "name": name, "namespace": "n", "resourceVersion": version.to_string(),
                "creationTimestamp": format!("2026-01-01T00:00:{version:02}Z"),
                "labels": if is_version { label } else { json!({}) },
            },
            "data": {"k": value},
        });
        let secret: Secret = serde_json::from_value(secret).unwrap();
        Object::of_secret(&secret).unwrap()
    }

    #[test]
    fn of_a_namespace_in_which_nothing_is_left_nothing_is_remembered() {
        let all = [secret("s", 1, "YQ==", false), secret("s-v1", 2, "YQ==", true)];
        let place = |it: &Object| (Arc::clone(&it.namespace), Arc::clone(&it.name));
        let (one, none) = (HashSet::from([place(&all[1])]), HashSet::new());
        let forget = |it: &mut Objects, gone: &[Object]| {
            gone.iter().for_each(|gone| assert!(it.forget(gone)));
        };
        let keep = |it: &mut Objects, of, kind, listed| drop(it.keep(of, kind, listed));
        type Change<'c> = &'c dyn Fn(&mut Objects);
        let cases: [(_, Change<'_>, _); 7] = [
            ("one went", &|it| forget(it, &all[..1]), 1),
            ("all went", &|it| forget(it, &all), 0),
            ("a list has one", &|it| keep(it, None, Kind::Secret, &one), 1),
            ("a list has none", &|it| keep(it, None, Kind::Secret, &none), 0),
            ("a list of it has none", &|it| keep(it, Some("n"), Kind::Secret, &none), 0),
            ("one of another has none", &|it| keep(it, Some("m"), Kind::Secret, &none), 1),
            ("one of another kind has none", &|it| keep(it, None, Kind::ConfigMap, &none), 1),
        ];
        for (name, change, left) in cases {
            let mut objects = Objects::new(b"key");
            all.iter().for_each(|it| assert!(objects.learn(it.clone())));
            change(&mut objects);
            assert_eq!(objects.namespaces.len(), left, "{name}");
        }
    }

    #[test]
    fn a_reference_is_remembered_by_what_it_is_or_may_become() {
        let plain = References::from([("secret/link-v1".to_owned(), Held::Nothing(()))]);
        let versions = References::from([("secret/link-v*".to_owned(), Held::Nothing(()))]);
        for (name, there, known, place) in [
            ("nothing, and never was", None, None, "secret/link-v*"),
            ("nothing, once versions", None, Some(&versions), "secret/link-v*"),
            ("nothing, once plain", None, Some(&plain), "secret/link-v1"),
            ("plain", Some(("link-v1", false)), Some(&versions), "secret/link-v1"),
            ("versions", Some(("link-v3", true)), Some(&plain), "secret/link-v*"),
            ("what has their name", Some(("link", false)), None, "secret/link-v*"),
        ] {
            let mut objects = Objects::new(b"key");
            if let Some((it, is_version)) = there {
                objects.learn(secret(it, 1, "YQ==", is_version));
            }
            let found = objects.held("n", TO_SECRET, "link-v1", known);
            assert_eq!(found.0, place, "{name}");
        }
        let mut objects = Objects::new(b"key");
        let mut held = |it| {
            objects.learn(it);
            objects.held("n", TO_SECRET, "link-v1", None).1
        };
        let first = held(secret("link-v2", 3, "YQ==", true));
        let Held::Version(version) = &first else { panic!("{first:?}") };
        assert_eq!((version.number, version.made), (2, 1_767_225_603));
        let other = held(secret("link-v2", 5, "Yg==", true));
        let Held::Version(after) = other else { panic!("{other:?}") };
        assert_eq!(after.number, 2);
        assert_ne!(after.data, version.data);
    }

    #[test]
    fn a_name_of_a_version_stands_for_the_newest_of_just_that_name_whichever_it_says() {
        let mut objects = Objects::new(b"key");
        for (version, name) in
            ["link-v1", "link-v3", "my-link-v9", "link-more-v8", "link-v1-v7"].iter().enumerate()
        {
            objects.learn(secret(name, version as u64, "YQ==", true));
        }
        for (name, place, newest) in [
            ("link-v1", "secret/link-v*", 3),
            ("link-v2", "secret/link-v*", 3),
            ("link-v4", "secret/link-v*", 3),
            ("my-link-v1", "secret/my-link-v*", 9),
            ("link-more-v1", "secret/link-more-v*", 8),
            ("link-v1-v1", "secret/link-v1-v*", 7),
        ] {
            let (found, held, _) = objects.held("n", TO_SECRET, name, None);
            let Held::Version(version) = held else { panic!("{name}: {held:?}") };
            assert_eq!((found.as_str(), version.number), (place, newest), "{name}");
        }
    }

    #[test]
    fn whoever_reads_a_record_cannot_try_what_a_secret_holds() {
        assert_eq!(told(b"one"), told(b"one"));
        assert_ne!(told(b"one"), told(b"other"), "it takes a key that is not in the record");
    }
}
