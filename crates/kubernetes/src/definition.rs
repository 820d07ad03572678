//! Builds CustomResourceDefinitions and their schemas.

use kube::discovery::ApiResource;
use serde_json::{Map, Value, json};

/// The CustomResourceDefinition of a namespaced kind, for any API server from Kubernetes 1.16 on. A status in the
/// schema becomes a subresource.
pub(crate) fn custom_resource(of: &ApiResource, schema: &Value, columns: &[Value]) -> Value {
    let has_status = schema["properties"].get("status").is_some();
    let mut version = json!({
        "name": of.version,
        "served": true,
        "storage": true,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": columns,
    });
    if has_status {
        version["subresources"] = json!({"status": {}});
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", of.plural, of.group)},
        "spec": {
            "group": of.group,
            "scope": "Namespaced",
            "names": {
                "kind": of.kind,
                "listKind": format!("{}List", of.kind),
                "plural": of.plural,
                "singular": of.kind.to_lowercase(),
            },
            "versions": [version],
        },
    })
}

/// A column of `kubectl get`. A priority of 0 is left out, as the API server leaves it out of what it stores: otherwise
/// the stored object would differ from the applied one, and the next apply would conflict.
pub(crate) fn column(name: &str, kind: &str, path: &str, priority: u32) -> Value {
    let mut column = json!({"name": name, "type": kind, "jsonPath": path});
    if priority > 0 {
        column["priority"] = json!(priority);
    }
    column
}

/// The column with the age of the object.
pub(crate) fn age() -> Value {
    column("Age", "date", ".metadata.creationTimestamp", 0)
}

/// The schema of a whole object: the members of all kinds, and these, which replace them.
pub(crate) fn document<'a>(
    says: &str,
    members: impl IntoIterator<Item = (&'a str, Value)>,
) -> Value {
    let common =
        [("apiVersion", text("")), ("kind", text("")), ("metadata", json!({"type": "object"}))];
    object(says, common.into_iter().chain(members))
}

/// The schema of a list of conditions of these types, with further members.
pub(crate) fn condition_list<'a>(
    types: &str,
    further: impl IntoIterator<Item = (&'a str, Value)>,
) -> Value {
    let members = [
        ("type", text(types)),
        ("status", text("True, False or Unknown.")),
        ("reason", text("In one word.")),
        ("message", text("For people.")),
        ("lastTransitionTime", json!({"type": "string", "format": "date-time"})),
    ];
    // The key of a list with map semantics is required.
    let condition = object("", members.into_iter().chain(further)).requires(&["type", "status"]);
    json!({
        "type": "array",
        "items": condition,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}

pub(crate) fn object<'a>(
    says: &str,
    properties: impl IntoIterator<Item = (&'a str, Value)>,
) -> Value {
    let properties: Map<String, Value> =
        properties.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    described(json!({"type": "object", "properties": properties}), says)
}

pub(crate) fn text(says: &str) -> Value {
    described(json!({"type": "string"}), says)
}

pub(crate) fn flag(says: &str) -> Value {
    described(json!({"type": "boolean"}), says)
}

pub(crate) fn described(mut schema: Value, says: &str) -> Value {
    if !says.is_empty() {
        schema["description"] = json!(says);
    }
    schema
}

/// Further properties of a schema.
pub(crate) trait Schema {
    /// Adds a member to the schema.
    fn with(self, name: &str, value: impl Into<Value>) -> Self;

    /// Requires these members.
    fn requires(self, members: &[&str]) -> Self;

    /// Keeps unknown members.
    fn open(self) -> Self;
}

impl Schema for Value {
    fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self[name] = value.into();
        self
    }

    fn requires(self, members: &[&str]) -> Self {
        self.with("required", members)
    }

    fn open(self) -> Self {
        self.with("x-kubernetes-preserve-unknown-fields", true)
    }
}
