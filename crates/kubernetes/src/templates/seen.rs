//! Templates and TemplateInstances as they are read: in parts, so that a part that cannot be read does not hide the
//! others.

use std::sync::OnceLock;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use osb::weight::weigh;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::names::{GROUP, Kind, VERSION};
use crate::deep::{self, HEAVIEST, Unread, part, resource};

/// How many bytes a member of a map takes beside its name and its value.
const EACH: usize = 64;

/// A TemplateInstance with its parts as text: thousands are kept, and few are processed.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct SeenInstance {
    #[serde(default, deserialize_with = "deep::metadata")]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: Option<Box<RawValue>>,
    #[serde(default)]
    pub(super) status: Option<Box<RawValue>>,
    #[serde(skip)]
    weight: OnceLock<usize>,
}

impl SeenInstance {
    /// How many bytes the kept texts take.
    pub(super) fn length(&self) -> usize {
        let metadata = &self.metadata;
        let notes = metadata.annotations.iter().chain(&metadata.labels).flatten();
        let notes: usize = notes.map(|(name, value)| name.len() + value.len() + EACH).sum();
        let owners = metadata.owner_references.iter().flatten();
        let owners: usize = owners.map(|it| it.name.len() + it.uid.len() + 4 * EACH).sum();
        let finalizers: usize =
            metadata.finalizers.iter().flatten().map(|it| it.len() + EACH).sum();
        let parts = [&self.spec, &self.status].into_iter().flatten();
        notes + owners + finalizers + parts.map(|part| part.get().len()).sum::<usize>()
    }

    /// How many bytes the spec takes once it is parsed; 0 if it is too heavy to be parsed.
    pub(super) fn weight(&self) -> usize {
        *self.weight.get_or_init(|| {
            let weight = self.spec.as_ref().map_or(0, |spec| weigh(spec.get().as_bytes()));
            if weight > HEAVIEST { 0 } else { weight }
        })
    }
}

/// A Template with its parts as text.
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
    /// The whole Template as one document.
    ///
    /// # Errors
    /// If a part of it cannot be read.
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
