//! Plans the objects of an instance: their names, labels, owners and order.

use std::collections::HashMap;

use data_encoding::BASE32_NOPAD;
use kube::discovery::ApiResource;
use ring::digest::{SHA256, digest};
use ring::hmac;
use serde_json::{Map, Value, json};

use super::kinds::ServedKind;
use super::names::{GROUP, Kind, MARK, OWNER, VERSION};
use super::ours::Ours;
use super::record;
use super::resource::Key;

/// The greatest length of an object's name.
const LONGEST: usize = 253;

/// An object that is to be made.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    pub(super) served: ServedKind,
    pub(super) name: String,
    /// `None` for cluster-scoped objects.
    pub(super) namespace: Option<String>,
    /// The order of making: objects with a lower rank are made first, those with the same at once.
    pub(super) rank: u8,
    pub(super) object: Value,
}

impl Planned {
    /// The resource and the name, as messages say them.
    pub(super) fn words(&self) -> String {
        format!("{}, Name={}", self.resource(), self.name)
    }

    /// The names that say where the object is: its own and its namespace's.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        [self.name.as_str()].into_iter().chain(self.namespace.as_deref())
    }

    /// The identity of the object: resource, namespace and name.
    pub(super) fn identity(&self) -> (String, Option<String>, String) {
        (self.resource(), self.namespace.clone(), self.name.clone())
    }

    /// Whether objects of this kind may expose values.
    pub(super) fn may_expose(&self) -> bool {
        let resource = &self.served.resource;
        template::may_expose(&resource.api_version, &resource.kind)
    }

    /// The plural of the resource, with its group.
    pub(super) fn resource(&self) -> String {
        let ApiResource { group, plural, .. } = &self.served.resource;
        if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") }
    }
}

/// The `apiVersion` and `kind` of an object.
pub(super) fn kind(object: &Value) -> (&str, &str) {
    let text = |of: &str| object[of].as_str().unwrap_or_default();
    (text("apiVersion"), text("kind"))
}

/// Counters for generated names: how many objects of one kind have had the same `generateName` so far.
#[derive(Default)]
pub(super) struct Ordinals(HashMap<[String; 3], usize>);

impl Ordinals {
    /// The next number for an object with this kind, namespace and `generateName`. Other objects that come into the
    /// template, or leave it, do not change it.
    pub(super) fn next(&mut self, object: &Value) -> usize {
        let metadata = &object["metadata"];
        let parts = [&object["kind"], &metadata["namespace"], &metadata["generateName"]];
        let parts = parts.map(|part| part.as_str().unwrap_or_default().to_owned());
        let count = self.0.entry(parts).or_default();
        let ordinal = *count;
        *count += 1;
        ordinal
    }
}

/// Checks that an instance which another instance has made makes no further instances: with a template that is the
/// value of its own parameter there would be no end to it.
///
/// # Errors
/// If the plan has a TemplateInstance; the message says what to do about it.
pub(super) fn check_nested(is_nested: bool, plan: &[Planned]) -> Result<(), String> {
    let is_instance = |it: &&Planned| {
        it.served.resource.group == GROUP
            && it.served.resource.kind == Kind::TemplateInstance.name()
    };
    match plan.iter().find(is_instance).filter(|_| is_nested) {
        Some(further) => Err(format!(
            "template.objects: Invalid value: {}: another TemplateInstance has made this one, and one that was made \
             makes no further ones: put its objects into this template",
            further.words()
        )),
        None => Ok(()),
    }
}

/// Plans an object. `ordinal` is that of [`Ordinals`].
///
/// # Errors
/// If the object has no name, or one that cannot be a part of a path; the message continues the object's path.
pub(super) fn plan(
    of: &Key,
    ordinal: usize,
    mut object: Value,
    served: ServedKind,
    seal: &hmac::Key,
) -> Result<Planned, String> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let root = object.as_object_mut().ok_or("has to be a map")?;
    let metadata = root.entry("metadata").or_insert_with(|| json!({}));
    let metadata = metadata.as_object_mut().ok_or("metadata: has to be a map")?;
    let name = named(of, &kind, ordinal, metadata)?;
    let namespace = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
    let namespace = match served.is_namespaced {
        false => None,
        true if namespace.is_empty() => Some(of.namespace.to_string()),
        true => Some(path_segment("metadata.namespace", namespace)?),
    };
    match &namespace {
        Some(namespace) => metadata.insert("namespace".to_owned(), json!(namespace)),
        None => metadata.remove("namespace"),
    };
    let labels = member(metadata, "labels", json!({}));
    let labels = labels.as_object_mut().ok_or("metadata.labels: has to be a map")?;
    labels.insert(OWNER.to_owned(), json!(&*of.uid));
    // Objects in another namespace, or in none, can have no owner reference to the instance.
    if namespace.as_deref() == Some(&*of.namespace) {
        let owners = member(metadata, "ownerReferences", json!([]));
        let owners = owners.as_array_mut().ok_or("metadata.ownerReferences: has to be a list")?;
        owners.push(owner(of));
    } else {
        let annotations = member(metadata, "annotations", json!({}));
        let annotations =
            annotations.as_object_mut().ok_or("metadata.annotations: has to be a map")?;
        let resource = [served.resource.plural.as_str(), &served.resource.group];
        let mark = mark(of, resource, namespace.as_deref(), &name, seal);
        annotations.insert(MARK.to_owned(), json!(mark));
    }
    let rank = rank(&served);
    Ok(Planned { served, name, namespace, rank, object })
}

/// A member of a map; where it is absent, or `null`, which Go reads as absent, `empty` is put there.
fn member<'a>(of: &'a mut Map<String, Value>, name: &str, empty: Value) -> &'a mut Value {
    let member = of.entry(name).or_insert(Value::Null);
    if member.is_null() {
        *member = empty;
    }
    member
}

/// The owner reference by which Kubernetes collects an object when its instance is gone.
pub(super) fn owner(of: &Key) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": Kind::TemplateInstance.name(),
        "name": &*of.name,
        "uid": &*of.uid,
    })
}

/// The name of an object. A generated name is derived from the instance, so that a later attempt makes no second
/// object.
fn named(
    of: &Key,
    kind: &str,
    ordinal: usize,
    metadata: &mut Map<String, Value>,
) -> Result<String, String> {
    let text = |metadata: &Map<String, Value>, key: &str| {
        metadata.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let name = text(metadata, "name");
    if !name.is_empty() {
        return path_segment("metadata.name", &name);
    }
    let prefix = text(metadata, "generateName");
    if prefix.is_empty() {
        return Err("metadata.name: Required value: name or generateName is required".to_owned());
    }
    let seed = format!("{}/{kind}/{prefix}/{ordinal}", of.uid);
    let mut suffix = BASE32_NOPAD.encode(digest(&SHA256, seed.as_bytes()).as_ref());
    suffix.truncate(8);
    suffix.make_ascii_lowercase();
    let name = path_segment("metadata.generateName", &format!("{prefix}{suffix}"))?;
    metadata.insert("name".to_owned(), json!(name));
    metadata.remove("generateName");
    Ok(name)
}

/// The mark of an object without an owner reference: it says to which instance the object belongs. `resource`: plural
/// and group.
pub(super) fn mark(
    of: &Key,
    resource: [&str; 2],
    namespace: Option<&str>,
    name: &str,
    seal: &hmac::Key,
) -> String {
    let [plural, group] = resource;
    let namespace = namespace.unwrap_or_default();
    record::mark(of, &format!("{plural}.{group}"), &format!("{namespace}/{name}"), seal)
}

impl Planned {
    /// Whether Kubernetes does not collect the object with its instance: it is cluster-scoped, or in another namespace.
    pub(super) fn is_elsewhere(&self, of: &Key) -> bool {
        self.namespace.as_deref() != Some(&*of.namespace)
    }

    /// Whether an object that was found is the planned one, made by this instance: what anybody may write on an object
    /// does not suffice.
    pub(super) fn is(&self, of: &Key, found: &Value, seal: &hmac::Key) -> bool {
        Ours::of(of, seal).is(&self.served, self.namespace.as_deref(), &self.name, found)
    }
}

/// Whether a name can be a part of a path (Kubernetes, "Path Segment Names"), as it is.
pub(super) fn is_path_segment(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@!$&'()*+,;=".contains(&byte);
    !["", ".", ".."].contains(&name) && name.bytes().all(plain) && name.len() <= LONGEST
}

/// Checks that a name can be a part of a path.
fn path_segment(path: &str, name: &str) -> Result<String, String> {
    match is_path_segment(name) {
        true => Ok(name.to_owned()),
        false => Err(format!(
            "{path}: Invalid value: {name:?}: has to be letters, digits, and -._~:@!$&'()*+,;= alone, {LONGEST} at \
             most"
        )),
    }
}

/// The rank of a kind. What others need to be accepted comes first: namespaces, definitions of kinds; then what pods
/// refer to, and roles; then role bindings.
fn rank(served: &ServedKind) -> u8 {
    let resource = &served.resource;
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Namespace")
        | ("project.openshift.io", "Project" | "ProjectRequest")
        | ("apiextensions.k8s.io", "CustomResourceDefinition")
        | ("scheduling.k8s.io", "PriorityClass") => 0,
        (
            "",
            "ServiceAccount"
            | "Secret"
            | "ConfigMap"
            | "PersistentVolume"
            | "PersistentVolumeClaim"
            | "LimitRange"
            | "ResourceQuota",
        )
        | ("rbac.authorization.k8s.io" | "authorization.openshift.io", "Role" | "ClusterRole")
        | ("image.openshift.io", "ImageStream") => 1,
        (
            "rbac.authorization.k8s.io" | "authorization.openshift.io",
            "RoleBinding" | "ClusterRoleBinding",
        ) => 2,
        _ => 3,
    }
}
