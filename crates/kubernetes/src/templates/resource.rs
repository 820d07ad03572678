//! A TemplateInstance as it is read.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use template::ready;

use super::names::FINALIZER;
use super::requester::Requester;

/// What tells one from others.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
}

impl Key {
    pub(super) fn of(object: &DynamicObject) -> Option<Self> {
        let namespace = object.namespace()?.into();
        Some(Self { namespace, name: object.name_any().into() })
    }
}

/// How long objects may take to be ready, from the creation of their instance, unless it says otherwise.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// One that is there.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) key: Key,
    pub(super) uid: Arc<str>,
    /// For the write that follows from it.
    pub(super) version: String,
    pub(super) generation: i64,
    pub(super) deleting: bool,
    pub(super) created_at: Timestamp,
    pub(super) finalizers: Vec<String>,
    object: DynamicObject,
}

impl Instance {
    pub(super) fn of(mut object: DynamicObject) -> Option<Self> {
        object.metadata.managed_fields = None;
        let created = object.metadata.creation_timestamp.as_ref()?;
        Some(Self {
            key: Key::of(&object)?,
            uid: object.uid()?.into(),
            version: object.resource_version()?,
            generation: object.metadata.generation.unwrap_or_default(),
            deleting: object.metadata.deletion_timestamp.is_some(),
            created_at: created.0,
            finalizers: object.finalizers().to_vec(),
            object,
        })
    }

    pub(super) fn spec(&self) -> &Value {
        &self.object.data["spec"]
    }

    pub(super) fn status(&self) -> &Value {
        &self.object.data["status"]
    }

    pub(super) fn annotation(&self, name: &str) -> Option<&str> {
        self.object.annotations().get(name).map(String::as_str)
    }

    /// The Secret that its parameters are in.
    pub(super) fn secret(&self) -> Option<&str> {
        self.spec()["secret"]["name"].as_str().filter(|name| !name.is_empty())
    }

    /// Who it is made for.
    pub(super) fn requester(&self) -> Result<Requester, String> {
        Requester::of(&self.spec()["requester"])
    }

    /// Whether it is held until its objects are gone.
    pub(super) fn is_held(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == FINALIZER)
    }

    pub(super) fn is(&self, condition: &str) -> bool {
        let conditions = self.status()["conditions"].as_array();
        let mut holding = conditions.into_iter().flatten().filter(|it| it["status"] == "True");
        holding.any(|it| it["type"] == condition)
    }

    /// Whether nothing further becomes of it.
    pub(super) fn has_ended(&self) -> bool {
        self.is("Ready") || self.is("InstantiateFailure")
    }

    /// Its objects, as it says.
    pub(super) fn objects(&self) -> &[Value] {
        self.status()["objects"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Whether all of its objects were made.
    pub(super) fn is_made(&self) -> bool {
        let planned = self.spec()["template"]["objects"].as_array().map_or(0, Vec::len);
        self.objects().len() == planned && self.status()["observedGeneration"].is_i64()
    }

    /// When its objects have taken too long.
    ///
    /// # Errors
    /// If what it, or its template, says of that is no period.
    pub(super) fn deadline(&self) -> Result<Timestamp, String> {
        let own = ready::timeout(&json!(self.object.metadata.annotations))?;
        let of_template = || ready::timeout(&self.spec()["template"]["metadata"]["annotations"]);
        let timeout = own.map_or_else(of_template, |own| Ok(Some(own)))?.unwrap_or(TIMEOUT);
        let timeout = jiff::SignedDuration::try_from(timeout).unwrap_or(jiff::SignedDuration::MAX);
        Ok(self.created_at.saturating_add(timeout).unwrap_or(Timestamp::MAX))
    }
}
