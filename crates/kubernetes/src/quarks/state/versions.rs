//! The versioned Secrets that runs write: whether their names have room for the next version, and who else writes them.

use super::held::Objects;
use super::object::MAX_VERSION;
use super::table::Table;
use crate::quarks::api::dialect::Dialect;
use crate::quarks::api::key::Key;
use crate::quarks::api::naming;
use crate::quarks::api::reference::{Kind, To};
use crate::quarks::api::resource::Resource;

impl Objects {
    /// The number of the next version whose name begins with `base`. A name that is taken by something else, which is no
    /// version, is passed over: the next number is as good.
    pub(crate) fn next_version(&self, namespace: &str, base: &str) -> u64 {
        let mut version = self.newest(namespace, base).map_or(1, |(version, _)| version + 1);
        while self.get(namespace, Kind::Secret, &naming::version(base, version)).is_some() {
            version += 1;
        }
        version
    }
}

impl Table {
    /// Why a run of a QuarksJob could not write all its versions: for people, one for each name without room.
    pub(crate) fn without_room(&self, of: &Resource) -> Vec<String> {
        let next = |base: &str| self.objects.next_version(&of.namespace, base);
        // Usual names have room for any number: there may be thousands of them.
        let is_long = |base: &&str| naming::without_room(base, MAX_VERSION).is_some();
        let bases = of.versions(self.verbatim_prefixes).filter(is_long);
        bases.filter_map(|base| naming::without_room(base, next(base))).collect()
    }

    /// Another QuarksJob that writes versions of this name, and has, by its kind and name: each takes a version of the
    /// other for the one before its own.
    pub(crate) fn shares_versions(&self, of: &Resource, base: &str) -> Option<&str> {
        let maker = of.maker();
        let makers =
            self.objects.versions(&of.namespace, base).filter_map(|it| it.maker_of_owned());
        let version = format!("{base}-v1");
        let writes = |maker: &str| {
            let key = Dialect::ALL.into_iter().find_map(|dialect| {
                let name = maker.strip_prefix(&dialect.named(""))?.into();
                Some(Key { dialect, namespace: of.namespace.clone(), name })
            });
            let entry = key.and_then(|key| self.get(&key));
            let resource = entry.and_then(|entry| entry.resource.as_ref());
            resource.is_some_and(|it| {
                it.makes(To::Object(Kind::Secret), &version, self.verbatim_prefixes, Some(true))
            })
        };
        let mut others = makers.filter(|other| *other != maker);
        others.find(|other| writes(other))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use kube::api::DynamicObject;
    use serde_json::{Value, json};

    use super::super::object::Object;
    use super::*;

    fn resource(name: &str, output: Value) -> Resource {
        let object: DynamicObject = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1"},
            "spec": {"output": {"outputMap": {"c": output}}},
        }))
        .unwrap();
        Resource::of(Dialect::QuarksJob, &object).unwrap()
    }

    /// A version of this name, which this QuarksJob has made.
    fn version(name: &str, maker: &str) -> Object {
        let secret: Secret = serde_json::from_value(json!({"metadata": {
            "name": name, "namespace": "n", "resourceVersion": "1",
            "labels": {"quarks.cloudfoundry.org/secret-kind": "versionedSecret"},
            "ownerReferences": [{
                "apiVersion": "quarks.cloudfoundry.org/v1alpha1", "kind": "QuarksJob",
                "name": maker, "uid": maker, "controller": true,
            }],
        }}))
        .unwrap();
        Object::of_secret(&secret).unwrap()
    }

    #[test]
    fn a_run_is_not_begun_whose_next_version_would_have_no_name() {
        let of = |length: usize, versioned: bool| json!({"o.json": {"name": "x".repeat(length), "versioned": versioned}});
        for (name, output, newest, is_at_fault) in [
            ("none before, the longest name", of(250, true), None, false),
            ("the ninth", of(250, true), Some(8), false),
            ("the tenth", of(250, true), Some(9), true),
            ("the tenth of one letter less", of(249, true), Some(9), false),
            ("the millionth of a usual one", of(245, true), Some(999_998), false),
            ("one more", of(245, true), Some(999_999), true),
            ("of one that is cut", of(251, true), Some(9), false),
            ("it has no versions", of(250, false), Some(9), false),
        ] {
            let mut table = Table::new(2, b"key");
            let it = resource("a", output.clone());
            let base = output["o.json"]["name"].as_str().unwrap();
            if let Some(newest) = newest {
                table.objects.learn(version(&naming::version(base, newest), "a"));
            }
            let faults = table.without_room(&it);
            assert_eq!(!faults.is_empty(), is_at_fault, "{name}: {faults:?}");
            for fault in faults {
                assert!(fault.contains(base) && fault.ends_with("of no more than 245"), "{fault}");
            }
        }
    }

    #[test]
    fn another_that_writes_the_same_versions_is_named_while_it_is_there() {
        for (name, versions, other, expected) in [
            ("its own", &["a"][..], Some("x"), None),
            ("another's", &["b"], Some("x"), Some("quarksjob/b")),
            ("both write it", &["a", "b", "a"], Some("x"), Some("quarksjob/b")),
            ("of one that writes others now", &["a", "b", "a"], Some("y"), None),
            ("of one that is gone", &["b", "a"], None, None),
            ("nothing was written", &[], Some("x"), None),
        ] {
            let mut table = Table::new(2, b"key");
            let writes = |name: &str| json!({"o.json": {"name": name, "versioned": true}});
            let it = resource("a", writes("x"));
            table.learn(it.clone());
            other.iter().for_each(|name| drop(table.learn(resource("b", writes(name)))));
            for (number, maker) in versions.iter().enumerate() {
                table.objects.learn(version(&format!("x-v{}", number + 1), maker));
            }
            assert_eq!(table.shares_versions(&it, "x"), expected, "{name}");
        }
    }
}
