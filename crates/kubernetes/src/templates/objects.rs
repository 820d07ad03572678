//! Calls for objects of any kind.
//!
//! What is answered is read in parts. One may be nested deeper than our decoder goes, by those who wrote it or by
//! `managedFields`: kube would refuse all of it, and write it to the log. And it may take a hundred times its length once
//! it is read, so the metadata is read at once, which tells whose it is, and the rest where it is needed: weighed first,
//! and of all that is read no more at once than there is room for.

use kube::Client;
use kube::Resource as _;
use kube::api::{DeleteParams, DynamicObject, PropagationPolicy};
use kube::core::Request;
use kube::core::request::Error;
use osb::weight::weigh;
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::kinds::ServedKind;
use crate::calls::{CallError, call, only};
use crate::deep::{self, HEAVIEST, Object};

/// How many levels an object of a template has at most; when it is read later it has a few more.
pub(super) const DEEPEST: usize = 100;

/// What objects that are read at once take together, in KiB. Whoever compares one with what it would become has as much
/// again.
const READ_AT_ONCE: u32 = (HEAVIEST >> 10) as u32;
/// One that takes no more is not counted, in bytes.
const SMALL: usize = 64 << 10;

/// One permit for each KiB that is read. Whoever has some waits for no further ones: all could wait for each other.
static READING: Semaphore = Semaphore::const_new(READ_AT_ONCE as usize);

/// The room that an object takes which is read.
pub(super) type Room = Option<SemaphorePermit<'static>>;

/// A builder of requests for objects of a kind, in a namespace, or in none.
pub(super) fn requests(served: &ServedKind, namespace: Option<&str>) -> Request {
    let namespace = namespace.filter(|_| served.is_namespaced);
    Request::new(DynamicObject::url_path(&served.resource, namespace))
}

/// An object that is answered: its metadata is read.
pub(super) struct Answered {
    /// Its kind, and its metadata but for `managedFields`.
    pub(super) head: Value,
    text: String,
}

impl Answered {
    /// All of it that can be read, when there is room for that.
    pub(super) async fn read(&self) -> Result<(Object, Room), CallError> {
        let room = match needed(&self.text) {
            Some(kib) => READING.acquire_many(kib).await.ok(),
            None => None,
        };
        Ok((deep::object(&self.text).map_err(no_object)?, room))
    }
}

/// The object of a text, if there is room for it now.
pub(super) fn object_now(text: &str) -> Option<(Object, Room)> {
    let room = needed(text).map(|kib| READING.try_acquire_many(kib)).transpose().ok()?;
    Some((deep::object(text).ok()?, room))
}

/// What is needed to read a text, in KiB.
fn needed(text: &str) -> Option<u32> {
    // No more of it is read.
    let weight = weigh(text.as_bytes()).min(HEAVIEST);
    (weight > SMALL).then(|| u32::try_from(weight >> 10).unwrap_or(READ_AT_ONCE))
}

/// What identifies the object that is answered.
pub(super) async fn answered(
    client: &Client,
    request: Result<http::Request<Vec<u8>>, Error>,
) -> Result<Value, CallError> {
    asked(client, request).await.map(|answered| answered.head)
}

/// The object that is answered, of which more may be needed.
pub(super) async fn asked(
    client: &Client,
    request: Result<http::Request<Vec<u8>>, Error>,
) -> Result<Answered, CallError> {
    let request = request.map_err(|error| CallError::Invalid(error.to_string()))?;
    let text = call(client.request_text(request)).await?;
    Ok(Answered { head: deep::head(&text).map_err(no_object)?, text })
}

/// The object that is answered, for whoever compares it: what is nested too deep, or too heavy, is refused. Whoever asks
/// has the room of what it is compared with.
pub(super) async fn answered_whole(
    client: &Client,
    request: Result<http::Request<Vec<u8>>, Error>,
) -> Result<Value, CallError> {
    let Answered { text, .. } = asked(client, request).await?;
    whole(deep::object(&text).map_err(no_object)?)
}

/// An object of which nothing is left out.
pub(super) fn whole(of: Object) -> Result<Value, CallError> {
    match of.unread.max(of.fields) {
        None => Ok(of.object),
        Some(why) => Err(CallError::Hindered(format!("it {why}"))),
    }
}

fn no_object(_: serde_json::Error) -> CallError {
    CallError::NoAnswer("what was answered is no object".to_owned())
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
