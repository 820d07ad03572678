//! Resources of others as they are read: nothing that somebody has put into one keeps the others from being read.
//!
//! A document may be nested deeper than our decoder goes. It would refuse the whole list that one is in, so parts are
//! taken as text first, and each is read alone.

use std::borrow::Cow;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::names::{GROUP, Kind, VERSION};

/// A TemplateInstance, its parts as text.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct SeenInstance {
    #[serde(default)]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: Option<Box<RawValue>>,
    #[serde(default)]
    pub(super) status: Option<Box<RawValue>>,
}

/// A Template, its parts as text.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct SeenTemplate {
    #[serde(default)]
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

/// A part; `None` if it is nested too deep.
pub(super) fn part(raw: Option<&RawValue>) -> Option<Value> {
    raw.map_or(Some(Value::Null), |raw| serde_json::from_str(raw.get()).ok())
}

impl SeenTemplate {
    /// The whole of it; `None` if it is nested too deep.
    pub(super) fn document(&self) -> Option<Value> {
        let mut document = Map::new();
        document.insert("apiVersion".to_owned(), json!(format!("{GROUP}/{VERSION}")));
        document.insert("kind".to_owned(), json!(Kind::Template.name()));
        let metadata = ObjectMeta { managed_fields: None, ..self.metadata.clone() };
        document.insert("metadata".to_owned(), serde_json::to_value(metadata).ok()?);
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
        Some(Value::Object(document))
    }
}

macro_rules! resource {
    ($seen:ty, $kind:expr) => {
        impl Resource for $seen {
            type DynamicType = ();
            type Scope = NamespaceResourceScope;

            fn kind((): &()) -> Cow<'_, str> {
                $kind.name().into()
            }

            fn group((): &()) -> Cow<'_, str> {
                GROUP.into()
            }

            fn version((): &()) -> Cow<'_, str> {
                VERSION.into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                $kind.plural().into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

resource!(SeenInstance, Kind::TemplateInstance);
resource!(SeenTemplate, Kind::Template);
