//! The values that the objects of an instance expose, read in the name of whoever the client acts for.

use std::collections::BTreeMap;

use futures_util::{StreamExt, stream};
use kube::Client;
use serde_json::{Value, json};
use template::{Exposed, exposes, may_expose};

use super::await_ready::{Sought, get_made};
use super::kinds::Kinds;
use super::make::AT_ONCE;
use super::objects::{Answered, Room};
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
///
/// Each is read when the one before is done with, and only if it exposes something: all together may be a hundred times
/// what there is room for. They come as text beforehand, in their order.
pub(super) async fn exposed(
    client: &Client,
    kinds: &Kinds,
    ours: Ours<'_>,
    made: impl Iterator<Item = Made>,
) -> Result<BTreeMap<String, String>, Unexposed> {
    let exposing: Vec<Made> =
        made.filter(|made| may_expose(&made.api_version, &made.kind)).collect();
    let looks: Vec<_> = exposing.iter().map(|made| look(client, kinds, ours, made)).collect();
    let mut found = stream::iter(looks).buffered(AT_ONCE);
    let mut all = Exposed::default();
    while let Some(found) = found.next().await {
        let Some((made, found)) = found? else { continue };
        let (object, _room) = read(made, &found).await?;
        all.add(&object).map_err(|why| Unexposed::Wrong(why.to_string()))?;
    }
    Ok(all.credentials)
}

/// Looks for an object that was made, if it still is that one; `None` if it exposes nothing.
async fn look<'m>(
    client: &Client,
    kinds: &Kinds,
    ours: Ours<'_>,
    made: &'m Made,
) -> Result<Option<(&'m Made, Answered)>, Unexposed> {
    match get_made(kinds, client, ours, made).await {
        Ok(Sought::There(found)) => Ok(exposes(&found.head).then_some((made, found))),
        Ok(Sought::Gone) => Err(Unexposed::Gone(words(made))),
        Ok(Sought::Foreign) => Err(Unexposed::Foreign(words(made))),
        Err(error) => Err(Unexposed::Unread(words(made), error)),
    }
}

/// All of an object, and the room that it takes.
async fn read(made: &Made, found: &Answered) -> Result<(Value, Room), Unexposed> {
    let read = found.read().await.map_err(|error| Unexposed::Unread(words(made), error))?;
    let (Object { mut object, unread, .. }, room) = read;
    if let Some(why) = unread {
        return Err(Unexposed::Wrong(format!("{}: it {why}", words(made))));
    }
    // The server may leave these out of a single object.
    object["apiVersion"] = json!(made.api_version);
    object["kind"] = json!(made.kind);
    Ok((object, room))
}

fn words(made: &Made) -> String {
    format!("{} {}", made.kind, made.name)
}
