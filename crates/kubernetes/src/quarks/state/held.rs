//! The ConfigMaps and Secrets that are known, and what a record of runs says of them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use engine::trigger::{Held, HeldVersion, References};
use ring::hmac;

use super::object::{Object, WRITTEN_BY};
use crate::quarks::api::reference::{Kind, To, base};

/// The ConfigMaps and Secrets of all namespaces.
pub(crate) struct Objects {
    /// The key of the digests in records, which others may read.
    key: hmac::Key,
    namespaces: HashMap<Arc<str>, Namespace>,
}

/// What identifies an object in a namespace.
type Id = (Kind, Arc<str>);

#[derive(Default)]
struct Namespace {
    objects: HashMap<Id, Object>,
    /// The objects that have a controller, by the QuarksJob whose runs have made them.
    made: HashMap<Box<str>, BTreeSet<Id>>,
    /// The versions, by the name that they have in common: numbers and names.
    versions: HashMap<Box<str>, BTreeMap<u64, Arc<str>>>,
}

impl Objects {
    /// No objects. The digest of a short value could be found by trying, without a `key` that nobody knows.
    pub(crate) fn new(key: &[u8]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key), namespaces: HashMap::new() }
    }

    /// Takes an object as it was seen, unless something newer is known. Returns whether those who refer to it find
    /// something else than before: other data, or a version where there was none.
    pub(crate) fn learn(&mut self, object: Object) -> bool {
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

    /// Forgets an object, which is gone. Returns whether it was known.
    pub(crate) fn forget(&mut self, object: &Object) -> bool {
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

    /// Takes the end of a list of a kind in a namespace or in all; returns the objects that it lacks, which are gone.
    pub(crate) fn keep(
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
    pub(crate) fn leave(&mut self, namespace: &str) {
        self.namespaces.remove(namespace);
    }

    pub(crate) fn get(&self, namespace: &str, kind: Kind, name: &str) -> Option<&Object> {
        self.namespaces.get(namespace)?.objects.get(&(kind, name.into()))
    }

    /// The objects that belong only to a QuarksJob of this kind and name, whether to the one that is there or to one
    /// before it.
    pub(crate) fn made_by(&self, namespace: &str, maker: &str) -> impl Iterator<Item = &Object> {
        let namespace = self.namespaces.get(namespace);
        let made = namespace.and_then(|it| it.made.get(maker)).into_iter().flatten();
        made.filter_map(move |id| namespace?.objects.get(id))
    }

    /// The versions whose names have `base` in common, the newest first.
    pub(crate) fn versions(&self, namespace: &str, base: &str) -> impl Iterator<Item = &Object> {
        let namespace = self.namespaces.get(namespace);
        let names = namespace.and_then(|it| it.versions.get(base)).into_iter();
        let names = names.flat_map(|versions| versions.values().rev());
        names.filter_map(move |name| namespace?.objects.get(&(Kind::Secret, Arc::clone(name))))
    }

    /// The newest version whose name begins with `base`, and its number.
    pub(crate) fn newest(&self, namespace: &str, base: &str) -> Option<(u64, &Object)> {
        let namespace = self.namespaces.get(namespace)?;
        let (version, name) = namespace.versions.get(base)?.last_key_value()?;
        Some((*version, namespace.objects.get(&(Kind::Secret, Arc::clone(name)))?))
    }

    /// The object that a reference points to now: the newest version, if it names a version and there are any.
    pub(crate) fn referred(&self, namespace: &str, to: To, name: &str) -> Option<&Object> {
        let kind = to.object()?;
        let base = base(name).filter(|_| kind == Kind::Secret);
        let newest = base.and_then(|base| self.newest(namespace, base)).map(|(_, object)| object);
        newest.or_else(|| self.get(namespace, kind, name))
    }

    /// The name of the version that was written for the run of this Job.
    pub(crate) fn written_by(&self, namespace: &str, base: &str, job: &str) -> Option<Arc<str>> {
        let namespace = self.namespaces.get(namespace)?;
        let mut names = namespace.versions.get(base)?.values().rev();
        let is_its = |name: &&Arc<str>| {
            let object = namespace.objects.get(&(Kind::Secret, Arc::clone(name)));
            let marks = object.and_then(Object::marks);
            marks.is_some_and(|it| it.annotations.get(WRITTEN_BY).is_some_and(|by| by == job))
        };
        names.find(is_its).cloned()
    }

    /// What a reference holds: its place in the record, what is there, and the resource version of that; nothing if the
    /// object is missing. A missing object whose name could be a version's counts as a version, unless it was `known`
    /// by its own name. An object that has become a version by its label alone, or has ceased to be one, keeps the
    /// place that it had: labels are no change.
    pub(crate) fn held(
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
        let before = |place: &str| known.and_then(|known| known.get(place));
        if let Some((base, of_versions)) = &of_versions
            && let Some((number, object)) = self.newest(namespace, base)
        {
            let (data, resource) = (self.told(object), Some(object.version));
            if *object.name == *name && before(&place) == Some(&Held::Data(data.clone())) {
                return (place, Held::Data(data), resource);
            }
            let version = HeldVersion { number, data, made: object.made };
            return (of_versions.clone(), Held::Version(version), resource);
        }
        if let Some(object) = to.object().and_then(|kind| self.get(namespace, kind, name)) {
            let (data, resource) = (self.told(object), Some(object.version));
            if let Some((_, of_versions)) = of_versions
                && let Some(Held::Version(version)) = before(&of_versions)
                && version.data == data
            {
                return (of_versions, Held::Version(version.clone()), resource);
            }
            return (place, Held::Data(data), resource);
        }
        let is_known = before(&place).is_some();
        let of_versions = of_versions.filter(|_| !is_known).map(|(_, place)| place);
        (of_versions.unwrap_or(place), Held::Nothing(()), None)
    }

    /// The digest of an object for the record, which only the owner of the key can compute.
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
    use k8s_openapi::api::core::v1::Secret;
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
        // With its label, or without it, it is what it was before; what it holds is no less.
        let of = |it: Object, known: Option<&References>| {
            let mut objects = Objects::new(b"key");
            objects.learn(it);
            let (place, held, _) = objects.held("n", TO_SECRET, "link-v1", known);
            References::from([(place, held)])
        };
        for (was, name) in [(false, "labelled"), (true, "not labelled any more")] {
            let before = of(secret("link-v1", 1, "YQ==", was), None);
            assert_eq!(of(secret("link-v1", 2, "YQ==", !was), Some(&before)), before, "{name}");
            let other = of(secret("link-v1", 2, "Yg==", !was), Some(&before));
            assert_ne!(other, before, "{name}, and changed");
        }
        let before = of(secret("link-v1", 1, "YQ==", false), None);
        let place = of(secret("link-v2", 2, "YQ==", true), Some(&before));
        assert!(place.contains_key("secret/link-v*"), "there is a newer one: {place:?}");
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
