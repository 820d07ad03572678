//! Calls for objects of any kind.
//!
//! Answers are read in parts. An object may be nested deeper than our decoder goes, by its authors or by
//! `managedFields`: kube would refuse all of it, and write it to the log.

use kube::Client;
use kube::Resource as _;
use kube::api::{DeleteParams, DynamicObject, PropagationPolicy};
use kube::core::Request;
use kube::core::request::Error;
use serde_json::Value;

use super::kinds::ServedKind;
use crate::calls::{CallError, call, only};
use crate::deep::{self, Object, Unread};

/// How many levels an object of a template has at most; when it is read later it has a few more.
pub(super) const DEEPEST: usize = 100;

/// A builder of requests for objects of a kind, in a namespace, or in none.
pub(super) fn requests(served: &ServedKind, namespace: Option<&str>) -> Request {
    let namespace = namespace.filter(|_| served.is_namespaced);
    Request::new(DynamicObject::url_path(&served.resource, namespace))
}

/// Sends a request and returns the object of the answer, without the parts that are nested too deep.
pub(super) async fn answered(
    client: &Client,
    request: Result<http::Request<Vec<u8>>, Error>,
) -> Result<Value, CallError> {
    read(client, request).await.map(|read| read.object)
}

/// Like [`answered`], for callers that compare objects or write them back: refuses an object with parts that are nested
/// too deep.
pub(super) async fn answered_whole(
    client: &Client,
    request: Result<http::Request<Vec<u8>>, Error>,
) -> Result<Value, CallError> {
    match read(client, request).await? {
        Object { object, is_whole: true } => Ok(object),
        Object { .. } => Err(CallError::Hindered(format!("it {}", Unread::TooDeep))),
    }
}

async fn read(
    client: &Client,
    request: Result<http::Request<Vec<u8>>, Error>,
) -> Result<Object, CallError> {
    let request = request.map_err(|error| CallError::Invalid(error.to_string()))?;
    let text = call(client.request_text(request)).await?;
    deep::object(&text)
        .map_err(|_| CallError::NoAnswer("what was answered is no object".to_owned()))
}

/// An object to be removed.
pub(super) struct Removal<'a> {
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    /// The `resourceVersion` that it must have; `None`: any.
    pub(super) version: Option<&'a str>,
    pub(super) propagation: PropagationPolicy,
}

/// Deletes an object; whether it is gone at once.
pub(super) async fn delete(
    client: &Client,
    requests: &Request,
    removal: Removal<'_>,
) -> Result<bool, CallError> {
    let params = DeleteParams {
        propagation_policy: Some(removal.propagation),
        ..only(Some(removal.uid.to_owned()), removal.version.map(str::to_owned))
    };
    let answer = answered(client, requests.delete(removal.name, &params)).await?;
    // Otherwise the answer is the object, marked as being deleted.
    Ok(answer["kind"] == "Status")
}
