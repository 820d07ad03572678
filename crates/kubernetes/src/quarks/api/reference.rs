//! References of a QuarksJob: to ConfigMaps and Secrets in its pod's variables and volumes, where a versioned Secret
//! stands for its newest version; and to others of its kind whose success it waits for.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::dialect::Dialect;

/// How many ConfigMaps and Secrets the pod and the inputs of a QuarksJob may refer to: each is looked up at each look
/// at it, and is in an index that leads back to it. If changes are followed there may be room for fewer: in the record
/// each takes some 65 bytes, a versioned one 110, and twice its name.
pub(crate) const MOST_OBJECTS: usize = 1000;
/// How many others a QuarksJob may wait for: each look follows who waits for whom.
pub(crate) const MOST_OTHERS: usize = 100;

/// The kinds of objects that are referred to, and that runs write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    ConfigMap,
    Secret,
}

impl Kind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
        }
    }
}

/// The kind of what a reference points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum To {
    /// A ConfigMap or Secret, for what it holds.
    Object(Kind),
    /// A QuarksJob or ExtendedJob, for its success.
    Triggered(Dialect),
}

impl To {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Object(kind) => kind.word(),
            Self::Triggered(dialect) => dialect.word(),
        }
    }

    pub(crate) fn object(self) -> Option<Kind> {
        match self {
            Self::Object(kind) => Some(kind),
            Self::Triggered(_) => None,
        }
    }
}

/// A reference to one object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reference {
    pub(crate) kind: To,
    pub(crate) name: Arc<str>,
    /// Whether the pod begins without it.
    pub(crate) optional: bool,
}

/// The places in a pod where names of ConfigMaps and Secrets are: the path to the objects, the member that has the
/// name, and the kind.
const PLACES: [(&[&str], &str, Kind); 10] = [
    (&["containers", "*", "env", "*", "valueFrom", "configMapKeyRef"], "name", Kind::ConfigMap),
    (&["containers", "*", "env", "*", "valueFrom", "secretKeyRef"], "name", Kind::Secret),
    (&["containers", "*", "envFrom", "*", "configMapRef"], "name", Kind::ConfigMap),
    (&["containers", "*", "envFrom", "*", "secretRef"], "name", Kind::Secret),
    (&["volumes", "*", "configMap"], "name", Kind::ConfigMap),
    (&["volumes", "*", "secret"], "secretName", Kind::Secret),
    (&["volumes", "*", "projected", "sources", "*", "configMap"], "name", Kind::ConfigMap),
    (&["volumes", "*", "projected", "sources", "*", "secret"], "name", Kind::Secret),
    (&["volumes", "*", "csi", "nodePublishSecretRef"], "name", Kind::Secret),
    (&["volumes", "*", "flexVolume", "secretRef"], "name", Kind::Secret),
];

/// Calls `found` with the name's value of each reference of a pod, init containers included, and whether the
/// pod begins without it.
fn each(pod: &mut Value, found: &mut impl FnMut(Kind, bool, &mut Value)) {
    for (path, member, kind) in PLACES {
        let mut visit = |object: &mut Value| {
            let optional = object["optional"] == true;
            if let Some(name) = object.get_mut(member).filter(|name| name.is_string()) {
                found(kind, optional, name);
            }
        };
        walk(pod, path, &mut visit);
        if let Some((&"containers", rest)) = path.split_first()
            && let Some(first) = pod.get_mut("initContainers")
        {
            walk(first, rest, &mut visit);
        }
    }
}

fn walk(value: &mut Value, path: &[&str], visit: &mut impl FnMut(&mut Value)) {
    match path.split_first() {
        None if value.is_object() => visit(value),
        None => {}
        Some((&"*", rest)) => {
            value.as_array_mut().into_iter().flatten().for_each(|each| walk(each, rest, visit));
        }
        Some((name, rest)) => {
            value.get_mut(name).into_iter().for_each(|member| walk(member, rest, visit));
        }
    }
}

/// The references of a pod, each once: optional only if all places say so.
pub(crate) fn references(pod: &Value) -> Vec<Reference> {
    let mut found = BTreeSet::new();
    each(&mut pod.clone(), &mut |kind, optional, name| {
        let name: Arc<str> = name.as_str().unwrap_or_default().into();
        found.insert(Reference { kind: To::Object(kind), name, optional });
    });
    let needed = |one: &Reference| Reference { optional: false, ..one.clone() };
    let all = found.iter().filter(|one| !one.optional || !found.contains(&needed(one)));
    all.cloned().collect()
}

/// The references to those whose success is waited for, each once: `spec.dependsOn`.
pub(crate) fn dependencies(dialect: Dialect, spec: &Value) -> impl Iterator<Item = Reference> {
    let names = spec["dependsOn"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut known = HashSet::new();
    let names = names.filter(move |name| known.insert(*name));
    let kind = To::Triggered(dialect);
    names.map(move |name| Reference { kind, name: name.into(), optional: false })
}

/// Replaces each reference to a versioned Secret by one to its newest version.
pub(crate) fn resolve(pod: &mut Value, newest: impl Fn(&str) -> Option<u64>) {
    each(pod, &mut |kind, _, name| {
        let versioned = name.as_str().filter(|_| kind == Kind::Secret).and_then(base);
        if let Some(base) = versioned
            && let Some(version) = newest(base)
        {
            *name = Value::String(format!("{base}-v{version}"));
        }
    });
}

/// The part of a version's name, such as `secret-v2`, that all versions have in common; `None`: the name is no
/// version's.
pub(crate) fn base(name: &str) -> Option<&str> {
    let (base, version) = name.rsplit_once("-v")?;
    let is_version = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
    (is_version && !base.is_empty()).then_some(base)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Value {
        json!({
            "imagePullSecrets": [{"name": "of-a-registry"}],
            "initContainers": [{"envFrom": [{"secretRef": {"name": "init", "optional": true}}]}],
            "containers": [
                {
                    "env": [
                        {"valueFrom": {"configMapKeyRef": {"name": "env", "key": "k"}}},
                        {"valueFrom": {"secretKeyRef": {"name": "env", "key": "k"}}},
                        {"name": "plain", "value": "x"},
                    ],
                    "envFrom": [{"configMapRef": {"name": "from"}}],
                },
                {"envFrom": [{"secretRef": {"name": "init"}}]},
            ],
            "volumes": [
                {"configMap": {"name": "volume"}},
                {"secret": {"secretName": "volume-v1"}},
                {"projected": {"sources": [
                    {"secret": {"name": "projected"}},
                    {"configMap": {"name": "projected", "optional": true}},
                    {"serviceAccountToken": {"path": "t"}},
                ]}},
                {"csi": {"driver": "d", "nodePublishSecretRef": {"name": "csi"}}},
                {"csi": {"driver": "without"}},
                {"flexVolume": {"driver": "d", "secretRef": {"name": "flex"}}},
                {"emptyDir": {}},
            ],
        })
    }

    #[test]
    fn everything_that_a_pod_refers_to_is_found() {
        let found: Vec<_> = references(&pod())
            .into_iter()
            .map(|it| {
                format!("{}/{}{}", it.kind.word(), it.name, if it.optional { "?" } else { "" })
            })
            .collect();
        let expected = [
            "configmap/env",
            "configmap/from",
            "configmap/projected?",
            "configmap/volume",
            "secret/csi",
            "secret/env",
            "secret/flex",
            "secret/init",
            "secret/projected",
            "secret/volume-v1",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_no_pod_refers_to_nothing() {
        for pod in
            [json!(null), json!([]), json!({"containers": {"env": 1}, "volumes": [null, 1, "x"]})]
        {
            assert_eq!(references(&pod), []);
        }
    }

    #[test]
    fn others_are_waited_for_once_in_the_order_in_which_they_are_named() {
        for (name, said, expected) in [
            ("none", json!(null), &[][..]),
            ("one", json!(["b"]), &["b"]),
            ("one of them twice", json!(["b", "a", "b"]), &["b", "a"]),
            ("no names", json!([1, null, "a"]), &["a"]),
            ("no list", json!("a"), &[]),
        ] {
            let spec = json!({"dependsOn": said});
            let found: Vec<Reference> = dependencies(Dialect::QuarksJob, &spec).collect();
            let names: Vec<&str> = found.iter().map(|it| &*it.name).collect();
            assert_eq!(names, expected, "{name}");
        }
    }

    #[test]
    fn versions_are_resolved_everywhere() {
        let mut pod = pod();
        pod["initContainers"][0]["envFrom"][0]["secretRef"]["name"] = json!("volume-v7");
        resolve(&mut pod, |base| (base == "volume").then_some(12));
        assert_eq!(pod["volumes"][1]["secret"]["secretName"], "volume-v12");
        assert_eq!(pod["initContainers"][0]["envFrom"][0]["secretRef"]["name"], "volume-v12");
        assert_eq!(pod["containers"][1]["envFrom"][0]["secretRef"]["name"], "init");
    }

    #[test]
    fn what_the_name_of_a_version_is() {
        for (name, expected) in [
            ("a-v1", Some("a")),
            ("a-v1-v22", Some("a-v1")),
            ("a", None),
            ("a-v", None),
            ("a-v1x", None),
            ("-v1", None),
            ("a-version", None),
        ] {
            assert_eq!(base(name), expected, "{name}");
        }
    }
}
