//! Templates and their instances as they are read: in parts, of which one that cannot be read hides no other.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use osb::weight::weigh;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::names::{GROUP, Kind, VERSION};
use crate::deep::{self, HEAVIEST, Unread, part, resource};

/// A TemplateInstance, its parts as text: thousands of them are kept, and few are worked on.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct SeenInstance {
    #[serde(default, deserialize_with = "deep::metadata")]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: Option<Box<RawValue>>,
    #[serde(default)]
    pub(super) status: Option<Box<RawValue>>,
}

impl SeenInstance {
    /// What its spec takes once it is read, in bytes; nothing, if it is not read.
    pub(super) fn weight(&self) -> usize {
        let weight = self.spec.as_ref().map_or(0, |spec| weigh(spec.get().as_bytes()));
        if weight > HEAVIEST { 0 } else { weight }
    }
}

/// A Template, its parts as text.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct SeenTemplate {
    #[serde(default, deserialize_with = "deep::metadata")]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    message: Option<Box<RawValue>>,
    #[serde(default)]
    objects: Option<Box<RawValue>>,
    #[serde(default)]
    parameters: Option<Box<RawValue>>,
    #[serde(default)]
    labels: Option<Box<RawValue>>,
}

impl SeenTemplate {
    /// The whole of it.
    ///
    /// # Errors
    /// If a part of it is not read.
    pub(super) fn document(&self) -> Result<Value, Unread> {
        let mut document = Map::new();
        document.insert("apiVersion".to_owned(), json!(format!("{GROUP}/{VERSION}")));
        document.insert("kind".to_owned(), json!(Kind::Template.name()));
        document.insert("metadata".to_owned(), json!(self.metadata));
        for (name, raw) in [
            ("message", &self.message),
            ("objects", &self.objects),
            ("parameters", &self.parameters),
            ("labels", &self.labels),
        ] {
            let value = part(raw.as_deref())?;
            if !value.is_null() {
                document.insert(name.to_owned(), value);
            }
        }
        Ok(Value::Object(document))
    }
}

resource!(
    SeenInstance,
    GROUP,
    VERSION,
    Kind::TemplateInstance.name(),
    Kind::TemplateInstance.plural()
);
resource!(SeenTemplate, GROUP, VERSION, Kind::Template.name(), Kind::Template.plural());
