//! The values that the objects of an instance expose, read in the name of whoever the client acts for.

use std::collections::BTreeMap;

use futures_util::{StreamExt, TryStreamExt, stream};
use kube::Client;
use serde_json::{Value, json};
use template::{expose, may_expose};

use super::await_ready::{Sought, get_made};
use super::kinds::Kinds;
use super::make::AT_ONCE;
use super::ours::Ours;
use super::status::Made;
use crate::calls::CallError;
use crate::deep::Object;

/// Why the exposed values are not known.
#[derive(Debug)]
pub(super) enum Unexposed {
    /// An object cannot be read: which, and why.
    Unread(String, CallError),
    /// An object is not there any more, or is another: which.
    Gone(String),
    /// An object is there, and is not the instance's: which.
    Foreign(String),
    /// An annotation, or what it refers to, is wrong, or the object is too heavy to be read. Nothing of it is quoted.
    Wrong(String),
}

/// The values that objects expose, by the keys of their annotations.
pub(super) async fn exposed(
    client: &Client,
    kinds: &Kinds,
    ours: Ours<'_>,
    made: impl Iterator<Item = Made>,
) -> Result<BTreeMap<String, String>, Unexposed> {
    let exposing: Vec<Made> =
        made.filter(|made| may_expose(&made.api_version, &made.kind)).collect();
    let reads: Vec<_> = exposing.iter().map(|made| read(client, kinds, ours, made)).collect();
    let read: Vec<Value> = stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
    expose(&read).map_err(|why| Unexposed::Wrong(why.to_string()))
}

/// Reads an object that was made, if it still is that one.
async fn read(
    client: &Client,
    kinds: &Kinds,
    ours: Ours<'_>,
    made: &Made,
) -> Result<Value, Unexposed> {
    let words = format!("{} {}", made.kind, made.name);
    let found = match get_made(kinds, client, ours, made).await {
        Ok(Sought::There(found)) => found,
        Ok(Sought::Gone) => return Err(Unexposed::Gone(words)),
        Ok(Sought::Foreign) => return Err(Unexposed::Foreign(words)),
        Err(error) => return Err(Unexposed::Unread(words, error)),
    };
    let (object, _room) = match found.read().await {
        Ok((Object { unread: Some(why), .. }, _)) => {
            return Err(Unexposed::Wrong(format!("{words}: it {why}")));
        }
        Ok(read) => read,
        Err(error) => return Err(Unexposed::Unread(words, error)),
    };
    let mut found = object.object;
    // The server may leave these out of a single object.
    found["apiVersion"] = json!(made.api_version);
    found["kind"] = json!(made.kind);
    Ok(found)
}
