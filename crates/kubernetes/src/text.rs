//! Objects of a known kind as text: of a list that is read as a whole each is read alone, and what was read of it is gone
//! before the next.
//!
//! A megabyte of JSON may take thirty once it is read, and a page has dozens.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::deep;

/// One, and what watches have to know of it.
pub(crate) struct Text<K> {
    metadata: ObjectMeta,
    text: Box<RawValue>,
    of: PhantomData<fn() -> K>,
}

impl<K: DeserializeOwned> Text<K> {
    /// The object; `None` if it is none of the kind: an API server gives no such.
    pub(crate) fn read(&self) -> Option<K> {
        serde_json::from_str(self.text.get()).ok()
    }
}

impl<'de, K> Deserialize<'de> for Text<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Head {
            #[serde(default, deserialize_with = "deep::metadata")]
            metadata: ObjectMeta,
        }
        let text = Box::<RawValue>::deserialize(from)?;
        let head = serde_json::from_str::<Head>(text.get()).map_err(D::Error::custom)?;
        Ok(Self { metadata: head.metadata, text, of: PhantomData })
    }
}

impl<K> Clone for Text<K> {
    fn clone(&self) -> Self {
        Self { metadata: self.metadata.clone(), text: self.text.clone(), of: PhantomData }
    }
}

/// Not what it holds: it may be a Secret.
impl<K> fmt::Debug for Text<K> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Text").field("name", &self.metadata.name).finish_non_exhaustive()
    }
}

impl<K: Resource> Resource for Text<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &K::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &K::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &K::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &K::DynamicType) -> Cow<'_, str> {
        K::plural(of)
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
    use k8s_openapi::api::core::v1::Secret;

    use super::*;

    #[test]
    fn one_is_read_from_a_list_and_shows_nothing() {
        let list = r#"[{"metadata":{"name":"a","resourceVersion":"7"},"data":{"k":"aGlkZGVu"}}]"#;
        let list: Vec<Text<Secret>> = serde_json::from_str(list).unwrap();
        let [text] = list.as_slice() else { panic!() };
        assert_eq!(text.meta().resource_version.as_deref(), Some("7"));
        let secret = text.read().unwrap();
        assert_eq!(secret.data.unwrap()["k"].0, b"hidden");
        assert_eq!(format!("{text:?}"), "Text { name: Some(\"a\"), .. }");
        assert_eq!(Text::<Secret>::plural(&()), "secrets");
    }
}
