//! A QuarksJob or ExtendedJob as the API server sends it, read so that nothing that somebody has put into one keeps the
//! others from being read.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::{ApiResource, DynamicObject};
use kube::core::DynamicResourceScope;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::dialect::Dialect;
use super::resource;
use super::unread::{Unread, excess};
use crate::deep::{self, part};

/// A QuarksJob or ExtendedJob whose spec and status are still text.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Document {
    #[serde(default, deserialize_with = "deep::metadata")]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    spec: Option<Box<RawValue>>,
    #[serde(default)]
    status: Option<Box<RawValue>>,
}

impl Document {
    /// Reads what matters of it. If the spec or the record of runs cannot be read, or refers to too much, the result
    /// has no spec, and the reason in `unread`.
    pub(crate) fn read(&self, dialect: Dialect) -> Option<resource::Resource> {
        let spec = part(self.spec.as_deref());
        let of_spec = spec.as_ref().err().copied().map(Unread::Spec);
        let status = part(self.status.as_deref()).unwrap_or_default();
        let mut object = DynamicObject {
            types: None,
            metadata: self.metadata.clone(),
            data: json!({"spec": spec.unwrap_or_default(), "status": status}),
        };
        let read = resource::Resource::of(dialect, &object)?;
        // The fault of a record comes first: without a record nothing at all may be done.
        let unread = read.unread.or(of_spec).or_else(|| excess(&read));
        if unread.is_none() {
            return Some(read);
        }
        object.data["spec"] = Value::Null;
        let mut read = resource::Resource::of(dialect, &object)?;
        read.unread = unread;
        Some(read)
    }
}

impl Resource for Document {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(of: &ApiResource) -> Cow<'_, str> {
        of.kind.as_str().into()
    }

    fn group(of: &ApiResource) -> Cow<'_, str> {
        of.group.as_str().into()
    }

    fn version(of: &ApiResource) -> Cow<'_, str> {
        of.version.as_str().into()
    }

    fn api_version(of: &ApiResource) -> Cow<'_, str> {
        of.api_version.as_str().into()
    }

    fn plural(of: &ApiResource) -> Cow<'_, str> {
        of.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_nested_too_deep_is_known_by_its_name_and_runs_nothing() {
        let read = |spec: &str| {
            let metadata = r#"{"namespace":"n","name":"a","uid":"u","resourceVersion":"1"}"#;
            let text = format!(r#"{{"metadata":{metadata},"spec":{spec}}}"#);
            let document: Document = serde_json::from_str(&text).unwrap();
            document.read(Dialect::QuarksJob).unwrap()
        };
        let now = r#""trigger":{"strategy":"now"}"#;
        let flat = read(&format!("{{{now}}}"));
        assert!(flat.unread.is_none() && flat.strategy == engine::trigger::Strategy::Now);
        let nested = format!("{}1{}", r#"{"a":"#.repeat(150), "}".repeat(150));
        let deep = read(&format!(r#"{{{now},"template":{nested}}}"#));
        assert!(
            deep.unread == Some(Unread::Spec(deep::Unread::TooDeep))
                && deep.strategy == engine::trigger::Strategy::Manual
        );
        assert_eq!(&*deep.name, "a");
    }
}
