//! Objects of a known kind as text: each object of a list is parsed alone, and dropped before the next.
//!
//! A megabyte of JSON may take thirty once it is parsed, and a page has dozens of objects.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::{Api, ListParams};
use osb::weight::weigh;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::calls::{CallError, call, next_page};
use crate::deep;

/// How many objects are in a page: each may be a megabyte, and a page is in memory twice while it is read.
pub(crate) const PAGE: u32 = 20;

/// An object as text, with the metadata that watches need.
pub(crate) struct Text<K> {
    metadata: ObjectMeta,
    text: Box<RawValue>,
    of: PhantomData<fn() -> K>,
}

impl<K: DeserializeOwned> Text<K> {
    /// Parses the object; `None` if it would take more than [`deep::HEAVIEST`], is nested deeper than our decoder goes,
    /// or is none of the kind, which an API server does not send.
    pub(crate) fn read(&self) -> Option<K> {
        let read = self.whole();
        if read.is_none() {
            self.tell("an object is not read: it is too large, or nested too deep");
        }
        read
    }

    /// Parses an object of a kind that keeps its parts as text, and weighs each when it parses it.
    pub(crate) fn in_parts(&self) -> Option<K> {
        serde_json::from_str(self.text.get()).ok()
    }

    /// Parses an object that must not be taken for gone, such as a Job of ours: if it is too heavy, without what makes
    /// it so ([`deep::gist`]). Its metadata is always there.
    pub(crate) fn gist(&self) -> Option<K>
    where
        K: Resource,
    {
        self.whole().or_else(|| {
            self.tell("an object is read without what of it is too large");
            let gist = deep::gist(self.text.get())?;
            let mut object: K = serde_json::from_value(gist).ok()?;
            *object.meta_mut() = self.metadata.clone();
            Some(object)
        })
    }

    /// All of it, unread.
    pub(crate) fn text(&self) -> &str {
        self.text.get()
    }

    fn whole(&self) -> Option<K> {
        let text = self.text.get();
        (weigh(text.as_bytes()) <= deep::HEAVIEST).then(|| serde_json::from_str(text).ok())?
    }

    fn tell(&self, what: &str) {
        let ObjectMeta { namespace, name, .. } = &self.metadata;
        tracing::debug!(?namespace, ?name, "{what}");
    }
}

/// Applies `read` to each object of a list, page by page: the text of no more than [`PAGE`] objects is held at a time.
///
/// # Errors
/// If a page cannot be read; also if the API server has dropped the version with which the list began.
pub(crate) async fn each<K, T>(
    api: &Api<Text<K>>,
    of: ListParams,
    mut read: impl FnMut(&Text<K>) -> Option<T>,
) -> Result<Vec<T>, CallError> {
    let mut of = of.limit(PAGE);
    let mut all = Vec::new();
    loop {
        let page = call(api.list(&of)).await?;
        all.extend(page.items.iter().filter_map(&mut read));
        let Some(next) = next_page(of, page.metadata) else { return Ok(all) };
        of = next;
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

/// The content is not shown: it may be a Secret.
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
    use k8s_openapi::api::core::v1::{Pod, Secret};

    use super::*;

    #[test]
    fn a_pod_that_is_too_heavy_is_known_and_one_that_is_not_is_read_whole() {
        for (name, variables, is_whole) in
            [("some variables", 10, true), ("too many", 200_000, false)]
        {
            let env = vec![r#"{"name":"A"}"#; variables].join(",");
            let spec = format!(r#"{{"nodeName":"n","containers":[{{"name":"c","env":[{env}]}}]}}"#);
            let metadata = r#"{"name":"p","uid":"u"}"#;
            let status = r#"{"phase":"Running"}"#;
            let text = format!(r#"{{"metadata":{metadata},"spec":{spec},"status":{status}}}"#);
            let text: Text<Pod> = serde_json::from_str(&text).unwrap();
            assert_eq!(text.read().is_some(), is_whole, "{name}");
            let pod = text.gist().unwrap();
            assert_eq!(pod.metadata.uid.as_deref(), Some("u"), "{name}");
            assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Running"), "{name}");
            let spec = pod.spec.unwrap();
            assert_eq!(spec.node_name.as_deref(), Some("n"), "{name}");
            let [container] = &*spec.containers else { panic!("{name}") };
            assert_eq!(container.name, "c", "{name}");
            assert_eq!(container.env.is_some(), is_whole, "{name}");
        }
    }

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
